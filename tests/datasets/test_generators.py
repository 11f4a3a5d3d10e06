# SPDX-License-Identifier: MIT
"""The generators: what they promise, the same graph from the same seed, clear refusals."""

import doctest
import re
import subprocess
import sys
from collections.abc import Callable
from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from frontgi_pyg.datasets import (
    EdgeList,
    generate,
    generators,
    kronecker,
    molecules,
    power_law,
    uniform,
)

SPECS = [
    "kronecker:10",
    "kronecker:9x4",
    "uniform:700x20",
    "powerlaw:3000x40000:2.27",
    "powerlaw:3000x40000:2.27:900",
    "molecules:5000",
    "molecules:5000x10600",
]


def degrees(graph: EdgeList, end: int) -> np.ndarray:
    return np.bincount(graph.edge_index[end].numpy(), minlength=graph.num_nodes)


def keys(graph: EdgeList) -> np.ndarray:
    sources, targets = graph.edge_index.numpy()
    return targets * graph.num_nodes + sources


def check(graph: EdgeList, *, ordered: bool = True) -> None:
    assert graph.edge_index.dtype == torch.int64
    assert graph.edge_index.is_contiguous()
    if graph.edge_index.numel():
        assert graph.edge_index.min() >= 0
        assert graph.edge_index.max() < graph.num_nodes
    if ordered:
        assert (np.diff(keys(graph)) > 0).all()


def is_symmetric(graph: EdgeList) -> bool:
    back = EdgeList(graph.edge_index.flip(0), graph.num_nodes)
    return bool((np.sort(keys(back)) == np.sort(keys(graph))).all())


def tail_exponent(degree: np.ndarray, least: int) -> float:
    """The maximum-likelihood exponent of a power law from ``least`` on (Clauset et al., 2009)."""
    tail = degree[degree >= least]
    return float(1 + tail.size / np.log(tail / (least - 0.5)).sum())


@pytest.mark.parametrize("spec", SPECS)
def test_same_seed_same_graph(spec: str) -> None:
    graph = generate(spec, seed=3)
    check(graph)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        again = generate(spec, seed=3)
    finally:
        torch.set_num_threads(threads)
    assert graph.num_nodes == again.num_nodes
    assert torch.equal(graph.edge_index, again.edge_index)
    other = generate(spec, seed=4)
    assert not torch.equal(graph.edge_index, other.edge_index)


def test_same_graph_in_another_process() -> None:
    program = (
        "from frontgi_pyg.datasets import generate; import zlib;"
        f"print(*(zlib.crc32(generate(s).edge_index.numpy().tobytes()) for s in {SPECS!r}))"
    )
    runs = {
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
        for _ in range(2)
    }
    assert len(runs) == 1


# ---- Kronecker ----------------------------------------------------------------------------------


def kronecker_expectation(scale: int, edges_drawn: int) -> tuple[float, float]:
    """Nodes with edges and distinct edges of an undirected graph without loops, by class of pair."""
    a, b, d = 0.57, 0.19, 0.05
    edges = nodes = 0.0
    for low in range(scale + 1):
        for high in range(scale + 1 - low):
            mixed = scale - low - high
            pairs = comb(scale, low) * comb(scale - low, high) * 2**mixed
            p = 2 * a**low * d**high * b**mixed
            if mixed:
                edges += pairs * -np.expm1(edges_drawn * np.log1p(-p))
    for ones in range(scale + 1):
        touch = 2 * (a + b) ** (scale - ones) * (b + d) ** ones
        loop = 2 * a ** (scale - ones) * d**ones
        nodes += comb(scale, ones) * -np.expm1(edges_drawn * np.log1p(loop - touch))
    return nodes, edges


@pytest.mark.parametrize("scale", [8, 14])
def test_kronecker(scale: int) -> None:
    graph = kronecker(scale)
    check(graph)
    assert is_symmetric(graph)
    assert degrees(graph, 0).min() > 0
    assert (graph.edge_index[0] != graph.edge_index[1]).all()
    nodes, edges = kronecker_expectation(scale, 16 << scale)
    assert graph.num_nodes == pytest.approx(nodes, rel=0.03)
    assert graph.edge_index.shape[1] == pytest.approx(edges, rel=0.03)
    # A hub far above the mean, as in the paper's S19 (41,357 of a mean of 46).
    assert degrees(graph, 1).max() > 10 * edges / nodes / (1 if scale > 8 else 4)


