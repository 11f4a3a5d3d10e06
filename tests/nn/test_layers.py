# SPDX-License-Identifier: MIT
"""What holds for every layer alike, against PyG's: inputs, dtypes, shapes, threads, and the module's own life."""

import copy
import dataclasses
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint
from torch_geometric import EdgeIndex
from torch_geometric.testing import assert_module

import frontgi_pyg.nn
from frontgi_pyg import Graph, plan

from .compare import (
    ARGUMENTS,
    ATTENTION,
    BIPARTITE,
    HOPS,
    KINDS,
    MESSAGE_PASSING,
    NORMALIZED,
    OF_ONE_WIDTH,
    SPARSE,
    WEIGHTED,
    Edges,
    adjacency,
    assert_near,
    assert_same_outcome,
    compare,
    default_twins,
    features,
    kinds_of,
    network,
    random_edges,
    small_edges,
    width_of,
)

pytestmark = pytest.mark.usefixtures("one_thread")

WIDTHS = ((16, 8), (8, 16), (10, 10))  # multiplied first, aggregated first, either

layers = pytest.mark.parametrize("name", MESSAGE_PASSING)
all_layers = pytest.mark.parametrize("name", [*MESSAGE_PASSING, *ATTENTION])  # see test_gat_conv.py for the rest


# Inputs -------------------------------------------------------------------------------------------


@all_layers
@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_dtype(name: str, widths: tuple[int, int], dtype: torch.dtype) -> None:
    pair = default_twins(name, *widths).to(dtype)
    if name == "ClusterGCNConv" and dtype.itemsize == 2:
        pytest.skip("PyG's weighs edges in float32 and fails: see test_half_types")
    compare(pair, features(60, widths[0], dtype), random_edges(60), hops=HOPS.get(name, 1))


@pytest.mark.parametrize(
    ("name", "kind"),
    # PyG does not normalise CSC: see test_csc_is_refused_as_by_pyg and test_graph_of_csc.
    [(n, k) for n in MESSAGE_PASSING for k in kinds_of(n)],
)
def test_adjacency(name: str, kind: str) -> None:
    compare(default_twins(name, 16, 8), features(60, 16), random_edges(60), kind=kind, hops=HOPS.get(name, 1))


@all_layers
def test_no_gradient_asked_for(name: str) -> None:
    compare(default_twins(name, 16, 8), features(60, 16), random_edges(60), backward=False, hops=HOPS.get(name, 1))


@all_layers
@pytest.mark.parametrize(
    "edges",
    [
        Edges.of([], 0),
        Edges.of([], 7),
        Edges.of([(0, 0)], 1),
        Edges.of([(0, 0), (0, 0), (1, 1)], 3),
        Edges.of([(0, 1), (1, 2), (2, 0), (0, 1)], 4),
        Edges.of([(i, 0) for i in range(1, 40)], 60),
        Edges.of([(0, i) for i in range(1, 40)], 60),
    ],
    ids=["no nodes", "no edges", "one loop", "doubled loops", "trailing isolated", "hub", "star"],
)
@pytest.mark.parametrize("kind", ["edge_index", "SparseTensor", "Graph of edge_index"])
def test_small_graph(name: str, edges: Edges, kind: str) -> None:
    for widths in WIDTHS:
        found = compare(
            default_twins(name, *widths), features(edges.num_dst, widths[0]), edges, kind=kind, hops=HOPS.get(name, 1)
        )
        assert found["out"].shape == (edges.num_dst, width_of(name, *widths))


@pytest.mark.parametrize(
    ("name", "widths"),
    [("GINConv", (0, 4))]  # the other layers take a width of 0 for one to be found out
    + [(name, (0, 0)) for name in OF_ONE_WIDTH]
    + [(name, widths) for name in MESSAGE_PASSING for widths in ((4, 0), (1, 1))],
)
def test_narrow(name: str, widths: tuple[int, int]) -> None:
    compare(default_twins(name, *widths), features(20, widths[0]), random_edges(20), hops=HOPS.get(name, 1))


