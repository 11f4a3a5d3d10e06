# SPDX-License-Identifier: MIT
"""Personalised propagation of neural predictions (Gasteiger et al., 2019) on our kernels."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch_geometric.nn import APPNP as _PyGAPPNP

from frontgi_pyg.nn.native import pyg_adjacency
from frontgi_pyg.nn.normalized import NormalizedConv, aggregate_beside, scaled


class APPNP(NormalizedConv, _PyGAPPNP):  # type: ignore[misc]
    r""":class:`torch_geometric.nn.APPNP`, :math:`1 - \alpha` folded into the normalisation.

    .. math::
        \mathbf{X}^{(k)} = (1 - \alpha) \mathbf{\hat{D}}^{-1/2} \mathbf{\hat{A}}
        \mathbf{\hat{D}}^{-1/2} \mathbf{X}^{(k-1)} + \alpha \mathbf{X}^{(0)}

    Arguments and results are PyG's. ``edge_index`` may also be a :class:`frontgi_pyg.Graph`.
    """

    pyg_class = _PyGAPPNP

    def unsupported(self) -> str | None:
        """Returns why this layer, as configured, always takes PyG's path; :obj:`None` if it does not."""
        return super().unsupported() or (None if isinstance(self.alpha, (int, float)) else "alpha is not a number")

    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Runs the layer on ``[num_nodes, channels]`` (static graphs: ``[batch, num_nodes, channels]``)."""
        reason = self.normalized_reason(x, edge_index, edge_weight, self.normalize)
        if reason is None and self.dropout > 0 and self.training:
            reason = "dropout of edges"
        self.took(reason or "native")
        if reason is not None:
            edge_index, edge_weight = pyg_adjacency(edge_index, edge_weight, self.flow)
            # propagate_type: (x: Tensor, edge_weight: OptTensor)
            return super().forward(x, edge_index, edge_weight)  # type: ignore[no-any-return]

        graph, terms = self.normalized_graph(
            x,
            edge_index,
            edge_weight,
            normalize=self.normalize,
            add_self_loops=self.add_self_loops,
            cached=self.cached,
        )
        terms = scaled(terms, 1 - self.alpha, graph, x.dtype)
        out: Tensor = x
        for _ in range(self.K):
            out = aggregate_beside(graph, out, x, self.alpha, terms, schedule=self.schedule)
        return out
