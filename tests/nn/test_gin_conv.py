# SPDX-License-Identifier: MIT
"""GINConv against PyG's: its network, its epsilon, bipartite graphs."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch_geometric.nn import MLP
from torch_geometric.nn import Linear as PyGLinear

from frontgi_pyg.nn import Linear

from .compare import (
    KINDS,
    SPARSE,
    Edges,
    Twins,
    adjacency,
    assert_same_outcome,
    compare,
    distinct,
    features,
    network,
    random_edges,
    small_edges,
    twins,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def gin(network_: Any = None, **kwargs: Any) -> Twins:
    return twins("GINConv", network(16, 8) if network_ is None else network_, **kwargs)


NETWORKS: dict[str, Callable[[], Any]] = {
    "usual": lambda: network(16, 8),
    "widening": lambda: network(16, 8, hidden=40),
    "linear": lambda: nn.Linear(16, 8),
    "PyG linear": lambda: PyGLinear(16, 8),
    "without bias": lambda: nn.Sequential(nn.Linear(16, 8, bias=False), nn.ReLU()),
    "PyG linears": lambda: nn.Sequential(PyGLinear(16, 12), nn.ReLU(), PyGLinear(12, 8)),
    "norm between": lambda: nn.Sequential(nn.Linear(16, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 8)),
    "other activation": lambda: nn.Sequential(nn.Linear(16, 12), nn.ELU(), nn.Linear(12, 8), nn.ReLU()),
    "ReLU first": lambda: nn.Sequential(nn.ReLU(), nn.Linear(16, 8)),
    "ReLU in place": lambda: nn.Sequential(nn.Linear(16, 12), nn.ReLU(inplace=True), nn.Linear(12, 8)),
    "nested": lambda: nn.Sequential(nn.Sequential(nn.Linear(16, 12), nn.ReLU()), nn.Linear(12, 8)),
    "empty": nn.Sequential,
    "identity": nn.Identity,
    "MLP": lambda: MLP([16, 12, 8], norm="batch_norm"),
    "MLP without norm": lambda: MLP([16, 12, 8], norm=None),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("kwargs", [{}, {"eps": 0.3}, {"eps": -0.7, "train_eps": True}], ids=str)
def test_networks(name: str, kwargs: dict[str, Any]) -> None:
    before_a_norm = ("nn.0.bias.grad", "nn.lins.0.bias.grad")  # which takes every constant away
    vanishing = before_a_norm if name in ("norm between", "MLP") else ()
    compare(gin(NETWORKS[name](), **kwargs), features(60, 16), random_edges(60), hops=2, vanishing=vanishing)


def test_a_function_instead_of_a_network() -> None:
    compare(twins("GINConv", torch.tanh, train_eps=True), features(60, 16), random_edges(60))


@pytest.mark.parametrize(
    "kwargs",
    [{"aggr": "mean"}, {"aggr": "sum"}, {"flow": "target_to_source"}, {"node_dim": 0}, {"train_eps": True}],
    ids=str,
)
def test_arguments(kwargs: dict[str, Any]) -> None:
    compare(gin(**kwargs), features(60, 16), random_edges(60))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("aggr", ["add", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_adjacency(kind: str, aggr: str, weighted: bool) -> None:
    """The values of a SparseTensor are ignored, those of a torch.sparse matrix are not."""
    weighted &= kind.removeprefix("Graph of ") in SPARSE
    edges = random_edges(60, weighted=weighted)
    compare(gin(aggr=aggr, train_eps=True), features(60, 16), edges, kind=kind)


@pytest.mark.parametrize("aggr", ["max", "min"])
@pytest.mark.parametrize("kind", ["edge_index", "SparseTensor", "csr", "Graph of csr", "Graph of SparseTensor"])
def test_extrema(aggr: str, kind: str) -> None:
    edges = distinct(random_edges(60))
    compare(gin(aggr=aggr, eps=0.2), features(60, 16), edges, kind=kind, backward=False)
    compare(gin(aggr=aggr, eps=0.2), features(60, 16), edges, kind=kind, path="gradients of aggr")


@pytest.mark.parametrize("aggr", ["max", "min"])
def test_extrema_with_gradients_to_epsilon_alone(aggr: str) -> None:
    """Features without a gradient: ours serves, and epsilon and the network learn."""
    pair = gin(aggr=aggr, train_eps=True)
    found = []
    for layer in (pair.theirs, pair.ours):
        layer(features(60, 16), random_edges(60).index).square().sum().backward()
        found.append({name: p.grad for name, p in layer.named_parameters()})
    assert pair.ours.path_taken == "native"
    for name, grad in found[0].items():
        assert torch.allclose(found[1][name], grad, rtol=1e-4, atol=1e-4), name


@pytest.mark.parametrize("aggr", ["median", ["sum", "max"]], ids=str)
def test_other_aggregations_take_pygs_path(aggr: Any) -> None:
    pair = gin(network(32 if isinstance(aggr, list) else 16, 8), aggr=aggr)
    if isinstance(aggr, list):
        assert_same_outcome(pair, features(60, 16), random_edges(60).index)  # a root as wide as one of them
        return
    compare(pair, features(60, 16), random_edges(60), path="no kernel for aggr")


def test_decomposed_layers() -> None:
    pair = gin(decomposed_layers=2)
    assert_same_outcome(pair, features(60, 16), random_edges(60).index)
    assert pair.ours.path_taken == "decomposed_layers > 1"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("train_eps", [False, True])
def test_bipartite(kind: str, train_eps: bool) -> None:
    x = features(40, 16), features(25, 16, seed=2)
    compare(gin(eps=0.5, train_eps=train_eps), x, random_edges(40, 25), kind=kind)


@pytest.mark.parametrize("kind", KINDS)
def test_no_features_of_the_targets(kind: str) -> None:
    size = {} if kind.removeprefix("Graph of ") in SPARSE or "EdgeIndex" in kind else {"size": (40, 25)}
    found = compare(gin(train_eps=True), (features(40, 16), None), random_edges(40, 25), kind=kind, **size)
    assert found["out"].shape == (25, 8)
    assert found["eps.grad"] is None


@pytest.mark.parametrize("width", [1, 8, 17])
def test_roots_of_another_width(width: int) -> None:
    """PyG broadcasts a single column and refuses others."""
    assert_same_outcome(gin(), (features(40, 16), features(25, width)), random_edges(40, 25).index)


def test_bipartite_backwards_takes_pygs_path() -> None:
    x = features(25, 16), features(25, 16, seed=2)  # of other sizes PyG takes none
    compare(gin(flow="target_to_source"), x, random_edges(25), path="target_to_source")


@pytest.mark.parametrize("kind", ["edge_index", "Graph of edge_index"])
def test_static_graph(kind: str) -> None:
    x = torch.stack([features(60, 16, seed=s) for s in range(3)])
    compare(gin(eps=0.4, train_eps=True), x, random_edges(60), kind=kind)
    bipartite = tuple(torch.stack([features(n, 16, seed=s) for s in range(3)]) for n in (40, 25))
    compare(gin(eps=0.4, train_eps=True), bipartite, random_edges(40, 25), kind=kind)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("layer_dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_epsilon_in_another_dtype(dtype: torch.dtype, layer_dtype: torch.dtype) -> None:
    """PyG's epsilon promotes the sum: half features come out of a float layer as float."""
    pair = gin(eps=0.5).to(layer_dtype)
    assert_same_outcome(pair, features(60, 16, dtype), random_edges(60).index)