def test_kronecker_quadrants() -> None:
    """Without permutation, the first bits of both ends fall as a, b, c, d."""
    rng = np.random.default_rng(0)
    odds = (0.5, 0.25, 0.15)
    sources, targets = generators._quadrants(rng, 6, 200_000, odds)
    for bit in (0, 5):
        quadrant = (sources >> bit & 1) * 2 + (targets >> bit & 1)
        shares = np.bincount(quadrant, minlength=4) / quadrant.size
        np.testing.assert_allclose(shares, [*odds, 0.1], atol=0.005)


def test_kronecker_switches() -> None:
    raw = kronecker(8, 4, symmetric=False, keep_duplicates=True, keep_isolated=True)
    check(raw, ordered=False)
    assert raw.num_nodes == 256
    assert raw.edge_index.shape == (2, 1024)
    assert np.unique(keys(raw)).size < 1024
    assert (degrees(raw, 0) + degrees(raw, 1)).min() == 0

    both = kronecker(8, 4, keep_duplicates=True, keep_isolated=True)
    assert torch.equal(both.edge_index, torch.cat([raw.edge_index, raw.edge_index.flip(0)], 1))

    directed = kronecker(8, 4, symmetric=False, keep_isolated=True)
    check(directed)
    sources, targets = raw.edge_index.numpy()
    want = np.unique(keys(raw)[sources != targets])
    assert (keys(directed) == want).all()

    compact = kronecker(8, 4, symmetric=False)
    check(compact)
    used = np.unique(directed.edge_index)
    assert compact.num_nodes == used.size
    assert (used[compact.edge_index] == directed.edge_index.numpy()).all()
    assert kronecker(3, 0).edge_index.shape == (2, 0)
    assert kronecker(3, 0).num_nodes == 0


