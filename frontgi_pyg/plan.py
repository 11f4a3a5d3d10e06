# SPDX-License-Identifier: MIT
r"""What is going to be done, and why: the planner's choice as plain data.

Two types that never mix. *Numerics* (order of multiply and aggregate, GEMM, tile height, accumulation) follows from
shapes and dtype alone and decides the bits. *Schedule* (kind, workers, domains, slices, blocks) may follow from
anything and changes no bit. The rules themselves are in ``csrc/run/schedule.cpp`` and ``cost.cpp``: one planner serves
eager calls, compiled graphs (which know sizes alone) and this module. Source: FrontGI, sections 3.2 and 4.2.2.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field
from typing import Literal

import torch

from frontgi_pyg import library
from frontgi_pyg.graph import Graph
from frontgi_pyg.rates import TYPICAL, Rates
from frontgi_pyg.topology import Topology

ScheduleKind = Literal["serial", "hierarchical", "mixed", "node_parallel"]
Order = Literal["aggregate_first", "multiply_first"]

KINDS: tuple[ScheduleKind, ...] = ("serial", "hierarchical", "mixed", "node_parallel")


@dataclass(frozen=True)
class AskedSchedule:
    """A schedule asked for instead of the planner's; what is left at 0 is filled in.

    Args:
        kind: ``"serial"``, ``"hierarchical"``, ``"mixed"`` or ``"node_parallel"``.
        workers: Workers, torch's threads if 0.
        slice_width: Features in a slice, the planner's choice if 0; mixed only.
        block_columns: Source rows packed at a time, all if 0; mixed only.

    Raises:
        ValueError: If ``kind`` is unknown; from the op, if the schedule cannot run.
    """

    kind: ScheduleKind
    workers: int = 0
    slice_width: int = 0
    block_columns: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"plan: 'schedule' must be one of {', '.join(KINDS)} (got '{self.kind}')")
        for name in ("workers", "slice_width", "block_columns"):
            size = getattr(self, name)
            if not isinstance(size, int) or isinstance(size, bool):
                raise TypeError(f"plan: '{name}' must be an integer (got {size!r})")
            if abs(size) >= 1 << 62:
                raise ValueError(f"plan: '{name}' is beyond any machine (got {size})")

    def numbers(self) -> list[int]:
        """Returns the schedule as the ops take it."""
        return [KINDS.index(self.kind), self.workers, self.slice_width, self.block_columns]


@dataclass(frozen=True)
class Schedule:
    """How work is dealt out; changes no bit of a result.

    Args:
        kind: ``"serial"``, ``"hierarchical"`` (rows cut by edges over the domains), ``"mixed"`` (feature slices of all
            source rows, packed to fit a domain's cache, then rows) or ``"node_parallel"`` (chunks of some 16 rows to
            whichever worker is free, much as PyG and DGL do; never chosen, there to be compared with).
        workers: Workers taking part.
        domains: Last-level-cache domains they are dealt to.
        slice_width: Features in a slice; 0 unless mixed.
        block_columns: Source rows packed and gathered at a time; 0 for all. Mixed only.
        slots: Row slots of equal edges that workers take dynamically.
    """

    kind: ScheduleKind
    workers: int
    domains: int
    slice_width: int
    block_columns: int
    slots: int

    @classmethod
    def from_numbers(cls, numbers: list[int]) -> Schedule:
        """Returns a schedule of the planner's op."""
        kind, *sizes = numbers
        return cls(KINDS[kind], *sizes)

    def numbers(self) -> list[int]:
        """Returns the inverse of :meth:`from_numbers`."""
        kind, *sizes = astuple(self)
        return [KINDS.index(kind), *sizes]

    def asked(self) -> AskedSchedule:
        """Returns what to ask for to get this schedule again."""
        return AskedSchedule(self.kind, self.workers, self.slice_width, self.block_columns)

    def __str__(self) -> str:
        if self.kind != "mixed":
            return self.kind.replace("_", "-")
        blocks = f" and blocks of {self.block_columns} source rows" if self.block_columns else ""
        return f"mixed in slices of {self.slice_width} features{blocks}"


@dataclass(frozen=True)
class Numerics:
    """What decides the bits; follows from shapes and dtype alone.

    Args:
        order: ``(A X) W`` or ``A (X W)``, whichever gathers narrower rows.
        gemm: The matrix multiplication used.
        tile_rows: Rows that are multiplied at a time; a row's bits do not depend on it.
        accumulation: dtype in which sums are kept.
    """

    order: Order
    gemm: str
    tile_rows: int
    accumulation: str


