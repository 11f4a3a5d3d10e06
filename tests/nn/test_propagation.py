# SPDX-License-Identifier: MIT
"""The layers that propagate over the normalised adjacency, against PyG's: APPNP, TAG, SSG, GCNII and LightGCN."""

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .compare import (
    KINDS,
    Edges,
    Twins,
    adjacency,
    assert_near,
    assert_same_outcome,
    compare,
    distinct,
    features,
    random_edges,
    small_edges,
    twins,
)

pytestmark = pytest.mark.usefixtures("one_thread")

NORMALISABLE = tuple(kind for kind in KINDS if "csc" not in kind)
ARGUMENTS: dict[str, tuple[dict[str, Any], ...]] = {
    "APPNP": (
        {"K": 0, "alpha": 0.3},
        {"K": 1, "alpha": 0.3},
        {"K": 4, "alpha": 0.1},
        {"K": 2, "alpha": 0},
        {"K": 2, "alpha": 1.0},
        {"K": 2, "alpha": 0.2, "add_self_loops": False},
        {"K": 2, "alpha": 0.2, "normalize": False},
        {"K": 2, "alpha": 0.2, "cached": True},
        {"K": 2, "alpha": 0.2, "dropout": 0.0, "flow": "target_to_source"},
    ),
    "TAGConv": (
        {"K": 0},
        {"K": 1},
        {"K": 2},
        {"K": 4},
        {"bias": False},
        {"normalize": False},
        {"flow": "target_to_source", "node_dim": 0},
    ),
    "SSGConv": (
        {"alpha": 0.1},
        {"alpha": 0.1, "K": 0},
        {"alpha": 0.3, "K": 4},
        {"alpha": 0.0, "K": 2, "add_self_loops": False},
        {"alpha": 0.3, "K": 2, "cached": True},
        {"alpha": 1.0, "K": 2, "bias": False, "flow": "target_to_source"},
    ),
    "LGConv": ({}, {"normalize": False}, {"flow": "target_to_source"}),
    "GCN2Conv": (
        {"alpha": 0.1},
        {"alpha": 0.1, "theta": 0.5, "layer": 3},
        {"alpha": 0.1, "theta": 0.5, "layer": 3, "shared_weights": False},
        {"alpha": 0.0, "shared_weights": False, "cached": True},
        {"alpha": 0.5, "add_self_loops": False},
        {"alpha": 0.5, "normalize": False},
        {"alpha": 0.5, "flow": "target_to_source", "cached": True},
    ),
}
CASES = [(name, kwargs) for name, several in ARGUMENTS.items() for kwargs in several]
DEFAULTS = {"APPNP": {"K": 3, "alpha": 0.2}, "SSGConv": {"K": 3, "alpha": 0.2}, "GCN2Conv": {"alpha": 0.2}}

every = pytest.mark.parametrize("name", ARGUMENTS)


class Beside(torch.nn.Module):
    """A GCNII layer on features and initial features side by side: a call like all others."""

    def __init__(self, conv: torch.nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: torch.Tensor, *args: Any) -> torch.Tensor:
        return self.conv(*x.chunk(2, dim=-1), *args)

    @property
    def path_taken(self) -> str:
        return self.conv.path_taken

    @property
    def flow(self) -> str:
        return self.conv.flow


