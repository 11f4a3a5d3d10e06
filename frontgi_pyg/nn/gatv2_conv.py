# SPDX-License-Identifier: MIT
"""GATv2 (Brody et al., 2022) on our kernels."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch_geometric.nn import GATv2Conv as _PyGGATv2Conv

from frontgi_pyg.nn.attention import AttentionConv
from frontgi_pyg.nn.native import project, pyg_adjacency
from frontgi_pyg.nn.neighbours import neighbour_graph


class GATv2Conv(AttentionConv, _PyGGATv2Conv):  # type: ignore[misc]
    r""":class:`torch_geometric.nn.GATv2Conv`, scores, edge softmax and weighted sum in one sweep.

    .. math::
        \mathbf{x}^{\prime}_i = \sum_{j \in \mathcal{N}(i) \cup \{ i \}}
        \alpha_{i,j} \mathbf{\Theta}_{t} \mathbf{x}_{j}, \qquad
        \alpha_{i,j} = \mathrm{softmax}_j \left( \mathbf{a}^{\top} \mathrm{LeakyReLU} \left(
        \mathbf{\Theta}_{s} \mathbf{x}_i + \mathbf{\Theta}_{t} \mathbf{x}_j \right) \right)

    (Brody et al., "How Attentive are Graph Attention Networks?", ICLR 2022, eq. 7.) Arguments, parameters and results
    are PyG's. ``edge_index`` may also be a :class:`frontgi_pyg.Graph`. Self-loops are added inside the kernel, and in
    inference nothing is kept for an edge. Edge features take PyG's path.
    """

    pyg_class = _PyGGATv2Conv

    def forward(self, x: Any, edge_index: Any, edge_attr: Any = None, return_attention_weights: Any = None) -> Any:
        """Runs the layer on ``[num_nodes, in_channels]``, or on a pair of features for bipartite graphs."""
        reason = self._reason(x, edge_index, edge_attr, return_attention_weights)
        graph = None
        if reason is None:
            x_l, x_r = (x, x) if isinstance(x, Tensor) else x
            graph = neighbour_graph(edge_index, x_l, x_r, None, self.flow)
            reason = self.loops_reason(graph)
        self.took(reason or "native")
        if reason is not None or graph is None:
            edge_index, _ = pyg_adjacency(edge_index, None, self.flow)
            # edge_updater_type: (x: PairTensor, edge_attr: OptTensor)
            # propagate_type: (x: PairTensor, alpha: Tensor)
            return super().forward(x, edge_index, edge_attr, return_attention_weights)

        res = None if self.res is None else project(self.res, x_r)
        h_l = project(self.lin_l, x_l)
        h_r = h_l if self.share_weights and x_r is x_l else project(self.lin_r, x_r)
        return self.attended(graph, h_l, res, edge_index, return_attention_weights, x_dst=h_r, att=self.att.view(-1))

    def _reason(self, x: Any, adjacency: Any, edge_attr: Any, return_attention_weights: Any) -> str | None:
        reason = self.attention_reason(x, adjacency, edge_attr, self.att, return_attention_weights)
        if reason is None and edge_attr is not None:
            return "edge features"
        if reason is None and not isinstance(x, Tensor) and x[1] is None:
            return "no target features"  # PyG says so
        return reason
