# SPDX-License-Identifier: MIT
"""``calibrate()``: measures this machine once, so that the planner's costs are in its own seconds.

Idea: the planner's model is linear in what it counts (``csrc/run/cost.h``). Aggregations of small generated graphs are
timed under schedules that differ in what they do much of (gathering from a cache, from memory, packing, visiting rows),
sized by the last-level cache; the rates are what makes the model fit these times best. Neighbours on a shared machine
take a part of the cache: how much is left is found in the same way, as the part with which the model fits best.

The graphs are this module's own: nothing that ``bench/planner.py`` judges the planner by takes part.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from frontgi_pyg import library, ops
from frontgi_pyg.datasets import generate
from frontgi_pyg.graph import Graph
from frontgi_pyg.plan import AskedSchedule, Plan, forced_schedule, plan
from frontgi_pyg.rates import Rates

_LINE = 16  # features of a cache line
_LLC_BYTES = 32 << 20  # where the machine does not say
_LLC_SHARES = [share / 20 for share in range(20, 4, -1)]
_SAMPLES_MAX = 3
# A huge cache would make huge cases.
_NODES_MAX = 1 << 21
_REGION_SECONDS = 5e-6
_FREE = 1e15  # bytes a second of what the times do not show to cost anything
# Schedules that are far slower than the best of their case are no candidates: what they cost matters less.
_FAR = 4.0


@dataclass(frozen=True)
class Timed:
    """A schedule of a case, with its time.

    Args:
        made: A plan of the case.
        asked: The schedule.
        seconds: Median of its times.
    """

    made: Plan
    asked: AskedSchedule
    seconds: float


@dataclass(frozen=True)
class Calibration:
    """What was measured.

    Args:
        rates: The machine's.
        multiply_flops: Operations a second of :func:`frontgi_pyg.ops.linear`, float32, all workers.
        workers: That took part.
        error: Of the fit, relative, root mean square.
        seconds: That it took.
    """

    rates: Rates
    multiply_flops: float
    workers: int
    error: float
    seconds: float

    def __str__(self) -> str:
        r = self.rates
        return (
            f"{self.workers} worker(s), {self.seconds:.0f} s, times met within {self.error:.0%} (root mean square)\n"
            f"gathered out of the last-level cache  {r.worker_llc_bytes / 1e9:.1f} GB/s a worker, "
            f"{r.gather_seconds * 1e9:.2f} ns an edge beside\n"
            f"gathered from memory                  {r.worker_memory_bytes / 1e9:.1f} GB/s a worker\n"
            f"packed                                {r.pack_bytes / 1e9:.1f} GB/s a worker, "
            f"{r.pack_row_seconds * 1e9:.1f} ns a row beside\n"
            f"a row begun and written               {r.row_seconds * 1e9:.1f} ns\n"
            f"of the last-level cache there is      {r.llc_share:.0%}\n"
            f"multiplied                            {self.multiply_flops / 1e9:.0f} GFLOP/s"
        )


def calibrate(seconds: float = 5.0) -> Calibration:
    """Measures this machine with torch's threads; nothing is kept (see :func:`frontgi_pyg.rates.save`).

    Args:
        seconds: After which no more samples are taken; the first sample of each case always is.

    Returns:
        Rates, for :func:`frontgi_pyg.plan`, and what they are worth.
    """
    begun = time.perf_counter()
    timed = [one for case in _cases() for one in _time(*case, until=begun + seconds)]
    flops = _multiply_flops()
    rates, error = fit(timed)
    return Calibration(rates, flops, torch.get_num_threads(), error, time.perf_counter() - begun)


def _cases() -> Iterator[tuple[Graph, int, list[AskedSchedule]]]:
    """Graphs by how much of the cache one line of each node takes, with widths and schedules."""
    llc = min((domain.size_bytes or _LLC_BYTES) for domain in library.DETECTED.llc_domains)
    whole = min(llc // 64, _NODES_MAX)  # nodes whose lines fill it
    for share, degree, width, lines, blocks in (
        (1 / 32, 64, 512, (1, 2, 4, 8), ()),
        (1 / 16, 100, 128, (1, 2, 4), ()),
        (1 / 8, 40, 256, (1, 2, 4), ((2, 2), (8, 3))),
        (1 / 4, 8, 1024, (1, 2, 4), ((4, 2),)),
        (1 / 2, 12, 256, (1, 2, 4), ((1, 2), (2, 3), (4, 5))),
    ):
        nodes = max(64, int(whole * share))
        # The large ones take the most time: of these, one of each kind.
        for skewed in (False, True) if share < 1 / 4 else (share > 1 / 4,):
            kind = f"powerlaw:{nodes}x{nodes * degree}:2.3" if skewed else f"uniform:{nodes}x{degree}"
            edges = generate(kind)
            schedules = [AskedSchedule("hierarchical")]
            schedules += [AskedSchedule("mixed", 0, _LINE * n) for n in lines]
            schedules += [AskedSchedule("mixed", 0, _LINE * n, -(-nodes // cut)) for n, cut in blocks]
            yield Graph.from_edge_index(edges.edge_index, edges.num_nodes), width, schedules
    nodes = whole // 2
    molecules = generate(f"molecules:{nodes}x{2 * nodes}")
    yield (
        Graph.from_edge_index(molecules.edge_index, molecules.num_nodes),
        128,
        [AskedSchedule("hierarchical"), AskedSchedule("mixed", 0, 4 * _LINE)],
    )


def _time(graph: Graph, width: int, schedules: Sequence[AskedSchedule], until: float) -> list[Timed]:
    x = torch.ones(graph.num_src_nodes, width)
    made = plan(graph, width)
    seconds: list[list[float]] = [[] for _ in schedules]
    for turn in range(_SAMPLES_MAX + 1):
        if turn > 1 and time.perf_counter() > until:
            break
        for asked, times in zip(schedules, seconds, strict=True):
            with forced_schedule(asked.kind, slice_width=asked.slice_width, block_columns=asked.block_columns):
                start = time.perf_counter()
                ops.aggregate(graph, x)
                took = time.perf_counter() - start
            if turn:  # the first one touches fresh memory
                times.append(took)
    return [Timed(made, a, statistics.median(t)) for a, t in zip(schedules, seconds, strict=True)]


def _multiply_flops() -> float:
    x, weight = torch.ones(8192, 512), torch.ones(512, 512)
    best = float("inf")
    for _ in range(_SAMPLES_MAX):
        start = time.perf_counter()
        ops.linear(x, weight)
        best = min(best, time.perf_counter() - start)
    return 2.0 * x.numel() * weight.size(0) / best


def fit(timed: Sequence[Timed]) -> tuple[Rates, float]:
    """Returns the rates by which the planner's model comes nearest to the times, and how near that is.

    Least squares of relative errors, no rate negative, for each of some parts of the cache that may be ours; the error
    is the root of their mean.
    """
    best: dict[int, float] = {}
    for one in timed:
        best[id(one.made)] = min(best.get(id(one.made), one.seconds), one.seconds)
    near = [one for one in timed if one.seconds <= _FAR * best[id(one.made)]]
    fits = [_fit_with(share, near) for share in _LLC_SHARES]
    return min(fits, key=lambda fitted: fitted[1])


def _fit_with(llc_share: float, timed: Sequence[Timed]) -> tuple[Rates, float]:
    probe = Rates(0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, llc_share)
    rows, seconds = [], []
    for one in timed:
        cost = replace(one.made, rates=probe).cost(one.asked)
        workers = one.asked.workers or one.made.threads
        streamed = cost.memory_bytes - cost.packed_bytes
        counts = cost.gathers, cost.llc_bytes, streamed, cost.row_visits, cost.packed_rows, cost.packed_bytes
        rows.append([count / workers / one.seconds for count in counts])
        seconds.append(1 - cost.regions * _REGION_SECONDS / one.seconds)
    system, target = torch.tensor(rows, dtype=torch.float64), torch.tensor(seconds, dtype=torch.float64)
    gather, llc, memory, row, pack_row, pack = (solved := _nonnegative(system, target)).tolist()
    error = (system @ solved - target).square().mean().sqrt().item()
    memory_rate = 1 / memory if memory else _FREE
    rates = Rates(
        gather_seconds=gather,
        worker_llc_bytes=1 / llc if llc else _FREE,
        worker_memory_bytes=memory_rate,
        domain_memory_bytes=0.0,  # the workers were measured together: what they get is what there is for each
        shared_memory_bytes=memory_rate,
        row_seconds=row,
        pack_row_seconds=pack_row,
        pack_bytes=1 / pack if pack else _FREE,
        region_seconds=_REGION_SECONDS,
        llc_share=llc_share,
    )
    return rates, error


def _nonnegative(system: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Least squares in which what would be negative is left out, the most negative first."""
    columns = list(range(system.size(1)))
    scale = system.abs().amax(0).clamp_min(torch.finfo(system.dtype).tiny)
    while True:
        found = torch.linalg.lstsq(system[:, columns] / scale[columns], target[:, None], driver="gelsd").solution[:, 0]
        if bool((found >= 0).all()):
            solved = torch.zeros(system.size(1), dtype=system.dtype)
            solved[columns] = found / scale[columns]
            return solved
        del columns[int(found.argmin())]