@dataclass(frozen=True)
class Cost:
    """What an aggregation costs by the planner's model (``csrc/run/cost.h``).

    Args:
        memory_bytes: Bytes that do not come out of a last-level cache, or go to memory.
        llc_bytes: Bytes gathered out of last-level caches, or packed into them.
        gathers: Edges, once for each slice.
        row_visits: Rows begun, once for each slice; one that goes on in another block of columns counts four more.
        packed_rows: Source rows packed, once for each slice.
        packed_bytes: Bytes from memory, the part of them that is packed.
        regions: Times that all workers wait for the last of them.
        seconds: From all of these and the plan's rates. Those of a machine that was not calibrated are a server core's,
            to compare schedules by.
    """

    memory_bytes: float
    llc_bytes: float
    gathers: float
    row_visits: float
    packed_rows: float
    packed_bytes: float
    regions: float
    seconds: float


@dataclass(frozen=True)
class Plan:
    """A :class:`Schedule` and the :class:`Numerics` it carries out, with what they were chosen from.

    Args:
        schedule: How the work is dealt out.
        numerics: What decides the bits.
        graph: What is aggregated over.
        width: Features a gathered row, in elements.
        element_bytes: Bytes of an element as stored.
        fused: Whether rows are multiplied as they are aggregated.
        topology: The machine planned for.
        threads: Workers that were at hand.
        forced: Whether the schedule was asked for.
        rates: How fast the machine is; those of ``csrc/run/rates.h`` if :obj:`None`.
    """

    schedule: Schedule
    numerics: Numerics
    graph: Graph = field(repr=False, compare=False)
    width: int
    element_bytes: int
    fused: bool
    topology: Topology = field(repr=False)
    threads: int
    forced: bool = False
    rates: Rates | None = field(default=None, repr=False)

    @property
    def average_degree(self) -> float:
        """Edges a destination."""
        return self.graph.num_edges / self.graph.num_dst_nodes if self.graph.num_dst_nodes else 0.0

    @property
    def llc_bytes(self) -> tuple[int | None, ...]:
        """The size of each domain's last-level cache."""
        return tuple(d.size_bytes for d in self.topology.llc_domains)

    @property
    def column_blocks(self) -> tuple[tuple[int, int], ...]:
        """The source rows ``[begin, end)`` that are gathered at a time, one after the other."""
        columns = self.graph.num_src_nodes
        block = self.schedule.block_columns or max(1, columns)
        return tuple((begin, min(columns, begin + block)) for begin in range(0, max(1, columns), block))

    @property
    def row_boundaries(self) -> tuple[int, ...]:
        """The first row of each slot, and the number of rows: slots of equal edges, to which hub rows belong whole."""
        self.graph.require_unwritten()
        return tuple(torch.ops.frontgi.slot_rows(self.graph.rowptr, self.schedule.slots).tolist())

    def cost(self, schedule: AskedSchedule | None = None, counted: tuple[float, float] | None = None) -> Cost:
        """Returns what this schedule, or another one, costs by the model.

        Args:
            schedule: Another schedule.
            counted: Bytes from memory and from last-level caches as counted elsewhere (:mod:`frontgi_pyg.cachesim`)
                instead of estimated ones.

        Returns:
            Bytes, visits and seconds of all workers together.

        Raises:
            ValueError: If ``schedule`` cannot run, or the graph was written to.
        """
        graph, sizes = self.graph, _sizes(self.topology)
        shape = _shape(graph, self.width, self.element_bytes, self.fused)
        asked = (schedule or self.schedule.asked()).numbers()
        known = list(graph.footprint()), asked, list(counted or ()), _rate_numbers(self.rates)
        return Cost(*torch.ops.frontgi.estimate_cost(graph.rowptr, shape, self.threads, sizes, *known).tolist())

    def alternatives(self) -> dict[str, AskedSchedule]:
        """Returns the schedules that the choice is explained against, by name; of as many workers as it has."""
        workers = self.schedule.workers
        line = 64 // self.element_bytes
        domains = max(1, len(self.topology.llc_domains))
        papers = max(line, -(-self.width // domains // line) * line)
        return {
            "node-parallel": AskedSchedule("node_parallel", workers),
            "hierarchical": AskedSchedule("hierarchical", workers),
            f"mixed in slices of {papers} (width / domains)": AskedSchedule("mixed", workers, papers),
            f"mixed in slices of {line} (one cache line)": AskedSchedule("mixed", workers, line),
        }

    def explain(self) -> str:
        """Returns in a paragraph what was chosen, from which numbers, and what the alternatives would cost."""
        s, graph = self.schedule, self.graph
        caches = sorted({b for b in self.llc_bytes if b})
        known = " or ".join(f"{b / 2**20:g} MiB" for b in caches) if caches else "unknown size"
        features = graph.num_src_nodes * self.width * self.element_bytes
        source = "Asked for, on" if self.forced else "Chosen from"
        text = (
            f"{s}, on {s.workers} worker(s) over {s.domains} of {len(self.llc_bytes)} cache domain(s) of {known}, rows "
            f"in {s.slots} slot(s); {self.numerics.order.replace('_', ' ')}. {source}: {graph.num_dst_nodes} rows, "
            f"{graph.num_edges} edges, average degree {self.average_degree:.1f}, width {self.width}, features of "
            f"{features / 2**20:.1f} MiB."
        )
        if not caches or not graph.num_edges or not self.width:
            return text + " No costs: " + ("cache sizes are unknown." if not caches else "there is nothing to gather.")
        own = self.cost()
        whose = "a server core's" if self.rates in (None, TYPICAL) else "this machine's"
        text += (
            f" Modelled: {own.memory_bytes / 2**20:.0f} MiB through memory, {own.llc_bytes / 2**20:.0f} MiB out of "
            f"caches, {own.seconds * 1e3:.3g} ms by {whose} rates."
        )
        others = ((name, self.cost(asked)) for name, asked in self.alternatives().items())
        costs = [f"{name} {c.seconds / own.seconds:.2f} ({c.memory_bytes / 2**20:.0f} MiB)" for name, c in others]
        return f"{text} Time relative to it (and memory traffic): {', '.join(costs)}."


def order_for(width: int, out_width: int) -> Order:
    """Returns the order that gathers narrower rows, ``(A X) W`` when they are as wide.

    Widths are compared in steps of 16, a cache line of float32, whatever the dtype: 12 are gathered as slowly as 16,
    and ``A (X W)`` writes them once more.
    """
    lines, out_lines = -(-width // 16), -(-out_width // 16)
    return "multiply_first" if out_lines < lines else "aggregate_first"


def plan(
    graph: Graph,
    width: int,
    out_width: int | None = None,
    topology: Topology | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    workers: int | None = None,
    schedule: ScheduleKind | None = None,
    slice_width: int = 0,
    block_columns: int = 0,
    rates: Rates | None = None,
) -> Plan:
    r"""Plans an aggregation (and, with ``out_width``, a layer) of ``graph``.

    Where the features do not fit a domain's cache, every way of slicing them is costed against going by rows, from the
    graph's degrees and from how its rows share their sources (:meth:`Graph.footprint`); where cache sizes are unknown,
    the paper's rule holds: above an average degree of 50 the mixed schedule with slices of ``width / domains``, below
    it the hierarchical one.

    Args:
        graph: The graph.
        width: Features a node, in elements.
        out_width: Features a node after the update. It decides the order of multiply and aggregate, and whether rows
            are multiplied as they are aggregated.
        topology: The machine; the detected one by default.
        dtype: Storage type of the features.
        workers: Threads at hand; by default torch's, or as many as ``topology`` has CPUs if one is given.
        schedule: Force a schedule.
        slice_width: Force a slice width, in features (mixed only).
        block_columns: Force the number of source rows gathered at a time (mixed only).
        rates: How fast the machine is; by default this one's as ``frontgi calibrate`` found it, and a server core's
            where it was not run, and for any other ``topology``.

    Returns:
        The plan: schedule, numerics, and what they were chosen from.

    Raises:
        ValueError: If a size is negative, there is no worker, the forced schedule cannot run, a slice or block is
            forced without it, or the graph was written to.

    Example:
        >>> import torch
        >>> from frontgi_pyg import Graph, plan
        >>> graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> plan(graph, width=16).schedule.kind
        'serial'
    """
    if width < 0 or (out_width is not None and out_width < 0):
        raise ValueError(f"plan: widths must not be negative (got {width} and {out_width})")
    if max(width, out_width or 0) >= 1 << 62:
        raise ValueError(f"plan: widths are beyond any machine (got {width} and {out_width})")
    if schedule is None and (slice_width or block_columns):
        raise ValueError(
            f"plan: slice_width and block_columns go with schedule='mixed' (got {slice_width} and {block_columns})"
        )
    graph.require_unwritten()
    machine = topology or library.DETECTED
    if workers is None:
        workers = max(1, len(topology.cpu_to_domain())) if topology else torch.get_num_threads()
    if workers < 1:
        raise ValueError(f"plan: there must be at least one worker (got {workers})")
    asked = [] if schedule is None else AskedSchedule(schedule, 0, slice_width, block_columns).numbers()
    order = order_for(width, width if out_width is None else out_width)
    gathered = order_width(width, out_width)
    fused = out_width is not None and order == "aggregate_first"
    numerics = Numerics(
        order,
        "packed panels, k summed in blocks of 256",
        torch.ops.frontgi.tile_rows(width, dtype.itemsize),
        "float64" if dtype == torch.float64 else "float32",
    )
    shape = _shape(graph, gathered, dtype.itemsize, fused)
    if rates is None and machine == library.DETECTED:
        rates = library.RATES
    chosen = _choose(graph, shape, workers, _sizes(machine), asked, rates)
    return Plan(chosen, numerics, graph, gathered, dtype.itemsize, fused, machine, workers, bool(asked), rates)


def _choose(
    graph: Graph, shape: list[int], workers: int, sizes: list[int], asked: list[int], rates: Rates | None
) -> Schedule:
    # Features that fit are never sliced, and caches of unknown size go by a rule: edges need not be looked at.
    footprint = [] if asked or not min(sizes) or _fits(shape, sizes) else list(graph.footprint())
    numbers = torch.ops.frontgi.plan_aggregate(
        graph.rowptr, shape, workers, sizes, footprint, asked, _rate_numbers(rates)
    )
    return Schedule.from_numbers(numbers.tolist())


def _rate_numbers(rates: Rates | None) -> list[float]:
    return [] if rates is None else rates.numbers()


def _fits(shape: list[int], sizes: list[int]) -> bool:
    _, columns, _, width, element_bytes, _ = shape
    return 2 * columns * width * element_bytes <= min(sizes)


def _shape(graph: Graph, width: int, element_bytes: int, fused: bool) -> list[int]:
    """As the planner's ops take it."""
    return [graph.num_dst_nodes, graph.num_src_nodes, graph.num_edges, width, element_bytes, int(fused)]


def _sizes(topology: Topology) -> list[int]:
    return [d.size_bytes or 0 for d in topology.llc_domains] or [0]


def order_width(width: int, out_width: int | None) -> int:
    """Returns the width at which rows are gathered."""
    return out_width if out_width is not None and order_for(width, out_width) == "multiply_first" else width


# The schedule of a call ---------------------------------------------------------------------------

_asked: contextvars.ContextVar[AskedSchedule | None] = contextvars.ContextVar("frontgi_pyg_schedule", default=None)


@contextlib.contextmanager
def forced_schedule(
    kind: ScheduleKind, *, workers: int = 0, slice_width: int = 0, block_columns: int = 0
) -> Iterator[None]:
    """Runs every op inside with this schedule; results keep their bits. Compiled functions plan for themselves.

    Args:
        kind: See :class:`AskedSchedule`, as for the others.
        workers: Workers, torch's threads if 0.
        slice_width: Features in a slice, the planner's choice if 0; mixed only.
        block_columns: Source rows packed at a time, all if 0; mixed only.

    Raises:
        ValueError: If ``kind`` is unknown; from the op, if the schedule cannot run.
    """
    token = _asked.set(AskedSchedule(kind, workers, slice_width, block_columns))
    try:
        yield
    finally:
        _asked.reset(token)


def schedule_numbers(
    graph: Graph, x: torch.Tensor, width: int, asked: AskedSchedule | None, *, fused: bool = False
) -> list[int]:
    """Returns the schedule of a call on ``x``, as the ops take it; empty if they are to choose by the average degree.

    First comes what is asked for by the call, then :func:`forced_schedule`, then the planner, whose choice the graph
    remembers. Compiled graphs leave it to the op, as do features that fit any cache.
    """
    if asked is not None:
        if not isinstance(asked, AskedSchedule):
            raise TypeError(f"plan: 'schedule' must be an AskedSchedule (got {asked!r})")
        return asked.numbers()
    if torch.compiler.is_compiling():
        return []
    asked = _asked.get()
    if asked is not None:
        return asked.numbers()
    item = x.dtype.itemsize
    if _SMALLEST_LLC == 0 or 2 * x.numel() * item <= _SMALLEST_LLC:
        return []
    shape = _shape(graph, width, item, fused)
    threads = torch.get_num_threads()

    def choose() -> list[int]:
        return [*_choose(graph, shape, threads, _DETECTED_SIZES, [], library.RATES).asked().numbers(), _PLANNED]

    return graph.once(("schedule", width, item, fused, threads), choose)


def without_plan(numbers: list[int]) -> list[int]:
    """Returns what was asked for of a schedule; nothing of one that was planned for another adjacency."""
    return [] if len(numbers) > 4 else numbers


_PLANNED = 1  # a fifth number
_DETECTED_SIZES = _sizes(library.DETECTED)
_SMALLEST_LLC = min(_DETECTED_SIZES)
