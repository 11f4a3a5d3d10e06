# SPDX-License-Identifier: MIT
"""GATConv and GATv2Conv against PyG's: heads, loops, edge features, bipartite graphs, attention weights."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric import EdgeIndex

from frontgi_pyg import Graph, accelerate, report

from .compare import (
    ATTENTION,
    Edges,
    Twins,
    adjacency,
    assert_accurate,
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

layers = pytest.mark.parametrize("name", ATTENTION)

DEPTH = 40.0  # roundings of scores, exponentials and two products, forward and backward


def gat(name: str, *sizes: Any, **kwargs: Any) -> Twins:
    return twins(name, *(sizes or (16, 8)), **kwargs)


def outcome(layer: Any, x: Any, *args: Any, backward: bool = True, **kwargs: Any) -> dict[str, Tensor | None]:
    """The output and every gradient, to edge features and through attention weights too."""
    layer.zero_grad()
    dtype = next(layer.parameters()).dtype
    pair = isinstance(x, tuple)

    def leaf(t: Any) -> Any:
        floating = isinstance(t, Tensor) and t.is_floating_point() and t.layout == torch.strided
        return t.detach().clone().to(dtype).requires_grad_(backward) if floating else t

    nodes = [leaf(t) for t in (x if pair else (x,))]
    given_to = [leaf(t) for t in args]
    with torch.set_grad_enabled(backward):
        out = layer(tuple(nodes) if pair else nodes[0], *given_to, **kwargs)
    alpha = None
    if isinstance(out, tuple):
        out, (_, alpha) = out
    found: dict[str, Tensor | None] = {"out": out.detach(), "alpha": None if alpha is None else alpha.detach()}
    if backward and out.requires_grad:
        generator = torch.Generator().manual_seed(7)
        loss = (out * torch.randn(out.shape, generator=generator).bfloat16().to(dtype)).sum()
        if alpha is not None:
            loss = loss + (alpha * torch.randn(alpha.shape, generator=generator).bfloat16().to(dtype)).sum()
        loss.backward()
    leaves_ = [t for t in (*nodes, *given_to) if isinstance(t, Tensor) and t.requires_grad]
    found |= {f"input {i}": t.grad for i, t in enumerate(leaves_)}
    return found | {f"{name}.grad": None if p.grad is None else p.grad.clone() for name, p in layer.named_parameters()}


def check(pair: Twins, x: Any, *args: Any, path: str = "native", backward: bool = True, **kwargs: Any) -> Any:
    """Equal outputs and gradients: in float32 beside PyG's in float64, in float64 to 1e-12."""
    exact = outcome(copy.deepcopy(pair.theirs).double(), x, *args, backward=backward, **kwargs)
    theirs = outcome(pair.theirs, x, *args, backward=backward, **kwargs)
    ours = outcome(pair.ours, x, *args, backward=backward, **kwargs)
    taken = str(pair.ours.path_taken)
    assert taken == path if path == "native" else path in taken, taken
    assert ours.keys() == theirs.keys()
    # Gradients of scores are differences between terms as large as those of the features.
    least = max((t.abs().max().item() for t in exact.values() if t is not None and t.numel()), default=0.0)
    for name in theirs:
        assert_accurate(name, ours[name], theirs[name], exact[name], DEPTH, least if "att" in name else 0.0)
    double = Twins(copy.deepcopy(pair.theirs).double(), copy.deepcopy(pair.ours).double())
    ours = outcome(double.ours, x, *args, backward=backward, **kwargs)
    for name, expected in exact.items():
        if expected is None or ours[name] is None:
            assert ours[name] is expected, name
        elif expected.numel():
            assert (ours[name] - expected).abs().max() <= 1e-12 * max(least, 1.0), name
    return ours


# Arguments ----------------------------------------------------------------------------------------

ARGUMENTS: list[dict[str, Any]] = [
    {},
    {"heads": 8},
    {"heads": 3, "concat": False},
    {"negative_slope": 0.0},
    {"negative_slope": 1.5},
    {"negative_slope": -0.3},
    {"add_self_loops": False},
    {"bias": False},
    {"heads": 2, "residual": True},
    {"heads": 2, "residual": True, "concat": False, "bias": False},
    {"heads": 20},
    {"dropout": 0.0},
    {"aggr": "sum"},
    {"flow": "target_to_source", "heads": 2},
]


