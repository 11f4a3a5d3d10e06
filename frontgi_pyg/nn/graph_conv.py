# SPDX-License-Identifier: MIT
"""The GraphConv of "Weisfeiler and Leman go neural" (Morris et al., 2019) on our kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn import GraphConv as _PyGGraphConv

from frontgi_pyg.nn.linear import is_fusable
from frontgi_pyg.nn.native import NativeConv, aggregate_nodes, materialize, pyg_adjacency
from frontgi_pyg.nn.neighbours import reduction, weighted_neighbours, weighted_reason
from frontgi_pyg.ops.conv import conv


class GraphConv(NativeConv, _PyGGraphConv):  # type: ignore[misc]
    r""":class:`torch_geometric.nn.GraphConv`, neighbours and root multiplied in one pass.

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{W}_1 \mathbf{x}_i + \mathbf{W}_2
        \sum_{j \in \mathcal{N}(i)} e_{j,i} \cdot \mathbf{x}_j

    Arguments, parameters and results are PyG's. ``edge_index`` may also be a :class:`frontgi_pyg.Graph`.
    """

    pyg_class = _PyGGraphConv

    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None, size: Any = None) -> Tensor:
        """Runs the layer on ``[num_nodes, in_channels]``, or on a pair of features for bipartite graphs."""
        reason = self.fallback_reason(x, edge_index) or weighted_reason(self, x, edge_index, edge_weight)
        backwards = self.flow == "target_to_source" and isinstance(edge_index, EdgeIndex)
        if reason is None and backwards and edge_index.is_sorted_by_col:
            reason = "a sorted EdgeIndex with target_to_source"  # PyG's fused product goes the other way
        self.took(reason or "native")
        if reason is not None:
            edge_index, edge_weight = pyg_adjacency(edge_index, edge_weight, self.flow)
            # propagate_type: (x: OptPairTensor, edge_weight: OptTensor)
            return super().forward(x, edge_index, edge_weight, size)  # type: ignore[no-any-return]

        x_l, x_r = (x, x) if isinstance(x, Tensor) else x
        graph, terms = weighted_neighbours(edge_index, edge_weight, x_l, x_r, size, self.flow)
        terms["schedule"] = self.schedule
        lin_rel: Any = self.lin_rel
        lin_root: Any = self.lin_root
        materialize(lin_rel, x_l)
        if x_r is not None:
            materialize(lin_root, x_r)
        one_pass = (
            x_l.dim() == 2
            and not torch.is_autocast_enabled("cpu")
            and is_fusable(lin_rel, x_l)
            and (x_r is None or (lin_root.bias is None and is_fusable(lin_root, x_l)))
        )
        if one_pass:
            if x_r is not None:
                terms |= {"x_root": x_r, "root_weight": lin_root.weight}
            return conv(graph, x_l, lin_rel.weight, lin_rel.bias, reduction(self.aggr), **terms)
        out: Tensor = lin_rel(aggregate_nodes(graph, x_l, reduction(self.aggr), **terms))
        return out if x_r is None else out + lin_root(x_r)
