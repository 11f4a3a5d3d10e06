# SPDX-License-Identifier: MIT
"""GAT (Veličković et al., 2018) on our kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GATConv as _PyGGATConv

from frontgi_pyg.graph import Graph
from frontgi_pyg.nn.attention import (
    AttentionConv,
    edge_scores,
    fill_reason,
    head_scores,
    loop_features,
)
from frontgi_pyg.nn.linear import is_plain_linear
from frontgi_pyg.nn.native import materialize, project, pyg_adjacency
from frontgi_pyg.nn.neighbours import neighbour_graph


class GATConv(AttentionConv, _PyGGATConv):  # type: ignore[misc]
    r""":class:`torch_geometric.nn.GATConv`, edge softmax and weighted sum in one sweep.

    .. math::
        \mathbf{x}^{\prime}_i = \sum_{j \in \mathcal{N}(i) \cup \{ i \}}
        \alpha_{i,j} \mathbf{\Theta}_t \mathbf{x}_{j}, \qquad
        \alpha_{i,j} = \mathrm{softmax}_j \left( \mathrm{LeakyReLU} \left(
        \mathbf{a}^{\top}_{s} \mathbf{\Theta}_{s} \mathbf{x}_i + \mathbf{a}^{\top}_{t} \mathbf{\Theta}_{t} \mathbf{x}_j
        + \mathbf{a}^{\top}_{e} \mathbf{\Theta}_{e} \mathbf{e}_{i,j} \right) \right)

    (Veličković et al., "Graph Attention Networks", ICLR 2018, eq. 1-6.) Arguments, parameters and results are PyG's.
    ``edge_index`` may also be a :class:`frontgi_pyg.Graph`. Self-loops are added inside the kernel; in inference,
    nothing but the scores of edge features is kept for an edge.
    """

    pyg_class = _PyGGATConv

    def forward(
        self,
        x: Any,
        edge_index: Any,
        edge_attr: Any = None,
        size: Any = None,
        return_attention_weights: Any = None,
    ) -> Any:
        """Runs the layer on ``[num_nodes, in_channels]``, or on a pair of features for bipartite graphs."""
        reason = self._reason(x, edge_index, edge_attr, size, return_attention_weights)
        graph = None
        if reason is None:
            x_src, x_dst = (x, x) if isinstance(x, Tensor) else x
            graph = neighbour_graph(edge_index, x_src, x_dst, size, self.flow)
            reason = self.loops_reason(graph)
        self.took(reason or "native")
        if reason is not None or graph is None:
            edge_index, _ = pyg_adjacency(edge_index, None, self.flow)
            # edge_updater_type: (alpha: OptPairTensor, edge_attr: OptTensor)
            # propagate_type: (x: OptPairTensor, alpha: Tensor)
            return super().forward(x, edge_index, edge_attr, size, return_attention_weights)

        res = None if self.res is None or x_dst is None else project(self.res, x_dst)
        h_src, src_score, dst_score = self._projected(x_src, x_dst)
        scores: dict[str, Any] = {"src_score": src_score, "dst_score": dst_score}
        if edge_attr is not None and self.lin_edge is not None and (self.add_self_loops or graph.num_edges > 0):
            scores |= self._edge_scores(edge_attr, graph, edge_index)
        return self.attended(graph, h_src, res, edge_index, return_attention_weights, **scores)

    def _projected(self, x_src: Tensor, x_dst: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Returns the features that are summed, and the scores of sources and destinations."""
        shared = self.lin is not None
        h_src = project(self.lin if shared else self.lin_src, x_src)
        if shared and x_dst is x_src:
            src_score, dst_score = head_scores(h_src, self.att_src, self.att_dst)
            return h_src, src_score, dst_score
        src_score = head_scores(h_src, self.att_src)[0]
        if x_dst is None:
            return h_src, src_score, None
        h_dst = project(self.lin if shared else self.lin_dst, x_dst)
        return h_src, src_score, head_scores(h_dst, self.att_dst)[0]

    def _edge_scores(self, edge_attr: Tensor, graph: Graph, adjacency: Any) -> dict[str, Tensor]:
        if edge_attr.dim() == 1:
            edge_attr = edge_attr.view(-1, 1)
        materialize(self.lin_edge, edge_attr)
        weight = self.lin_edge.weight
        scores = {"edge_score": edge_scores(edge_attr, weight, self.att_edge)}
        if self.add_self_loops:
            filled = loop_features(edge_attr, graph, adjacency, self.fill_value)
            scores["loop_score"] = edge_scores(filled, weight, self.att_edge)
        return scores

    def _reason(self, x: Any, adjacency: Any, edge_attr: Any, size: Any, return_attention_weights: Any) -> str | None:
        reason = self.attention_reason(x, adjacency, edge_attr, self.att_src, return_attention_weights)
        if reason is not None:
            return reason
        if size is not None and (len(size) != 2 or None in size):
            return "a size that is not known"
        if edge_attr is None:
            return None
        num_edges = adjacency.num_edges if isinstance(adjacency, Graph) else adjacency.size(1)
        usable = (
            isinstance(edge_attr, Tensor)
            and edge_attr.dim() in (1, 2)
            and edge_attr.size(0) == num_edges
            and edge_attr.dtype == self.att_src.dtype
            and edge_attr.is_cpu
        )
        if not usable:
            return "edge features that are not one row an edge in the dtype of the nodes'"
        if self.lin_edge is None:
            return None
        lazy = isinstance(getattr(self.lin_edge, "weight", None), torch.nn.parameter.UninitializedParameter)
        if not lazy and (not is_plain_linear(self.lin_edge) or self.lin_edge.bias is not None):
            return "a linear layer for edges that is not PyG's"
        if self.add_self_loops:
            return fill_reason(self.fill_value, 1 if edge_attr.dim() == 1 else edge_attr.size(1))
        return None
