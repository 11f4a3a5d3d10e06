# SPDX-License-Identifier: MIT
"""GCNConv against PyG's: its arguments, edge weights, self-loops and caches."""

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import frontgi_pyg.nn
from frontgi_pyg import Graph

from .compare import (
    GRAPHS,
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


def gcn(in_width: int = 16, out_width: int = 8, **kwargs: Any) -> Twins:
    return twins("GCNConv", in_width, out_width, **kwargs)


def learned(edges: Edges) -> Edges:
    assert edges.weight is not None
    return dataclasses.replace(edges, weight=edges.weight.clone().requires_grad_())


# Arguments ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"improved": True},
        {"cached": True},
        {"add_self_loops": False},
        {"add_self_loops": False, "improved": True},
        {"normalize": False},
        {"bias": False},
        {"flow": "target_to_source"},
        {"flow": "target_to_source", "improved": True, "bias": False},
        {"aggr": "sum"},
        {"node_dim": 0},
    ],
    ids=str,
)
@pytest.mark.parametrize("weighting", ["none", "given", "learned"])
@pytest.mark.parametrize("widths", WIDTHS)
def test_arguments(kwargs: dict[str, Any], weighting: str, widths: tuple[int, int]) -> None:
    edges = random_edges(60, weighted=weighting != "none")
    edges = learned(edges) if weighting == "learned" else edges
    compare(gcn(*widths, **kwargs), features(60, widths[0]), edges)


@pytest.mark.parametrize("aggr", ["mean", "max", "min", "median", "mul"])
def test_other_aggregations_take_pygs_path(aggr: str) -> None:
    for edges in (random_edges(60), random_edges(60, weighted=True)):
        compare(gcn(aggr=aggr), features(60, 16), edges, path="aggr")
    compare(gcn(aggr=aggr, normalize=False), features(60, 16), random_edges(60), path="aggr")


def test_decomposed_layers() -> None:
    compare(gcn(decomposed_layers=2), features(60, 16), random_edges(60), path="decomposed_layers")


def test_loops_need_normalisation() -> None:
    with pytest.raises(ValueError, match="self-loops"):
        frontgi_pyg.nn.GCNConv(16, 8, normalize=False, add_self_loops=True)


# Adjacencies and edge weights ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", NORMALISABLE)
@pytest.mark.parametrize("improved", [False, True])
@pytest.mark.parametrize("loops", [False, True])
def test_weighted_adjacency(kind: str, improved: bool, loops: bool) -> None:
    """Each kind of adjacency has loops and weights of its own meaning; the graph has weighted and doubled loops."""
    pair = gcn(improved=improved, add_self_loops=loops)
    compare(pair, features(60, 16), random_edges(60, weighted=True), kind=kind)
    compare(pair, features(60, 16), random_edges(60), kind=kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_not_normalised(kind: str, weighted: bool) -> None:
    compare(gcn(normalize=False), features(60, 16), random_edges(60, weighted=weighted), kind=kind)


@pytest.mark.parametrize("kind", [k for k in GRAPHS if "csc" not in k and "coo" not in k])
@pytest.mark.parametrize("kwargs", [{}, {"improved": True}, {"add_self_loops": False}, {"normalize": False}], ids=str)
def test_gradient_to_the_weights_of_a_graph(kind: str, kwargs: dict[str, Any]) -> None:
    """PyG differentiates the values of a SparseTensor and of a CSR matrix; a Graph of either does as well."""
    compare(gcn(**kwargs), features(60, 16), learned(distinct(random_edges(60, weighted=True))), kind=kind)


@pytest.mark.parametrize("kind", ["SparseTensor", "csr"])
def test_gradient_to_the_values_of_a_sparse_adjacency(kind: str) -> None:
    compare(gcn(), features(60, 16), learned(distinct(random_edges(60, weighted=True))), kind=kind, path="gradient")


def test_gradient_to_the_own_weights_of_a_graph() -> None:
    edges = learned(random_edges(60, weighted=True))
    pair = gcn()
    expected = compare(pair, features(60, 16), edges)["edge_weight.grad"]
    graph = Graph.from_edge_index(edges.index, 60, edges.weight)
    x = features(60, 16).requires_grad_()
    out = pair.ours(x, graph)
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(7)).bfloat16().float()
    out.backward(cotangent)
    assert pair.ours.path_taken == "native"
    assert torch.allclose(edges.weight.grad, expected, rtol=1e-4, atol=1e-5)


