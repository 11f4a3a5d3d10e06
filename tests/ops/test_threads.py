# SPDX-License-Identifier: MIT
"""The same bits for any threads, schedule, slices and topology; and good manners in forks, workers and threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import pytest
import torch
from torch import Tensor

from frontgi_pyg import Graph, Topology, forced_schedule, library, ops, plan

from ..graphs import Edges, power_law
from .samples import SAMPLES, Sample, Tensors, differentiated, gradients

THREADS = (1, 2, 3, 7)
SCHEDULES: list[tuple[str, int, int] | None] = [
    None,
    ("serial", 0, 0),
    ("hierarchical", 0, 0),
    ("hierarchical", 5, 0),
    ("mixed", 0, 0),
    ("mixed", 0, 16),
    ("mixed", 3, 40),
    ("mixed", 0, 7),
]
TOPOLOGIES = ("llc:1x2:16MiB", "llc:2x4:16MiB", "llc:4x4:1MiB", "llc:16x8:16MiB", "llc:2x2")
CHOSEN = [
    sample
    for sample in SAMPLES
    if str(sample)
    in (
        "aggregate-everything", "aggregate-mean-weighted", "aggregate-max-weighted", "aggregate-one-self-scale",
        "linear-bias-relu", "conv-gcn-True", "conv-gcn-False", "conv-sage-False", "conv-sage-max", "conv-everything",
    )
]  # fmt: skip
WIDTH = 72  # more than four lines of floats, and no whole number of any vector's
BIG = power_law(9000, 12000, 4000)  # more rows than one chunk of a weight's gradient


@pytest.fixture
def use_topology() -> Iterator[Callable[[str], None]]:
    """Plans for a stated machine, until the test ends."""
    yield lambda text: library.use_topology(Topology.parse(text))
    library.use_topology(library.DETECTED)


def everything(sample: Sample, graph: Graph, tensors: Tensors) -> list[Tensor]:
    """The output and all gradients."""
    leaves = differentiated(tensors)
    out = sample.run(graph, leaves)
    grad_out = torch.randn(out.shape, generator=torch.Generator().manual_seed(5)).to(out.dtype)
    try:
        return [out.detach(), *gradients(out, leaves, grad_out).values()]
    except NotImplementedError:  # an extremum with further terms
        return [out.detach()]


def same(found: list[Tensor], expected: list[Tensor]) -> bool:
    return len(found) == len(expected) and all(map(torch.equal, found, expected))


def forced(schedule: tuple[Any, int, int] | None) -> AbstractContextManager[None]:
    """The schedule, or the planner's own choice."""
    if schedule is None:
        return nullcontext()
    kind, workers, slice_width = schedule
    return forced_schedule(kind, workers=workers, slice_width=slice_width)


# The same bits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", THREADS[1:])
def test_the_graph_has_a_hub_that_is_split(threads: int) -> None:
    """What the tests below rest on: one row costs more than a slot of work, and all workers take part."""
    schedule = plan(BIG.graph(), WIDTH, workers=threads).schedule
    assert schedule.workers == threads
    cost_of_a_slot = (BIG.num_edges + BIG.num_dst) / schedule.slots
    assert torch.bincount(BIG.index[1]).max() > 3 * cost_of_a_slot


@pytest.mark.parametrize("sample", CHOSEN, ids=str)
def test_same_bits_for_any_threads_and_schedule(sample: Sample, set_threads: Callable[[int], None]) -> None:
    graph, tensors = BIG.graph(), sample.tensors(BIG, torch.float32, WIDTH, 40)
    set_threads(1)
    expected = everything(sample, graph, tensors)
    for threads in THREADS:
        set_threads(threads)
        for schedule in SCHEDULES:
            with forced(schedule):
                assert same(everything(sample, graph, tensors), expected), (threads, schedule)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_same_bits_in_the_other_dtypes(dtype: torch.dtype, set_threads: Callable[[int], None]) -> None:
    graph = BIG.graph()
    for sample in CHOSEN:
        tensors = sample.tensors(BIG, dtype, WIDTH, 40)
        set_threads(1)
        expected = everything(sample, graph, tensors)
        for threads, schedule in ((2, ("hierarchical", 0, 0)), (7, ("mixed", 0, 24)), (7, ("mixed", 0, 7))):
            set_threads(threads)
            with forced(schedule):
                assert same(everything(sample, graph, tensors), expected), (str(sample), threads, schedule)


@pytest.mark.parametrize("sample", CHOSEN, ids=str)
def test_same_bits_for_any_topology(
    sample: Sample, set_threads: Callable[[int], None], use_topology: Callable[[str], None]
) -> None:
    graph, tensors = BIG.graph(), sample.tensors(BIG, torch.float32, WIDTH, 40)
    set_threads(1)
    expected = everything(sample, graph, tensors)
    for topology in TOPOLOGIES:
        use_topology(topology)
        for threads, schedule in ((7, None), (2, ("mixed", 0, 0)), (7, ("hierarchical", 0, 0)), (7, ("mixed", 0, 16))):
            set_threads(threads)
            with forced(schedule):
                assert same(everything(sample, graph, tensors), expected), (topology, threads, schedule)


