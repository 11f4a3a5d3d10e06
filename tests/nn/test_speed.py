# SPDX-License-Identifier: MIT
"""That nothing gets slower where it must not: with more threads, or at small widths. Timed, so marked slow.

Sides are called in turn and medians compared, with a tenth allowed for noise. ``bench/`` has the figures.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch_geometric.typing import SparseTensor

from frontgi_pyg import Graph, ops
from frontgi_pyg.datasets import kronecker

from .compare import MESSAGE_PASSING, Twins, default_twins, network, twins

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*Sparse .* tensor support is in beta")]

NOISE = 1.1
SIZES = {"Cora's": (2708, 10_556), "PubMed's": (19_717, 88_648), "Debian's": (63_681, 341_510)}


def median_seconds(
    sides: Mapping[str, Callable[[], Any]], rounds: int = 25, before: Callable[[str], None] = lambda name: None
) -> dict[str, float]:
    """Calls the sides in turn, each after ``before`` and once unseen, and returns their medians."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    with torch.no_grad():
        for _ in range(rounds):
            for name, call in sides.items():
                before(name)
                call()
                start = time.perf_counter()
                call()
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def edge_index_of(size: str) -> tuple[int, torch.Tensor]:
    nodes, edges = SIZES[size]
    generator = torch.Generator().manual_seed(0)
    skewed = (torch.rand(edges, generator=generator) ** 3 * nodes).long()  # some nodes have many edges, most a few
    return nodes, torch.stack([skewed, torch.randint(0, nodes, (edges,), generator=generator)])


@pytest.mark.parametrize("width", [16, 256])
@pytest.mark.parametrize("size", SIZES)
def test_19_more_threads_are_never_slower(size: str, width: int, set_threads: Callable[[int], None]) -> None:
    nodes, edge_index = edge_index_of(size)
    graph = Graph.from_edge_index(edge_index, nodes)
    x, weight = torch.randn(nodes, width), torch.randn(width, width)
    calls: dict[str, Callable[[], Any]] = {
        "aggregate": lambda: ops.aggregate(graph, x),
        "conv": lambda: ops.conv(graph, x, weight),
        "linear": lambda: ops.linear(x, weight),
        "a few rows": lambda: ops.linear(x[:20], weight),
    }
    for name, call in calls.items():
        counts = range(1, (os.cpu_count() or 1) + 1)
        seconds = median_seconds({str(threads): call for threads in counts}, before=lambda name: set_threads(int(name)))
        fewer = seconds["1"]
        for threads in counts:
            assert seconds[str(threads)] <= NOISE * fewer, (name, seconds)
            fewer = min(fewer, seconds[str(threads)])


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", MESSAGE_PASSING)
def test_20_small_widths_are_never_slower_than_pygs_better_path(name: str, size: str, width: int) -> None:
    nodes, edge_index = edge_index_of(size)
    pair, seconds = beside_pyg(name, nodes, edge_index, width)
    assert pair.ours.path_taken == "native"
    ours = seconds.pop("ours")
    assert ours <= NOISE * min(seconds.values()), (ours, seconds)


@pytest.mark.parametrize("scale", [14, 15, 16, 17])
@pytest.mark.parametrize("name", [n for n in MESSAGE_PASSING if n not in ("GCNConv", "SAGEConv", "GINConv", "SGConv")])
def test_wide_features_are_twice_as_fast_as_on_pygs_better_path(name: str, scale: int) -> None:
    graph = kronecker(scale, 8)
    pair, seconds = beside_pyg(name, graph.num_nodes, graph.edge_index, 256, rounds=3)
    assert pair.ours.path_taken == "native"
    ours = seconds.pop("ours")
    assert 2 * ours <= min(seconds.values()), (ours, seconds)


def beside_pyg(
    name: str, nodes: int, edge_index: torch.Tensor, width: int, rounds: int = 25
) -> tuple[Twins, dict[str, float]]:
    """Median seconds of our layer and of PyG's on every adjacency, the results compared first."""
    source, target = edge_index
    x = torch.randn(nodes, width)
    pair = twins(name, network(width, width, width)) if name == "GINConv" else default_twins(name, width, width)
    matrix = torch.sparse_coo_tensor(torch.stack([target, source]), torch.ones(source.numel()), (nodes, nodes))
    compressed = matrix.to_sparse_csr()
    adj_t = SparseTensor(row=target, col=source, sparse_sizes=(nodes, nodes))
    with torch.no_grad():
        expected, out = pair.theirs(x, edge_index), pair.ours(x, edge_index)
    assert (out - expected).abs().max() <= 1e-5 * expected.abs().max()
    return pair, median_seconds(
        {
            "ours": lambda: pair.ours(x, edge_index),
            "edge_index": lambda: pair.theirs(x, edge_index),
            "CSR": lambda: pair.theirs(x, compressed),
            "SparseTensor": lambda: pair.theirs(x, adj_t),
        },
        rounds,
    )
