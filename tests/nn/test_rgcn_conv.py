# SPDX-License-Identifier: MIT
"""RGCNConv and FastRGCNConv against PyG's: relations, decompositions, node indices in the place of features."""

import copy
import io
import pickle
import warnings
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn import RGCNConv as PyGRGCNConv

import frontgi_pyg.nn
from frontgi_pyg import Graph, accelerate, report

from .compare import (
    C,
    Edges,
    Twins,
    assert_accurate,
    assert_near,
    assert_same_outcome,
    features,
    random_edges,
    small_edges,
    twins,
)

pytestmark = pytest.mark.usefixtures("one_thread")

RELATIONS = 5
NAMES = ("RGCNConv", "FastRGCNConv")
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"num_bases": 3},
    {"num_blocks": 4},
    {"aggr": "add"},
    {"aggr": "add", "num_blocks": 2},
    {"root_weight": False},
    {"bias": False, "root_weight": False},
    {"is_sorted": True},
    {"flow": "target_to_source"},
)

both = pytest.mark.parametrize("name", NAMES)


def rgcn(name: str, in_width: Any = 16, out_width: int = 8, **kwargs: Any) -> Twins:
    return twins(name, in_width, out_width, RELATIONS, **kwargs)


def typed(edges: Edges, *, ordered: bool = False, seed: int = 5) -> Tensor:
    """A type for each edge, one of them of no edge at all."""
    types = torch.randint(0, RELATIONS - 1, (edges.index.size(1),), generator=torch.Generator().manual_seed(seed))
    return types.sort().values if ordered else types


def evaluate(layer: Any, x: Any, edge_index: Any, edge_type: Tensor, backward: bool) -> dict[str, Any]:
    layer.zero_grad()
    given = x if isinstance(x, tuple) else (x,)
    leaves = [
        t.detach().clone().requires_grad_() if backward and t is not None and t.is_floating_point() else t
        for t in given
    ]
    with torch.set_grad_enabled(backward):
        out = layer(tuple(leaves) if isinstance(x, tuple) else leaves[0], edge_index, edge_type)
    found = {"out": out.detach()}
    if backward:
        out.backward(torch.randn(out.shape, generator=torch.Generator().manual_seed(7)).bfloat16().to(out.dtype))
        found |= {f"x[{i}].grad": t.grad for i, t in enumerate(leaves) if t is not None and t.requires_grad}
        found |= {f"{name}.grad": parameter.grad for name, parameter in layer.named_parameters()}
    return {key: None if t is None else t.clone() for key, t in found.items()}


def double(x: Any) -> Any:
    if isinstance(x, tuple):
        return tuple(double(t) for t in x)
    return x.double() if x is not None and x.is_floating_point() else x


def compare(
    pair: Twins, x: Any, edge_index: Tensor, edge_type: Tensor, given: Any = None, *, backward: bool = True
) -> None:
    theirs = evaluate(pair.theirs, x, edge_index, edge_type, backward)
    ours = evaluate(pair.ours, x, edge_index if given is None else given, edge_type, backward)
    reference = evaluate(copy.deepcopy(pair.theirs).double(), double(x), edge_index, edge_type, backward)
    assert pair.ours.path_taken == "native", pair.ours.path_taken
    assert ours.keys() == theirs.keys()
    for key in theirs:
        assert_accurate(key, ours[key], theirs[key], reference[key], depth=4 * C * RELATIONS)


@both
@pytest.mark.parametrize("kwargs", VARIANTS, ids=str)
@pytest.mark.parametrize("widths", [(16, 8), (8, 16), (12, 12)])
def test_arguments(name: str, kwargs: dict[str, Any], widths: tuple[int, int]) -> None:
    edges = random_edges(60)
    types = typed(edges, ordered=kwargs.get("is_sorted", False))
    compare(rgcn(name, *widths, **kwargs), features(60, widths[0]), edges.index, types)


@both
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtype(name: str, dtype: torch.dtype) -> None:
    edges = random_edges(60)
    pair, x = rgcn(name).to(dtype), features(60, 16, dtype)
    if name == "RGCNConv" or dtype == torch.float64:
        compare(pair, x, edges.index, typed(edges))
        return
    wide = copy.deepcopy(pair.theirs).double()(x.double(), edges.index, typed(edges))
    theirs, ours = (layer(x, edges.index, typed(edges)) for layer in (pair.theirs, pair.ours))
    assert ours.dtype == theirs.dtype == dtype
    assert (ours - wide).abs().max() <= 2 * (theirs - wide).abs().max()


