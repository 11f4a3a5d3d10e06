# SPDX-License-Identifier: MIT
"""SAGEConv against PyG's: its aggregators, projections, bipartite graphs and sizes."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.nn import aggr as aggregators

from frontgi_pyg import Graph

from .compare import (
    ADJACENCIES,
    KINDS,
    SPARSE,
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


def sage(in_width: int | tuple[int, int] = 16, out_width: int = 8, **kwargs: Any) -> Twins:
    return twins("SAGEConv", in_width, out_width, **kwargs)


def pair_of_features(width: tuple[int, int] = (16, 16), nodes: tuple[int, int] = (40, 25)) -> tuple[Any, Any]:
    return features(nodes[0], width[0]), features(nodes[1], width[1], seed=2)


# Arguments ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"normalize": True},
        {"root_weight": False},
        {"project": True},
        {"bias": False},
        {"flow": "target_to_source"},
        {"project": True, "root_weight": False, "normalize": True, "bias": False},
        {"node_dim": 0},
    ],
    ids=str,
)
@pytest.mark.parametrize("aggr", ["mean", "sum", "add"])
@pytest.mark.parametrize("widths", WIDTHS)
def test_arguments(kwargs: dict[str, Any], aggr: str, widths: tuple[int, int]) -> None:
    compare(sage(*widths, aggr=aggr, **kwargs), features(60, widths[0]), random_edges(60))


@pytest.mark.parametrize("aggr", ["max", "min"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_extrema(aggr: str, kind: str, weighted: bool) -> None:
    """Ours without gradients, PyG's with: it shares them among ties on some adjacencies and not on others."""
    edges = random_edges(60, weighted=weighted and kind.removeprefix("Graph of ") in SPARSE)
    pair = sage(aggr=aggr)
    compare(pair, features(60, 16), edges, kind=kind, backward=False)
    if kind.removeprefix("Graph of ") in ("csr", "csc", "coo", "coalesced coo"):
        edges = distinct(edges)
    compare(pair, features(60, 16), edges, kind=kind, path="gradients of aggr")


@pytest.mark.parametrize("aggr", ["max", "min"])
@pytest.mark.parametrize("kind", ["edge_index", "SparseTensor", "csr", "Graph of edge_index", "Graph of csr"])
def test_gradients_of_ties(aggr: str, kind: str) -> None:
    x = torch.tensor([[1.0, 2.0], [1.0, 0.0], [0.0, 2.0], [-1.0, -1.0]])
    edges = Edges.of([(0, 3), (1, 3), (2, 3), (0, 2), (1, 2)], 5)
    pair = sage(2, 2, aggr=aggr)
    compare(pair, torch.cat([x, x[:1]]), edges, kind=kind, path="gradients of aggr")


@pytest.mark.parametrize("aggr", ["max", "min"])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_extrema_of_rows_without_edges_are_zero(aggr: str, sign: float) -> None:
    x = sign * (features(60, 16).abs() + 1)
    pair = sage(aggr=aggr)
    compare(pair, x, random_edges(60), backward=False)
    layer = sage(16, 16, aggr=aggr, root_weight=False, bias=False).ours
    torch.nn.init.eye_(layer.lin_l.weight)
    with torch.no_grad():
        out = layer(x, random_edges(60).index)
    lonely = random_edges(60).index[1].bincount(minlength=60) == 0
    assert lonely.any()
    assert torch.equal(out[lonely], torch.zeros(int(lonely.sum()), 16))


AGGREGATIONS: dict[str, Callable[[], Any]] = {
    "median": lambda: "median",
    "mul": lambda: "mul",
    "std": lambda: "std",
    "list": lambda: ["mean", "max"],
    "list of one": lambda: ["sum"],
    "instance": aggregators.MeanAggregation,
    "softmax": lambda: aggregators.SoftmaxAggregation(learn=True),
    "power mean": lambda: aggregators.PowerMeanAggregation(learn=True),
    "several": lambda: aggregators.MultiAggregation(["mean", "std"]),
}


@pytest.mark.parametrize("aggr", AGGREGATIONS)
@pytest.mark.parametrize("kind", ["edge_index", "Graph of edge_index"])
def test_other_aggregations_take_pygs_path(aggr: str, kind: str) -> None:
    x = features(60, 16).abs() if aggr == "power mean" else features(60, 16)
    compare(sage(aggr=AGGREGATIONS[aggr]()), x, random_edges(60), kind=kind, path="no kernel for aggr")


def test_lstm_aggregation() -> None:
    edges = random_edges(60)
    edges = dataclasses.replace(edges, index=edges.index[:, edges.index[1].argsort(stable=True)])
    compare(sage(aggr="lstm"), features(60, 16), edges, path="no kernel for aggr")


def test_decomposed_layers() -> None:
    pair = sage(decomposed_layers=2)
    assert_same_outcome(pair, features(60, 16), random_edges(60).index)
    assert pair.ours.path_taken == "decomposed_layers > 1"


