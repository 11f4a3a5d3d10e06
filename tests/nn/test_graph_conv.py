# SPDX-License-Identifier: MIT
"""GraphConv against PyG's: reductions, edge weights, bipartite graphs."""

import dataclasses
from typing import Any

import pytest
import torch

from .compare import (
    Twins,
    adjacency,
    assert_near,
    assert_same_outcome,
    compare,
    distinct,
    features,
    kinds_of,
    random_edges,
    twins,
)

pytestmark = pytest.mark.usefixtures("one_thread")

WIDTHS = ((16, 8), (8, 16), (10, 10))


def graph_conv(in_width: Any = 16, out_width: int = 8, **kwargs: Any) -> Twins:
    return twins("GraphConv", in_width, out_width, **kwargs)


@pytest.mark.parametrize("aggr", ["add", "sum", "mean"])
@pytest.mark.parametrize("kwargs", [{}, {"bias": False}, {"flow": "target_to_source"}, {"node_dim": 0}], ids=str)
@pytest.mark.parametrize("weighting", ["none", "given", "learned"])
@pytest.mark.parametrize("widths", WIDTHS)
def test_arguments(aggr: str, kwargs: dict[str, Any], weighting: str, widths: tuple[int, int]) -> None:
    edges = random_edges(60, weighted=weighting != "none")
    if weighting == "learned":
        edges = dataclasses.replace(edges, weight=edges.weight.requires_grad_())
    compare(graph_conv(*widths, aggr=aggr, **kwargs), features(60, widths[0]), edges)


@pytest.mark.parametrize("kind", kinds_of("GraphConv"))
@pytest.mark.parametrize("aggr", ["add", "mean"])
def test_weighted_adjacency(kind: str, aggr: str) -> None:
    edges = random_edges(60, weighted=True)
    # Of what is doubled, a mean makes one edge or two, and a COO matrix is added up before.
    compare(graph_conv(aggr=aggr), features(60, 16), distinct(edges) if "co" in kind else edges, kind=kind)


@pytest.mark.parametrize("aggr", ["min", "max"])
@pytest.mark.parametrize("kind", ["edge_index", "SparseTensor", "csr", "Graph of edge_index"])
@pytest.mark.parametrize("weighted", [False, True])
def test_extrema(aggr: str, kind: str, weighted: bool) -> None:
    edges = random_edges(60, weighted=weighted)
    compare(graph_conv(aggr=aggr), features(60, 16), edges, kind=kind, backward=False)
    compare(graph_conv(aggr=aggr), features(60, 16), random_edges(60), path="gradients of aggr")


@pytest.mark.parametrize("aggr", ["max", "add"])
def test_extrema_with_learned_weights_take_pygs_path(aggr: str) -> None:
    pair, edges = graph_conv(aggr=aggr), random_edges(60, weighted=True)
    assert_same_outcome(pair, features(60, 16), edges.index, edges.weight.requires_grad_())
    assert ("gradients" in pair.ours.path_taken) == (aggr == "max")


@pytest.mark.parametrize("order", ["by col", "by row"])
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("aggr", ["add", "mean", "max"])
@pytest.mark.parametrize("weighted", [False, True])
def test_sorted_edge_index(order: str, flow: str, aggr: str, weighted: bool) -> None:
    """Which PyG's layer, alone among all, fuses, whichever way messages flow."""
    pair, edges = graph_conv(aggr=aggr, flow=flow), random_edges(60, weighted=weighted)
    theirs, ours, weight = adjacency(f"EdgeIndex {order}", edges, edges.weight)
    with torch.no_grad():
        assert_near("out", pair.ours(features(60, 16), ours, weight), pair.theirs(features(60, 16), theirs, weight))
    backwards = order == "by col" and flow == "target_to_source"
    assert (pair.ours.path_taken == "native") != backwards


@pytest.mark.parametrize("kind", ["edge_index", "SparseTensor", "csr", "Graph of edge_index"])
@pytest.mark.parametrize("root", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
def test_bipartite(kind: str, root: bool, weighted: bool) -> None:
    x = (features(40, 16), features(25, 5) if root else None)
    pair = graph_conv((16, 5), 8)
    if not root:
        pair.theirs.lin_root.requires_grad_(False)
        pair.ours.lin_root.requires_grad_(False)
    size = None if root else (40, 25)
    compare(pair, x, random_edges(40, 25, weighted=weighted), kind=kind, size=size)


def test_size_that_contradicts_the_features() -> None:
    x = (features(40, 16), features(25, 5))
    assert_same_outcome(graph_conv((16, 5), 8), x, random_edges(40, 25).index, size=(41, 25))


def test_weights_that_are_not_one_an_edge() -> None:
    index = random_edges(60).index
    for weight in (torch.rand(1), torch.rand(index.size(1), 1)):
        assert_same_outcome(graph_conv(), features(60, 16), index, weight)
    with pytest.raises(ValueError, match="edge_weight"):
        graph_conv().ours(features(60, 16), index, torch.rand(3))


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_weights_of_another_dtype(dtype: torch.dtype) -> None:
    index = random_edges(60).index
    assert_same_outcome(graph_conv(), features(60, 16), index, torch.ones(index.size(1), dtype=dtype))


@pytest.mark.parametrize("weighting", ["none", "given", "learned"])
def test_static_graph(weighting: str) -> None:
    edges = random_edges(60, weighted=weighting != "none")
    if weighting == "learned":
        edges = dataclasses.replace(edges, weight=edges.weight.requires_grad_())
    compare(graph_conv(), torch.stack([features(60, 16, seed=s) for s in range(3)]), edges)


def test_autocast() -> None:
    pair, edges = graph_conv(), random_edges(60)
    with torch.autocast("cpu"):
        assert_near("out", pair.ours(features(60, 16), edges.index), pair.theirs(features(60, 16), edges.index))


def test_lazy_widths() -> None:
    x, index = (features(40, 16), features(25, 5)), random_edges(40, 25).index
    found = []
    pair = graph_conv((-1, -1))
    for layer in (pair.theirs, pair.ours):
        torch.manual_seed(3)
        found.append(layer(x, index))
    assert_near("out", found[1], found[0])
    assert pair.ours.path_taken == "native"