@both
@pytest.mark.parametrize("kind", ["EdgeIndex", "Graph", "int32"])
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_adjacency(name: str, kind: str, flow: str) -> None:
    edges = random_edges(60)
    given = {
        "EdgeIndex": lambda: EdgeIndex(edges.index.clone(), sparse_size=(60, 60)),
        "Graph": lambda: Graph.from_edge_index(edges.index, 60, flow=flow),
        "int32": edges.index.int,
    }[kind]()
    compare(rgcn(name, flow=flow), features(60, 16), edges.index, typed(edges), given)


@both
@pytest.mark.parametrize("aggr", ["mean", "add"])
def test_bipartite(name: str, aggr: str) -> None:
    edges = random_edges(40, 25)
    compare(rgcn(name, (16, 5), aggr=aggr), (features(40, 16), features(25, 5)), edges.index, typed(edges))


@both
@pytest.mark.parametrize("kwargs", [{}, {"num_bases": 2}, {"aggr": "add"}, {"root_weight": False}], ids=str)
def test_nodes_without_features(name: str, kwargs: dict[str, Any]) -> None:
    edges = random_edges(60)
    compare(rgcn(name, 60, **kwargs), None, edges.index, typed(edges))
    some = torch.randint(0, 60, (60,), generator=torch.Generator().manual_seed(1))
    if name == "RGCNConv":
        compare(rgcn(name, 60, **kwargs), some, edges.index, typed(edges))
    else:
        assert_same_outcome(rgcn(name, 60, **kwargs), some, edges.index, typed(edges))
    assert_same_outcome(rgcn(name, 60, num_blocks=4), None, edges.index, typed(edges))


def test_bipartite_nodes_without_features() -> None:
    edges = random_edges(40, 25)
    compare(rgcn("RGCNConv", (40, 25)), (None, torch.arange(25)), edges.index, typed(edges))


@pytest.mark.parametrize("aggr", ["min", "max"])
def test_extrema(aggr: str) -> None:
    edges = random_edges(60)
    pair = rgcn("RGCNConv", aggr=aggr)
    compare(pair, features(60, 16), edges.index, typed(edges), backward=False)
    assert_near(
        "out",
        *(
            layer(features(60, 16).requires_grad_(), edges.index, typed(edges)).detach()
            for layer in (pair.ours, pair.theirs)
        ),
    )
    assert pair.ours.path_taken == f"gradients of aggr={aggr}"
    assert_same_outcome(rgcn("FastRGCNConv", aggr=aggr), features(60, 16), edges.index, typed(edges))


@both
@pytest.mark.parametrize("kwargs", [{}, {"num_blocks": 2}], ids=str)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges=small_edges(), seed=st.integers(0, 1 << 16))
def test_any_graph(name: str, kwargs: dict[str, Any], edges: Edges, seed: int) -> None:
    compare(rgcn(name, **kwargs), features(edges.num_src, 16), edges.index, typed(edges, seed=seed))


def test_types_out_of_range() -> None:
    edges = random_edges(60)
    for wrong in (-1, RELATIONS):
        types = typed(edges)
        types[7] = wrong
        with pytest.raises(IndexError, match=str(wrong)):
            rgcn("RGCNConv").ours(features(60, 16), edges.index, types)


@both
@pytest.mark.parametrize("types", [None, torch.zeros(3, dtype=torch.int64), torch.zeros(3, 1)], ids=str)
def test_types_that_are_not_one_an_edge(name: str, types: Any) -> None:
    assert_same_outcome(rgcn(name), features(60, 16), random_edges(60).index, types)


def test_sparse_adjacency_takes_pygs_path() -> None:
    torch_sparse = pytest.importorskip("torch_sparse")
    edges = random_edges(60)
    source, target = edges.index
    adj_t = torch_sparse.SparseTensor(row=target, col=source, value=typed(edges), sparse_sizes=(60, 60))
    pair = rgcn("RGCNConv")
    assert_same_outcome(pair, features(60, 16), adj_t)
    assert "typed edges" in pair.ours.path_taken or "SparseTensor" in pair.ours.path_taken


# What is remembered -------------------------------------------------------------------------------


