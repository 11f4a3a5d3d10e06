# SPDX-License-Identifier: MIT
"""Relational GCN (Schlichtkrull et al., 2018) on our kernels.

The graph is taken apart by the types of its edges once for a pair of adjacency and types, and remembered weakly. Of
each relation, only the rows with edges are aggregated, multiplied and added.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import FastRGCNConv as _PyGFastRGCNConv
from torch_geometric.nn import RGCNConv as _PyGRGCNConv

from frontgi_pyg.graph import Graph
from frontgi_pyg.nn.native import NativeConv, is_sparse, pyg_adjacency
from frontgi_pyg.nn.neighbours import neighbour_graph, reduction
from frontgi_pyg.ops.aggregate import aggregate
from frontgi_pyg.ops.conv import conv
from frontgi_pyg.ops.linear import linear


class RelationalConv(NativeConv):
    """What both layers compute: a weight for each relation, reduced over the neighbours by that relation."""

    def relational_reason(self, x: Any, edge_index: Any, edge_type: Any) -> str | None:
        """Returns why a call on these inputs takes PyG's path; :obj:`None` if our kernels serve it."""
        x_l, x_r = x if isinstance(x, tuple) else (x, x)
        indices = x_l is None or (isinstance(x_l, Tensor) and not x_l.is_floating_point())
        if indices:
            if self.num_blocks is not None or (x_r is not None and x_r.is_floating_point()):
                return "node indices in the place of features"
            x_l = self.weight[0] if x_l is None else self.weight[0][:1].expand(x_l.size(0), -1)
            x_r = x_l if not isinstance(x, tuple) else x_l.new_empty(x_r.size(0), x_l.size(1))
        features = (x_l, x_r)
        reason = self.fallback_reason(features, edge_index)
        if reason is not None:
            return reason
        if isinstance(x, tuple) and self.flow == "target_to_source":
            return "a pair of features with target_to_source"
        if self.weight.dtype != x_l.dtype or torch.is_autocast_enabled("cpu"):
            return f"weights in {self.weight.dtype} on features in {x_l.dtype}, or autocast"
        if torch.compiler.is_compiling() and self.aggr in ("min", "max"):
            return f"compiling aggr={self.aggr}"
        return self._types_reason(edge_index, edge_type)

    def _types_reason(self, edge_index: Any, edge_type: Any) -> str | None:
        if is_sparse(edge_index):
            return "a sparse adjacency of typed edges"
        if not isinstance(edge_type, Tensor) or not edge_type.is_cpu or edge_type.dim() != 1:
            return "edge types that are not one for each edge"
        if edge_type.dtype not in (torch.int32, torch.int64):
            return f"edge types in {edge_type.dtype}"
        num_edges = edge_index.num_edges if isinstance(edge_index, Graph) else edge_index.size(1)
        return None if edge_type.size(0) == num_edges else "edge types that are not one for each edge"

    def relational(self, x: Any, edge_index: Any, edge_type: Tensor) -> Tensor:
        """Returns the layer's output; half types are added up, and returned, in float32."""
        x_l, x_r = x if isinstance(x, tuple) else (x, x)
        weight = self._relation_weights()
        own = torch.arange(self.in_channels_l) if x_l is None else x_l
        target = own if x_r is None else x_r
        graph = neighbour_graph(edge_index, _matrix(own), None if x_r is x_l else _matrix(target), None, self.flow)
        out = self._root(target, weight.dtype)
        out = out.to(torch.promote_types(out.dtype, torch.float32))
        if torch.compiler.is_compiling():
            for relation in range(self.num_relations):
                out = out + self._masked(graph, own, weight[relation], edge_type == relation)
            return out
        for relation, (rows, part) in enumerate(graph.by_relation(edge_type, self.num_relations)):
            found = self._updated(part, own, weight[relation], reduction(self.aggr)).to(out.dtype)
            out = out.add_(found) if rows.numel() == out.size(0) else out.index_add_(0, rows, found)
        return out

    def _relation_weights(self) -> Tensor:
        """Returns the weights ``[num_relations, in, out]``, or ``[num_relations, blocks, in, out]``."""
        weight: Tensor = self.weight
        if self.num_bases is None:
            return weight
        combined: Tensor = self.comp @ weight.view(self.num_bases, -1)
        return combined.view(self.num_relations, self.in_channels_l, self.out_channels)

    def _root(self, x_r: Tensor, dtype: torch.dtype) -> Tensor:
        """Returns the terms that no relation is asked for, in memory of their own."""
        bias: Tensor | None = self.bias
        if self.root is not None and x_r.is_floating_point():
            return linear(x_r, self.root.t(), bias)
        out = torch.zeros(x_r.size(0), self.out_channels, dtype=dtype) if self.root is None else self.root[x_r]
        return out if bias is None else out + bias

    def _updated(self, graph: Graph, x: Tensor, weight: Tensor, reduce: str, **terms: Any) -> Tensor:
        """Returns what one relation adds to the rows of ``graph``."""
        terms["schedule"] = self.schedule
        if not x.is_floating_point():
            return aggregate(graph, weight[x], reduce, **terms)
        if self.num_blocks is None:
            return conv(graph, x, weight.t(), None, reduce, **terms)
        out = aggregate(graph, x, reduce, **terms).view(graph.num_dst_nodes, weight.size(0), weight.size(1))
        return torch.einsum("nbi,bio->nbo", out, weight).reshape(graph.num_dst_nodes, self.out_channels)

    def _masked(self, graph: Graph, x: Tensor, weight: Tensor, mask: Tensor) -> Tensor:
        """The same over the whole graph, the other edges weighted by zero: no size depends on values."""
        edge_weight = mask.to(weight.dtype)
        terms: dict[str, Any] = {"edge_weight": edge_weight}
        if self.aggr == "mean":
            ones = torch.ones(graph.num_src_nodes, 1, dtype=edge_weight.dtype)
            terms["row_scale"] = 1 / aggregate(graph, ones, "sum", edge_weight).squeeze(1).clamp(min=1)
        return self._updated(graph, x, weight, "sum", **terms)


