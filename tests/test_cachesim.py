# SPDX-License-Identifier: MIT
"""The cache model's Python face; what it counts is tested in ``csrc/tests/test_cachesim.cpp``."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import textwrap
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from frontgi_pyg import Graph, Plan, Topology, plan
from frontgi_pyg.cachesim import CacheLevel, LevelCounts, Simulation, simulate
from frontgi_pyg.plan import ScheduleKind

from .graphs import ODD, Edges, edges, power_law

KINDS: list[ScheduleKind] = ["serial", "hierarchical", "mixed", "node_parallel"]
SMALL = {"l1": CacheLevel(2 << 10, 8), "l2": CacheLevel(16 << 10, 8)}  # beside an LLC of 512 KiB


def uniform(nodes: int, num_edges: int, seed: int = 0) -> Graph:
    generator = torch.Generator().manual_seed(seed)
    return Graph.from_edge_index(torch.randint(nodes, (2, num_edges), generator=generator), num_nodes=nodes)


def planned(graph: Graph, width: int, topology: str, schedule: ScheduleKind | None = None, **changes: Any) -> Plan:
    """A plan with its schedule changed by hand."""
    made = plan(graph, width, topology=Topology.parse(topology), schedule=schedule)
    return dataclasses.replace(made, schedule=dataclasses.replace(made.schedule, **changes))


def check_levels(s: Simulation) -> None:
    """Each level is asked what the one above missed; streamed lines go past all but the count of the last."""
    streamed = [b // 64 for b in s.memory.streamed_bytes]
    asked = [h + m for h, m in zip(s.llc.hits, s.llc.misses, strict=True)]
    assert [h + m for h, m in zip(s.l2.hits, s.l2.misses, strict=True)] == list(s.l1.misses)
    assert asked == [m + n for m, n in zip(s.l2.misses, streamed, strict=True)]
    assert [h + m for h, m in zip(s.remote.hits, s.remote.misses, strict=True)] == [
        m - n for m, n in zip(s.llc.misses, streamed, strict=True)
    ]
    assert s.memory.read_bytes == tuple(64 * m for m in s.remote.misses)
    assert s.accesses == sum(s.l1.hits) + sum(s.l1.misses) + sum(streamed)


# Counted on paper ---------------------------------------------------------------------------------


def test_a_graph_of_two_rows() -> None:
    """Row 0 has sources 0 and 1, row 1 has 1; each of x, output, rowptr and col is read from memory once, a line each.

    Accesses: rowptr, col, x[0], x[1], out[0]; rowptr, col, x[1], out[1]. The second row's first three are in L1.
    """
    graph = Graph.from_csr(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1]), num_src_nodes=2)
    s = simulate(plan(graph, 16, topology=Topology.parse("llc:1x1:1MiB")))
    assert s.l1 == LevelCounts((3,), (6,), (384,))
    assert s.l2 == s.llc == LevelCounts((0,), (6,), (384,))
    assert s.remote == LevelCounts((0,), (6,), (0,))
    assert (s.memory.read_bytes, s.written_bytes, s.memory_bytes) == ((384,), 0, 384)
    assert (s.accesses, s.sampled, s.error) == (9, 1.0, 0.0)
    assert (s.llc_hits, s.llc_misses, s.remote_hits) == (0, 6, 0)


def test_a_second_pass_finds_all_in_l1() -> None:
    graph = Graph.from_csr(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1]), num_src_nodes=2)
    s = simulate(plan(graph, 16, topology=Topology.parse("llc:1x1:1MiB")), warm_passes=1)
    assert s.l1 == LevelCounts((9,), (0,), (0,))
    assert (s.llc_misses, s.memory_bytes) == (0, 0)


def test_a_streamed_output() -> None:
    graph = Graph.from_csr(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1]), num_src_nodes=2)
    s = simulate(plan(graph, 16, topology=Topology.parse("llc:1x1:1MiB")), stream=True)
    assert s.l2.misses == (4,)
    assert s.llc == LevelCounts((0,), (6,), (256,))
    assert s.memory.streamed_bytes == (128,)
    assert s.accesses == 9


def test_two_domains_share_a_source() -> None:
    graph = Graph.from_csr(torch.tensor([0, 1, 2]), torch.tensor([0, 0]), num_src_nodes=1)
    two = planned(graph, 16, "llc:2x1:1MiB", "hierarchical", workers=2, domains=2, slots=2)
    s = simulate(two)
    assert s.remote.hits == (0, 3)  # rowptr, col and x, which the first domain read
    assert s.remote.bytes == (0, 192)
    assert s.memory.read_bytes == (256, 64)
    assert simulate(two, remote=False).memory.read_bytes == (256, 256)


def test_by_default_large_outputs_are_streamed() -> None:
    for rows, streamed in ((16384, 0), (16384 + 1, (16384 + 1) * 1024)):
        graph = Graph.from_csr(torch.zeros(rows + 1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), 1)
        s = simulate(plan(graph, 256, topology=Topology.parse("llc:1x1:1MiB")))
        assert sum(s.memory.streamed_bytes) == streamed


# What must hold -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(ODD))
def test_levels_of_odd_graphs(name: str) -> None:
    for width in (0, 1, 40):
        check_levels(simulate(plan(ODD[name].graph(), width, topology=Topology.parse("llc:2x2:64KiB"))))


@settings(deadline=None, max_examples=60)
@given(edges(), st.sampled_from(KINDS), st.integers(1, 70), st.booleans())
def test_levels(e: Edges, kind: ScheduleKind, width: int, stream: bool) -> None:
    graph = e.graph()
    workers = 1 if kind == "serial" else 4
    changed = planned(
        graph,
        width,
        "llc:2x2:4KiB",
        kind=kind,
        workers=workers,
        domains=2 if kind in ("hierarchical", "mixed") else 1,
        slots=max(1, graph.num_dst_nodes // 2),
        slice_width=16 if kind == "mixed" else 0,
        block_columns=graph.num_src_nodes // 2 if kind == "mixed" else 0,
    )
    s = simulate(changed, l1=CacheLevel(256, 2), l2=CacheLevel(1024, 4), llc_ways=4, stream=stream)
    check_levels(s)
    assert s == simulate(changed, l1=CacheLevel(256, 2), l2=CacheLevel(1024, 4), llc_ways=4, stream=stream)


def test_dtypes_halve_and_double_the_lines_of_features() -> None:
    graph = uniform(500, 5000)
    machine = Topology.parse("llc:1x1:64MiB")
    read = {
        dtype: sum(simulate(plan(graph, 64, topology=machine, dtype=dtype)).memory.read_bytes)
        for dtype in (torch.bfloat16, torch.float32, torch.float64)
    }
    features = 1000 * 64 * 4  # and outputs, in float32
    assert read[torch.float32] - read[torch.bfloat16] == features // 2
    assert read[torch.float64] - read[torch.float32] == features


def test_slices_save_what_rows_alone_do_not() -> None:
    graph = uniform(4000, 240_000)
    machine = "llc:4x2:512KiB"

    def misses(kind: ScheduleKind, **changes: Any) -> int:
        changes = {"kind": kind, "workers": 8, "domains": 4, "slots": 128, "block_columns": 0, **changes}
        return simulate(planned(graph, 128, machine, **changes), **SMALL).llc_misses  # type: ignore[arg-type]

    node_parallel = misses("node_parallel", domains=1, slots=250)
    hierarchical = misses("hierarchical", slice_width=0)
    slices = misses("mixed", slice_width=16)
    wide = misses("mixed", slice_width=64)
    blocks = misses("mixed", slice_width=64, block_columns=1000)
    assert abs(hierarchical / node_parallel - 1) < 0.05
    assert slices < 0.2 * hierarchical
    assert 2 * slices < wide
    assert blocks < 0.6 * wide


def test_an_ideal_cache_bounds_a_hashed_one() -> None:
    """Sets of one way, chosen by remainder, suffer from a stride; sixteen ways and a hash do not."""
    graph = uniform(2000, 40_000)
    made = planned(graph, 16, "llc:1x1:256KiB", "serial")
    hashed = simulate(made, **SMALL, warm_passes=1)  # type: ignore[arg-type]
    direct = simulate(made, **SMALL, warm_passes=1, llc_ways=1, llc_hashed=False)  # type: ignore[arg-type]
    assert hashed.llc_misses < direct.llc_misses


@pytest.mark.parametrize(
    ("kind", "slice_width", "block_columns"),
    [("hierarchical", 0, 0), ("mixed", 16, 0), ("mixed", 64, 0), ("mixed", 64, 1000), ("mixed", 128, 500)],
)
def test_the_planners_estimate_is_near_the_count(kind: ScheduleKind, slice_width: int, block_columns: int) -> None:
    """Memory traffic of the closed form, against lines counted one by one; without what is written of waiting rows."""
    made = plan(
        uniform(4000, 240_000), 128, topology=Topology.parse("llc:4x2:512KiB"), schedule=kind,
        slice_width=slice_width, block_columns=block_columns,
    )  # fmt: skip
    counted = simulate(made, **SMALL, remote=False, stream=True)  # type: ignore[arg-type]
    assert made.cost().memory_bytes == pytest.approx(counted.memory_bytes, rel=0.35)


def test_more_domains_than_slots_are_not_sampled() -> None:
    graph = uniform(8, 30)
    made = plan(graph, 16, topology=Topology.parse("llc:16x8:16MiB"), schedule="hierarchical")
    s = simulate(made, max_accesses=1)
    assert s.llc_misses == simulate(made).llc_misses
    assert s.sampled == 1


def test_a_graph_that_was_written_to_is_refused() -> None:
    made = plan(uniform(8, 30), 16, topology=Topology.parse("llc:1x1:1MiB"))
    made.graph.col.fill_(10**6)
    with pytest.raises(ValueError, match="was written to"):
        simulate(made)


# Sampling -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["hierarchical", "mixed", "node_parallel"])
def test_a_sample_agrees_with_the_whole(kind: ScheduleKind) -> None:
    graph = power_law(4000, 60_000, 2000).graph()
    made = planned(
        graph,
        512,
        "llc:8x2:256KiB",
        kind=kind,
        workers=16,
        domains=1 if kind == "node_parallel" else 8,
        slots=500 if kind == "node_parallel" else 256,
        slice_width=16 if kind == "mixed" else 0,
    )
    whole = simulate(made, **SMALL)  # type: ignore[arg-type]
    sample = simulate(made, **SMALL, max_accesses=whole.accesses // 2)  # type: ignore[arg-type]
    assert (whole.sampled, whole.error) == (1.0, 0.0)
    assert 0.25 <= sample.sampled < 0.7
    assert 0 < sample.error < 0.1
    assert abs(sample.llc_misses / whole.llc_misses - 1) < 3 * sample.error + 0.02  # short windows
    assert "simulated" in str(sample)
    assert "simulated" not in str(whole)


# What is refused ----------------------------------------------------------------------------------


def test_the_caller_may_be_any_thread() -> None:
    """On a small stack, with torch set to one thread, on one CPU, forked: a thread is started where one may be."""
    code = """
        import os, threading
        import torch
        from frontgi_pyg import Graph, Topology, plan
        from frontgi_pyg.cachesim import simulate

        edges = torch.randint(500, (2, 5000), generator=torch.Generator().manual_seed(0))
        made = plan(Graph.from_edge_index(edges, 500), 64, topology=Topology.parse("llc:2x2:64KiB"), schedule="mixed")
        found = [simulate(made)]
        threading.stack_size(256 << 10)
        threads = [threading.Thread(target=lambda: found.append(simulate(made))) for _ in range(3)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        torch.set_num_threads(1)
        found.append(simulate(made))
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
            found.append(simulate(made))
        assert len(found) >= 5 and all(counts == found[0] for counts in found)
        if hasattr(os, "fork"):
            child = os.fork()
            if not child:
                os._exit(0 if simulate(made) == found[0] else 1)
            assert os.waitpid(child, 0)[1] == 0
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_cache_of_unknown_size() -> None:
    made = planned(uniform(10, 20), 16, "llc:1x1:1MiB")
    with pytest.raises(ValueError, match=r"^simulate: the size of the last-level cache of domain 0 \(CPUs 0, 1, 2, 3"):
        simulate(made, Topology.parse("llc:2x8"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"l1": CacheLevel(64, 2)}, r"'l1' must hold a line in each of its ways, or nothing \(got CacheLevel"),
        ({"l2": CacheLevel(-1, 2)}, "'l2' must hold a line"),
        ({"l2": CacheLevel(1024, 0)}, "'l2' must hold a line"),
        ({"llc_ways": 0}, r"'llc_ways' must be at least 1 \(got 0\)"),
        ({"llc_ways": 1 << 20}, "a cache must hold at least a line in each of its ways"),
        ({"max_accesses": 0}, "'max_accesses' must be at least 1"),
        ({"warm_passes": -1}, "'warm_passes' must not be negative"),
    ],
)
def test_what_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^simulate: {message}"):
        simulate(planned(uniform(10, 20), 16, "llc:1x1:1MiB"), **options)


def test_another_machine_than_planned_for() -> None:
    made = planned(uniform(2000, 40_000), 64, "llc:4x2:64KiB", "hierarchical")
    large = Topology.parse("llc:1x8:64MiB")
    assert simulate(made, large).llc_misses < simulate(made).llc_misses
    assert len(simulate(made, large).llc.hits) == 1