def pair_of(name: str, in_width: int = 16, out_width: int = 8, **kwargs: Any) -> Twins:
    if name == "GCN2Conv":
        pair = twins(name, in_width // 2, **kwargs)
        return Twins(Beside(pair.theirs), Beside(pair.ours))
    if name in ("APPNP", "LGConv"):
        return twins(name, **kwargs)
    return twins(name, in_width, out_width, **kwargs)


def default(name: str, **kwargs: Any) -> Twins:
    return pair_of(name, **{**DEFAULTS.get(name, {}), **kwargs})


def weighted(weighting: str) -> Edges:
    edges = random_edges(60, weighted=weighting != "none")
    return dataclasses.replace(edges, weight=edges.weight.requires_grad_()) if weighting == "learned" else edges


@pytest.mark.parametrize(("name", "kwargs"), CASES, ids=str)
@pytest.mark.parametrize("weighting", ["none", "given", "learned"])
@pytest.mark.parametrize("widths", [(16, 8), (8, 16), (10, 10)])
def test_arguments(name: str, kwargs: dict[str, Any], weighting: str, widths: tuple[int, int]) -> None:
    pair = pair_of(name, *widths, **kwargs)
    if kwargs.get("cached"):
        compare(pair, features(60, widths[0]), weighted(weighting), backward=False, hops=3)
        assert pair.ours.path_taken == "native"
        weighting = "none"  # what is given the second time is not read
    compare(pair, features(60, widths[0]), weighted(weighting), hops=max(1, kwargs.get("K", 3)))


@every
@pytest.mark.parametrize("kind", NORMALISABLE)
@pytest.mark.parametrize("cached", [False, True])
def test_weighted_adjacency(name: str, kind: str, cached: bool) -> None:
    for edges in (random_edges(60, weighted=True), random_edges(60)):
        kwargs = {} if name in ("TAGConv", "LGConv") else {"cached": cached}
        compare(default(name, **kwargs), features(60, 16), edges, kind=kind, hops=3)


@pytest.mark.parametrize("name", ["APPNP", "TAGConv", "LGConv", "GCN2Conv"])
@pytest.mark.parametrize("kind", KINDS)
def test_adjacency_as_given(name: str, kind: str) -> None:
    compare(default(name, normalize=False), features(60, 16), random_edges(60, weighted=True), kind=kind, hops=3)


@every
@pytest.mark.parametrize("kind", ["Graph of edge_index", "Graph of SparseTensor", "Graph of csr"])
def test_gradient_to_the_weights_of_a_graph(name: str, kind: str) -> None:
    edges = distinct(weighted("learned"))
    compare(default(name), features(60, 16), edges, kind=kind, hops=3)


@every
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtype(name: str, dtype: torch.dtype) -> None:
    pair = default(name).to(dtype)
    compare(pair, features(60, 16, dtype), random_edges(60), hops=3)


@pytest.mark.parametrize(("name", "kwargs"), CASES, ids=str)
def test_double(name: str, kwargs: dict[str, Any]) -> None:
    pair = pair_of(name, 16, 16, **kwargs).to(torch.float64)
    x, index = features(60, 16, torch.float64), random_edges(60).index
    ours, theirs = pair.ours(x, index), pair.theirs(x, index)
    assert pair.ours.path_taken == "native"
    assert torch.allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@every
@pytest.mark.parametrize("aggr", ["mean", "max", "median"])
def test_other_aggregations_take_pygs_path(name: str, aggr: str) -> None:
    backward = name != "GCN2Conv"  # PyG's writes to what max saved for its gradient
    compare(default(name, aggr=aggr), features(60, 16), random_edges(60), path="aggr", hops=3, backward=backward)


@every
def test_csc_is_refused_as_by_pyg(name: str) -> None:
    _, csc, _ = adjacency("csc", random_edges(60), None)
    assert_same_outcome(default(name), features(60, 16), csc)


@pytest.mark.parametrize("name", ["APPNP", "TAGConv", "SSGConv", "LGConv"])
@pytest.mark.parametrize("weighting", ["none", "given", "learned"])
def test_static_graph(name: str, weighting: str) -> None:
    x = torch.stack([features(60, 16, seed=s) for s in range(3)])
    compare(default(name), x, weighted(weighting), hops=3)


@every
def test_a_pair_of_features(name: str) -> None:
    if name != "GCN2Conv":
        x = features(60, 16)
        assert_same_outcome(default(name), (x, x), random_edges(60).index)


@every
def test_autocast(name: str) -> None:
    pair, x, index = default(name), features(60, 16), random_edges(60).index
    with torch.autocast("cpu"):
        assert_near("out", pair.ours(x, index), pair.theirs(x, index))


@every
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges=small_edges(), kind=st.sampled_from(NORMALISABLE), learned=st.booleans())
def test_any_graph(name: str, edges: Edges, kind: str, learned: bool) -> None:
    weight = edges.weight
    if weight is not None and learned and kind in ("edge_index", "Graph of edge_index"):
        edges = dataclasses.replace(edges, weight=weight.requires_grad_())
    compare(default(name), features(edges.num_src, 16), edges, kind=kind, hops=3)


def test_lazy_width() -> None:
    """Of SSG's; PyG's TAG takes a lazy width, and fails at its first call."""
    pair, x, index = default("SSGConv", in_width=-1), features(60, 16), random_edges(60).index
    found = []
    for layer in (pair.theirs, pair.ours):
        torch.manual_seed(3)
        found.append(layer(x, index))
    assert_near("out", found[1], found[0])
    assert pair.ours.path_taken == "native"


# One layer each -----------------------------------------------------------------------------------


def test_dropout_of_edges_takes_pygs_path() -> None:
    pair, x, index = default("APPNP", dropout=0.5), features(60, 16), random_edges(60).index
    found = []
    for layer in (pair.theirs, pair.ours):
        torch.manual_seed(0)
        found.append(layer(x, index))
    assert torch.equal(*found)
    assert pair.ours.path_taken == "dropout of edges"
    pair.theirs.eval(), pair.ours.eval()
    compare(pair, x, random_edges(60), hops=3)


def test_learned_alpha_takes_pygs_path() -> None:
    pair = default("APPNP")
    for layer in (pair.theirs, pair.ours):
        layer.alpha = torch.nn.Parameter(torch.tensor(0.3))
    compare(pair, features(60, 16), random_edges(60), path="alpha", hops=3)


def test_cached_hops() -> None:
    """The features of the hops count from then on, without a gradient to x, as in PyG."""
    pair = default("SSGConv", cached=True)
    compare(pair, features(60, 16), random_edges(60), backward=False, hops=3)
    again = compare(pair, features(60, 16, seed=8), random_edges(60, seed=9), hops=3)
    assert again["x[0].grad"] is None
    assert_near("cache", pair.ours._cached_h, pair.theirs._cached_h)
    pair.ours.reset_parameters()
    assert pair.ours._cached_h is None


def test_initial_features_of_more_nodes() -> None:
    """Only as many of them are read as there are nodes."""
    pair = twins("GCN2Conv", 8, alpha=0.3)
    x, x_0, index = features(60, 8), features(70, 8, seed=3), random_edges(60).index
    assert_near("out", pair.ours(x, x_0, index), pair.theirs(x, x_0, index))
    assert pair.ours.path_taken == "native"


@pytest.mark.parametrize("x_0", [features(60, 1), features(50, 8), features(60, 8, torch.float64), None], ids=str)
def test_initial_features_of_another_kind(x_0: Any) -> None:
    pair = twins("GCN2Conv", 8, alpha=0.3)
    assert_same_outcome(pair, features(60, 8), x_0, random_edges(60).index)


def test_repr_of_gcn2() -> None:
    pair = twins("GCN2Conv", 8, alpha=0.3, theta=0.5, layer=2)
    assert repr(pair.ours) == repr(pair.theirs)
