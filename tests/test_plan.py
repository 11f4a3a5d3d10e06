# SPDX-License-Identifier: MIT
"""``plan``: its rules, on machines that are only described, and what it must never depend on."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from frontgi_pyg import (
    AskedSchedule,
    Graph,
    Numerics,
    Plan,
    Schedule,
    Topology,
    forced_schedule,
    library,
    ops,
    plan,
)
from frontgi_pyg.plan import order_for, order_width, schedule_numbers, without_plan

from .graphs import MESSY, ODD

MIB = 1 << 20
CHIPLETS = Topology.parse("llc:16x8:16MiB")


def windows(edges: int) -> list[int]:
    """Where a footprint is known: 1 to 8, then four to an octave, up to all edges."""
    all_windows = [*range(1, 9), *(2**o + step * 2**o // 4 for o in range(3, 40) for step in (1, 2, 3, 4))]
    return all_windows[: next(i for i, window in enumerate(all_windows) if window >= edges) + 1] if edges else []


def evenly(edges: int, columns: int) -> tuple[float, ...]:
    """The footprint of edges whose sources are drawn evenly."""
    return tuple(columns * (1 - (1 - 1 / max(1, columns)) ** window) for window in windows(edges))


def sized(rows: int, edges: int, columns: int | None = None) -> Graph:
    """A graph of a size, its sources drawn evenly, without the memory it would take: nothing reads it."""
    rowptr = torch.zeros(1, dtype=torch.int64).expand(rows + 1)
    graph = Graph(rowptr, torch.zeros(1, dtype=torch.int32).expand(edges), columns, _checked=True)
    graph.once("footprint", lambda: evenly(edges, rows if columns is None else columns))
    return graph


def ruled(
    rows: int,
    edges: int,
    width: int,
    topology: Topology = CHIPLETS,
    *,
    columns: int | None = None,
    element_bytes: int = 4,
    workers: int = 128,
    footprint: Sequence[float] = (),
) -> Schedule:
    """What the op plans, by default as it must where nothing is known but sizes."""
    shape = [rows, rows if columns is None else columns, edges, width, element_bytes, 0]
    sizes_of = [domain.size_bytes or 0 for domain in topology.llc_domains]
    kind, *numbers = torch.ops.frontgi.plan_aggregate(torch.empty(0), shape, workers, sizes_of, footprint, []).tolist()
    return Schedule(("serial", "hierarchical", "mixed", "node_parallel")[kind], *numbers)


# Which schedule, where only sizes are known (compiled graphs) ---------------------------------------


@pytest.mark.parametrize(
    ("degree", "kind"), [(2, "hierarchical"), (23, "hierarchical"), (24, "mixed"), (50, "mixed"), (600, "mixed")]
)
def test_slices_where_one_fits_and_the_degree_pays_for_packing(degree: int, kind: str) -> None:
    assert ruled(100_000, degree * 100_000, 1024).kind == kind


@pytest.mark.parametrize(("degree", "kind"), [(20, "hierarchical"), (50, "hierarchical"), (51, "mixed")])
def test_the_papers_rule_where_cache_sizes_are_unknown(degree: int, kind: str) -> None:
    unknown = Topology.parse("llc:16x8")
    for schedule in (
        ruled(100_000, degree * 100_000, 1024, unknown),
        plan(sized(100_000, degree * 100_000), 1024, topology=unknown).schedule,
    ):
        assert schedule.kind == kind
        assert schedule.slice_width == (1024 // 16 if kind == "mixed" else 0)
        assert schedule.block_columns == 0


def test_one_domain_of_unknown_size_is_never_sliced() -> None:
    assert plan(sized(100_000, 60_000_000), 1024, topology=Topology.parse("llc:1x8")).schedule.kind == "hierarchical"


def test_no_slices_where_all_features_fit_or_not_one_slice_does() -> None:
    def kind(rows: int, width: int) -> str:
        return ruled(rows, 100 * rows, width).kind

    assert kind(2000, 1024) == "hierarchical"  # 8 MB fit
    assert kind(10_000, 1024) == "mixed"
    assert kind(144_000, 1024) == "mixed"  # a line of every row is 9.2 MB
    assert kind(145_000, 1024) == "hierarchical"
    assert kind(100_000, 16) == "hierarchical"  # one slice is all there is


def test_the_smallest_cache_of_all_counts() -> None:
    uneven = Topology.parse("0-7:32MiB;8-15:2MiB")
    assert ruled(10_000, 1_000_000, 1024, uneven).slice_width == 16
    even = Topology.parse("0-7:32MiB;8-15:32MiB")
    assert ruled(10_000, 1_000_000, 1024, even).slice_width == 16 * 28


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
    widths = [ruled(20_000, 2_000_000, 4096, element_bytes=size).slice_width for size in (8, 4, 2)]
    lines = int(0.55 * 16 * MIB) // (20_000 * 64)
    assert widths == [lines * 8, lines * 16, lines * 32]


sizes = st.integers(0, 1 << 22)
LLCS = st.lists(st.sampled_from([0, 256 << 10, MIB, 16 * MIB, 96 * MIB]), min_size=1, max_size=20)


@settings(max_examples=300, deadline=None)
@given(sizes, sizes, sizes, st.integers(0, 5000), st.sampled_from([2, 4, 8]), st.integers(1, 300), LLCS, st.booleans())
def test_every_plan_can_run(
    rows: int, columns: int, edges: int, width: int, element_bytes: int, workers: int, llc_bytes: list[int], known: bool
) -> None:
    shape, footprint = [rows, columns, edges, width, element_bytes, 0], evenly(edges, columns) if known else ()
    kind, used, domains, slice_width, block_columns, slots = torch.ops.frontgi.plan_aggregate(
        torch.empty(0), shape, workers, llc_bytes, footprint, []
    ).tolist()
    assert 1 <= used <= workers
    assert 1 <= domains <= min(used, len(llc_bytes))
    assert 1 <= slots <= max(1, rows)
    assert (kind == 0) <= (used == 1)
    assert (slice_width > 0) == (kind == 2)
    if kind == 2:
        assert slice_width * element_bytes % 64 == 0  # whole cache lines
        assert edges / rows >= 24 or known
        if min(llc_bytes) > 0:
            assert slice_width < width
            assert (block_columns or columns) * slice_width * element_bytes <= min(llc_bytes) or known
        assert 0 <= block_columns < columns
    if used > 1 and rows >= 16 * used:
        assert slots >= (used if kind == 1 else used // domains)


@settings(max_examples=100, deadline=None)
@given(sizes, sizes, st.integers(1, 2000), st.lists(st.integers(1, 64), min_size=2, max_size=5))
def test_more_workers_are_never_given_less_to_do(rows: int, edges: int, width: int, workers: list[int]) -> None:
    used = [
        plan(sized(rows, edges), width, topology=CHIPLETS, workers=count).schedule.workers for count in sorted(workers)
    ]
    assert used == sorted(used)


# Which schedule, where it is known how rows share their sources -----------------------------------


def test_dense_graphs_are_sliced_to_fit_a_cache_and_sparse_ones_go_by_rows() -> None:
    for nodes in (20_000, 132_534, 1_000_991):
        schedule = plan(sized(nodes, 300 * nodes), 1024, topology=CHIPLETS).schedule
        assert schedule.kind == "mixed"
        assert (schedule.block_columns or nodes) * schedule.slice_width * 4 <= 16 * MIB
        assert plan(sized(nodes, 2 * nodes), 1024, topology=CHIPLETS).schedule.kind == "hierarchical"


def test_hubs_that_stay_in_the_cache_are_worth_no_slices() -> None:
    """The same size and degree, but nine of ten edges come from a thousandth of the nodes."""
    nodes, edges = 100_000, 6_000_000
    shared = evenly(edges, nodes)
    assert plan(sized(nodes, edges), 256, topology=CHIPLETS).schedule.kind == "mixed"
    skewed = sized(nodes, edges)
    skewed._once["footprint"] = tuple(
        0.1 * one + 0.9 * hub for one, hub in zip(shared, evenly(edges, nodes // 1000), strict=True)
    )
    assert plan(skewed, 256, topology=CHIPLETS).schedule.kind == "hierarchical"


def test_a_graph_in_local_order_goes_by_rows() -> None:
    """Components of 20 nodes: a source is used a few times, soon after one another."""
    edge = torch.arange(4_000_000)
    edge_index = torch.stack([edge // 40 * 20 + edge * 7 % 20, edge // 40 * 20 + edge % 20])
    graph = Graph.from_edge_index(edge_index, 2_000_000)
    assert plan(graph, 1024, topology=CHIPLETS).schedule.kind == "hierarchical"


def test_a_graph_that_was_written_to_is_not_planned_for() -> None:
    graph = MESSY.graph()
    made = plan(graph, 16)
    graph.col.fill_(10**6)
    for ask in (graph.footprint, lambda: plan(graph, 16), lambda: made.row_boundaries, made.cost):
        with pytest.raises(ValueError, match="was written to"):
            ask()
    with pytest.raises(IndexError, match=r"^footprint: a column must be in \[0, 5\) \(got 1000000\)"):
        torch.ops.frontgi.footprint(graph.col, 5)


def test_a_footprint_is_of_the_graph_and_made_once() -> None:
    graph = MESSY.graph()
    footprint = graph.footprint()
    assert footprint[0] == 1
    assert len(footprint) == len(windows(graph.num_edges))
    assert footprint[-1] == graph.col.unique().numel()
    assert graph.footprint() is footprint
    assert ODD["no_edges"].graph().footprint() == ()


def test_an_op_takes_the_planners_choice_and_plans_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes_here = [16 * MIB]
    module = sys.modules["frontgi_pyg.plan"]  # the package's own `plan` is the function
    monkeypatch.setattr(module, "_DETECTED_SIZES", sizes_here)
    monkeypatch.setattr(module, "_SMALLEST_LLC", sizes_here[0])
    graph, x = sized(9, 9), torch.empty(9, 4)
    assert schedule_numbers(graph, x, 4, None) == []  # fits any cache: left to the op
    large, x = sized(3_000_000, 6_000_000), torch.empty(1).expand(3_000_000, 4096)
    numbers = schedule_numbers(large, x, 4096, None)
    chosen = plan(large, 4096, topology=Topology.parse("llc:1x64:16MiB"), workers=torch.get_num_threads()).schedule
    planned = AskedSchedule(chosen.kind, chosen.workers, chosen.slice_width, chosen.block_columns).numbers()
    assert numbers == [*planned, 1]
    assert without_plan(numbers) == []  # of no use on the way back
    assert without_plan(planned) == planned
    assert schedule_numbers(large, x, 4096, None) is numbers
    asked = AskedSchedule("serial")
    with forced_schedule("mixed", slice_width=16, block_columns=5):
        assert schedule_numbers(large, x, 4096, None) == [2, 0, 16, 5]
        assert schedule_numbers(large, x, 4096, asked) == [0, 0, 0, 0]


# What was asked for -------------------------------------------------------------------------------


def test_a_forced_schedule_is_completed_by_the_planner() -> None:
    graph = sized(20_000, 40_000)
    assert plan(graph, 4096, topology=CHIPLETS).schedule.kind == "hierarchical"
    forced = plan(graph, 4096, topology=CHIPLETS, schedule="mixed").schedule
    assert (forced.kind, forced.workers, forced.domains) == ("mixed", 128, 16)
    assert forced.slice_width == int(0.55 * 16 * MIB) // (20_000 * 64) * 16
    assert plan(graph, 4096, topology=CHIPLETS, schedule="mixed", slice_width=48).schedule.slice_width == 48
    blocked = plan(graph, 4096, topology=CHIPLETS, schedule="mixed", slice_width=48, block_columns=7000)
    assert blocked.column_blocks == ((0, 7000), (7000, 14_000), (14_000, 20_000))
    serial = plan(graph, 4096, topology=CHIPLETS, schedule="serial").schedule
    assert (serial.workers, serial.domains, serial.slots, serial.slice_width) == (1, 1, 1, 0)
    assert plan(graph, 4096, workers=5, schedule="hierarchical").schedule.workers == 5


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        (r"widths must not be negative \(got -1 and None\)", {"width": -1}),
        (r"widths must not be negative \(got 8 and -2\)", {"out_width": -2}),
        (
            r"'schedule' must be one of serial, hierarchical, mixed, node_parallel \(got 'parallel'\)",
            {"schedule": "parallel"},
        ),
        (
            r"slice_width and block_columns are for the mixed schedule alone \(got 8 and 0\)",
            {"schedule": "hierarchical", "slice_width": 8},
        ),
        (
            r"workers, slice_width and block_columns must not be negative \(got 0, -4 and 0\)",
            {"schedule": "mixed", "slice_width": -4},
        ),
        (r"there must be at least one domain and 1 to 65536 workers \(got 16 and 1000000\)", {"workers": 1000000}),
        (r"there must be at least one worker \(got 0\)", {"workers": 0}),
        (r"slice_width and block_columns go with schedule='mixed' \(got 16 and 0\)", {"slice_width": 16}),
        (r"rows of 1152921504606846976 features make more bytes than there are addresses", {"width": 1 << 60}),
        (r"widths are beyond any machine \(got 99999999999999999999 and None\)", {"width": 99999999999999999999}),
    ],
)
def test_what_cannot_run_is_refused(message: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^plan: {message}"):
        plan(MESSY.graph(), **{"width": 8, "topology": CHIPLETS, **arguments})


@pytest.mark.parametrize(
    ("message", "changed"),
    [
        (r"sizes must not be negative \(got -1\)", {"shape": [-1, 5, 5, 5, 4, 0]}),
        (r"sizes must not be negative \(got -7\)", {"shape": [5, 5, -7, 5, 4, 0]}),
        (r"an element has 2, 4 or 8 bytes \(got 0\)", {"shape": [5, 5, 5, 5, 0, 0]}),
        (r"a shape has 6 numbers \(got 2\)", {"shape": [5, 5]}),
        (r"there must be at least one domain", {"llc_bytes": []}),
        (r"there must be at least one domain and 1 to 65536 workers \(got 1 and 0\)", {"max_workers": 0}),
        (r"a schedule is \[kind, workers, slice_width, block_columns\] \(got 1 numbers\)", {"asked": [1]}),
        (r"a schedule's kind is 0, 1, 2 or 3 \(got 7\)", {"asked": [7, 0, 0, 0]}),
    ],
)
def test_the_bare_op_checks_its_arguments(message: str, changed: dict[str, Any]) -> None:
    arguments = {
        "like": torch.empty(0), "shape": [5, 5, 5, 5, 4, 0], "max_workers": 1, "llc_bytes": [0], "footprint": [],
        "asked": [],
    }  # fmt: skip
    with pytest.raises(ValueError, match=f"^plan: {message}"):
        torch.ops.frontgi.plan_aggregate(**{**arguments, **changed})


@pytest.mark.parametrize("sizes_asked", [{"slice_width": 2.5}, {"workers": None}, {"block_columns": True}])
def test_a_schedule_is_asked_for_in_integers(sizes_asked: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"^plan: '\w+' must be an integer \(got (2.5|None|True)\)"):
        AskedSchedule("mixed", **sizes_asked)
    with pytest.raises(ValueError, match=r"^plan: 'slice_width' is beyond any machine"):
        AskedSchedule("mixed", slice_width=1 << 63)
    with pytest.raises(TypeError, match=r"^plan: 'schedule' must be an AskedSchedule \(got 'mixed'\)"):
        ops.aggregate(MESSY.graph(), torch.ones(20, 4), schedule="mixed")  # type: ignore[arg-type]


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
    assert plan(wide, width, out_width, CHIPLETS).width == gathered


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
    assert numerics == Numerics("multiply_first", numerics.gemm, numerics.tile_rows, "float32")
    assert 1 <= plan(MESSY.graph(), 4096).numerics.tile_rows < numerics.tile_rows <= 512  # as many as fit an L2 cache
    accumulation = [plan(MESSY.graph(), 8, dtype=d).numerics.accumulation for d in (torch.float64, torch.bfloat16)]
    assert accumulation == ["float64", "float32"]


def test_a_plan_is_frozen_data() -> None:
    made = plan(MESSY.graph(), 16, 8)
    assert made == plan(MESSY.graph(), 16, 8)
    assert made != plan(MESSY.graph(), 17, 8)
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


def test_rows_are_cut_at_equal_edges() -> None:
    graph = MESSY.graph()
    made = plan(graph, 16, schedule="hierarchical", workers=3)
    boundaries = made.row_boundaries
    assert len(boundaries) == made.schedule.slots + 1
    assert boundaries[0] == 0
    assert boundaries[-1] == graph.num_dst_nodes
    assert list(boundaries) == sorted(boundaries)
    work = [int(graph.rowptr[b] - graph.rowptr[a]) + b - a for a, b in pairwise(boundaries)]
    largest_row = int(graph.rowptr.diff().max()) + 1
    assert max(work) <= sum(work) / made.schedule.slots + 1 + largest_row


def test_costs_are_in_order_of_what_is_moved() -> None:
    made = plan(sized(132_534, 40_000_000), 1024, topology=CHIPLETS)
    own = made.cost()
    for asked in made.alternatives().values():
        other = made.cost(asked)
        assert own.seconds <= other.seconds
        assert min(other.memory_bytes, other.seconds) > 0
    counted = made.cost(counted=(2 * own.memory_bytes, own.llc_bytes))
    assert counted.memory_bytes == 2 * own.memory_bytes
    assert counted.seconds > own.seconds
    by_rows = made.cost(AskedSchedule("hierarchical"))
    gathered = 40_000_000 * 4096
    assert 0.8 * gathered < by_rows.memory_bytes < 1.1 * gathered  # a sixteenth of the caches holds next to nothing


def test_it_can_say_why() -> None:
    made = plan(sized(100_000, 10_000_000), 1024, topology=CHIPLETS)
    said = made.explain()
    assert said.startswith(f"mixed in slices of {made.schedule.slice_width} features")
    for part in (
        "on 128 worker(s) over 16 of 16 cache domain(s) of 16 MiB",
        "aggregate first",
        "100000 rows, 10000000 edges, average degree 100.0, width 1024, features of 390.6 MiB",
        "Modelled: ",
        "hierarchical ",
        "node-parallel ",
        "mixed in slices of 64 (width / domains) ",
    ):
        assert part in said
    unknown = plan(ODD["no_destinations"].graph(), 19, 3, Topology.parse("llc:2x2"))
    assert unknown.explain() == (
        "serial, on 1 worker(s) over 1 of 2 cache domain(s) of unknown size, rows in 1 slot(s); multiply first. Chosen "
        "from: 0 rows, 0 edges, average degree 0.0, width 3, features of 0.0 MiB. No costs: cache sizes are unknown."
    )
    forced = plan(sized(1000, 4000), 64, topology=CHIPLETS, workers=1, schedule="serial")
    assert "Asked for, on: 1000 rows" in forced.explain()
    small = plan(sized(200, 400), 16, topology=CHIPLETS)  # as many workers on every side: none is cheaper for nothing
    assert all(small.cost().seconds <= small.cost(other).seconds for other in small.alternatives().values())
    assert "there is nothing to gather" in plan(ODD["empty"].graph(), 8, topology=CHIPLETS).explain()
    assert isinstance(made, Plan)