def test_projection_needs_a_width() -> None:
    with pytest.raises(ValueError, match="project"):
        sage(-1, 8, project=True)


# Adjacencies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("aggr", ["mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
def test_adjacency(kind: str, aggr: str, weighted: bool) -> None:
    """The values of a SparseTensor are ignored, those of a torch.sparse matrix are not."""
    weighted &= kind.removeprefix("Graph of ") in SPARSE
    compare(sage(aggr=aggr), features(60, 16), random_edges(60, weighted=weighted), kind=kind)


def test_own_weights_of_a_graph_are_ignored() -> None:
    edges = random_edges(60, weighted=True)
    graph = Graph.from_edge_index(edges.index, 60, edges.weight)
    layer, x = sage().ours, features(60, 16)
    assert torch.equal(layer(x, graph), layer(x, edges.index))


def test_graph_keeps_the_doubled_entries_of_a_coo_matrix() -> None:
    edges, x = random_edges(60, weighted=True), features(60, 16)
    layer = sage(aggr="mean").ours
    matrix, _, _ = adjacency("coo", edges, edges.weight)
    assert not matrix.is_coalesced()
    _, kept, _ = adjacency("Graph of csr", edges, edges.weight)
    assert torch.equal(layer(x, Graph.from_sparse(matrix)), layer(x, kept))
    assert torch.equal(layer(x, matrix), layer(x, matrix.coalesce()))


@pytest.mark.parametrize("kind", ["csr", "Graph of csr", "Graph of coalesced coo"])
def test_gradient_to_the_values_of_a_sparse_adjacency(kind: str) -> None:
    edges = distinct(random_edges(60, weighted=True))
    edges = dataclasses.replace(edges, weight=edges.weight.requires_grad_())
    path = "native" if kind.startswith("Graph") else "gradient"
    found = compare(sage(), features(60, 16), edges, kind=kind, path=path)
    assert found["edge_weight.grad"] is not None


@pytest.mark.parametrize("aggr", ["max", "median"])
def test_graph_on_pygs_path_keeps_its_values(aggr: str) -> None:
    """A Graph made of a weighted CSR matrix goes back to one where PyG's path is taken."""
    edges = distinct(random_edges(60, weighted=True))
    path = "gradients of aggr" if aggr == "max" else "no kernel"
    compare(sage(aggr=aggr), features(60, 16), edges, kind="Graph of csr", path=path)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bfloat16])
@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_values_of_another_dtype(dtype: torch.dtype, kind: str) -> None:
    edges = distinct(random_edges(60))
    weight = torch.ones(edges.index.size(1), dtype=dtype)
    theirs, _, _ = adjacency(kind, edges, weight)
    assert_same_outcome(sage(), features(60, 16), theirs)


# Bipartite ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("widths", [(16, 16), (16, 5), (5, 16)])
def test_bipartite(kind: str, widths: tuple[int, int]) -> None:
    compare(sage(widths, 8), pair_of_features(widths), random_edges(40, 25), kind=kind)


@pytest.mark.parametrize("kwargs", [{"project": True}, {"root_weight": False}, {"normalize": True}], ids=str)
@pytest.mark.parametrize("out_width", [8, 24])
def test_bipartite_arguments(kwargs: dict[str, Any], out_width: int) -> None:
    compare(sage((16, 5), out_width, **kwargs), pair_of_features((16, 5)), random_edges(40, 25))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("aggr", ["mean", "sum"])
def test_no_features_of_the_targets(kind: str, aggr: str) -> None:
    x = (features(40, 16), None)
    size = {} if kind.removeprefix("Graph of ") in SPARSE or "EdgeIndex" in kind else {"size": (40, 25)}
    found = compare(sage((16, 16), aggr=aggr), x, random_edges(40, 25), kind=kind, **size)
    assert found["out"].shape == (25, 8)


def test_no_features_of_the_targets_and_no_size() -> None:
    edges = random_edges(25, 25)
    compare(sage((16, 16)), (features(25, 16), None), edges)
    # Without a size there are as many targets as sources.
    compare(sage((16, 16)), (features(40, 16), None), dataclasses.replace(edges, num_src=40, num_dst=40))


@pytest.mark.parametrize("size", [(40, 25), (None, 25), (40, None), (None, None)], ids=str)
def test_size(size: tuple[int | None, int | None]) -> None:
    compare(sage((16, 16)), pair_of_features(), random_edges(40, 25), size=size)


@pytest.mark.parametrize("size", [(41, 25), (40, 24), (25, 40)], ids=str)
@pytest.mark.parametrize("kind", ["edge_index", "EdgeIndex", "SparseTensor"])
def test_contradicting_size(size: tuple[int, int], kind: str) -> None:
    theirs, _, _ = adjacency(kind, random_edges(40, 25), None)
    assert_same_outcome(sage((16, 16)), pair_of_features(), theirs, size=size)
    if kind == "edge_index":
        with pytest.raises(ValueError, match="size"):
            sage((16, 16)).ours(pair_of_features(), theirs, size=size)


