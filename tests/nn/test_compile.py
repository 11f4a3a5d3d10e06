# SPDX-License-Identifier: MIT
"""torch.compile and torch.export: whole graphs, once for all sizes, with the results of eager calls."""

import io
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch.export import Dim
from torch_geometric import EdgeIndex

from frontgi_pyg import Graph, accelerate

from .compare import (
    ATTENTION,
    MESSAGE_PASSING,
    Edges,
    adjacency,
    assert_near,
    default_twins,
    features,
    random_edges,
)

pytestmark = pytest.mark.usefixtures("one_thread")

layers = pytest.mark.parametrize("name", [*MESSAGE_PASSING, *ATTENTION])
KINDS = ("edge_index", "EdgeIndex by col", "Graph of edge_index")


@pytest.fixture(autouse=True)
def _fresh_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing from an earlier run: what torch keeps on disk remembers guards of fake kernels since changed."""
    torch._dynamo.reset()
    # pytest listens to loggers that do not propagate, and torch then traces what it compiles; printing an EdgeIndex
    # in the middle of a compilation breaks it.
    trace = logging.getLogger("torch.__trace")
    monkeypatch.setattr(trace, "propagate", True)
    monkeypatch.setattr(trace, "handlers", [])
    with (
        warnings.catch_warnings(),
        torch._dynamo.config.patch(error_on_recompile=True),
        torch._functorch.config.patch(enable_autograd_cache=False),
        torch._inductor.config.patch(fx_graph_cache=False),
    ):
        warnings.simplefilter("ignore")
        yield


def gradients(layer: torch.nn.Module, out: torch.Tensor, x: torch.Tensor) -> list[torch.Tensor]:
    cotangent = features(*out.shape, seed=3)
    return list(torch.autograd.grad(out, [x, *layer.parameters()], cotangent))


@layers
@pytest.mark.parametrize("kind", KINDS)
def test_default_arguments_in_one_graph(name: str, kind: str) -> None:
    layer = default_twins(name, 16, 8).ours
    x = features(60, 16).requires_grad_()
    _, given, _ = adjacency(kind, random_edges(60), None)
    compiled = torch.compile(layer, fullgraph=True)
    out, expected = compiled(x, given), layer(x, given)
    assert_near("out", out, expected)
    for found, other in zip(gradients(layer, out, x), gradients(layer, expected, x), strict=True):
        assert_near("gradient", found, other)


@layers
@pytest.mark.parametrize("kind", ["edge_index", "Graph of edge_index"])
@pytest.mark.parametrize("training", [True, False])
def test_one_compilation_for_all_sizes(name: str, kind: str, training: bool) -> None:
    """Denser and sparser than the first, so that no comparison of two sizes is baked in."""
    layer = default_twins(name, 16, 8).ours
    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    with torch.set_grad_enabled(training):
        for num_nodes, num_edges in ((60, 300), (33, 99), (80, 40), (120, 119), (9, 300)):
            generator = torch.Generator().manual_seed(num_nodes)
            index = torch.randint(0, num_nodes, (2, num_edges), generator=generator)
            x = features(num_nodes, 16).requires_grad_(training)
            _, given, _ = adjacency(kind, Edges(index, num_nodes, num_nodes), None)
            out, expected = compiled(x, given), layer(x, given)
            assert_near("out", out, expected)
            if training:
                for found, other in zip(gradients(layer, out, x), gradients(layer, expected, x), strict=True):
                    assert_near("gradient", found, other)


@pytest.mark.parametrize(
    ("kwargs", "learned"),
    [
        ({"improved": True}, False),
        ({"add_self_loops": False}, False),
        ({"normalize": False}, False),
        ({"normalize": False}, True),
        # Learned weights are normalised by PyG's gcn_norm, which is compiled again for each number of loops.
    ],
    ids=str,
)
def test_edge_weights(kwargs: dict[str, Any], learned: bool) -> None:
    layer = default_twins("GCNConv", 16, 8, **kwargs).ours
    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    for num_nodes in (60, 33):
        edges = random_edges(num_nodes, weighted=True)
        x, weight = features(num_nodes, 16).requires_grad_(), edges.weight.requires_grad_(learned)
        out, expected = compiled(x, edges.index, weight), layer(x, edges.index, weight)
        assert_near("out", out, expected)
        inputs = [x, weight] if learned else [x]
        found, other = (torch.autograd.grad(result.square().sum(), inputs) for result in (out, expected))
        for ours, theirs in zip(found, other, strict=True):
            assert_near("gradient", ours, theirs)


def test_learned_weights_are_normalised_in_one_graph() -> None:
    layer = default_twins("GCNConv", 16, 8).ours
    edges = random_edges(60, weighted=True)
    weight = edges.weight.requires_grad_()
    compiled = torch.compile(layer, fullgraph=True)
    found = []
    for call in (compiled, layer):
        out = call(features(60, 16), edges.index, weight)
        found.append(torch.autograd.grad(out.square().sum(), weight)[0])
    assert_near("gradient", found[0], found[1])


def test_bipartite() -> None:
    layer = default_twins("SAGEConv", (16, 5), 8).ours
    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    for sizes in ((40, 25), (30, 50)):
        x = (features(sizes[0], 16), features(sizes[1], 5))
        index = random_edges(*sizes).index
        assert_near("out", compiled(x, index), layer(x, index))


@pytest.mark.parametrize("model", [pyg.GCN, pyg.GraphSAGE, pyg.GIN])
def test_an_accelerated_model(model: Any) -> None:
    torch.manual_seed(0)
    fast = accelerate(model(16, 24, num_layers=2, out_channels=7))
    compiled = torch.compile(fast, fullgraph=True, dynamic=True)
    for num_nodes in (60, 33):
        index = random_edges(num_nodes).index
        assert_near("out", compiled(features(num_nodes, 16), index), fast(features(num_nodes, 16), index))


def test_a_graph_with_weights_of_its_own() -> None:
    layer = default_twins("GCNConv", 16, 8).ours
    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    for num_nodes in (60, 33):
        edges = random_edges(num_nodes, weighted=True)
        graph = Graph.from_edge_index(edges.index, num_nodes, edges.weight)
        assert_near("out", compiled(features(num_nodes, 16), graph), layer(features(num_nodes, 16), graph))


def test_index_out_of_range() -> None:
    """Compiled code keeps the checks that need values."""
    compiled = torch.compile(default_twins("SAGEConv", 16, 8).ours, fullgraph=True)
    index = random_edges(60).index
    index[0, 5] = 60
    with pytest.raises(IndexError, match="60"):
        compiled(features(60, 16), index)


def test_edge_index_class_without_sizes() -> None:
    """Its sizes are part of its type for the compiler; without them one compilation serves."""
    layer = default_twins("SAGEConv", 16, 8).ours
    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    for num_nodes in (60, 33, 80):
        index = EdgeIndex(random_edges(num_nodes).index)
        assert_near("out", compiled(features(num_nodes, 16), index), layer(features(num_nodes, 16), index))


@layers
@pytest.mark.parametrize("kind", ["edge_index", "Graph of edge_index"])
@pytest.mark.parametrize("strict", [False, True])
def test_export(name: str, kind: str, strict: bool) -> None:
    """Exported, saved, loaded, and run on other numbers of nodes and edges."""
    layer = default_twins(name, 16, 8).ours
    nodes, edge_count = Dim("nodes", min=2), Dim("edges", min=2)
    sizes: Any = {1: edge_count}
    if kind != "edge_index":
        sizes = [{0: nodes + 1}, {0: Dim.DYNAMIC}, {0: Dim.DYNAMIC}, None]
    _, given, _ = adjacency(kind, random_edges(60), None)
    inputs = (features(60, 16), given)
    program = torch.export.export(layer, inputs, dynamic_shapes=({0: nodes}, sizes), strict=strict)
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    with torch.serialization.safe_globals([Graph]):  # an exported program carries its example inputs
        loaded = torch.export.load(buffer).module()
    for num_nodes in (60, 33, 80):
        _, given, _ = adjacency(kind, random_edges(num_nodes, seed=num_nodes), None)
        x = features(num_nodes, 16)
        assert_near("out", loaded(x, given), layer(x, given))