@layers
@pytest.mark.parametrize("kwargs", ARGUMENTS, ids=str)
def test_arguments(name: str, kwargs: dict[str, Any]) -> None:
    check(gat(name, **kwargs), features(60, 16), random_edges(60).index)


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_shared_weights(heads: int, flow: str) -> None:
    pair = gat("GATv2Conv", heads=heads, share_weights=True, flow=flow)
    check(pair, features(60, 16), random_edges(60).index)


def test_two_projections_of_one_input() -> None:
    for flow in ("source_to_target", "target_to_source"):
        pair = gat("GATConv", (16, 16), 8, heads=2, flow=flow)
        check(pair, features(60, 16), random_edges(60).index)


@layers
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(name: str, dtype: torch.dtype) -> None:
    compare(gat(name, heads=4).to(dtype), features(60, 16, dtype), random_edges(60))


@layers
def test_lazy_sizes(name: str) -> None:
    pair = gat(name, -1, 8, heads=2, residual=True)
    torch.manual_seed(3)
    expected = pair.theirs(features(60, 16), random_edges(60).index)
    torch.manual_seed(3)
    assert_near("out", pair.ours(features(60, 16), random_edges(60).index), expected)
    assert pair.ours.path_taken == "native"


@layers
@pytest.mark.parametrize("kwargs", [{}, {"add_self_loops": False}, {"heads": 4, "concat": False}], ids=str)
@pytest.mark.parametrize(
    "edges",
    [
        Edges.of([], 0),
        Edges.of([], 7),
        Edges.of([(0, 0)], 1),
        Edges.of([(0, 0), (0, 0), (1, 1)], 3),
        Edges.of([(i, 0) for i in range(1, 40)], 60),
        Edges.of([(0, i) for i in range(1, 40)], 60),
    ],
    ids=["no nodes", "no edges", "one loop", "doubled loops", "hub", "star"],
)
def test_small_graphs(name: str, kwargs: dict[str, Any], edges: Edges) -> None:
    check(gat(name, **kwargs), features(edges.num_src, 16), edges.index)


@layers
@settings(derandomize=True, max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges=small_edges(), heads=st.integers(1, 5), loops=st.booleans(), concat=st.booleans())
def test_any_graph(name: str, edges: Edges, heads: int, loops: bool, concat: bool) -> None:
    check(gat(name, heads=heads, add_self_loops=loops, concat=concat), features(edges.num_src, 16), edges.index)


@layers
def test_rows_without_edges_are_the_bias(name: str) -> None:
    layer = gat(name, add_self_loops=False).ours
    out = layer(features(6, 16), torch.tensor([[0, 1], [2, 2]]))
    assert torch.equal(out[[0, 1, 3, 4, 5]], layer.bias.expand(5, -1))


@layers
@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_large_logits(name: str, scale: float) -> None:
    pair = gat(name, heads=2).to(torch.float64)
    for layer in (pair.theirs, pair.ours):
        for parameter in (layer.att_src, layer.att_dst) if name == "GATConv" else (layer.att,):
            parameter.data.mul_(scale)
    edges, x = random_edges(60), features(60, 16, torch.float64)
    out = pair.ours(x, edges.index)
    assert out.isfinite().all()
    assert torch.allclose(out, pair.theirs(x, edges.index), rtol=1e-8, atol=1e-8)
    assert pair.ours.float()(x.float(), edges.index).isfinite().all()


# Adjacencies --------------------------------------------------------------------------------------


@layers
@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("kind", ["edge_index", "EdgeIndex", "EdgeIndex by row", "EdgeIndex by col", "SparseTensor"])
@pytest.mark.parametrize("as_graph", [False, True])
def test_adjacency(name: str, loops: bool, kind: str, as_graph: bool) -> None:
    kind = f"Graph of {kind}" if as_graph else kind
    compare(gat(name, heads=2, add_self_loops=loops), features(60, 16), random_edges(60), kind=kind)


