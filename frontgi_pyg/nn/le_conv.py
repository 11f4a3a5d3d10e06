# SPDX-License-Identifier: MIT
"""The local extremum convolution of ASAP (Ranjan et al., 2020) on our kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import LEConv as _PyGLEConv

from frontgi_pyg.graph import Graph
from frontgi_pyg.nn.native import NativeConv, aggregate_nodes, is_sparse, project, pyg_adjacency
from frontgi_pyg.nn.neighbours import reduction, weighted_neighbours, weighted_reason
from frontgi_pyg.ops.aggregate import accumulator_dtype


class LEConv(NativeConv, _PyGLEConv):  # type: ignore[misc]
    r""":class:`torch_geometric.nn.LEConv`, the difference taken after the sum.

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{W}_1 \mathbf{x}_i + \sum_{j \in \mathcal{N}(i)}
        e_{j,i} \mathbf{W}_2 \mathbf{x}_j - \Big( \sum_{j \in \mathcal{N}(i)} e_{j,i} \Big) \mathbf{W}_3 \mathbf{x}_i

    Arguments, parameters and results are PyG's. ``edge_index`` may also be a :class:`frontgi_pyg.Graph`.
    """

    pyg_class = _PyGLEConv

    def unsupported(self) -> str | None:
        """Returns why this layer, as configured, always takes PyG's path; :obj:`None` if it does not."""
        if self.aggr in ("min", "max"):
            return f"no kernel for differences under aggr={self.aggr}"
        return super().unsupported()

    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Runs the layer on ``[num_nodes, in_channels]``, or on a pair of features for bipartite graphs."""
        reason = self.fallback_reason(x, edge_index) or self._reason(x, edge_index, edge_weight)
        self.took(reason or "native")
        if reason is not None:
            edge_index, edge_weight = pyg_adjacency(edge_index, edge_weight, self.flow)
            # propagate_type: (a: Tensor, b: Tensor, edge_weight: OptTensor)
            return super().forward(x, edge_index, edge_weight)  # type: ignore[no-any-return]

        x_l, x_r = (x, x) if isinstance(x, Tensor) else x
        graph, terms = weighted_neighbours(edge_index, edge_weight, x_l, x_r, None, self.flow)
        reduce = reduction(self.aggr)
        a, b, own = (project(lin, t) for lin, t in ((self.lin1, x_l), (self.lin2, x_r), (self.lin3, x_r)))
        if terms or graph.edge_weight is not None:
            a, b = a.to(x_l.dtype), b.to(x_l.dtype)  # under autocast they are half, and PyG's messages float again
        total = self._total_weight(graph, x_l, reduce, terms)
        out = aggregate_nodes(graph, a, reduce, self_scale=-total, x_self=b, schedule=self.schedule, **terms)
        return out + own

    def _total_weight(self, graph: Graph, x_l: Tensor, reduce: str, terms: dict[str, Any]) -> Tensor:
        """Returns what a neighbour of 1 everywhere would be reduced to, ``[num_dst_nodes]``."""
        ones = torch.ones(graph.num_src_nodes, 1, dtype=accumulator_dtype(x_l.dtype))
        return aggregate_nodes(graph, ones, reduce, **terms).squeeze(1)

    def _reason(self, x: Any, edge_index: Any, edge_weight: Tensor | None) -> str | None:
        if not isinstance(x, Tensor) and x[1] is None:
            return "no target features"
        if edge_weight is not None and is_sparse(edge_index):
            return "edge weights beside a sparse adjacency"
        return weighted_reason(self, x, edge_index, edge_weight)