@all_layers
@pytest.mark.parametrize("layout", ["transposed", "columns", "rows", "offset", "expanded", "channels"])
def test_strides(name: str, layout: str) -> None:
    x = features(60, 32)
    x = {
        "transposed": features(32, 60).t(),
        "columns": features(60, 64)[:, ::2],
        "rows": features(120, 32)[::2],
        "offset": features(1, 60 * 32 + 1).flatten()[1:].view(60, 32),
        "expanded": features(1, 32).expand(60, 32),
        "channels": features(60, 3 * 32).view(60, 3, 32)[:, 1],
    }[layout]
    assert layout == "offset" or not x.is_contiguous()
    edges = random_edges(60)
    pair = default_twins(name, 32, 8)
    # A leaf that autograd clones is contiguous again, so the strides are kept by running without gradients too.
    compare(pair, x, edges, backward=False, hops=HOPS.get(name, 1))
    leaf = x.detach().requires_grad_()
    pair.ours(leaf, edges.index).square().sum().backward()
    dense = x.detach().contiguous().requires_grad_()
    pair.ours(dense, edges.index).square().sum().backward()
    assert torch.equal(leaf.grad, dense.grad)


@all_layers
def test_gradient_of_any_stride(name: str) -> None:
    pair = default_twins(name, 12, 8)
    edges, x = random_edges(60), features(60, 12)
    found = []
    for layer in (pair.theirs, pair.ours):
        leaf = x.clone().requires_grad_()
        layer(leaf, edges.index).sum().backward()  # an expanded gradient
        found.append(leaf.grad)
        layer(leaf, edges.index).t().reshape(-1)[::3].square().sum().backward()
        found.append(leaf.grad)
    assert torch.allclose(found[0], found[2], atol=1e-4)
    assert torch.allclose(found[1], found[3], atol=1e-4)


@all_layers
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("kind", ["edge_index", "EdgeIndex", "Graph of edge_index"])
def test_flow(name: str, flow: str, kind: str) -> None:
    compare(
        default_twins(name, 16, 8, flow=flow), features(60, 16), random_edges(60), kind=kind, hops=HOPS.get(name, 1)
    )


@layers
@pytest.mark.parametrize("kind", ["edge_index", "Graph of edge_index"])
@pytest.mark.parametrize("node_dim", [-2, 1])
def test_static_graph(name: str, kind: str, node_dim: int) -> None:
    x = torch.stack([features(60, 16, seed=s) for s in range(3)])
    compare(default_twins(name, 16, 8, node_dim=node_dim), x, random_edges(60), kind=kind, hops=HOPS.get(name, 1))


@layers
def test_node_dim(name: str) -> None:
    compare(default_twins(name, 16, 8, node_dim=0), features(60, 16), random_edges(60), hops=HOPS.get(name, 1))
    x = torch.stack([features(60, 16, seed=s) for s in range(3)], dim=1)
    if name in BIPARTITE:
        compare(default_twins(name, 16, 8, node_dim=0), x, random_edges(60), path="node_dim=0")


@layers
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edges=small_edges(),
    kind=st.sampled_from(KINDS),
    widths=st.sampled_from(WIDTHS),
    flow=st.sampled_from(["source_to_target", "target_to_source"]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 1 << 16),
)
def test_any_graph(
    name: str, edges: Edges, kind: str, widths: tuple[int, int], flow: str, dtype: torch.dtype, seed: int
) -> None:
    assume(kind in kinds_of(name))
    sparse = kind.removeprefix("Graph of ") in SPARSE
    if sparse:
        flow = "source_to_target"  # a sparse adjacency has no other
    takes_weight = sparse or name in WEIGHTED
    weight = edges.weight.to(dtype) if edges.weight is not None and takes_weight else None
    edges = dataclasses.replace(edges, weight=weight)
    pair = default_twins(name, *widths, flow=flow).to(dtype)
    compare(pair, features(edges.num_src, widths[0], dtype, seed=seed), edges, kind=kind, hops=HOPS.get(name, 1))