@layers
@pytest.mark.parametrize("kind", ["csr", "coalesced coo", "Graph of csr"])
def test_torch_sparse(name: str, kind: str) -> None:
    """Adding loops, PyG merges doubled entries: where there are any, its path is taken."""
    compare(gat(name, add_self_loops=False), features(60, 16), random_edges(60), kind="csr")
    compare(gat(name), features(60, 16), distinct(random_edges(60)), kind=kind)
    if kind != "coalesced coo":
        compare(gat(name), features(60, 16), random_edges(60), kind=kind, path="doubled entries")


@layers
def test_int32(name: str) -> None:
    layer, index, x = gat(name).ours, random_edges(60).index, features(60, 16)
    assert torch.equal(layer(x, index.int()), layer(x, index))


@layers
@pytest.mark.parametrize("sizes", [(30, 50), (50, 30)])
@pytest.mark.parametrize("kwargs", [{}, {"add_self_loops": False}, {"residual": True, "heads": 2}], ids=str)
def test_bipartite(name: str, sizes: tuple[int, int], kwargs: dict[str, Any]) -> None:
    x = (features(sizes[0], 16), features(sizes[1], 5))
    check(gat(name, (16, 5), 8, **kwargs), x, random_edges(*sizes).index)


@pytest.mark.parametrize("given_size", [False, True])
@pytest.mark.parametrize("kwargs", [{}, {"add_self_loops": False, "heads": 3}], ids=str)
def test_sources_alone(given_size: bool, kwargs: dict[str, Any]) -> None:
    edges = random_edges(50, 30)
    size = {"size": (50, 30)} if given_size else {}
    check(gat("GATConv", (16, 16), 8, **kwargs), (features(50, 16), None), edges.index, **size)
    check(gat("GATConv", 16, 8, **kwargs), (features(50, 16), None), edges.index, **size)


def test_sizes() -> None:
    pair, edges = gat("GATConv", (16, 5), 8), random_edges(50, 30)
    x = (features(50, 16), features(30, 5))
    check(pair, x, edges.index, size=(50, 30))
    assert_same_outcome(pair, x, edges.index, size=(50, 31))
    assert_same_outcome(pair, x, edges.index, size=(None, 30))


def test_no_targets() -> None:
    assert_same_outcome(gat("GATv2Conv"), (features(60, 16), None), random_edges(60).index)


# Edge features ------------------------------------------------------------------------------------


def edge_features(edges: Edges, width: int) -> Tensor:
    shape = (edges.index.size(1),) if width == 0 else (edges.index.size(1), width)
    return torch.randn(shape, generator=torch.Generator().manual_seed(9))


FILLS: list[Any] = ["mean", "add", "sum", "min", "max", "mul", 0.5, 2, torch.tensor([0.1, -0.3, 2.0])]


@pytest.mark.parametrize("fill", FILLS, ids=str)
@pytest.mark.parametrize("as_graph", [False, True])
def test_edge_features(fill: Any, as_graph: bool) -> None:
    edges = random_edges(60)
    pair = gat("GATConv", heads=4, edge_dim=3, fill_value=fill)
    check(pair, features(60, 16), edges.index, edge_features(edges, 3))
    if as_graph:
        graph = Graph.from_edge_index(edges.index, 60)
        found = pair.ours(features(60, 16), graph, edge_features(edges, 3))
        assert pair.ours.path_taken == "native"
        assert_near("out", found, pair.theirs(features(60, 16), edges.index, edge_features(edges, 3)))


@pytest.mark.parametrize("kwargs", [{"add_self_loops": False}, {"flow": "target_to_source"}, {}], ids=str)
def test_one_edge_feature(kwargs: dict[str, Any]) -> None:
    edges = random_edges(60)
    check(gat("GATConv", edge_dim=1, **kwargs), features(60, 16), edges.index, edge_features(edges, 0))
    check(gat("GATConv", edge_dim=2, heads=2, **kwargs), features(60, 16), edges.index, edge_features(edges, 2))


