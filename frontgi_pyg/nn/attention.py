# SPDX-License-Identifier: MIT
"""What GAT and GATv2 share: when they take PyG's path, self-loops, the scores of edges, and what they return."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.utils import add_self_loops, remove_self_loops, scatter

from frontgi_pyg.graph import Graph
from frontgi_pyg.nn.native import NativeConv, is_sparse
from frontgi_pyg.ops.attention import attend
from frontgi_pyg.ops.linear import linear

FILL_REDUCTIONS = ("sum", "add", "mean", "min", "max", "mul")


class AttentionConv(NativeConv):
    """Mixed in before PyG's GAT and GATv2: the reasons for PyG's path, and all that comes after the scores.

    Attention has one schedule, rows dealt by edges: a layer's :attr:`schedule` is not asked.
    """

    heads: int
    out_channels: int

    def unsupported(self) -> str | None:
        """Returns why this layer, as configured, always takes PyG's path; :obj:`None` if it does not."""
        if self.aggr not in ("add", "sum"):
            return f"no kernel for attention with aggr={self.aggr}"
        return super().unsupported()

    def attention_reason(
        self, x: Any, adjacency: Any, edge_attr: Any, att: Tensor, return_attention_weights: Any
    ) -> str | None:
        """Returns why a call takes PyG's path, for what both layers have in common."""
        reason = self.fallback_reason(x, adjacency)
        if reason is not None:
            return reason
        first = x if isinstance(x, Tensor) else x[0]
        if first.dim() != 2:
            return "a static graph"  # PyG says so
        if self.training and self.dropout > 0:
            return "dropout in training"
        if torch.is_autocast_enabled("cpu"):
            return "autocast"
        if att.dtype != first.dtype:
            return f"features in {first.dtype} on weights in {att.dtype}"
        if self.flow == "target_to_source" and not isinstance(x, Tensor):
            return "a pair of features with target_to_source"
        origin = (
            adjacency.origin if isinstance(adjacency, Graph) else "sparse" if is_sparse(adjacency) else "edge_index"
        )
        if return_attention_weights is False:
            return "return_attention_weights=False"  # PyG below 2.8 returns them, too
        if return_attention_weights and (
            origin != "edge_index"
            or isinstance(adjacency, EdgeIndex)
            or (isinstance(adjacency, Graph) and self.flow == "target_to_source")
        ):
            return "attention weights of an adjacency that is not an edge_index"
        if origin != "edge_index" and (edge_attr is not None or self.edge_dim is not None):
            return "edge features beside a sparse adjacency"
        if getattr(adjacency, "layout", None) == torch.sparse_csc and self.add_self_loops:
            return "self-loops added to a CSC adjacency"  # PyG says why not
        return None

    def loops_reason(self, graph: Graph) -> str | None:
        """Returns why PyG's path is taken for this graph: adding loops to torch.sparse, PyG merges doubled entries."""
        if not self.add_self_loops or graph.origin != "torch_sparse":
            return None
        if torch.compiler.is_compiling() or graph.once("doubled", lambda: _has_doubled_edges(graph)):
            return "self-loops added to doubled entries of torch.sparse"
        return None

    def attended(
        self,
        graph: Graph,
        x: Tensor,
        res: Tensor | None,
        adjacency: Any,
        return_attention_weights: Any,
        **scores: Any,
    ) -> Any:
        """Returns the layer's result from projected features ``[num_src_nodes, heads * out_channels]``."""
        bias = self.bias
        out, alpha = attend(
            graph,
            x,
            self.heads,
            **scores,
            negative_slope=self.negative_slope,
            self_loops=self.add_self_loops,
            bias=bias if self.concat else None,
            return_alpha=bool(return_attention_weights),
        )
        if not self.concat:
            out = out.view(-1, self.heads, self.out_channels).mean(dim=1)
        if res is not None:
            out = out + res
        if not self.concat and bias is not None:
            out = out + bias
        if alpha is None:
            return out
        edges = adjacency.edge_index() if isinstance(adjacency, Graph) else adjacency
        return out, self._with_edges(edges, alpha.to(out.dtype), min(graph.num_src_nodes, graph.num_dst_nodes))

    def _with_edges(self, edges: Tensor, alpha: Tensor, num_loops: int) -> tuple[Tensor, Tensor]:
        if not self.add_self_loops:
            return edges, alpha
        num_edges = edges.size(1)
        edges, kept = remove_self_loops(edges, alpha[:num_edges])
        edges, _ = add_self_loops(edges, num_nodes=num_loops)
        return edges, torch.cat([kept, alpha[num_edges:]])


def head_scores(x: Tensor, *att: Tensor) -> list[Tensor]:
    r"""Returns :math:`\langle \mathbf{a}_h, \mathbf{x}_{n,h} \rangle`, ``[num_nodes, heads]``, for each ``att``.

    One product with a block-diagonal matrix: no ``[num_nodes, heads, channels]`` tensor is made.
    """
    heads, channels = att[0].shape[-2:]
    diagonal = torch.eye(heads, dtype=x.dtype, device=x.device).unsqueeze(-1)
    blocks = [(diagonal * a.view(1, heads, channels)).view(heads, heads * channels) for a in att]
    return list(linear(x, torch.cat(blocks)).split(heads, dim=1))


def edge_scores(edge_attr: Tensor, weight: Tensor, att: Tensor) -> Tensor:
    r"""Returns :math:`\mathbf{a}^{\top} \mathbf{\Theta} \mathbf{e}`, ``[num_edges, heads]``.

    The two are multiplied first: no ``[num_edges, heads * channels]`` tensor is made.
    """
    heads, channels = att.shape[-2:]
    per_head = (att.view(heads, channels, 1) * weight.view(heads, channels, -1)).sum(dim=1)
    return linear(edge_attr, per_head)


def loop_features(edge_attr: Tensor, graph: Graph, adjacency: Any, fill_value: Any) -> Tensor:
    """Returns what PyG fills in as the features of added self-loops, ``[num_loops, edge_dim]``."""
    num_loops = torch.sym_min(graph.num_src_nodes, graph.num_dst_nodes)
    if isinstance(fill_value, Tensor):
        return fill_value.to(edge_attr.dtype).view(1, -1).expand(num_loops, -1)
    if not isinstance(fill_value, str):
        return edge_attr.new_full((num_loops, edge_attr.size(1)), fill_value)
    edges = adjacency.edge_index() if isinstance(adjacency, Graph) else adjacency
    # Loops that are replaced, and edges to nodes without one, go to a row that is cut off.
    kept = (edges[0] != edges[1]) & (edges[1] < num_loops)
    filled: Tensor = scatter(edge_attr, torch.where(kept, edges[1], num_loops), 0, num_loops + 1, fill_value)
    return filled[:num_loops]


def fill_reason(fill_value: Any, edge_dim: int) -> str | None:
    """Returns why PyG's path is taken with this ``fill_value``, if it is."""
    known = (
        fill_value in FILL_REDUCTIONS
        if isinstance(fill_value, str)
        else fill_value.numel() == edge_dim and fill_value.dim() <= 1
        if isinstance(fill_value, Tensor)
        else isinstance(fill_value, (int, float))
    )
    return None if known else f"fill_value={fill_value}"


def _has_doubled_edges(graph: Graph) -> bool:
    same = graph.col[1:] == graph.col[:-1]
    starts = graph.rowptr[1:-1]
    starts = starts[(starts > 0) & (starts < graph.num_edges)]
    same[starts - 1] = False  # a row may begin with the column that the row before ends with
    return bool(same.any())
