# SPDX-License-Identifier: MIT
"""The graph of whatever adjacency a layer is given: converted at its first use, then remembered weakly."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from frontgi_pyg.graph import Flow, Graph
from frontgi_pyg.memory import in_transform, remember

_graphs = WeakIdKeyDictionary()  # edge_index or sparse adjacency -> what was made of it
# The last answer again, as the next layer asks for it: a look into _graphs takes five times as long. Weak, too.
_latest: tuple[weakref.ref[Tensor], int, tuple[Any, Flow], weakref.ref[Graph]] | None = None


def graph_of(edge_index: Tensor, num_nodes: int | tuple[int, int], flow: Flow) -> Graph:
    """Returns the :class:`Graph` of a plain ``edge_index``, converted at its first use and remembered weakly."""
    global _latest
    told = type(edge_index) is Tensor and not torch.compiler.is_compiling() and not in_transform()
    if told and _latest is not None:
        tensor, version, key, found = _latest
        if tensor() is edge_index and version == edge_index._version and key == (num_nodes, flow):
            graph = found()
            if graph is not None:
                return graph
    graph = remember(
        _graphs,
        edge_index,
        (num_nodes, flow),
        lambda: Graph.from_edge_index(edge_index, num_nodes, flow=flow),
    )
    if told and not edge_index.is_inference():
        _latest = weakref.ref(edge_index), edge_index._version, (num_nodes, flow), weakref.ref(graph)
    return graph


def graph_of_sparse(adj_t: Any) -> Graph:
    """Returns the :class:`Graph` of a sparse adjacency, its structure remembered weakly, its values as they are now."""
    if isinstance(adj_t, Tensor):

        def convert() -> Graph:
            graph = Graph.from_sparse(adj_t.coalesce() if adj_t.layout == torch.sparse_coo else adj_t)  # as PyG does
            # The values are a view of the matrix, and a memory that holds its own key never lets go of it.
            return graph if graph.edge_weight is None else graph.weighted(graph.edge_weight.clone())

        return remember(_graphs, adj_t, "sparse", convert)
    # SparseTensor: its columns and row pointers are what lives as long as the structure does.
    with torch.inference_mode(False):  # torch_sparse keeps the row pointers that it computes here
        rowptr = adj_t.storage.rowptr()
    by_rowptr = remember(_graphs, adj_t.storage.col(), "rowptr", WeakIdKeyDictionary)
    structure = remember(
        by_rowptr,
        rowptr,
        tuple(adj_t.sparse_sizes()),
        lambda: Graph.from_sparse(adj_t.set_value(None)),
    )
    value = adj_t.storage.value()
    return structure if value is None else structure.weighted(value)
