# SPDX-License-Identifier: MIT
"""Graphs to test on: a table of odd ones, hypothesis strategies for small ones, and a power law with a hub."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.typing import SparseTensor

from frontgi_pyg import Graph


@dataclass(frozen=True)
class Edges:
    """``index`` holds sources and destinations, ``[2, num_edges]``."""

    index: Tensor
    num_src: int
    num_dst: int

    @property
    def square(self) -> bool:
        return self.num_src == self.num_dst

    @property
    def num_edges(self) -> int:
        return self.index.size(1)

    def graph(self, edge_weight: Tensor | None = None) -> Graph:
        sizes = self.num_src if self.square else (self.num_src, self.num_dst)
        return Graph.from_edge_index(self.index, sizes, edge_weight)


def _edges(pairs: list[tuple[int, int]], num_src: int, num_dst: int | None = None) -> Edges:
    index = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t()
    return Edges(index, num_src, num_src if num_dst is None else num_dst)


def _messy() -> Edges:
    """A hub, loops (one of them twice), duplicates, unsorted, isolated nodes at both ends and between."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(1, 18, (2, 60), generator=generator)
    hub = torch.stack([torch.randint(1, 18, (40,), generator=generator), torch.full((40,), 7)])
    loops = torch.tensor([[3, 9, 3, 12], [3, 9, 3, 12]])
    index = torch.cat([drawn, hub, loops, drawn[:, :15]], 1)
    index = index[:, (index[1] != 5) & (index[0] != 5)]
    return Edges(index[:, torch.randperm(index.size(1), generator=generator)], 20, 20)


ODD: dict[str, Edges] = {
    "empty": _edges([], 0),
    "no_edges": _edges([], 5),
    "one_node": _edges([], 1),
    "one_loop": _edges([(0, 0)], 1),
    "only_loops": _edges([(2, 2), (0, 0), (1, 1), (0, 0)], 3),
    "isolated": _edges([(0, 4), (4, 0), (2, 4)], 5),
    "trailing_isolated": _edges([(0, 1), (1, 2), (2, 0)], 4),
    "hub": _edges([(s, 3) for s in range(40, -1, -1)], 41),
    "star_out": _edges([(3, t) for t in range(40, -1, -1)], 41),
    "duplicates": _edges([(1, 0), (0, 1), (1, 0), (1, 0), (0, 1)], 2),
    "unsorted": _edges([(3, 1), (0, 2), (2, 1), (1, 0), (0, 1), (2, 0)], 4),
    "bipartite": _edges([(5, 0), (0, 2), (6, 2), (5, 2), (0, 0)], 7, 3),
    "bipartite_wide": _edges([(1, 8), (0, 0), (1, 3), (1, 8)], 2, 9),
    "no_sources": _edges([], 0, 4),
    "no_destinations": _edges([], 4, 0),
    "messy": _messy(),
}
ODD["int32"] = Edges(ODD["messy"].index.int(), 20, 20)
ODD["non_contiguous"] = Edges(ODD["messy"].index.t().contiguous().t(), 20, 20)
ODD["strided"] = Edges(ODD["messy"].index.repeat_interleave(2, 1)[:, ::2], 20, 20)
ODD["expanded"] = Edges(torch.tensor([[1], [2]]).expand(2, 6), 4, 4)

MESSY = ODD["messy"]


@st.composite
def edges(draw: st.DrawFn, max_nodes: int = 12, max_edges: int = 40, square: bool | None = None) -> Edges:
    """Any small graph; ``square=None`` draws both square and bipartite ones."""
    num_src = draw(st.integers(0, max_nodes))
    same = draw(st.booleans()) if square is None else square
    num_dst = num_src if same else draw(st.integers(0, max_nodes))
    most = max_edges if num_src and num_dst else 0
    pairs = st.tuples(st.integers(0, max(0, num_src - 1)), st.integers(0, max(0, num_dst - 1)))
    drawn = _edges(draw(st.lists(pairs, max_size=most)), num_src, num_dst).index
    layout = draw(st.sampled_from(["contiguous", "transposed", "strided"]))
    if layout == "contiguous":
        drawn = drawn.contiguous()
    elif layout == "strided":
        drawn = drawn.repeat_interleave(2, 1)[:, 1::2]
    return Edges(drawn.to(draw(st.sampled_from([torch.int32, torch.int64]))), num_src, num_dst)


def power_law(num_nodes: int, num_edges: int, hub_degree: int, seed: int = 0) -> Edges:
    """In-degrees of a power law, one node with ``hub_degree`` edges more, some loops, nodes without edges."""
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand(num_edges, generator=generator).clamp(min=1e-9)
    target = (uniform.pow(3) * (num_nodes - 5)).long()
    source = torch.randint(num_nodes, (num_edges,), generator=generator)
    hub = torch.stack(
        [torch.randint(num_nodes, (hub_degree,), generator=generator), torch.full((hub_degree,), num_nodes // 2)]
    )
    nodes = torch.arange(0, num_nodes, 7)
    index = torch.cat([torch.stack([source, target]), hub, torch.stack([nodes, nodes])], 1)
    return Edges(index[:, torch.randperm(index.size(1), generator=generator)], num_nodes, num_nodes)


def sparse_forms(e: Edges, weight: Tensor) -> dict[str, Any]:
    """The transposed adjacency in every form PyG takes; entries that are given twice stay so only where they can."""
    source, target = e.index.long()
    size = (e.num_dst, e.num_src)
    uncoalesced = torch.sparse_coo_tensor(torch.stack([target, source]), weight, size, check_invariants=True)
    coalesced = uncoalesced.coalesce()
    row, col = coalesced.indices()
    narrow = coalesced.to_sparse_csr()
    return {
        "uncoalesced COO": uncoalesced,
        "COO": coalesced,
        "CSR": narrow,
        "CSC": coalesced.to_sparse_csc(),
        "CSR int32": torch.sparse_csr_tensor(
            narrow.crow_indices().int(), narrow.col_indices().int(), narrow.values(), size, check_invariants=True
        ),
        "CSC int32": torch.sparse_csc_tensor(
            coalesced.to_sparse_csc().ccol_indices().int(),
            coalesced.to_sparse_csc().row_indices().int(),
            coalesced.to_sparse_csc().values(),
            size,
            check_invariants=True,
        ),
        "SparseTensor": SparseTensor(row=target, col=source, value=weight, sparse_sizes=size),
        "SparseTensor without values": SparseTensor(row=row, col=col, sparse_sizes=size),
    }
