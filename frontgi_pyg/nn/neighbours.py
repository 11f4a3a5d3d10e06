# SPDX-License-Identifier: MIT
"""The adjacency of the layers that only sum, average or compare neighbours: SAGE and GIN."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch_geometric import EdgeIndex

from frontgi_pyg.graph import Graph
from frontgi_pyg.nn.native import is_sparse, to_graph


def neighbour_graph(adjacency: Any, x_l: Tensor, x_r: Tensor | None, size: Any, flow: Any) -> Graph:
    """Returns the :class:`Graph` of an adjacency between ``x_l`` and ``x_r``, with the weights PyG's layer would read.

    PyG's SAGE and GIN ignore edge weights, except the values of a ``torch.sparse`` matrix.

    Raises:
        ValueError: If ``size`` contradicts the features, as in PyG.
    """
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
    graph = to_graph(adjacency, num_src if same else (num_src, num_dst), flow)
    if graph.edge_weight is None or graph.origin == "torch_sparse":
        return graph
    return graph.weighted(None)


def reduction(aggr: str) -> str:
    """Returns PyG's name of a reduction as the ops call it."""
    return "sum" if aggr == "add" else aggr
