# SPDX-License-Identifier: MIT
"""The adjacency of the layers that sum, average or compare neighbours without normalisation."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch_geometric import EdgeIndex

from frontgi_pyg.graph import Graph
from frontgi_pyg.nn.native import NativeConv, is_sparse, to_graph, weight_reason


def neighbour_graph(adjacency: Any, x_l: Tensor, x_r: Tensor | None, size: Any, flow: Any) -> Graph:
    """Returns the :class:`Graph` of an adjacency between ``x_l`` and ``x_r``, with the weights PyG's layer would read.

    PyG's SAGE and GIN ignore edge weights, except the values of a ``torch.sparse`` matrix.

    Raises:
        ValueError: If ``size`` contradicts the features, as in PyG.
    """
    graph = _graph_between(adjacency, x_l, x_r, size, flow)
    if graph.edge_weight is None or graph.origin == "torch_sparse":
        return graph
    return graph.weighted(None)


def weighted_neighbours(
    adjacency: Any, edge_weight: Tensor | None, x_l: Tensor, x_r: Tensor | None, size: Any, flow: Any
) -> tuple[Graph, dict[str, Any]]:
    """Returns the :class:`Graph` between ``x_l`` and ``x_r`` and the terms that make it the weighted one.

    The values of a sparse adjacency are its weights, and no others are read.

    Raises:
        ValueError: If ``size`` contradicts the features, as in PyG.
    """
    graph = _graph_between(adjacency, x_l, x_r, size, flow)
    own = is_sparse(adjacency) or edge_weight is None
    return graph, {} if own else {"edge_weight": edge_weight}


def weighted_reason(conv: NativeConv, x: Any, adjacency: Any, edge_weight: Tensor | None) -> str | None:
    """Returns why PyG's path is taken with these features and edge weights, if it is."""
    pair = not isinstance(x, Tensor)
    if pair and conv.flow == "target_to_source":
        return "a pair of features with target_to_source"
    own = adjacency.edge_weight if isinstance(adjacency, Graph) else None
    if conv.aggr in ("min", "max") and any(w is not None and w.requires_grad for w in (edge_weight, own)):
        return f"gradients of aggr={conv.aggr}"
    return weight_reason(x[0] if pair else x, adjacency, edge_weight)


def _graph_between(adjacency: Any, x_l: Tensor, x_r: Tensor | None, size: Any, flow: Any) -> Graph:
    num_src = x_l.size(-2)
    num_dst = x_r.size(-2) if x_r is not None else None
    if isinstance(adjacency, EdgeIndex):
        size = adjacency.sparse_size()  # PyG reads no other
    if size is not None and not is_sparse(adjacency) and not isinstance(adjacency, Graph):
        for name, given, found in (
            ("sources", size[0], num_src),
            ("destinations", size[1], num_dst),
        ):
            if given is not None and found is not None and given != found:
                raise ValueError(f"'size' says {given} {name}, but there are features of {found}")
        if num_dst is None:
            num_dst = size[1]
    if num_dst is None:
        num_dst = num_src
    same = x_r is x_l
    return to_graph(adjacency, num_src if same else (num_src, num_dst), flow)


def reduction(aggr: str) -> str:
    """Returns PyG's name of a reduction as the ops call it."""
    return "sum" if aggr == "add" else aggr
