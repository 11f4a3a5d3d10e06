# SPDX-License-Identifier: MIT
"""Simple spectral graph convolution (Zhu and Koniusz, 2021) on our kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import SSGConv as _PyGSSGConv

from frontgi_pyg.graph import Graph
from frontgi_pyg.nn.linear import apply_linear, is_fusable
from frontgi_pyg.nn.native import materialize, project, pyg_adjacency
from frontgi_pyg.nn.normalized import NormalizedConv, Terms, aggregate_beside, scaled
from frontgi_pyg.plan import order_for


class SSGConv(NormalizedConv, _PyGSSGConv):  # type: ignore[misc]
    r""":class:`torch_geometric.nn.SSGConv`, its hops nested and gathered at the narrower of both widths.

    .. math::
        \mathbf{X}^{\prime} = \left( \frac{1 - \alpha}{K} \sum_{k=1}^K \mathbf{\hat{A}}^k \mathbf{X}
        + \alpha \mathbf{X} \right) \mathbf{\Theta}
        = \left( \frac{1 - \alpha}{K} \mathbf{\hat{A}} ( \mathbf{X} + \mathbf{\hat{A}} ( \mathbf{X} + \ldots ))
        + \alpha \mathbf{X} \right) \mathbf{\Theta}

    with :math:`\mathbf{\hat{A}}` the normalised adjacency. Arguments, parameters and results are PyG's. ``edge_index``
    may also be a :class:`frontgi_pyg.Graph`.
    """

    pyg_class = _PyGSSGConv
    _cached_h: Tensor | None

    def unsupported(self) -> str | None:
        """Returns why this layer, as configured, always takes PyG's path; :obj:`None` if it does not."""
        return super().unsupported() or (None if isinstance(self.alpha, (int, float)) else "alpha is not a number")

    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Runs the layer on ``[num_nodes, in_channels]`` (static graphs: ``[batch, num_nodes, in_channels]``)."""
        if self._cached_h is not None:
            self.took("native")
            return project(self.lin, self._cached_h.detach())
        reason = self.normalized_reason(x, edge_index, edge_weight)
        self.took(reason or "native")
        if reason is not None:
            edge_index, edge_weight = pyg_adjacency(edge_index, edge_weight, self.flow)
            # propagate_type: (x: Tensor, edge_weight: OptTensor)
            return super().forward(x, edge_index, edge_weight)  # type: ignore[no-any-return]

        graph, terms = self.normalized_graph(x, edge_index, edge_weight, add_self_loops=self.add_self_loops)
        lin: Any = self.lin
        materialize(lin, x)
        multiply_first = (
            not self.cached
            and not torch.is_autocast_enabled("cpu")
            and is_fusable(lin, x)
            and order_for(x.size(-1), lin.weight.size(0)) == "multiply_first"
        )
        if multiply_first:
            out = self._hops(graph, apply_linear(x, lin.weight, None), terms)
            return out if lin.bias is None else out.add_(lin.bias)
        hops = self._hops(graph, x, terms)
        if self.cached:
            self._cached_h = hops
        return project(self.lin, hops)

    def _hops(self, graph: Graph, x: Tensor, terms: Terms) -> Tensor:
        if self.K == 0:
            return x * self.alpha  # type: ignore[no-any-return]
        out = x
        for _ in range(self.K - 1):
            out = aggregate_beside(graph, out, x, 1.0, terms, schedule=self.schedule)
        last = scaled(terms, (1 - self.alpha) / self.K, graph, x.dtype)
        return aggregate_beside(graph, out, x, self.alpha, last, schedule=self.schedule)