@pytest.mark.parametrize("kind", [*ADJACENCIES, "Graph of edge_index"])
def test_features_of_other_sizes_than_the_adjacency(kind: str) -> None:
    _, ours, _ = adjacency(kind, random_edges(40, 25), None)
    x = pair_of_features(nodes=(39, 25))
    pair = sage((16, 16))
    if kind == "edge_index":
        with pytest.raises(IndexError, match="30"):
            pair.ours((x[0][:30], x[1]), ours)
        return
    with pytest.raises(ValueError, match=r"39|40"):
        pair.ours(x, ours)


def test_one_tensor_twice_is_not_a_loop_of_its_own() -> None:
    x = features(60, 16)
    compare(sage(), (x, x), random_edges(60))


def test_bipartite_backwards_takes_pygs_path() -> None:
    x = pair_of_features(nodes=(25, 25))  # of other sizes PyG takes none
    compare(sage((16, 16), flow="target_to_source"), x, random_edges(25), path="target_to_source")
    with pytest.raises(RuntimeError):
        sage((16, 16), flow="target_to_source").theirs(pair_of_features(), random_edges(25, 40).index)
    assert_same_outcome(sage((16, 16), flow="target_to_source"), pair_of_features(), random_edges(25, 40).index)


@pytest.mark.parametrize("kind", ["edge_index", "Graph of edge_index"])
@pytest.mark.parametrize("kwargs", [{}, {"project": True}, {"normalize": True}], ids=str)
def test_bipartite_static_graph(kind: str, kwargs: dict[str, Any]) -> None:
    x = tuple(torch.stack([features(n, 16, seed=s) for s in range(3)]) for n in (40, 25))
    compare(sage((16, 16), **kwargs), x, random_edges(40, 25), kind=kind)


@pytest.mark.parametrize(
    "x",
    [
        (torch.randn(40, 16), torch.randn(25, 16).double()),
        (torch.randn(40, 16), torch.randn(2, 25, 16)),
        (torch.randn(2, 40, 16), torch.randn(3, 25, 16)),
        (None, torch.randn(25, 16)),
        (torch.randn(40, 16),),
        (torch.randn(40, 16), "features"),
        (torch.randn(40), torch.randn(25)),
        "features",
    ],
    ids=["dtypes", "dimensions", "batches", "no source", "single", "text in a pair", "flat", "text"],
)
def test_odd_features(x: Any) -> None:
    assert_same_outcome(sage((16, 16)), x, random_edges(40, 25).index)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edges=small_edges(bipartite=True),
    kind=st.sampled_from(KINDS),
    widths=st.sampled_from(WIDTHS),
    aggr=st.sampled_from(["mean", "sum", "max", "min"]),
    root=st.sampled_from(["none", "missing", "given"]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_any_bipartite_graph(
    edges: Edges, kind: str, widths: tuple[int, int], aggr: str, root: str, dtype: torch.dtype
) -> None:
    sparse = kind.removeprefix("Graph of ") in SPARSE
    weight = edges.weight.to(dtype) if edges.weight is not None and sparse else None
    edges = dataclasses.replace(edges, weight=weight)
    target = None if root == "missing" else features(edges.num_dst, widths[0], dtype, seed=2)
    pair = sage(widths[0], widths[1], aggr=aggr, root_weight=root != "none").to(dtype)
    size = {} if sparse or "EdgeIndex" in kind else {"size": (edges.num_src, edges.num_dst)}
    x = (features(edges.num_src, widths[0], dtype), target)
    compare(pair, x, edges, kind=kind, backward=aggr in ("mean", "sum"), **size)


# Lazy widths --------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_width", [-1, (-1, -1), (16, -1), (-1, 5)], ids=str)
@pytest.mark.parametrize("kwargs", [{}, {"root_weight": False}], ids=str)
def test_lazy_width(in_width: Any, kwargs: dict[str, Any]) -> None:
    x, index = pair_of_features((16, 5)), random_edges(40, 25).index
    pair = sage(in_width, 8, **kwargs)
    found = []
    for layer in (pair.theirs, pair.ours):
        torch.manual_seed(3)
        found.append(layer(x, index))
    assert torch.allclose(*found, atol=1e-5)
    for theirs, ours in zip(pair.theirs.parameters(), pair.ours.parameters(), strict=True):
        assert torch.equal(theirs, ours)
    pair.ours(x, index)
    assert pair.ours.path_taken == "native"


def test_lazy_layer_filled_from_a_state_dict() -> None:
    index = random_edges(40, 25).index
    filled = sage((16, 5)).theirs
    layer = sage((-1, -1)).ours
    layer.load_state_dict(filled.state_dict())
    x = pair_of_features((16, 5))
    assert torch.allclose(layer(x, index), filled(x, index), atol=1e-5)
