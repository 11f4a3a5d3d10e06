# SPDX-License-Identifier: MIT
"""LEConv and ClusterGCNConv against PyG's: differences taken after the sum, and loops and degrees of their own."""

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
    features,
    kinds_of,
    random_edges,
    twins,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def le(in_width: Any = 16, out_width: int = 8, **kwargs: Any) -> Twins:
    return twins("LEConv", in_width, out_width, **kwargs)


@pytest.mark.parametrize(
    "kwargs", [{}, {"bias": False}, {"aggr": "mean"}, {"flow": "target_to_source"}, {"node_dim": 0}], ids=str
)
@pytest.mark.parametrize("weighting", ["none", "given", "learned"])
@pytest.mark.parametrize("widths", [(16, 8), (8, 16), (10, 10)])
def test_arguments(kwargs: dict[str, Any], weighting: str, widths: tuple[int, int]) -> None:
    edges = random_edges(60, weighted=weighting != "none")
    if weighting == "learned":
        edges = dataclasses.replace(edges, weight=edges.weight.requires_grad_())
    compare(le(*widths, **kwargs), features(60, widths[0]), edges)


@pytest.mark.parametrize("kind", kinds_of("LEConv"))
def test_weighted_adjacency(kind: str) -> None:
    compare(le(), features(60, 16), random_edges(60, weighted=True), kind=kind)


@pytest.mark.parametrize("kind", ["edge_index", "Graph of edge_index"])
@pytest.mark.parametrize("weighted", [False, True])
def test_bipartite(kind: str, weighted: bool) -> None:
    x = (features(40, 16), features(25, 5))
    compare(le((16, 5)), x, random_edges(40, 25, weighted=weighted), kind=kind)


@pytest.mark.parametrize("aggr", ["max", "median"])
def test_other_aggregations_take_pygs_path(aggr: str) -> None:
    compare(le(aggr=aggr), features(60, 16), random_edges(60), path="aggr")


def test_what_takes_pygs_path() -> None:
    pair, index = le(), random_edges(60).index
    assert_same_outcome(pair, (features(60, 16), None), index)
    assert pair.ours.path_taken == "no target features"
    _, matrix, _ = adjacency("csr", random_edges(60), None)
    assert_same_outcome(pair, features(60, 16), matrix, torch.rand(matrix.values().numel()))
    assert pair.ours.path_taken == "edge weights beside a sparse adjacency"


# ClusterGCNConv -----------------------------------------------------------------------------------


def cluster(in_width: int = 16, out_width: int = 8, **kwargs: Any) -> Twins:
    return twins("ClusterGCNConv", in_width, out_width, **kwargs)


@pytest.mark.parametrize(
    "kwargs",
    [{}, {"diag_lambda": 1.5}, {"diag_lambda": -1.0, "bias": False}, {"flow": "target_to_source", "diag_lambda": 0.3}],
    ids=str,
)
@pytest.mark.parametrize("kind", kinds_of("ClusterGCNConv"))
@pytest.mark.parametrize("widths", [(16, 8), (8, 16), (10, 10)])
def test_loops_and_degrees(kwargs: dict[str, Any], kind: str, widths: tuple[int, int]) -> None:
    if "flow" in kwargs and "SparseTensor" in kind:
        return  # a sparse adjacency has no other flow
    compare(cluster(*widths, **kwargs), features(60, widths[0]), random_edges(60), kind=kind)


@pytest.mark.parametrize("kind", ["SparseTensor", "Graph of SparseTensor"])
def test_values_of_a_sparse_tensor_count_as_degrees(kind: str) -> None:
    compare(cluster(diag_lambda=0.5), features(60, 16), random_edges(60, weighted=True), kind=kind)


def test_weights_of_a_graph_are_not_read() -> None:
    edges = random_edges(60, weighted=True)
    layer = cluster().ours
    found = [layer(features(60, 16), adjacency("Graph of edge_index", edges, w)[1]) for w in (None, edges.weight)]
    assert torch.equal(*found)


@pytest.mark.parametrize("kind", ["csr", "coo", "csc", "Graph of csr"])
def test_torch_sparse_takes_pygs_path(kind: str) -> None:
    pair = cluster()
    theirs, ours, _ = adjacency(kind, random_edges(60), None)
    if kind == "csc":
        assert_same_outcome(pair, features(60, 16), ours)
    else:
        assert_near("out", pair.ours(features(60, 16), ours), pair.theirs(features(60, 16), theirs))
    assert pair.ours.path_taken == "a torch.sparse adjacency"


def test_loops_as_given_take_pygs_path() -> None:
    """Of which PyG asks for one at each node."""
    pair, index = cluster(add_self_loops=False), random_edges(60).index
    assert_same_outcome(pair, features(60, 16), index)
    loops = torch.arange(60).expand(2, -1)
    assert_same_outcome(pair, features(60, 16), torch.cat([index[:, index[0] != index[1]], loops], dim=1))
    assert pair.ours.path_taken == "add_self_loops=False"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types(dtype: torch.dtype) -> None:
    """PyG's layer fails on them: its weights of edges are float32."""
    pair, index = cluster(diag_lambda=0.5).to(dtype), random_edges(60).index
    x = features(60, 16, dtype)
    wide = pair.theirs.float()(x.float(), index)
    out = pair.ours.to(dtype)(x, index)
    assert out.dtype == dtype
    assert (out - wide).abs().max() <= 8 * torch.finfo(dtype).eps * wide.abs().max()


def test_static_graph_and_autocast() -> None:
    pair, index = cluster(), random_edges(60).index
    compare(pair, torch.stack([features(60, 16, seed=s) for s in range(3)]), random_edges(60))
    with torch.autocast("cpu"):
        assert_near("out", pair.ours(features(60, 16), index), pair.theirs(features(60, 16), index))
