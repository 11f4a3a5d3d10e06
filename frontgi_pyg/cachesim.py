# SPDX-License-Identifier: MIT
r"""A model of a machine's caches: what an aggregation asks of each level, without running it.

Idea: the schedule is walked as the kernels walk it, and instead of computing, each worker's accesses to 64-byte lines
go through set-associative caches with least-recently-used replacement: an L1 and an L2 of its own, the last-level cache
(LLC) of its domain, then another domain's LLC that holds the line ("remote"), then memory. So a machine that is only
described can be asked which schedule suits it. Prefetching, translation and timing are no part of it, nor are
instructions. It is checked against Valgrind's Cachegrind in ``csrc/tests/check_cachegrind.py``.

Source: FrontGI (arXiv 2610.34911), section 4, which counts last-level misses with hardware counters. The model itself
is in ``csrc/cachesim``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from frontgi_pyg.plan import Plan
from frontgi_pyg.topology import Topology

_LINE_BYTES = 64
_VECTOR_BYTES = 64  # of AVX-512's kernels, whatever this machine has: pieces of a row are 16 of them


@dataclass(frozen=True)
class CacheLevel:
    """A cache, as the model takes it.

    Args:
        size_bytes: Its size; 0 if there is none at this level.
        ways: Lines in a set.
        hashed: Whether a hash of its address chooses a line's set, as in last-level caches, or its lowest bits.
    """

    size_bytes: int
    ways: int
    hashed: bool = False


@dataclass(frozen=True)
class LevelCounts:
    """What a level was asked, in lines of 64 bytes, by domain.

    Args:
        hits: Lines it had.
        misses: Lines it had not, and the next level was asked for.
        bytes: Bytes moved into it from below; of the remote level, out of it.
    """

    hits: tuple[int, ...]
    misses: tuple[int, ...]
    bytes: tuple[int, ...]


@dataclass(frozen=True)
class MemoryCounts:
    """What was moved between memory and the last-level caches, in bytes, by domain.

    Args:
        read_bytes: Read.
        written_back_bytes: Written when a line that had been written to was driven out. What the caches still hold in
            the end is not counted.
        streamed_bytes: Written around the caches; these lines are among the LLC's misses.
    """

    read_bytes: tuple[int, ...]
    written_back_bytes: tuple[int, ...]
    streamed_bytes: tuple[int, ...]


@dataclass(frozen=True)
class Simulation:
    """The counts of an aggregation, from :func:`simulate`.

    Args:
        l1: Of the workers' first level, summed over a domain's workers.
        l2: Of their second.
        llc: Of the last level.
        remote: Of what the LLC missed, what another domain's LLC had. All misses if it was not asked for.
        memory: The rest.
        accesses: Accesses to lines in all, those streamed included.
        sampled: Share of the work that was simulated. Below 1, counts are scaled up to the whole; where domains are
            left out, theirs are 0, and remote hits are too few.
        error: Relative standard error of the LLC's misses in all, from sampling; 0 if nothing was left out, infinite if
            too little was simulated to tell.
    """

    l1: LevelCounts
    l2: LevelCounts
    llc: LevelCounts
    remote: LevelCounts
    memory: MemoryCounts
    accesses: int
    sampled: float
    error: float

    @property
    def llc_hits(self) -> int:
        """Hits in the last-level caches, in lines."""
        return sum(self.llc.hits)

    @property
    def llc_misses(self) -> int:
        """Misses in the last-level caches, in lines, streamed lines included."""
        return sum(self.llc.misses)

    @property
    def remote_hits(self) -> int:
        """Lines that another domain's last-level cache served."""
        return sum(self.remote.hits)

    @property
    def written_bytes(self) -> int:
        """Bytes written to memory."""
        return sum(self.memory.written_back_bytes) + sum(self.memory.streamed_bytes)

    @property
    def memory_bytes(self) -> int:
        """Bytes read from memory and written to it."""
        return sum(self.memory.read_bytes) + self.written_bytes

    def __str__(self) -> str:
        lines = [f"{'level':8}{'hits':>16}{'misses':>16}{'hit rate':>10}{'MiB in':>12}"]
        for name, level in (("L1", self.l1), ("L2", self.l2), ("LLC", self.llc), ("remote", self.remote)):
            hits, misses = sum(level.hits), sum(level.misses)
            rate = hits / (hits + misses) if hits + misses else 0.0
            lines.append(f"{name:8}{hits:16,}{misses:16,}{rate:10.1%}{sum(level.bytes) / 2**20:12,.1f}")
        read, written = sum(self.memory.read_bytes) / 2**20, self.written_bytes / 2**20
        lines.append(f"memory: {read:,.1f} MiB read, {written:,.1f} MiB written")
        if self.sampled < 1:
            lines.append(f"{self.sampled:.1%} simulated; LLC misses ± {self.error:.2%} (standard error)")
        return "\n".join(lines)