def test_taken_apart_once(conversions: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    edges, x = random_edges(60), features(60, 16)
    types = typed(edges)
    made: list[int] = []
    original = Graph._of_rows
    monkeypatch.setattr(Graph, "_of_rows", lambda *args: made.append(1) or original(*args))
    first, second = rgcn("RGCNConv").ours, rgcn("RGCNConv", 8).ours
    for _ in range(3):
        second(first(x, edges.index, types), edges.index, types).sum().backward()
    assert conversions.count("from_edge_index") == 1
    assert conversions.count("transpose") == RELATIONS
    assert len(made) == RELATIONS


def test_written_types_are_read_again() -> None:
    edges, x = random_edges(60), features(60, 16)
    types, pair = typed(edges), rgcn("RGCNConv")
    before = pair.ours(x, edges.index, types)
    types[:20] = 3
    assert not torch.equal(pair.ours(x, edges.index, types), before)
    compare(pair, x, edges.index, types)


def test_other_types_on_one_graph() -> None:
    edges, pair = random_edges(60), rgcn("RGCNConv")
    for seed in (1, 2, 1):
        compare(pair, features(60, 16), edges.index, typed(edges, seed=seed))


def test_in_inference_mode_and_then_trained() -> None:
    edges, pair = random_edges(60), rgcn("RGCNConv")
    types = typed(edges)
    with torch.inference_mode():
        expected = pair.ours(features(60, 16), edges.index, types)
    compare(pair, features(60, 16), edges.index, types)
    with torch.inference_mode():  # of tensors made in it, nothing is remembered
        assert torch.equal(pair.ours(features(60, 16), edges.index.clone(), types.clone()), expected)


# A module's life ----------------------------------------------------------------------------------


@both
def test_copies_and_state(name: str) -> None:
    pair, edges, x = rgcn(name), random_edges(60), features(60, 16)
    expected = pair.ours(x, edges.index, typed(edges))
    buffer = io.BytesIO()
    torch.save(pair.ours, buffer)
    buffer.seek(0)
    others = (copy.deepcopy(pair.ours), pickle.loads(pickle.dumps(pair.ours)), torch.load(buffer, weights_only=False))
    for other in others:
        assert torch.equal(other(x, edges.index, typed(edges)), expected)
        assert other.path_taken == "native"
    assert repr(pair.ours) == repr(pair.theirs)
    fresh = rgcn(name)
    fresh.theirs.reset_parameters()
    fresh.theirs.load_state_dict(pair.ours.state_dict())
    assert_near("out", expected, fresh.theirs(x, edges.index, typed(edges)))


def test_accelerated() -> None:
    model = torch.nn.ModuleList([PyGRGCNConv(16, 8, RELATIONS), PyGRGCNConv(8, 4, RELATIONS, num_bases=2)])
    fast, edges, x = accelerate(model), random_edges(60), features(60, 16)
    for ours, theirs in zip(fast, model, strict=True):
        assert type(ours) is frontgi_pyg.nn.RGCNConv
        out = theirs(x, edges.index, typed(edges))
        assert_near("out", ours(x, edges.index, typed(edges)), out)
        x = out
    assert [conv.status for conv in report(fast).convs] == ["native"] * 2


@pytest.mark.parametrize(("name", "kwargs"), [("RGCNConv", {"num_blocks": 2}), ("FastRGCNConv", {})], ids=str)
def test_compiled_once_for_all_sizes(name: str, kwargs: dict[str, Any]) -> None:
    torch._dynamo.reset()
    layer = rgcn(name, **kwargs).ours
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    with torch._dynamo.config.patch(error_on_recompile=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for num_nodes in (60, 33, 80):
            edges = random_edges(num_nodes, seed=num_nodes)
            x = features(num_nodes, 16).requires_grad_()
            out, expected = (call(x, edges.index, typed(edges)) for call in (compiled, layer))
            assert_near("out", out, expected)
            found = [torch.autograd.grad(y.square().sum(), [x, layer.weight]) for y in (out, expected)]
            for ours, theirs in zip(*found, strict=True):
                assert_near("gradient", ours, theirs)


@both
def test_exported(name: str) -> None:
    layer, edges = rgcn(name).ours, random_edges(60)
    nodes, count = torch.export.Dim("nodes", min=2), torch.export.Dim("edges", min=2)
    program = torch.export.export(
        layer,
        (features(60, 16), edges.index, typed(edges)),
        dynamic_shapes=({0: nodes}, {1: count}, {0: count}),
    )
    for num_nodes in (60, 33):
        edges = random_edges(num_nodes, seed=num_nodes)
        x = features(num_nodes, 16)
        assert_near("out", program.module()(x, edges.index, typed(edges)), layer(x, edges.index, typed(edges)))