class RGCNConv(RelationalConv, _PyGRGCNConv):  # type: ignore[misc]
    r""":class:`torch_geometric.nn.RGCNConv`, each relation aggregated and updated in one pass.

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{\Theta}_{\textrm{root}} \cdot \mathbf{x}_i + \sum_{r \in \mathcal{R}}
        \sum_{j \in \mathcal{N}_r(i)} \frac{1}{|\mathcal{N}_r(i)|} \mathbf{\Theta}_r \cdot \mathbf{x}_j

    Arguments, parameters and results are PyG's. ``edge_index`` may also be a :class:`frontgi_pyg.Graph`.
    """

    pyg_class = _PyGRGCNConv

    def forward(self, x: Any, edge_index: Any, edge_type: Any = None) -> Tensor:
        """Runs the layer on ``[num_nodes, in_channels]``, node indices or :obj:`None`, or a pair of these."""
        reason = self.relational_reason(x, edge_index, edge_type)
        self.took(reason or "native")
        if reason is not None:
            edge_index, _ = pyg_adjacency(edge_index, None, self.flow)
            # propagate_type: (x: Tensor, edge_type_ptr: OptTensor)
            return super().forward(x, edge_index, edge_type)  # type: ignore[no-any-return]
        return self.relational(x, edge_index, edge_type)  # in float32, as PyG's, of half types too


class FastRGCNConv(RelationalConv, _PyGFastRGCNConv):  # type: ignore[misc]
    r""":class:`torch_geometric.nn.FastRGCNConv`, without its weights for each edge: see :class:`RGCNConv`."""

    pyg_class = _PyGFastRGCNConv

    def forward(self, x: Any, edge_index: Any, edge_type: Any = None) -> Tensor:
        """Runs the layer on ``[num_nodes, in_channels]``, node indices or :obj:`None`, or a pair of these."""
        reason = self.relational_reason(x, edge_index, edge_type)
        if reason is None and self.aggr in ("min", "max"):
            reason = f"aggr={self.aggr}"  # PyG says why not
        if reason is None and isinstance(x, Tensor) and not x.is_floating_point():
            reason = "node indices in the place of features"  # PyG reads positions, whatever the indices are
        self.took(reason or "native")
        if reason is not None:
            edge_index, _ = pyg_adjacency(edge_index, None, self.flow)
            # propagate_type: (x: Tensor, edge_type: OptTensor)
            return super().forward(x, edge_index, edge_type)  # type: ignore[no-any-return]
        return self.relational(x, edge_index, edge_type).to(self.weight.dtype)


def _matrix(x: Tensor) -> Tensor:
    """Returns features, or node indices as a column."""
    return x if x.dim() == 2 else x.unsqueeze(1)
