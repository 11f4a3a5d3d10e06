# SPDX-License-Identifier: MIT
"""SGConv against PyG's: its hops, its cache and its edge weights."""

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frontgi_pyg import Graph

from .compare import (
    KINDS,
    Edges,
    Twins,
    adjacency,
    assert_same_outcome,
    compare,
    distinct,
    features,
    random_edges,
    small_edges,
    twins,
)

pytestmark = pytest.mark.usefixtures("one_thread")

WIDTHS = ((16, 8), (8, 16), (10, 10))
NORMALISABLE = tuple(kind for kind in KINDS if "csc" not in kind)


def sg(in_width: int = 16, out_width: int = 8, **kwargs: Any) -> Twins:
    return twins("SGConv", in_width, out_width, **kwargs)


def learned(edges: Edges) -> Edges:
    assert edges.weight is not None
    return dataclasses.replace(edges, weight=edges.weight.clone().requires_grad_())


@pytest.mark.parametrize("hops", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"cached": True},
        {"add_self_loops": False},
        {"bias": False},
        {"flow": "target_to_source"},
        {"aggr": "sum", "node_dim": 0},
    ],
    ids=str,
)
@pytest.mark.parametrize("weighting", ["none", "given", "learned"])
@pytest.mark.parametrize("widths", WIDTHS)
def test_arguments(hops: int, kwargs: dict[str, Any], weighting: str, widths: tuple[int, int]) -> None:
    edges = random_edges(60, weighted=weighting != "none")
    edges = learned(edges) if weighting == "learned" else edges
    compare(sg(*widths, K=hops, **kwargs), features(60, widths[0]), edges, hops=max(1, hops))


@pytest.mark.parametrize("kind", NORMALISABLE)
@pytest.mark.parametrize("loops", [False, True])
def test_weighted_adjacency(kind: str, loops: bool) -> None:
    pair = sg(K=2, add_self_loops=loops)
    compare(pair, features(60, 16), random_edges(60, weighted=True), kind=kind, hops=2)
    compare(pair, features(60, 16), random_edges(60), kind=kind, hops=2)


@pytest.mark.parametrize("kind", ["Graph of edge_index", "Graph of SparseTensor", "Graph of csr"])
def test_gradient_to_the_weights_of_a_graph(kind: str) -> None:
    edges = learned(distinct(random_edges(60, weighted=True)))
    compare(sg(K=2), features(60, 16), edges, kind=kind, hops=2)


def test_gradient_to_the_own_weights_of_a_graph() -> None:
    edges = learned(random_edges(60, weighted=True))
    pair, x = sg(K=2), features(60, 16)
    expected = torch.autograd.grad(pair.theirs(x, edges.index, edges.weight).square().sum(), edges.weight)
    graph = Graph.from_edge_index(edges.index, 60, edges.weight)
    found = torch.autograd.grad(pair.ours(x, graph).square().sum(), edges.weight)
    assert pair.ours.path_taken == "native"
    assert torch.allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("aggr", ["mean", "max", "median"])
def test_other_aggregations_take_pygs_path(aggr: str) -> None:
    compare(sg(aggr=aggr, K=2), features(60, 16), random_edges(60), path="aggr", hops=2)


def test_decomposed_layers() -> None:
    compare(sg(decomposed_layers=2, K=2), features(60, 16), random_edges(60), path="decomposed_layers", hops=2)


def test_csc_is_refused_as_by_pyg() -> None:
    _, csc, _ = adjacency("csc", random_edges(60), None)
    with pytest.raises(NotImplementedError, match="CSC"):
        sg().ours(features(60, 16), csc)
    assert_same_outcome(sg(), features(60, 16), csc)


def test_graph_of_csc() -> None:
    edges = random_edges(60, weighted=True)
    layer, x = sg(K=2).ours, features(60, 16)
    found = [layer(x, adjacency(kind, edges, edges.weight)[1]) for kind in ("Graph of csc", "Graph of csr")]
    assert torch.equal(*found)