def test_edge_features_of_lazy_size() -> None:
    pair, edges, found = gat("GATConv", -1, 8, edge_dim=-1), random_edges(60), []
    for layer in (pair.theirs, pair.ours):
        torch.manual_seed(3)
        found.append(layer(features(60, 16), edges.index, edge_features(edges, 2)))
    assert pair.ours.path_taken == "native"
    assert_near("out", found[1], found[0])


def test_edge_features_between_two_kinds_of_nodes() -> None:
    for sizes in ((30, 50), (50, 30)):
        edges = random_edges(*sizes)
        if sizes == (30, 50):  # PyG has no loop to fill for the targets beyond the sources
            edges = Edges(edges.index[:, edges.index[1] < 30], *sizes)
        pair = gat("GATConv", (16, 5), 8, edge_dim=3)
        check(pair, (features(sizes[0], 16), features(sizes[1], 5)), edges.index, edge_features(edges, 3))


def test_no_edges_and_edge_features() -> None:
    edges = Edges.of([], 5)
    check(gat("GATConv", edge_dim=3), features(5, 16), edges.index, edge_features(edges, 3))
    check(gat("GATConv", edge_dim=3, add_self_loops=False), features(5, 16), edges.index, edge_features(edges, 3))


def test_edge_features_that_are_not_used() -> None:
    edges = random_edges(60)
    check(gat("GATConv"), features(60, 16), edges.index, edge_features(edges, 3))
    check(gat("GATConv", edge_dim=3), features(60, 16), edges.index)
    check(gat("GATv2Conv", edge_dim=3), features(60, 16), edges.index)


def test_edge_features_of_gatv2_take_pygs_path() -> None:
    edges = random_edges(60)
    pair = gat("GATv2Conv", edge_dim=3)
    check(pair, features(60, 16), edges.index, edge_features(edges, 3), path="edge features")
    assert "edge features" in str(report(pair.ours))
    assert_same_outcome(gat("GATv2Conv"), features(60, 16), edges.index, edge_features(edges, 3))


@pytest.mark.parametrize("wrong", [torch.randn(7, 3), torch.randn(3), torch.randn(339, 3, 1), "edges"], ids=str)
def test_edge_features_that_do_not_fit(wrong: Any) -> None:
    assert_same_outcome(gat("GATConv", edge_dim=3), features(60, 16), random_edges(60).index, wrong)


@pytest.mark.parametrize("fill", ["median", torch.randn(2), torch.randn(1, 3)], ids=str)
def test_other_fill_values(fill: Any) -> None:
    edges = random_edges(60)
    pair = gat("GATConv", edge_dim=3, fill_value=fill)
    assert_same_outcome(pair, features(60, 16), edges.index, edge_features(edges, 3))


# Attention weights --------------------------------------------------------------------------------


@layers
@pytest.mark.parametrize("kwargs", [{}, {"add_self_loops": False, "heads": 3}, {"flow": "target_to_source"}], ids=str)
def test_attention_weights(name: str, kwargs: dict[str, Any]) -> None:
    pair, index = gat(name, **kwargs), random_edges(60).index
    check(pair, features(60, 16), index, return_attention_weights=True)
    (_, (edges, alpha)), (_, (our_edges, our_alpha)) = (
        layer(features(60, 16), index, return_attention_weights=True) for layer in (pair.theirs, pair.ours)
    )
    assert torch.equal(edges, our_edges)
    assert our_alpha.dtype == alpha.dtype
    assert_near("alpha", our_alpha, alpha)
    with torch.no_grad():
        assert_near("alpha", pair.ours(features(60, 16), index, return_attention_weights=True)[1][1], alpha)
    assert isinstance(pair.ours(features(60, 16), index, return_attention_weights=False), Tensor)


@layers
def test_attention_weights_of_a_graph(name: str) -> None:
    pair, index = gat(name), random_edges(60).index
    expected = pair.theirs(features(60, 16), index, return_attention_weights=True)
    found = pair.ours(features(60, 16), Graph.from_edge_index(index, 60), return_attention_weights=True)
    assert torch.equal(found[1][0], expected[1][0])
    assert_near("alpha", found[1][1], expected[1][1])
    assert pair.ours.path_taken == "native"


