# SPDX-License-Identifier: MIT
"""Twins of table 2: their sizes and degrees are those of the paper's graphs."""

from __future__ import annotations

import pytest
import torch

from frontgi_pyg import Graph
from frontgi_pyg.datasets import PAPER_GRAPHS, twin

SMALL = ("MT", "MH", "AX", "KA")
SHARES = {"YP": 0.2, "S19": 0.25, "PC": 0.2, "HU": 0.05, "RT": 0.02, "YH": 0.01, "RD": 0.02, "PT": 0.02}


def check(name: str, share: float) -> None:
    like, drawn = PAPER_GRAPHS[name], twin(name, share)
    graph = Graph.from_edge_index(drawn.edge_index, drawn.num_nodes)
    stats = graph.degree_stats
    if name == "S19":  # drawn as Graph500 draws it: near the paper's draw
        assert graph.num_edges == pytest.approx(like.num_edges * share, rel=0.12)
        assert graph.num_dst_nodes <= 1 << 19
        return
    assert (graph.num_dst_nodes, graph.num_edges) == (like.num_nodes, round(like.num_edges * share))
    if like.exponent is None:
        assert stats.maximum <= like.max_degree
    else:
        assert stats.maximum == round(like.max_degree * share)
    degree = torch.bincount(drawn.edge_index[0], minlength=like.num_nodes)  # sources follow the same law
    assert degree.max() <= 1.2 * stats.maximum + 10


@pytest.mark.parametrize("name", SMALL)
def test_whole_twins(name: str) -> None:
    check(name, 1.0)


@pytest.mark.parametrize("name", SHARES)
def test_shares_of_the_large_ones(name: str) -> None:
    check(name, SHARES[name])


def test_the_same_seed_gives_the_same_twin() -> None:
    assert torch.equal(twin("AX", 0.1).edge_index, twin("AX", 0.1).edge_index)
    assert not torch.equal(twin("AX", 0.1).edge_index, twin("AX", 0.1, seed=1).edge_index)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("XX",), r"'graph' must be one of MT, MH, .* \(got 'XX'\)"),
        (("AX", 0.0), r"'share' must be above 0 and at most 1 \(got 0.0\)"),
        (("AX", 1.5), r"'share' must be above 0"),
        (("MT", 0.5), r"molecules are drawn whole, 'share' must be 1 \(got 0.5\)"),
    ],
)
def test_what_is_not_in_table_2_is_refused(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=f"^twin: {message}"):
        twin(*arguments)  # type: ignore[arg-type]