def test_hooks_inside_the_network_are_called() -> None:
    pair = gin()
    expected = pair.theirs(features(60, 16), random_edges(60).index)
    calls = []
    pair.ours.nn[0].register_forward_hook(lambda *_: calls.append("linear"))
    pair.ours.nn[1].register_forward_pre_hook(lambda *_: calls.append("relu"))
    out = pair.ours(features(60, 16), random_edges(60).index)
    assert calls == ["linear", "relu"]
    assert torch.allclose(out, expected, atol=1e-5)
    calls.clear()
    pair.ours.nn.register_forward_hook(lambda *_: calls.append("network"))
    pair.ours(features(60, 16), random_edges(60).index)
    assert calls == ["linear", "relu", "network"]


def test_our_linear_layers_inside() -> None:
    edges, x = random_edges(60), features(60, 16)
    pair = gin()
    for position in (0, 2):
        ours = Linear(pair.ours.nn[position].in_features, pair.ours.nn[position].out_features)
        ours.load_state_dict(pair.ours.nn[position].state_dict())
        pair.ours.nn[position] = ours
    compare(pair, x, edges)


def test_dropout_inside_the_network() -> None:
    network_ = nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Dropout(0.5), nn.Linear(12, 8))
    pair = gin(network_)
    found = []
    for layer in (pair.theirs, pair.ours):
        torch.manual_seed(1)
        found.append(layer(features(60, 16), random_edges(60).index))
    assert torch.allclose(*found, atol=1e-5)
    for layer in (pair.theirs, pair.ours):
        layer.eval()
    compare(pair, features(60, 16), random_edges(60))


def test_repr() -> None:
    pair = gin(train_eps=True)
    assert repr(pair.ours) == repr(pair.theirs)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edges=small_edges(bipartite=True),
    kind=st.sampled_from(KINDS),
    network_name=st.sampled_from(["usual", "widening", "linear", "identity"]),
    aggr=st.sampled_from(["add", "mean", "max", "min"]),
    missing=st.booleans(),
    eps=st.floats(-2, 2),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_any_bipartite_graph(
    edges: Edges, kind: str, network_name: str, aggr: str, missing: bool, eps: float, dtype: torch.dtype
) -> None:
    sparse = kind.removeprefix("Graph of ") in SPARSE
    weight = edges.weight.to(dtype) if edges.weight is not None and sparse else None
    edges = dataclasses.replace(edges, weight=weight)
    target = None if missing else features(edges.num_dst, 16, dtype, seed=2)
    pair = gin(NETWORKS[network_name](), aggr=aggr, eps=eps, train_eps=True).to(dtype)
    size = {} if sparse or "EdgeIndex" in kind else {"size": (edges.num_src, edges.num_dst)}
    backward = aggr in ("add", "mean")
    compare(pair, (features(edges.num_src, 16, dtype), target), edges, kind=kind, backward=backward, **size)


def test_sparse_adjacency_of_another_size() -> None:
    _, given_adjacency, _ = adjacency("csr", random_edges(40, 25), None)
    with pytest.raises(ValueError, match=r"39|40"):
        gin().ours((features(39, 16), features(25, 16)), given_adjacency)
