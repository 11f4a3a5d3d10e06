# SPDX-License-Identifier: MIT
"""``plan``: its rules, on machines that are only described, and what it must never depend on."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from frontgi_pyg import Graph, Numerics, Plan, Topology, library, plan
from frontgi_pyg.plan import order_for, order_width

from .graphs import MESSY, ODD

MIB = 1 << 20
CHIPLETS = Topology.parse("llc:16x8:16MiB")


def sized(rows: int, edges: int, columns: int | None = None) -> Graph:
    """A graph of a size, without the memory it would take: nothing reads it."""
    rowptr = torch.zeros(1, dtype=torch.int64).expand(rows + 1)
    return Graph(rowptr, torch.zeros(1, dtype=torch.int32).expand(edges), columns, _checked=True)


# Which schedule -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("degree", "kind"), [(2, "hierarchical"), (23, "hierarchical"), (24, "mixed"), (50, "mixed"), (600, "mixed")]
)
def test_slices_where_one_fits_and_the_degree_pays_for_packing(degree: int, kind: str) -> None:
    assert plan(sized(100_000, degree * 100_000), 1024, topology=CHIPLETS).schedule.kind == kind


@pytest.mark.parametrize(("degree", "kind"), [(20, "hierarchical"), (50, "hierarchical"), (51, "mixed")])
def test_the_papers_rule_where_cache_sizes_are_unknown(degree: int, kind: str) -> None:
    schedule = plan(sized(100_000, degree * 100_000), 1024, topology=Topology.parse("llc:16x8")).schedule
    assert schedule.kind == kind
    assert schedule.slice_width == (1024 // 16 if kind == "mixed" else 0)


def test_one_domain_of_unknown_size_is_never_sliced() -> None:
    assert plan(sized(100_000, 60_000_000), 1024, topology=Topology.parse("llc:1x8")).schedule.kind == "hierarchical"


def test_no_slices_where_all_features_fit_or_not_one_slice_does() -> None:
    def kind(rows: int, width: int) -> str:
        return plan(sized(rows, 100 * rows), width, topology=CHIPLETS).schedule.kind

    assert kind(2000, 1024) == "hierarchical"  # 8 MB fit
    assert kind(10_000, 1024) == "mixed"
    assert kind(144_000, 1024) == "mixed"  # a line of every row is 9.2 MB
    assert kind(145_000, 1024) == "hierarchical"
    assert kind(100_000, 16) == "hierarchical"  # one slice is all there is


def test_the_smallest_cache_of_all_counts() -> None:
    uneven = Topology.parse("0-7:32MiB;8-15:2MiB")
    assert plan(sized(10_000, 1_000_000), 1024, topology=uneven).schedule.slice_width == 16
    even = Topology.parse("0-7:32MiB;8-15:32MiB")
    assert plan(sized(10_000, 1_000_000), 1024, topology=even).schedule.slice_width == 16 * 28


def test_small_work_uses_fewer_workers() -> None:
    used = [plan(sized(rows, 4 * rows), 64, topology=CHIPLETS).schedule.workers for rows in (1, 100, 1000, 5000, 10**6)]
    assert used[0] == 1
    assert used == sorted(used)
    assert 1 < used[3] < 128
    assert used[-1] == 128


@pytest.mark.parametrize("name", ["empty", "no_edges", "no_sources", "no_destinations", "one_loop"])
def test_next_to_nothing_is_done_by_one_worker(name: str) -> None:
    for width in (0, 1, 8):
        schedule = plan(ODD[name].graph(), width, topology=CHIPLETS).schedule
        assert (schedule.kind, schedule.workers, schedule.domains, schedule.slots) == ("serial", 1, 1, 1)


def test_half_types_are_sliced_twice_as_wide() -> None:
    graph = sized(20_000, 2_000_000)
    widths = {
        dtype: plan(graph, 4096, topology=CHIPLETS, dtype=dtype).schedule.slice_width
        for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16)
    }
    lines = int(0.55 * 16 * MIB) // (20_000 * 64)
    assert list(widths.values()) == [lines * 8, lines * 16, lines * 32, lines * 32]


sizes = st.integers(0, 1 << 22)
LLCS = st.lists(st.sampled_from([0, 256 << 10, MIB, 16 * MIB, 96 * MIB]), min_size=1, max_size=20)


@settings(max_examples=300, deadline=None)
@given(sizes, sizes, sizes, st.integers(0, 5000), st.sampled_from([2, 4, 8]), st.integers(1, 300), LLCS)
def test_every_plan_can_run(
    rows: int, columns: int, edges: int, width: int, element_bytes: int, workers: int, llc_bytes: list[int]
) -> None:
    kind, used, domains, slice_width, slots = torch.ops.frontgi.plan_aggregate(
        torch.empty(0), rows, columns, edges, width, element_bytes, workers, llc_bytes, []
    ).tolist()
    assert 1 <= used <= workers
    assert 1 <= domains <= min(used, len(llc_bytes))
    assert 1 <= slots <= max(1, rows)
    assert (kind == 0) <= (used == 1)
    assert (slice_width > 0) == (kind == 2)
    if kind == 2:
        assert slice_width * element_bytes % 64 == 0  # whole cache lines
        assert edges / rows >= 24
        if min(llc_bytes) > 0:
            assert slice_width < width
            assert columns * slice_width * element_bytes <= min(llc_bytes)
    if used > 1 and rows >= 16 * used:
        assert slots >= (used if kind == 1 else used // domains)


@settings(max_examples=100, deadline=None)
@given(sizes, sizes, st.integers(1, 2000), st.lists(st.integers(1, 64), min_size=2, max_size=5))
def test_more_workers_are_never_given_less_to_do(rows: int, edges: int, width: int, workers: list[int]) -> None:
    used = [
        plan(sized(rows, edges), width, topology=CHIPLETS, workers=count).schedule.workers for count in sorted(workers)
    ]
    assert used == sorted(used)


# What was asked for -------------------------------------------------------------------------------


def test_a_forced_schedule_is_completed_by_the_planner() -> None:
    graph = sized(20_000, 40_000)
    assert plan(graph, 4096, topology=CHIPLETS).schedule.kind == "hierarchical"
    forced = plan(graph, 4096, topology=CHIPLETS, schedule="mixed").schedule
    assert (forced.kind, forced.workers, forced.domains) == ("mixed", 128, 16)
    assert forced.slice_width == int(0.55 * 16 * MIB) // (20_000 * 64) * 16
    assert plan(graph, 4096, topology=CHIPLETS, schedule="mixed", slice_width=48).schedule.slice_width == 48
    serial = plan(graph, 4096, topology=CHIPLETS, schedule="serial").schedule
    assert (serial.workers, serial.domains, serial.slots, serial.slice_width) == (1, 1, 1, 0)
    assert plan(graph, 4096, workers=5, schedule="hierarchical").schedule.workers == 5


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        (r"'width' must not be negative \(got -1\)", {"width": -1}),
        (r"'schedule' must be one of serial, hierarchical, mixed \(got 'parallel'\)", {"schedule": "parallel"}),
        (r"slice_width is for the mixed schedule alone \(got 8\)", {"schedule": "hierarchical", "slice_width": 8}),
        (r"workers and slice_width must not be negative \(got 0 and -4\)", {"schedule": "mixed", "slice_width": -4}),
        (r"there must be at least one domain and 1 to 65536 workers \(got 16 and 1000000\)", {"workers": 1000000}),
    ],
)
def test_what_cannot_run_is_refused(message: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^plan: {message}"):
        plan(MESSY.graph(), **{"width": 8, "topology": CHIPLETS, **arguments})


@pytest.mark.parametrize(
    ("message", "changed"),
    [
        (r"sizes must not be negative \(got -1, 5, 5 and 5\)", {"rows": -1}),
        (r"sizes must not be negative", {"edges": -1}),
        (r"an element has 2, 4 or 8 bytes \(got 0\)", {"element_bytes": 0}),
        (r"there must be at least one domain", {"llc_bytes": []}),
        (r"there must be at least one domain and 1 to 65536 workers \(got 1 and 0\)", {"max_workers": 0}),
        (r"a schedule is \[kind, workers, slice_width\] \(got 1 numbers\)", {"asked": [1]}),
        (r"a schedule's kind is 0, 1 or 2 \(got 7\)", {"asked": [7, 0, 0]}),
    ],
)
def test_the_bare_op_checks_its_arguments(message: str, changed: dict[str, Any]) -> None:
    arguments = {
        "like": torch.empty(0), "rows": 5, "columns": 5, "edges": 5, "width": 5, "element_bytes": 4, "max_workers": 1,
        "llc_bytes": [0], "asked": [],
    }  # fmt: skip
    with pytest.raises(ValueError, match=f"^plan: {message}"):
        torch.ops.frontgi.plan_aggregate(**{**arguments, **changed})


def test_a_machine_without_sense_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^set_machine: a domain must be in \[-1, 1\) \(got 1\)"):
        torch.ops.frontgi.set_machine([0, 1], [0], False)
    with pytest.raises(ValueError, match=r"^set_machine: there must be at least one domain"):
        torch.ops.frontgi.set_machine([], [], False)
    assert plan(sized(9, 9), 8).llc_bytes == tuple(d.size_bytes for d in library.DETECTED.llc_domains)


# Numerics and schedule ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "out_width", "order", "gathered"),
    [
        (8, None, "aggregate_first", 8),
        (8, 8, "aggregate_first", 8),
        (8, 9, "aggregate_first", 8),
        (16, 12, "aggregate_first", 16),
        (17, 16, "multiply_first", 16),
        (64, 40, "multiply_first", 40),
        (1024, 16, "multiply_first", 16),
        (5, 0, "multiply_first", 0),
    ],
)
def test_the_order_gathers_narrower_rows(width: int, out_width: int | None, order: str, gathered: int) -> None:
    assert plan(MESSY.graph(), width, out_width).numerics.order == order
    assert order_width(width, out_width) == gathered
    if out_width is not None:
        assert order_for(width, out_width) == order
    wide = sized(50_000, 5_000_000)  # what is planned is the gathering, at the narrower width
    assert plan(wide, width, out_width, CHIPLETS).schedule == plan(wide, gathered, None, CHIPLETS).schedule


def test_numerics_follow_from_shapes_and_dtype_alone() -> None:
    machines = [Topology.parse(text) for text in ("llc:1x1", "llc:2x4:1MiB", "llc:16x8:16MiB")]
    found = {
        plan(graph, 64, 32, topology, workers=workers, schedule=kind).numerics
        for graph in (MESSY.graph(), sized(50_000, 5_000_000))
        for topology in machines
        for workers in (1, 2, 7)
        for kind in (None, "hierarchical", "mixed")
    }
    (numerics,) = found
    assert numerics == Numerics("multiply_first", numerics.gemm, "float32")
    accumulation = [plan(MESSY.graph(), 8, dtype=d).numerics.accumulation for d in (torch.float64, torch.bfloat16)]
    assert accumulation == ["float64", "float32"]


def test_a_plan_is_frozen_data() -> None:
    made = plan(MESSY.graph(), 16, 8)
    assert made == plan(MESSY.graph(), 16, 8)
    for part, name in ((made, "width"), (made.schedule, "workers"), (made.numerics, "order")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(part, name, 0)


def test_by_default_it_is_the_plan_of_this_machine_and_torchs_threads() -> None:
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            made = plan(sized(50_000, 500_000), 256)
            assert made.schedule.workers == threads
            assert made == plan(sized(50_000, 500_000), 256, topology=library.DETECTED, workers=threads)
    finally:
        torch.set_num_threads(before)


def test_it_can_say_why() -> None:
    mixed = plan(sized(100_000, 10_000_000), 1024, topology=CHIPLETS)
    assert mixed.explain() == (
        "mixed on 128 worker(s) over 16 of 16 cache domain(s) of 16 MiB: average degree 100.0, width 1024, "
        "in slices of 16 features of all source rows; aggregate first."
    )
    unknown = plan(ODD["no_destinations"].graph(), 19, 3, Topology.parse("llc:2x2"))
    assert unknown.explain() == (
        "serial on 1 worker(s) over 1 of 2 cache domain(s) of unknown size: average degree 0.0, width 19; "
        "multiply first."
    )
    assert isinstance(mixed, Plan)