def test_csc_is_refused_as_by_pyg() -> None:
    _, csc, _ = adjacency("csc", random_edges(60), None)
    assert_same_outcome(gcn(), features(60, 16), csc)
    with pytest.raises(NotImplementedError, match="CSC"):
        gcn().ours(features(60, 16), csc)


@pytest.mark.parametrize("weighted", [False, True])
def test_graph_of_csc(weighted: bool) -> None:
    edges = random_edges(60, weighted=weighted)
    layer, x = gcn().ours, features(60, 16)
    found = []
    for kind in ("Graph of csc", "Graph of csr"):
        _, graph, _ = adjacency(kind, edges, edges.weight)
        found.append(layer(x, graph))
    assert torch.equal(*found)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(
    "weight_dtype", [torch.int64, torch.int32, torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64]
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_weight_dtype(dtype: torch.dtype, weight_dtype: torch.dtype, normalize: bool) -> None:
    """Whatever PyG makes of a weight in another dtype: the same result, or the same error."""
    edges = random_edges(60, weighted=True)
    pair, x = gcn(normalize=normalize).to(dtype), features(60, 16, dtype)
    weight = (edges.weight * 4).to(weight_dtype)
    try:
        pair.theirs(x, edges.index, weight)
    except Exception:
        assert_same_outcome(pair, x, edges.index, weight)
        return
    wider = torch.promote_types(weight_dtype, dtype) != dtype or not weight_dtype.is_floating_point
    path = "edge weights in" if wider else "native"
    if dtype == torch.float64 and weight_dtype != torch.float64:
        # PyG normalises in the weight's dtype; we do it in float64, and are nearer to the truth.
        compare_in_lower_precision(pair, x, dataclasses.replace(edges, weight=weight), path)
        return
    compare(pair, x, dataclasses.replace(edges, weight=weight), path=path)


def compare_in_lower_precision(pair: Twins, x: torch.Tensor, edges: Edges, path: str) -> None:
    assert edges.weight is not None
    reference = pair.theirs(x, edges.index, edges.weight.double())
    theirs, ours = (layer(x, edges.index, edges.weight) for layer in (pair.theirs, pair.ours))
    assert path in pair.ours.path_taken
    assert ours.dtype == theirs.dtype
    assert (ours - reference).norm() <= 2 * (theirs - reference).norm() + 1e-12 * reference.norm()


@pytest.mark.parametrize("shape", [(3,), (0,), (500, 1), (1,), ()], ids=str)
@pytest.mark.parametrize("normalize", [False, True])
def test_weight_shape(shape: tuple[int, ...], normalize: bool) -> None:
    """Where PyG raises, so do we; where PyG broadcasts, we give its result."""
    edges = random_edges(60)
    weight = torch.ones(shape)
    if shape == (500, 1):
        weight = torch.rand(edges.index.size(1), 1) + 0.5
    pair = gcn(normalize=normalize)
    try:
        pair.theirs(features(60, 16), edges.index, weight)
    except Exception:
        with pytest.raises((ValueError, IndexError, RuntimeError)):
            pair.ours(features(60, 16), edges.index, weight)
    else:
        assert_same_outcome(pair, features(60, 16), edges.index, weight)


@pytest.mark.parametrize("values", [[1.0, 0.0, 0.0, 2.0], [1.0, -3.0, 1.0, 1.0], [-1.0, -1.0, 1.0, 1.0]], ids=str)
@pytest.mark.parametrize("kind", NORMALISABLE)
@pytest.mark.parametrize("loops", [False, True])
def test_degrees_that_are_not_positive(values: list[float], kind: str, loops: bool) -> None:
    """A degree of 0 scales by 0, a negative one by NaN, as in PyG."""
    edges = Edges.of([(0, 1), (1, 2), (2, 0), (3, 0)], 6, values)
    compare(gcn(add_self_loops=loops), features(6, 16), edges, kind=kind, backward=False)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edges=small_edges(),
    kind=st.sampled_from(NORMALISABLE),
    widths=st.sampled_from(WIDTHS),
    improved=st.booleans(),
    loops=st.booleans(),
    normalize=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_any_graph(
    edges: Edges,
    kind: str,
    widths: tuple[int, int],
    improved: bool,
    loops: bool,
    normalize: bool,
    dtype: torch.dtype,
) -> None:
    weight = None if edges.weight is None else edges.weight.to(dtype)
    if weight is not None and kind in ("edge_index", "Graph of edge_index"):
        weight.requires_grad_()
    pair = gcn(*widths, improved=improved, add_self_loops=loops and normalize, normalize=normalize).to(dtype)
    compare(pair, features(edges.num_src, widths[0], dtype), dataclasses.replace(edges, weight=weight), kind=kind)


# Caches -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", NORMALISABLE)
@pytest.mark.parametrize("weighted", [False, True])
def test_cache(kind: str, weighted: bool) -> None:
    """What was seen first counts from then on, as in PyG, and reset_parameters() forgets it."""
    pair, x = gcn(cached=True), features(60, 16)
    first, second = random_edges(60, weighted=weighted), random_edges(60, weighted=weighted, seed=9)
    compare(pair, x, first, kind=kind)
    theirs, ours, _ = adjacency(kind, second, second.weight)
    for layer, given_second in ((pair.theirs, theirs), (pair.ours, ours)):
        again, _, beside = adjacency(kind.removeprefix("Graph of "), first, first.weight)
        expected = layer(x, again, beside)
        assert torch.equal(layer(x, given_second), expected)
        layer.reset_parameters()
        assert layer._cached_edge_index is None
        assert layer._cached_adj_t is None
        assert not torch.equal(layer(x, given_second), expected)


def test_cache_is_pygs_own() -> None:
    edges = random_edges(60, weighted=True)
    pair, x = gcn(cached=True), features(60, 16)
    for layer in (pair.theirs, pair.ours):
        layer(x, edges.index, edges.weight)
    for theirs, ours in zip(pair.theirs._cached_edge_index, pair.ours._cached_edge_index, strict=True):
        assert torch.equal(theirs, ours)


def test_cache_outlives_the_edges() -> None:
    layer, x = gcn(cached=True).ours, features(60, 16)
    edges = random_edges(60)
    expected = layer(x, edges.index)
    edges.index.zero_()
    assert torch.equal(layer(x, edges.index), expected)
    assert layer.path_taken == "native"


# Features -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("kind", ["edge_index", "csr", "Graph of edge_index"])
def test_sparse_features(widths: tuple[int, int], kind: str) -> None:
    dense = features(60, widths[0]).relu()
    theirs_adjacency, ours_adjacency, _ = adjacency(kind, random_edges(60), None)
    pair = gcn(*widths)
    found = []
    for layer, given_adjacency in ((pair.theirs, theirs_adjacency), (pair.ours, ours_adjacency)):
        x = dense.to_sparse().requires_grad_()
        out = layer(x, given_adjacency)
        out.square().sum().backward()
        found.append([out, x.grad.to_dense(), layer.lin.weight.grad, layer.bias.grad])
    assert pair.ours.path_taken == "native"
    for theirs, ours in zip(*found, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_pair_of_features_is_refused() -> None:
    x = features(60, 16)
    assert_same_outcome(gcn(), (x, x), random_edges(60).index)
    with pytest.raises(ValueError, match="tuple"):
        gcn().ours((x, x), random_edges(60).index)


@pytest.mark.parametrize("shape", [(60,), (2, 3, 60, 16), (0, 60, 16)], ids=str)
def test_shapes_of_features(shape: tuple[int, ...]) -> None:
    assert_same_outcome(gcn(), torch.randn(shape), random_edges(60).index)


@pytest.mark.parametrize("kind", ["edge_index", "Graph of edge_index"])
@pytest.mark.parametrize("weighting", ["none", "given", "learned"])
def test_static_graph(kind: str, weighting: str) -> None:
    edges = random_edges(60, weighted=weighting != "none")
    edges = learned(edges) if weighting == "learned" else edges
    x = torch.stack([features(60, 16, seed=s) for s in range(3)])
    compare(gcn(), x, edges, kind=kind)


def test_lazy_width() -> None:
    x, index = features(60, 16), random_edges(60).index
    found = []
    pair = gcn(-1, 8)
    for layer in (pair.theirs, pair.ours):
        torch.manual_seed(3)
        found.append(layer(x, index))
        assert layer.lin.weight.shape == (8, 16)
    assert torch.allclose(*found, atol=1e-5)
    assert repr(pair.theirs.lin) == repr(pair.ours.lin)
    torch.testing.assert_close(pair.ours(x, index), found[1])
    assert pair.ours.path_taken == "native"
