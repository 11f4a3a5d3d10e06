# SPDX-License-Identifier: MIT
r"""What is going to be done, and why: the planner's choice as plain data.

Two types that never mix. *Numerics* (order of multiply and aggregate, GEMM, accumulation) follows from shapes and
dtype alone and decides the bits. *Schedule* (kind, workers, domains, slice width) may follow from anything and changes
no bit. The rules themselves are in ``csrc/run/schedule.cpp``: one planner serves eager calls, compiled graphs and this
module. Source: FrontGI, sections 3.2 and 4.2.2.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch

from frontgi_pyg import library
from frontgi_pyg.graph import Graph
from frontgi_pyg.topology import Topology

ScheduleKind = Literal["serial", "hierarchical", "mixed"]
Order = Literal["aggregate_first", "multiply_first"]

_KINDS: tuple[ScheduleKind, ...] = ("serial", "hierarchical", "mixed")


@dataclass(frozen=True)
class Schedule:
    """How work is dealt out; changes no bit of a result.

    Args:
        kind: ``"serial"``, ``"hierarchical"`` (rows cut by edges over the domains) or ``"mixed"`` (feature slices of
            all source rows, packed to fit a domain's cache, then rows).
        workers: Workers taking part.
        domains: Last-level-cache domains they are dealt to.
        slice_width: Features in a slice; 0 unless mixed.
        slots: Row slots of equal edges that workers take dynamically.
    """

    kind: ScheduleKind
    workers: int
    domains: int
    slice_width: int
    slots: int


@dataclass(frozen=True)
class Numerics:
    """What decides the bits; follows from shapes and dtype alone.

    Args:
        order: ``(A X) W`` or ``A (X W)``, whichever gathers narrower rows.
        gemm: The matrix multiplication used.
        accumulation: dtype in which sums are kept.
    """

    order: Order
    gemm: str
    accumulation: str


@dataclass(frozen=True)
class Plan:
    """A :class:`Schedule` and the :class:`Numerics` it carries out, with what they were chosen from."""

    schedule: Schedule
    numerics: Numerics
    average_degree: float
    width: int
    llc_bytes: tuple[int | None, ...]

    def explain(self) -> str:
        """Returns in a sentence or two what was chosen and from which numbers."""
        s = self.schedule
        caches = sorted({b for b in self.llc_bytes if b})
        known = f"{caches[0] >> 20} MiB" if caches else "unknown size"
        text = (
            f"{s.kind} on {s.workers} worker(s) over {s.domains} of {len(self.llc_bytes)} cache domain(s) of {known}: "
            f"average degree {self.average_degree:.1f}, width {self.width}"
        )
        if s.kind == "mixed":
            text += f", in slices of {s.slice_width} features of all source rows"
        return f"{text}; {self.numerics.order.replace('_', ' ')}."


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
) -> Plan:
    r"""Plans an aggregation (and, with ``out_width``, a layer) of ``graph``.

    A graph with an average degree above 24 is given slices sized so that a slice of all source rows fits a domain's
    cache, if one does; where cache sizes are unknown, the paper's rule holds: above 50 the mixed schedule with slices
    of ``width / domains``, below it the hierarchical one.

    Args:
        graph: The graph.
        width: Features a node, in elements.
        out_width: Features a node after the update; only the order of multiply and aggregate depends on it.
        topology: The machine; the detected one by default.
        dtype: Storage type of the features.
        workers: Threads at hand; by default torch's, or as many as ``topology`` has CPUs if one is given.
        schedule: Force a schedule.
        slice_width: Force a slice width, in features (mixed only).

    Raises:
        ValueError: If a size is negative or the forced schedule cannot run.

    Example:
        >>> import torch
        >>> from frontgi_pyg import Graph, plan
        >>> graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> plan(graph, width=16).schedule.kind
        'serial'
    """
    if width < 0:
        raise ValueError(f"plan: 'width' must not be negative (got {width})")
    llc_bytes = tuple(d.size_bytes for d in (topology or library.DETECTED).llc_domains)
    if workers is None:
        workers = len(topology.cpu_to_domain()) if topology else torch.get_num_threads()
    asked = [] if schedule is None else [_kind_number(schedule), 0, slice_width]
    kind, used, domains, slice_width, slots = torch.ops.frontgi.plan_aggregate(
        graph.rowptr,
        graph.num_dst_nodes,
        graph.num_src_nodes,
        graph.num_edges,
        order_width(width, out_width),
        dtype.itemsize,
        max(1, workers),
        [b or 0 for b in llc_bytes],
        asked,
    ).tolist()
    numerics = Numerics(
        order_for(width, width if out_width is None else out_width),
        "packed panels, k summed in blocks of 256",
        "float64" if dtype == torch.float64 else "float32",
    )
    degree = graph.num_edges / graph.num_dst_nodes if graph.num_dst_nodes else 0.0
    chosen = Schedule(_KINDS[kind], used, domains, slice_width, slots)
    return Plan(chosen, numerics, degree, width, llc_bytes)


def order_width(width: int, out_width: int | None) -> int:
    """Returns the width at which rows are gathered."""
    return out_width if out_width is not None and order_for(width, out_width) == "multiply_first" else width


# A schedule asked for, instead of the planner's ---------------------------------------------------

_asked: contextvars.ContextVar[tuple[int, int, int] | None] = contextvars.ContextVar(
    "frontgi_pyg_schedule", default=None
)


@contextlib.contextmanager
def forced_schedule(kind: ScheduleKind, *, workers: int = 0, slice_width: int = 0) -> Iterator[None]:
    """Runs every op inside with this schedule; results keep their bits.

    Args:
        kind: ``"serial"``, ``"hierarchical"`` or ``"mixed"``.
        workers: Workers, torch's threads if 0.
        slice_width: Features in a slice, the planner's choice if 0; mixed only.

    Raises:
        ValueError: If ``kind`` is unknown; from the op, if the schedule cannot run.
    """
    token = _asked.set((_kind_number(kind), workers, slice_width))
    try:
        yield
    finally:
        _asked.reset(token)


def asked_schedule() -> list[int]:
    """Returns the schedule asked for, as the ops take it: empty if the planner is to choose."""
    if torch.compiler.is_compiling():
        return []
    asked = _asked.get()
    return [] if asked is None else list(asked)


def _kind_number(kind: str) -> int:
    if kind not in _KINDS:
        raise ValueError(f"plan: 'schedule' must be one of {', '.join(_KINDS)} (got '{kind}')")
    return _KINDS.index(kind)