def simulate(
    plan: Plan,
    topology: Topology | None = None,
    *,
    l1: CacheLevel = CacheLevel(32 << 10, 8),
    l2: CacheLevel = CacheLevel(1 << 20, 8),
    llc_ways: int = 16,
    llc_hashed: bool = True,
    max_accesses: int = 500_000_000,
    remote: bool = True,
    stream: bool | None = None,
    warm_passes: int = 0,
) -> Simulation:
    r"""Models the caches under the aggregation that ``plan`` is for: a sum over ``plan.graph`` of features of
    ``plan.width``.

    Workers are dealt to domains evenly and pull their slots as the kernels' do, taking turns of some hundred accesses.
    Caches are empty at first. Vectors are taken to have 64 bytes, and the sums to be written out, also where a layer
    would multiply them at once. It takes a byte for each line that the aggregation touches if ``remote``, and a
    thread beside the caller's, unless torch is set to one.

    Args:
        plan: What is done; from :func:`~frontgi_pyg.plan`.
        topology: The machine; by default the one planned for. The size of each domain's LLC has to be known.
        l1: Each worker's first level.
        l2: Each worker's second level.
        llc_ways: Lines in a set of a last-level cache.
        llc_hashed: Whether a hash chooses its sets.
        max_accesses: Where there would be more, about as many are simulated, and counts are scaled up: of a mixed
            schedule some of its rounds, at least two where there are two, then of some of the domains, if their caches
            are of one size, then of some windows of the rows, each long enough to fill the caches twice. After warm
            passes only domains are left out. What one worker does alone, and a hub's row, is not divided. Counts of
            windows may be off by some per cent more than ``error`` says, the less the more are simulated.
        remote: Whether another domain's LLC may serve a miss; for up to 255 domains.
        stream: Whether the output is written around the caches; by default where the kernels do it, above 16 MiB.
        warm_passes: How often the aggregation is run before it is counted.

    Returns:
        Simulation: Hits, misses and bytes by level and domain.

    Raises:
        ValueError: If the graph was written to, the size of a domain's LLC is unknown, a cache is smaller than one set,
            there are too many domains, or the arrays take more than 2^31 lines.

    Example:
        >>> import torch
        >>> from frontgi_pyg import Graph, Topology, plan
        >>> from frontgi_pyg.cachesim import simulate
        >>> graph = Graph.from_edge_index(torch.tensor([[0, 1, 1], [1, 0, 1]]), num_nodes=2)
        >>> counts = simulate(plan(graph, width=16, topology=Topology.parse("llc:1x1:1MiB")))
        >>> counts.llc_misses, counts.llc_hits  # two lines of features, two written, one each of rowptr and col
        (6, 0)
    """
    plan.graph.require_unwritten()
    topology = plan.topology if topology is None else topology
    _check(topology, l1, l2, llc_ways, max_accesses, warm_passes)
    counts, sampled, error = torch.ops.frontgi.simulate(
        plan.graph.rowptr,
        plan.graph.col,
        plan.graph.num_src_nodes,
        plan.width,
        plan.element_bytes,
        plan.schedule.numbers(),
        [domain.size_bytes for domain in topology.llc_domains],
        [l1.size_bytes, l1.ways, l1.hashed, l2.size_bytes, l2.ways, l2.hashed, llc_ways, llc_hashed],
        [remote, -1 if stream is None else int(stream), _VECTOR_BYTES, warm_passes, 0, 0, max_accesses],
    )
    l1_counts, l2_counts, llc, served = (
        LevelCounts(*_by_domain(level[:, :2]), *_by_domain(_LINE_BYTES * level[:, 2:])) for level in counts[:4]
    )
    memory = MemoryCounts(*_by_domain(_LINE_BYTES * counts[4]))
    accesses = int(counts[0, :, :2].sum() + counts[4, :, 2].sum())
    return Simulation(l1_counts, l2_counts, llc, served, memory, accesses, sampled, error)


def _by_domain(counts: Tensor) -> list[tuple[int, ...]]:
    """Returns the columns of ``[domains, numbers]``."""
    return [tuple(column.tolist()) for column in counts.T]


def _check(
    topology: Topology, l1: CacheLevel, l2: CacheLevel, llc_ways: int, max_accesses: int, warm_passes: int
) -> None:
    if not topology.llc_domains:
        raise ValueError("simulate: 'topology' has no cache domain")
    for i, domain in enumerate(topology.llc_domains):
        if not domain.size_bytes:
            raise ValueError(
                f"simulate: the size of the last-level cache of domain {i} (CPUs {_some(domain.cpus)}) is not known; "
                "state it, as in Topology.parse('llc:2x8:16MiB')"
            )
    for name, level in (("l1", l1), ("l2", l2)):
        smallest = _LINE_BYTES * level.ways
        if level.ways < 1 or level.size_bytes < 0 or 0 < level.size_bytes < smallest:
            raise ValueError(f"simulate: '{name}' must hold a line in each of its ways, or nothing (got {level})")
    if llc_ways < 1:
        raise ValueError(f"simulate: 'llc_ways' must be at least 1 (got {llc_ways})")
    if max_accesses < 1:
        raise ValueError(f"simulate: 'max_accesses' must be at least 1 (got {max_accesses})")
    if warm_passes < 0:
        raise ValueError(f"simulate: 'warm_passes' must not be negative (got {warm_passes})")


def _some(cpus: tuple[int, ...]) -> str:
    return ", ".join(map(str, cpus[:4])) + (", ..." if len(cpus) > 4 else "")