def test_block_size_bounds_only_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows longer than a block, and blocks that cut the drawn edges, leave all promises intact."""
    monkeypatch.setattr(generators, "_BLOCK", 64)
    for spec in SPECS:
        check(generate(spec))
    assert (degrees(uniform(100, 70), 1) == 70).all()


# ---- degrees ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "degree"), [(1000, 30), (40, 40), (40, 37), (5, 0), (1, 1), (0, 0)])
def test_uniform(n: int, degree: int) -> None:
    graph = uniform(n, degree)
    check(graph)
    assert graph.num_nodes == n
    assert (degrees(graph, 1) == degree).all()


def test_uniform_favours_nobody() -> None:
    graph = uniform(20, 13, seed=1)
    counts = sum(degrees(uniform(20, 13, seed=s), 0) for s in range(400))
    assert graph.num_nodes == 20
    # 400 x 20 draws of probability 13/20 each; the standard deviation is 43.
    np.testing.assert_allclose(counts, 400 * 13, atol=5 * 43)


@pytest.mark.parametrize(
    ("n", "edges", "exponent", "top"),
    [
        (15976, 488798, 2.27, 2837),  # a tenth of KA
        (16934, 116624, 2.56, 1316),  # a tenth of AX
        (14970, 1089747, 2.12, 8064),  # a tenth of PC
        (6000, 450000, 6.89, 775),  # near PT
        (1000, 20000, 2.0, 1000),  # one row is full
        (1000, 20000, 1.05, None),
        (1000, 1000, 2.5, None),
        (1000, 300, 2.5, None),
        (1000, 0, 2.5, None),
        (30, 900, 2.5, None),  # complete
        (30, 870, 2.5, 29),
        (1, 1, 3.0, None),
        (0, 0, 3.0, None),
    ],
)
def test_power_law(n: int, edges: int, exponent: float, top: int | None) -> None:
    graph = power_law(n, edges, exponent, top)
    check(graph)
    into = degrees(graph, 1)
    assert graph.num_nodes == n
    assert graph.edge_index.shape == (2, edges)
    if top is not None:
        assert into.max() == top
    if edges >= n > 0:
        assert into.min() >= 1


@pytest.mark.parametrize("exponent", [2.1, 2.5, 3.0])
def test_power_law_has_its_exponent(exponent: float) -> None:
    graph = power_law(50_000, 400_000, exponent)
    into, out = degrees(graph, 1), degrees(graph, 0)
    least = 3 * 400_000 // 50_000
    assert tail_exponent(into, least) == pytest.approx(exponent, abs=0.15)
    assert tail_exponent(out, least) == pytest.approx(exponent, abs=0.3)
    # Hubs receive and send.
    assert np.corrcoef(into, out)[0, 1] > 0.8


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_power_law(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 40))
    top = data.draw(st.integers(1, n))
    edges = data.draw(st.integers(top, top * n))
    exponent = data.draw(st.floats(1.01, 20))
    if edges >= n and top > edges - n + 1:
        top = edges - n + 1
    if edges > n * top:
        edges = n * top
    graph = power_law(n, edges, exponent, top)
    check(graph)
    assert graph.edge_index.shape[1] == edges
    assert degrees(graph, 1).max() == top


# ---- molecules ----------------------------------------------------------------------------------


def components(graph: EdgeList) -> np.ndarray:
    """Lowest id that each node reaches."""
    label = np.arange(graph.num_nodes)
    sources, targets = graph.edge_index.numpy()
    while True:
        lower = label.copy()
        np.minimum.at(lower, targets, label[sources])
        if (lower == label).all():
            return label
        label = lower


@pytest.mark.parametrize(("n", "edges"), [(20_000, None), (20_000, 42_000), (60, None), (9, None), (2, None), (2, 2)])
def test_molecules(n: int, edges: int | None) -> None:
    graph = molecules(n, edges)
    check(graph)
    assert is_symmetric(graph)
    assert graph.num_nodes == n
    into = degrees(graph, 1)
    assert into.min() >= 1
    assert into.max() <= 6
    assert (graph.edge_index[0] != graph.edge_index[1]).all()
    if edges is not None:
        assert graph.edge_index.shape[1] == edges
    elif n > 1000:
        assert graph.edge_index.shape[1] / n == pytest.approx(2.1535, abs=0.001)
    sizes = np.bincount(components(graph))
    sizes = sizes[sizes > 0]
    assert sizes.max() <= 50
    if n > 1000:
        assert sizes.min() >= 8
        assert sizes.mean() == pytest.approx(25.5, rel=0.05)


# ---- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kronecker(0), "kronecker: 'scale' must be from 1 to 31 (got 0)"),
        (lambda: kronecker(32), "kronecker: 'scale' must be from 1 to 31 (got 32)"),
        (lambda: kronecker(4, -1), "kronecker: 'edge_factor' must not be negative (got -1)"),
        (lambda: kronecker(4, a=0.9), "kronecker: 'a', 'b', 'c' must be probabilities"),
        (lambda: kronecker(4, b=-0.1), "kronecker: 'a', 'b', 'c' must be probabilities"),
        (lambda: uniform(5, 6), "uniform: 'degree' must be 0 to 5 (got 6)"),
        (lambda: uniform(-1, 0), "uniform: 'num_nodes' must not be negative (got -1)"),
        (lambda: power_law(5, 26, 2), "power_law: 'num_edges' must be 0 to 25"),
        (lambda: power_law(5, 5, 1.0), "power_law: 'exponent' must be above 1 (got 1.0)"),
        (lambda: power_law(5, 5, 2, 6), "power_law: 'max_degree' must be 0 to 5 (got 6)"),
        (lambda: power_law(5, 6, 2, 4), "power_law: 'max_degree' must be 2 at most (got 4)"),
        (lambda: power_law(5, 11, 2, 2), "power_law: 'num_edges' must be 0 to 10"),
        (lambda: molecules(1), "molecules: 'num_nodes' must be 2 at least (got 1)"),
        (lambda: molecules(100, 201), "molecules: 'num_edges' must be even"),
        (lambda: molecules(100, 400), "molecules: 'num_edges' must be even"),
        (lambda: generate("kronecker:99"), "kronecker: 'scale' must be from 1 to 31 (got 99)"),
    ],
)
def test_refusals(call: Callable[[], EdgeList], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "kronecker",
        "kronecker:",
        "kronecker:-1",
        "kronecker:1.5",
        "kronecker:17x",
        "Kronecker:9",
        "uniform:9",
        "uniform:9x",
        "uniform:9x3x3",
        "powerlaw:9x9",
        "powerlaw:9x9:a",
        "molecules:a",
        "petersen:10",
        "uniform:9x3 ",
        "kronecker:\u0669",
    ],
)
def test_a_wrong_spec_names_the_grammar(spec: str) -> None:
    with pytest.raises(ValueError, match=re.escape("'kronecker:SCALE[xEDGE_FACTOR]'")) as error:
        generate(spec)
    assert repr(spec) in str(error.value)
    for name in ("uniform:NODESxDEGREE", "powerlaw:NODESxEDGES:EXPONENT", "molecules:NODES"):
        assert name in str(error.value)


def test_specs_reach_their_generators() -> None:
    for spec, graph in [
        ("kronecker:7x3", kronecker(7, 3)),
        ("uniform:50x4", uniform(50, 4)),
        ("powerlaw:50x400:2.5:40", power_law(50, 400, 2.5, 40)),
        ("powerlaw:50x400:2", power_law(50, 400, 2)),
        ("molecules:500x1060", molecules(500, 1060)),
    ]:
        assert torch.equal(generate(spec).edge_index, graph.edge_index)


def test_examples() -> None:
    assert doctest.testmod(generators).failed == 0