@layers
def test_pyg_assertions(name: str) -> None:
    edges = random_edges(30, degree=2)
    index = torch.unique(edges.index[:, edges.index[0] != edges.index[1]], dim=1)
    layouts = {"ClusterGCNConv": ["torch_sparse"], "LEConv": ["torch_sparse", torch.sparse_coo]}.get(name)
    layouts = ["torch_sparse", torch.sparse_coo] if name in NORMALIZED else layouts
    ours = default_twins(name, 16, 8).ours
    # Its tolerance, 1e-8 + 1e-5 of each value, is for fp32 on the smallest graphs; small whole numbers are exact.
    x = torch.randint(-3, 4, (30, 16), generator=torch.Generator().manual_seed(0)).float()
    assert_module(ours, x, index, expected_size=(30, width_of(name, 16, 8)), test_sparse_layouts=layouts)


@all_layers
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("kind", ["edge_index", "SparseTensor", "Graph of csr"])
@pytest.mark.parametrize("widths", WIDTHS)
def test_values_that_are_not_finite(name: str, value: float, kind: str, widths: tuple[int, int]) -> None:
    """They spread to neighbours, as in PyG, and no further."""
    x = features(60, widths[0])
    x[7, 3] = x[1, 2] = x[55, 1] = value
    theirs, ours, _ = adjacency(kind, random_edges(60), None)
    pair = default_twins(name, *widths)
    expected, out = pair.theirs(x, theirs), pair.ours(x, ours)
    assert out.isfinite().any()
    assert not out.isfinite().all()
    assert torch.allclose(out, expected, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("aggr", ["max", "min", "mean"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("kind", ["edge_index", "SparseTensor", "Graph of csr"])
def test_extrema_that_are_not_finite(aggr: str, value: float, kind: str) -> None:
    x = features(60, 16)
    x[7, 3] = x[1, 2] = x[55, 1] = value
    theirs, ours, _ = adjacency(kind, random_edges(60), None)
    pair = default_twins("SAGEConv", 16, 8, aggr=aggr)
    with torch.no_grad():
        expected, out = pair.theirs(x, theirs), pair.ours(x, ours)
    assert pair.ours.path_taken == "native"
    assert torch.allclose(out, expected, atol=1e-4, equal_nan=True)


@all_layers
def test_features_that_are_a_parameter(name: str) -> None:
    x = torch.nn.Parameter(features(60, 16))
    layer = default_twins(name, 16, 8).ours
    layer(x, random_edges(60).index).sum().backward()
    assert layer.path_taken == "native"
    assert x.grad is not None


@all_layers
def test_int32_edge_index(name: str) -> None:
    layer, edges, x = default_twins(name, 16, 8).ours, random_edges(60), features(60, 16)
    assert torch.equal(layer(x, edges.index.int()), layer(x, edges.index))
    assert layer.path_taken == "native"


@all_layers
def test_checkpointed(name: str) -> None:
    layer, index = default_twins(name, 16, 8).ours, random_edges(60).index
    found = []
    for call in (layer, lambda *args: checkpoint(layer, *args, use_reentrant=False)):
        x = features(60, 16).requires_grad_()
        call(x, index).square().sum().backward()
        found.append(x.grad)
    assert torch.equal(*found)


REPLACEMENTS: dict[str, Callable[[], torch.nn.Module]] = {
    "network": lambda: torch.nn.Sequential(torch.nn.Linear(16, 8)),
    "with bias": lambda: torch.nn.Linear(16, 8),
    "without bias": lambda: torch.nn.Linear(16, 8, bias=False),
    "weight norm": lambda: torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(16, 8, bias=False)),
    "pruned": lambda: prune.random_unstructured(torch.nn.Linear(16, 8, bias=False), "weight", 0.5),
}


@pytest.mark.parametrize("name", ["GCNConv", "SAGEConv", "SGConv"])
@pytest.mark.parametrize("replacement", REPLACEMENTS)
def test_linear_layer_replaced_by_the_user(name: str, replacement: str) -> None:
    pair = default_twins(name, 16, 8)
    torch.manual_seed(1)
    linear = REPLACEMENTS[replacement]()
    for layer in (pair.theirs, pair.ours):
        setattr(layer, "lin_l" if name == "SAGEConv" else "lin", linear)
    index = random_edges(60).index
    assert_near("out", pair.ours(features(60, 16), index), pair.theirs(features(60, 16), index))


# Threads ------------------------------------------------------------------------------------------


@all_layers
@pytest.mark.parametrize("widths", [(64, 24), (24, 64)])
def test_same_bits_for_any_number_of_threads(
    name: str, widths: tuple[int, int], set_threads: Callable[[int], None]
) -> None:
    edges = power_law_edges(20_000, 400_000)
    layer = default_twins(name, *widths).ours
    x, graph = features(20_000, widths[0]), Graph.from_edge_index(edges, num_nodes=20_000)
    assert plan(graph, min(widths), workers=7).schedule.workers > 1
    found = []
    for threads in (1, 2, 3, 7):
        set_threads(threads)
        layer.zero_grad()
        leaf = x.clone().requires_grad_()
        out = layer(leaf, graph)
        out.backward(features(20_000, out.size(1), seed=5))
        found.append([out.detach(), leaf.grad, *(p.grad.clone() for p in layer.parameters())])
    for other in found[1:]:
        for first, again in zip(found[0], other, strict=True):
            assert torch.equal(first, again)


def power_law_edges(num_nodes: int, num_edges: int) -> torch.Tensor:
    """Targets as of a power law, one of them the target of an eighth of all edges."""
    generator = torch.Generator().manual_seed(3)
    target = (num_nodes * torch.rand(num_edges, generator=generator) ** 3).long()
    target[: num_edges // 8] = 17
    source = torch.randint(0, num_nodes, (num_edges,), generator=generator)
    return torch.stack([source, target])[:, torch.randperm(num_edges, generator=generator)]


# A module's life ----------------------------------------------------------------------------------


@all_layers
def test_state_dict_in_both_directions(name: str) -> None:
    pair = default_twins(name, 16, 8)
    fresh = default_twins(name, 16, 8)
    for tensor in (*fresh.theirs.parameters(), *fresh.ours.parameters()):
        tensor.data.fill_(0.5)
    fresh.theirs.load_state_dict(pair.ours.state_dict())
    fresh.ours.load_state_dict(pair.theirs.state_dict())
    for layer in (fresh.theirs, fresh.ours):
        state = layer.state_dict()
        assert list(state) == list(pair.theirs.state_dict())
        assert all(torch.equal(state[key], value) for key, value in pair.theirs.state_dict().items())


@all_layers
@pytest.mark.parametrize("how", ["deepcopy", "pickle", "torch.save"])
def test_copies(name: str, how: str) -> None:
    layer = default_twins(name, 16, 8).ours
    edges, x = random_edges(60), features(60, 16)
    expected = layer(x, edges.index)
    if how == "deepcopy":
        other = copy.deepcopy(layer)
    elif how == "pickle":
        other = pickle.loads(pickle.dumps(layer))
    else:
        buffer = io.BytesIO()
        torch.save(layer, buffer)
        buffer.seek(0)
        other = torch.load(buffer, weights_only=False)
    assert type(other) is type(layer)
    assert torch.equal(other(x, edges.index), expected)
    assert other.path_taken == "native"
    for a, b in zip(layer.parameters(), other.parameters(), strict=True):
        assert a.data_ptr() != b.data_ptr()


@all_layers
def test_repr(name: str) -> None:
    pair = default_twins(name, 4, 3)
    assert repr(pair.ours) == repr(pair.theirs)
    assert type(pair.ours).__name__ == name
    assert isinstance(pair.ours, getattr(torch_geometric.nn, name))


@all_layers
def test_reset_parameters(name: str) -> None:
    pair = default_twins(name, 16, 8)
    for layer in (pair.theirs, pair.ours):
        torch.manual_seed(4)
        layer.reset_parameters()
    for a, b in zip(pair.theirs.parameters(), pair.ours.parameters(), strict=True):
        assert torch.equal(a, b)


@all_layers
def test_same_initial_weights_from_the_same_seed(name: str) -> None:
    arguments = [] if name in OF_ONE_WIDTH else [network(4, 3)] if name == "GINConv" else [4, 3]
    found = []
    for module in (torch_geometric.nn, frontgi_pyg.nn):
        torch.manual_seed(4)
        layer = getattr(module, name)(*copy.deepcopy(arguments), **ARGUMENTS.get(name, {}))
        found.append(list(layer.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@all_layers
def test_written_edge_index_is_read_again(name: str) -> None:
    pair = default_twins(name, 16, 8)
    edges, x = random_edges(60), features(60, 16)
    before = pair.ours(x, edges.index)
    edges.index[0, :10] = 7
    found = compare(pair, x, edges, hops=HOPS.get(name, 1))
    assert not torch.equal(found["out"], before)


@all_layers
def test_written_edge_index_class_is_read_again(name: str) -> None:
    pair, x = default_twins(name, 16, 8), features(60, 16)
    edges = EdgeIndex(random_edges(60).index)
    before = pair.ours(x, edges)
    edges.fill_(7)
    found = pair.ours(x, edges)
    assert not torch.equal(found, before)
    assert torch.equal(found, pair.ours(x, edges.as_tensor()))


@layers
@pytest.mark.parametrize("kind", ["SparseTensor", "csr", "coalesced coo"])
def test_written_values_are_read_again(name: str, kind: str) -> None:
    pair, x, edges = default_twins(name, 16, 8), features(60, 16), random_edges(60, weighted=True)
    _, given, _ = adjacency(kind, edges, edges.weight)
    values = given.storage.value() if kind == "SparseTensor" else given.values()
    before = pair.ours(x, given)
    values.pow_(3)
    expected = pair.theirs(x, given)
    assert_near("out", pair.ours(x, given), expected)
    ignored = kind == "SparseTensor" and name in ("SAGEConv", "GINConv")
    ignored |= kind != "SparseTensor" and name == "ClusterGCNConv"
    assert torch.equal(pair.ours(x, given), before) == ignored


@pytest.mark.parametrize("name", WEIGHTED)
@pytest.mark.parametrize("kind", ["edge_index", "Graph of edge_index"])
def test_written_weights_are_read_again(name: str, kind: str) -> None:
    pair, x, edges = default_twins(name, 16, 8), features(60, 16), random_edges(60, weighted=True)
    theirs, ours, weight = adjacency(kind, edges, edges.weight)
    before = pair.ours(x, ours, weight)
    weight.pow_(3)
    found = pair.ours(x, ours, weight)
    assert_near("out", found, pair.theirs(x, theirs, weight))
    assert not torch.equal(found, before)


@all_layers
def test_sparse_tensors_that_share_their_columns(name: str) -> None:
    torch_sparse = pytest.importorskip("torch_sparse")
    pair, x, columns = default_twins(name, 16, 8), features(4, 16), torch.tensor([1, 2, 3])
    for rows in ([0, 1, 2], [0, 0, 3]):
        adj_t = torch_sparse.SparseTensor(row=torch.tensor(rows), col=columns, sparse_sizes=(4, 4))
        assert_near("out", pair.ours(x, adj_t), pair.theirs(x, adj_t))


@all_layers
def test_one_edge_index_for_graphs_of_several_sizes(name: str) -> None:
    pair, index = default_twins(name, 16, 8), Edges.of([(0, 1), (1, 2), (2, 0)], 3).index
    for num_nodes in (3, 5, 4, 3):
        x = features(num_nodes, 16)
        assert_near("out", pair.ours(x, index), pair.theirs(x, index))


@layers
def test_trained_after_inference_mode(name: str) -> None:
    """What inference mode left behind must not get in the way of a backward pass."""
    pair = default_twins(name, 16, 8)
    x = features(60, 16)
    for kind in kinds_of(name):
        edges = random_edges(60)
        _, given, _ = adjacency(kind, edges, None)
        with torch.inference_mode():
            expected = pair.ours(x, given)
        out = pair.ours(x.clone().requires_grad_(), given)
        out.sum().backward()
        assert torch.equal(out, expected)
        assert pair.ours.path_taken == "native"


# Errors -------------------------------------------------------------------------------------------


@all_layers
@pytest.mark.parametrize("index", [-1, 60, 10**9])
@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_index_out_of_range(name: str, index: int, row: int, flow: str) -> None:
    edges = random_edges(60).index.clone()
    edges[row, 11] = index
    with pytest.raises(IndexError, match=str(index)):
        default_twins(name, 16, 8, flow=flow).ours(features(60, 16), edges)


@all_layers
@pytest.mark.parametrize(
    "edge_index",
    [
        torch.zeros(2, 3),
        torch.zeros(3, 3, dtype=torch.int64),
        torch.zeros(6, dtype=torch.int64),
        torch.zeros(2, 3, 1, dtype=torch.int64),
        "edges",
        [[0, 1], [1, 0]],
    ],
    ids=["float", "three rows", "flat", "3-D", "text", "list"],
)
def test_not_an_adjacency(name: str, edge_index: Any) -> None:
    pair = default_twins(name, 16, 8)
    assert_same_outcome(pair, features(60, 16), edge_index)


@layers
@pytest.mark.parametrize("kind", ["SparseTensor", "csr", "coo", "csc"])
def test_sparse_adjacency_cannot_flow_backwards(name: str, kind: str) -> None:
    pair = default_twins(name, 16, 8, flow="target_to_source")
    theirs, _, _ = adjacency(kind, random_edges(60), None)
    if kind not in kinds_of(name):
        assert_same_outcome(pair, features(60, 16), theirs)
        return
    with pytest.raises(ValueError, match="target_to_source"):
        pair.ours(features(60, 16), theirs)
    assert_same_outcome(pair, features(60, 16), theirs)


@pytest.mark.parametrize("name", [name for name in (*MESSAGE_PASSING, *ATTENTION) if name not in OF_ONE_WIDTH])
def test_wrong_width(name: str) -> None:
    with pytest.raises(ValueError, match="15"):
        default_twins(name, 16, 8).ours(features(60, 15), random_edges(60).index)


@layers
@pytest.mark.parametrize("kind", ["SparseTensor", "csr", "coo", "Graph of edge_index"])
def test_graph_of_another_size(name: str, kind: str) -> None:
    _, ours, _ = adjacency(kind, random_edges(50), None)
    with pytest.raises((ValueError, RuntimeError) if kind not in kinds_of(name) else ValueError, match="60"):
        default_twins(name, 16, 8).ours(features(60, 16), ours)


@all_layers
@pytest.mark.parametrize("num_nodes", [50, 70])
def test_edge_index_class_of_another_size(name: str, num_nodes: int) -> None:
    edges = random_edges(50)
    given = EdgeIndex(edges.index, sparse_size=(num_nodes, num_nodes))
    assert_same_outcome(default_twins(name, 16, 8), features(60, 16), given)


@all_layers
def test_weights_of_another_dtype(name: str) -> None:
    pair = default_twins(name, 16, 8).to(torch.float64)
    assert_same_outcome(pair, features(60, 16), random_edges(60).index)