def test_same_bits_where_the_planner_itself_takes_slices(
    set_threads: Callable[[int], None], use_topology: Callable[[str], None]
) -> None:
    generator = torch.Generator().manual_seed(0)
    e = Edges(torch.randint(800, (2, 40000), generator=generator), 800, 800)
    graph = e.graph()
    topology = "llc:4x2:128KiB"
    chosen = plan(graph, WIDTH, topology=Topology.parse(topology)).schedule
    assert (chosen.kind, chosen.slice_width, chosen.domains) == ("mixed", 16, 4)
    for sample in CHOSEN:
        tensors = sample.tensors(e, torch.float32, WIDTH, 80)
        set_threads(1)
        with forced_schedule("serial"):
            expected = everything(sample, graph, tensors)
        use_topology(topology)
        for threads in THREADS:
            set_threads(threads)
            assert same(everything(sample, graph, tensors), expected), (str(sample), threads)


@pytest.mark.parametrize("threads", THREADS)
def test_conversions_are_the_same_for_any_threads(threads: int, set_threads: Callable[[int], None]) -> None:
    e = power_law(50000, 300000, 100000)
    weight = torch.rand(e.num_edges, generator=torch.Generator().manual_seed(0))
    set_threads(1)
    one = e.graph()
    norms = [one.gcn_norm(weight, loops, 1.0, torch.float32) for loops in ("none", "add", "replace", "remain")]
    set_threads(threads)
    many = e.graph()
    for name in ("rowptr", "col", "perm"):
        assert torch.equal(getattr(one, name), getattr(many, name)), name
    assert all(map(torch.equal, one.transposed(), many.transposed()))
    for loops, norm in zip(("none", "add", "replace", "remain"), norms, strict=True):
        assert all(map(torch.equal, many.gcn_norm(weight, loops, 1.0, torch.float32), norm)), loops


def test_an_index_out_of_range_is_found_by_any_worker(set_threads: Callable[[int], None]) -> None:
    set_threads(7)
    for position in (0, 150000, 299999):
        row, col = torch.zeros(2, 300000, dtype=torch.long)
        row[position] = 10
        with pytest.raises(
            IndexError, match=rf"coo_to_csr: 'row' must be in \[0, 10\) \(got 10 at position {position}\)"
        ):
            torch.ops.frontgi.coo_to_csr(row, col, 10, 10)
        row[position], col[position] = 0, -3
        with pytest.raises(
            IndexError, match=rf"coo_to_csr: 'col' must be in \[0, 10\) \(got -3 at position {position}\)"
        ):
            torch.ops.frontgi.coo_to_csr(row, col, 10, 10)


# Schedules asked for ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("parallel", {}, "plan: 'schedule' must be one of serial, hierarchical, mixed, node_parallel .got 'parallel'."),
        ("serial", {"workers": 2}, "plan: the serial schedule has one worker .got 2."),
        (
            "hierarchical",
            {"slice_width": 8},
            "plan: slice_width and block_columns are for the mixed schedule alone .got 8 and 0.",
        ),
        (
            "mixed",
            {"slice_width": -1},
            "plan: workers, slice_width and block_columns must not be negative .got 0, -1 and 0.",
        ),
        (
            "hierarchical",
            {"workers": -1},
            "plan: workers, slice_width and block_columns must not be negative .got -1, 0 and 0.",
        ),
    ],
)
def test_a_schedule_that_cannot_run_is_refused(kind: Any, options: dict[str, int], message: str) -> None:
    graph, x = BIG.graph(), torch.ones(9000, 4)
    expected = ops.aggregate(graph, x)
    with pytest.raises(ValueError, match=f"^{message}$"), forced_schedule(kind, **options):
        ops.aggregate(graph, x)
    assert torch.equal(ops.aggregate(graph, x), expected)  # nothing is left of it


def test_a_schedule_may_have_more_workers_than_there_are_threads(set_threads: Callable[[int], None]) -> None:
    graph, x = BIG.graph(), torch.randn(9000, WIDTH)
    expected = ops.aggregate(graph, x)
    set_threads(2)
    for workers in (2, 3, 64, 1000):
        with forced_schedule("hierarchical", workers=workers):
            assert torch.equal(ops.aggregate(graph, x), expected)


