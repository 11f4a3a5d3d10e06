# SPDX-License-Identifier: MIT
"""GCNII (Chen et al., 2020) on our kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GCN2Conv as _PyGGCN2Conv

from frontgi_pyg.nn.native import pyg_adjacency
from frontgi_pyg.nn.normalized import NormalizedConv, aggregate_beside, scaled
from frontgi_pyg.ops.conv import conv
from frontgi_pyg.ops.linear import linear


class GCN2Conv(NormalizedConv, _PyGGCN2Conv):  # type: ignore[misc]
    r""":class:`torch_geometric.nn.GCN2Conv`, the identity mapping added to the weight, not to its product.

    .. math::
        \mathbf{X}^{\prime} = \left( (1 - \alpha) \mathbf{\hat{P}} \mathbf{X} +
        \alpha \mathbf{X}^{(0)} \right) \left( (1 - \beta) \mathbf{I} + \beta \mathbf{\Theta} \right)

    with :math:`\mathbf{\hat{P}}` the normalised adjacency. Arguments, parameters and results are PyG's. ``edge_index``
    may also be a :class:`frontgi_pyg.Graph`.
    """

    pyg_class = _PyGGCN2Conv

    def unsupported(self) -> str | None:
        """Returns why this layer, as configured, always takes PyG's path; :obj:`None` if it does not."""
        return super().unsupported() or (None if isinstance(self.alpha, (int, float)) else "alpha is not a number")

    def forward(self, x: Any, x_0: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Runs the layer on ``[num_nodes, channels]``, beside the initial features of the same shape."""
        reason = self.normalized_reason(x, edge_index, edge_weight, self.normalize) or self._residual_reason(x, x_0)
        self.took(reason or "native")
        if reason is not None:
            edge_index, edge_weight = pyg_adjacency(edge_index, edge_weight, self.flow)
            # propagate_type: (x: Tensor, edge_weight: OptTensor)
            return super().forward(x, x_0, edge_index, edge_weight)  # type: ignore[no-any-return]

        graph, terms = self.normalized_graph(
            x,
            edge_index,
            edge_weight,
            normalize=self.normalize,
            add_self_loops=self.add_self_loops,
            cached=self.cached,
        )
        terms = scaled(terms, 1 - self.alpha, graph, x.dtype)
        x_0 = x_0[: x.size(0)]
        weight = self._with_identity(self.weight1)
        if self.weight2 is not None:
            root: dict[str, Any] = {"x_root": x_0, "root_weight": self.alpha * self._with_identity(self.weight2)}
            return conv(graph, x, weight, None, "sum", schedule=self.schedule, **root, **terms)
        return linear(aggregate_beside(graph, x, x_0, self.alpha, terms, schedule=self.schedule), weight)

    def _with_identity(self, weight: Tensor) -> Tensor:
        identity = torch.eye(weight.size(0), dtype=weight.dtype)
        return torch.add((1 - self.beta) * identity, weight.t(), alpha=self.beta)

    def _residual_reason(self, x: Tensor, x_0: Any) -> str | None:
        if torch.is_autocast_enabled("cpu"):
            return "autocast"
        if x.dim() != 2 or self.weight1.dtype != x.dtype:
            return "features of unequal or unsupported shapes"
        if not isinstance(x_0, Tensor) or x_0.dtype != x.dtype or x_0.dim() != 2 or not x_0.is_cpu:
            return "initial features of another kind"
        fits = x_0.layout == torch.strided and x_0.size(0) >= x.size(0) and x_0.size(1) == x.size(1)
        return None if fits else "initial features of another shape"