def test_a_pair_of_features() -> None:
    x = features(60, 16)
    assert_same_outcome(sg(), (x, x), random_edges(60).index)


@pytest.mark.parametrize("shape", [(60,), (2, 3, 60, 16), (0, 60, 16)], ids=str)
def test_shapes_of_features(shape: tuple[int, ...]) -> None:
    assert_same_outcome(sg(), torch.randn(shape), random_edges(60).index)


@pytest.mark.parametrize("kind", ["edge_index", "Graph of edge_index"])
@pytest.mark.parametrize("weighting", ["none", "given", "learned"])
def test_static_graph(kind: str, weighting: str) -> None:
    edges = random_edges(60, weighted=weighting != "none")
    edges = learned(edges) if weighting == "learned" else edges
    x = torch.stack([features(60, 16, seed=s) for s in range(3)])
    compare(sg(K=2), x, edges, kind=kind, hops=2)


@pytest.mark.parametrize("kind", ["edge_index", "SparseTensor", "Graph of edge_index"])
@pytest.mark.parametrize("hops", [0, 1, 2])
def test_cache(kind: str, hops: int) -> None:
    """The features of the last hop count from then on, without a gradient to x, as in PyG."""
    pair = sg(cached=True, K=hops)
    first, second = random_edges(60), random_edges(60, seed=9)
    x = features(60, 16)
    compare(pair, x, first, kind=kind, backward=False, hops=max(1, hops))
    again = compare(pair, features(60, 16, seed=8), second, kind=kind, hops=max(1, hops))
    for layer in (pair.theirs, pair.ours):
        assert (layer._cached_x is None) == (hops == 0)
        layer.reset_parameters()
        assert layer._cached_x is None
    if hops > 0:
        assert again["x[0].grad"] is None


def test_cached_features_are_pygs() -> None:
    edges = random_edges(60, weighted=True)
    pair, x = sg(cached=True, K=3), features(60, 16)
    for layer in (pair.theirs, pair.ours):
        layer(x, edges.index, edges.weight)
    assert torch.allclose(pair.ours._cached_x, pair.theirs._cached_x, atol=1e-5)


def test_cache_trained_for_a_while() -> None:
    edges = random_edges(60)
    pair, x, target = sg(cached=True, K=2), features(60, 16), features(60, 8, seed=3)
    losses = []
    for layer in (pair.theirs, pair.ours):
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            loss = (layer(x, edges.index) - target).square().mean()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edges=small_edges(),
    kind=st.sampled_from(NORMALISABLE),
    widths=st.sampled_from(WIDTHS),
    hops=st.integers(0, 3),
    loops=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_any_graph(
    edges: Edges, kind: str, widths: tuple[int, int], hops: int, loops: bool, dtype: torch.dtype
) -> None:
    weight = None if edges.weight is None else edges.weight.to(dtype)
    if weight is not None and kind in ("edge_index", "Graph of edge_index"):
        weight.requires_grad_()
    pair = sg(*widths, K=hops, add_self_loops=loops).to(dtype)
    edges = dataclasses.replace(edges, weight=weight)
    compare(pair, features(edges.num_src, widths[0], dtype), edges, kind=kind, hops=max(1, hops))


def test_lazy_width() -> None:
    x, index = features(60, 16), random_edges(60).index
    found = []
    pair = sg(-1, 8, K=2)
    for layer in (pair.theirs, pair.ours):
        torch.manual_seed(3)
        found.append(layer(x, index))
        assert layer.lin.weight.shape == (8, 16)
    assert torch.allclose(*found, atol=1e-5)
    assert pair.ours.path_taken == "native"


def test_repr() -> None:
    pair = sg(4, 3, K=5)
    assert repr(pair.ours) == repr(pair.theirs) == "SGConv(4, 3, K=5)"