@layers
@pytest.mark.parametrize("kind", ["EdgeIndex", "csr", "SparseTensor"])
def test_attention_weights_in_other_forms_are_pygs(name: str, kind: str) -> None:
    pair = gat(name, add_self_loops=False)
    _, given_to, _ = adjacency(kind, random_edges(60), None)
    found, expected = (
        layer(features(60, 16), given_to, return_attention_weights=True) for layer in (pair.ours, pair.theirs)
    )
    assert_near("out", found[0], expected[0])
    assert "attention weights" in str(pair.ours.path_taken)


def test_attention_weights_with_edge_features() -> None:
    edges = random_edges(60)
    pair = gat("GATConv", edge_dim=3, heads=2)
    check(pair, features(60, 16), edges.index, edge_features(edges, 3), return_attention_weights=True)


# PyG's path ---------------------------------------------------------------------------------------


@layers
def test_dropout_in_training(name: str) -> None:
    pair, index, x = gat(name, dropout=0.5), random_edges(60).index, features(60, 16)
    found = []
    for layer in (pair.theirs, pair.ours):
        torch.manual_seed(5)
        found.append(layer(x, index))
    assert torch.equal(*found)
    assert pair.ours.path_taken == "dropout in training"
    check(Twins(pair.theirs.eval(), pair.ours.eval()), x, index)


@layers
def test_other_aggregations(name: str) -> None:
    check(gat(name, aggr="mean"), features(60, 16), random_edges(60).index, path="aggr=mean")
    assert "aggr=max" in str(report(gat(name, aggr="max").ours))


@layers
def test_static_graphs(name: str) -> None:
    assert_same_outcome(gat(name), torch.randn(3, 60, 16), random_edges(60).index)


@layers
def test_autocast(name: str) -> None:
    pair, index = gat(name), random_edges(60).index
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, expected = (layer(features(60, 16), index) for layer in (pair.ours, pair.theirs))
    assert pair.ours.path_taken == "autocast"
    assert found.dtype == expected.dtype
    assert torch.equal(found, expected)


@layers
def test_an_overridden_edge_update(name: str) -> None:
    class Doubled(type(gat(name).ours)):  # type: ignore[misc]
        def edge_update(self, *args: Any, **kwargs: Any) -> Tensor:
            return 2 * super().edge_update(*args, **kwargs)  # type: ignore[no-any-return]

    layer = Doubled(16, 8)
    assert "edge_update() is overridden" in str(layer.unsupported())


@layers
def test_hooks(name: str) -> None:
    pair, seen = gat(name), []
    pair.ours.register_edge_update_forward_hook(lambda *_: seen.append(1))
    out = pair.ours(features(60, 16), random_edges(60).index)
    assert seen
    assert pair.ours.path_taken == "message passing hooks"
    assert_near("out", out, pair.theirs(features(60, 16), random_edges(60).index))


@layers
@pytest.mark.parametrize("edge_index", [torch.zeros(2, 3), torch.zeros(3, 3, dtype=torch.int64), "edges"], ids=str)
def test_not_an_adjacency(name: str, edge_index: Any) -> None:
    assert_same_outcome(gat(name), features(60, 16), edge_index)


@layers
@pytest.mark.parametrize("index", [-1, 60])
def test_index_out_of_range(name: str, index: int) -> None:
    edges = random_edges(60).index
    edges[0, 4] = index
    with pytest.raises(IndexError, match=str(index)):
        gat(name).ours(features(60, 16), edges)


@layers
def test_edge_index_class_of_another_size(name: str) -> None:
    index = EdgeIndex(random_edges(50).index, sparse_size=(50, 50))
    assert_same_outcome(gat(name), features(60, 16), index)


# Models -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("v2", [False, True])
def test_an_accelerated_model(v2: bool) -> None:
    from torch_geometric.nn import GAT

    torch.manual_seed(0)
    model = GAT(16, 32, num_layers=3, out_channels=7, heads=4, v2=v2)
    fast = accelerate(model)
    index, x = random_edges(60).index, features(60, 16)
    assert_near("out", fast(x, index), model(x, index))
    assert str(report(fast)).startswith("3 of 3 convs")
    assert all(conv.path_taken == "native" for conv in fast.convs)
