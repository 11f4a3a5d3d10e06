# SPDX-License-Identifier: MIT
"""SGC (Wu et al., 2019; FrontGI, eq. 6-7) on our kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import SGConv as _PyGSGConv

from frontgi_pyg.nn.linear import apply_linear, is_plain_linear
from frontgi_pyg.nn.native import aggregate_nodes, materialize, project, pyg_adjacency
from frontgi_pyg.nn.normalized import NormalizedConv
from frontgi_pyg.ops.conv import conv
from frontgi_pyg.plan import order_for


class SGConv(NormalizedConv, _PyGSGConv):  # type: ignore[misc]
    r""":class:`torch_geometric.nn.SGConv`, the last of its :math:`K` aggregations fused with the update.

    .. math::
        \mathbf{X}^{\prime} = {\left( \mathbf{\hat{D}}^{-1/2} \mathbf{\hat{A}} \mathbf{\hat{D}}^{-1/2} \right)}^K
        \mathbf{X} \mathbf{\Theta}

    Arguments, parameters and results are PyG's. ``edge_index`` may also be a :class:`frontgi_pyg.Graph`.
    """

    pyg_class = _PyGSGConv
    _cached_x: Tensor | None

    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Runs the layer on ``[num_nodes, in_channels]`` (static graphs: ``[batch, num_nodes, in_channels]``)."""
        if self._cached_x is not None:
            self.took("native")
            return project(self.lin, self._cached_x.detach())
        reason = self.normalized_reason(x, edge_index, edge_weight)
        self.took(reason or "native")
        if reason is not None:
            edge_index, edge_weight = pyg_adjacency(edge_index, edge_weight, self.flow)
            # propagate_type: (x: Tensor, edge_weight: OptTensor)
            return super().forward(x, edge_index, edge_weight)  # type: ignore[no-any-return]

        graph, terms = self.normalized_graph(x, edge_index, edge_weight, add_self_loops=self.add_self_loops)
        rest: dict[str, Any] = {"schedule": self.schedule, **terms}
        materialize(self.lin, x)
        fused = (
            self.K > 0
            and not self.cached
            and x.dim() == 2
            and not torch.is_autocast_enabled("cpu")
            and is_plain_linear(self.lin)
            and self.lin.weight.dtype == x.dtype
        )
        if not fused:
            for _ in range(self.K):
                x = aggregate_nodes(graph, x, "sum", **rest)
                if self.cached:
                    self._cached_x = x
            return project(self.lin, x)
        weight, bias = self.lin.weight, self.lin.bias
        if order_for(x.size(1), weight.size(0)) == "multiply_first":
            x = apply_linear(x, weight, None)
            for _ in range(self.K - 1):
                x = aggregate_nodes(graph, x, "sum", **rest)
            return aggregate_nodes(graph, x, "sum", bias=bias, **rest)
        for _ in range(self.K - 1):
            x = aggregate_nodes(graph, x, "sum", **rest)
        return conv(graph, x, weight, bias, "sum", **rest)