def test_schedules_are_nested_and_belong_to_their_thread() -> None:
    from frontgi_pyg.plan import schedule_numbers

    graph = BIG.graph()

    def asked() -> list[int]:
        return schedule_numbers(graph, torch.zeros(9000, 1), 1, None)

    seen = []
    with forced_schedule("serial"):
        with forced_schedule("mixed", workers=3, slice_width=16, block_columns=7):
            assert asked() == [2, 3, 16, 7]
            other = threading.Thread(target=lambda: seen.append(asked()))
            other.start()
            other.join()
        assert asked() == [0, 0, 0, 0]
    assert asked() == []
    assert seen == [[]]


# Manners ------------------------------------------------------------------------------------------


def test_no_setting_of_the_process_is_changed(set_threads: Callable[[int], None]) -> None:
    set_threads(3)
    mask = os.sched_getaffinity(0)
    environment = dict(os.environ)
    graph, x = BIG.graph(), torch.randn(9000, WIDTH, requires_grad=True)
    ops.conv(graph, x, torch.randn(8, WIDTH)).sum().backward()
    with pytest.raises(ValueError, match="aggregate"):
        ops.aggregate(graph, x[1:])
    assert torch.get_num_threads() == 3
    assert dict(os.environ) == environment
    assert os.sched_getaffinity(0) == mask
    for task in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):  # it has ended meanwhile
            assert os.sched_getaffinity(int(task)) == mask


@pytest.mark.parametrize("threads", [1, 2])
def test_python_threads_at_once(threads: int, set_threads: Callable[[int], None]) -> None:
    set_threads(threads)
    e = power_law(2000, 20000, 4000)
    work = [(sample, sample.tensors(e, torch.float32, WIDTH, 40)) for sample in CHOSEN]
    expected = [everything(sample, e.graph(), tensors) for sample, tensors in work]
    graph = e.graph()  # shared, its transpose not made yet
    wrong: list[str] = []

    def run(first: int) -> None:
        torch.set_num_threads(threads)
        for _ in range(3):
            for i in range(len(work)):
                i = (i + first) % len(work)
                if not same(everything(work[i][0], graph, work[i][1]), expected[i]):
                    wrong.append(str(work[i][0]))

    running = [threading.Thread(target=run, args=(3 * i,), daemon=True) for i in range(3)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in running)
    assert wrong == []


PROGRAM = """
import os, signal, sys
import torch
from torch.utils.data import DataLoader, Dataset
from frontgi_pyg import Graph, ops

generator = torch.Generator().manual_seed(0)
EDGES = torch.randint(2000, (2, 60000), generator=generator)
X = torch.randn(2000, 64, generator=generator)
SCALE = torch.rand(2000, generator=generator)
WEIGHT = torch.randn(32, 64, generator=generator)


@torch.no_grad()
def work(_=0):
    graph = Graph.from_edge_index(EDGES, 2000)
    inv_sqrt, self_scale = graph.gcn_norm(None, "remain", 1.0, torch.float32)
    results = [
        ops.aggregate(graph, X, "max"),
        ops.conv(graph, X, WEIGHT, row_scale=inv_sqrt, col_scale=inv_sqrt, self_scale=self_scale, skip_loops=True),
        ops.conv(graph, X, WEIGHT, multiply_first=False),
        ops.linear(X, WEIGHT, activation="relu"),
    ]
    return [result.numpy().tobytes() for result in results]  # compared without torch, whose own pool may be lost


class Work(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return work()


def forked(expected, serially):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # a child that hangs is ended, and fails the test
        if work() != expected:
            os._exit(3)
        os._exit(4 if serially and len(os.listdir("/proc/self/task")) > 1 else 0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    mode = sys.argv[1]
    torch.set_num_threads(1)
    expected = work()
    torch.set_num_threads(4)
    if mode == "before":
        code = forked(expected, serially=False)
        assert code == 0, code
        torch.relu(torch.randn(4000, 1000))  # torch's pool, not used by us yet
    else:
        assert work() == expected
    if mode in ("before", "after"):
        code = forked(expected, serially=True)
        assert code == 0, code
        assert work() == expected  # the parent still has its pool
    elif mode.startswith("loader"):
        _, context, workers = mode.split()
        workers = int(workers)
        loader = DataLoader(Work(), batch_size=None, num_workers=workers, multiprocessing_context=context, timeout=60)
        assert list(loader) == [expected] * 4
    else:
        with torch.multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.map_async(work, range(2)).get(timeout=60) == [expected] * 2
    print("done")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.parametrize("mode", ["before", "after"])
def test_a_forked_child_runs_serially(mode: str, run_python: Callable[..., str]) -> None:
    """torch's own pool would hang there, whoever had used it before the fork: torch alone, or we."""
    assert run_python(PROGRAM, mode) == "done\n"


@pytest.mark.parametrize("mode", ["loader fork 2", "loader spawn 1"])
def test_workers_of_a_loader(mode: str, run_python: Callable[..., str]) -> None:
    assert run_python(PROGRAM, mode) == "done\n"


def test_a_spawned_process(run_python: Callable[..., str]) -> None:
    assert run_python(PROGRAM, "spawn") == "done\n"
