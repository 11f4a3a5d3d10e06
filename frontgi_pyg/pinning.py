# SPDX-License-Identifier: MIT
"""Placement of torch's worker threads on cache domains, taken back afterwards (FrontGI, listing 1).

Invariant: on leaving, every thread has the mask it had; no mask is ever widened. A domain's CPUs are a set, never a
range.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from frontgi_pyg.affinity import CpuSet, given_masks, mask_of, own_cpus, placement, set_mask, threads
from frontgi_pyg.topology import Topology, list_of_cpus

_LOADED_IN_PID = os.getpid()


@contextmanager
def pinned(topology: Topology | None = None) -> Iterator[dict[int, CpuSet]]:
    """Places the calling thread and its torch workers on LLC domains, and takes all of it back.

    As in listing 1 of the paper, each thread may run on any CPU of its domain. Workers are dealt
    to domains in order, in proportion to the domains' CPUs. On leaving, also by an exception,
    each thread has the mask again that it had. Threads started inside inherit a domain's mask
    from their creator and get the mask that the caller had. Blocks may be nested: the inner one
    places anew, within the masks from before the outer one. No mask is ever widened: a worker
    that may run on no CPU of its domain stays where it is.

    Entering creates torch's workers where they do not exist yet, and costs some microseconds for
    each: wrap whole runs, not single calls. Keep ``torch.set_num_threads`` and the start of
    processes (which inherit a mask and keep it) outside. In a forked process only the calling
    thread is placed. Without ``sched_setaffinity`` (macOS, Windows) nothing is done.

    Args:
        topology (Topology, optional): The domains. (default: :meth:`Topology.detect`)

    Returns:
        dict[int, tuple[int, ...]]: The CPUs of each thread that was placed, by native thread id;
        empty where the platform cannot place threads.

    Raises:
        ValueError: If the calling thread may run on no CPU of `topology`, as where a stated one
            names CPUs that this machine lacks. Domains of which only some exist are used.

    Example:
        >>> with pinned():
        ...     pass  # out = model(x, edge_index)
    """
    if not hasattr(os, "sched_setaffinity"):
        yield {}
        return
    own = own_cpus()
    topology = Topology.detect() if topology is None else topology
    domains = [cpus for domain in topology.llc_domains if (cpus := own.intersection(domain.cpus))]
    if not domains:
        stated = list_of_cpus(topology.cpu_to_domain())
        raise ValueError(
            f"pinned: 'topology' must name a CPU that this thread may use ({list_of_cpus(own)}) (got {stated})"
        )
    workers = _torch_workers()
    before = threads()
    masks = {tid: mask for tid in workers if (mask := mask_of(tid))}
    outer = given_masks()
    given = {tid: outer.get(tid, mask) for tid, mask in masks.items()}
    by_slot = [domain for domain in domains for _ in domain]
    placed = {}
    for rank, tid in enumerate(given):
        if target := by_slot[rank * len(by_slot) // len(given)] & given[tid]:
            placed[tid] = target
    with ExitStack() as restore:
        # Run last to first, each also if another fails.
        restore.callback(setattr, placement, "given", outer)
        restore.callback(_release_newborn, before, set(placed.values()), masks[workers[0]])
        for tid in placed:
            restore.callback(set_mask, tid, masks[tid])
        for tid, target in placed.items():
            set_mask(tid, target)
        placement.given = outer | given
        yield {tid: tuple(sorted(target)) for tid, target in placed.items()}


def _release_newborn(before: set[int], inherited: set[frozenset[int]], mask: frozenset[int]) -> None:
    for tid in threads() - before:
        if mask_of(tid) in inherited:
            set_mask(tid, mask)


def _torch_workers() -> list[int]:
    """The threads of the calling thread's torch pool, in rank order; the caller is the first.

    OpenMP gives each thread a pool of its own and no list of it, so a parallel region asks each
    worker for its id, in the OpenMP library that torch uses. A forked process must not enter one:
    its pool was lost in the fork, and the region would wait for it forever.
    """
    import torch

    caller = threading.get_native_id()
    count = torch.get_num_threads()
    if count == 1 or os.getpid() != _LOADED_IN_PID:
        return [caller]
    if "parallel backend: OpenMP" in torch.__config__.parallel_info():
        import ctypes

        openmp = ctypes.CDLL(None)
        if hasattr(openmp, "GOMP_parallel"):  # LLVM's and Intel's libraries have it, too
            ids: dict[int, int] = {}

            def report(_: object) -> None:
                ids[openmp.omp_get_thread_num()] = threading.get_native_id()

            region = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(report)
            openmp.GOMP_parallel(region, None, ctypes.c_uint(count), ctypes.c_uint(0))
            return [ids[rank] for rank in sorted(ids)]
    # Another pool: any thread that Python did not start may be one of its workers.
    python = {thread.native_id for thread in threading.enumerate()}
    return [caller, *sorted(tid for tid in threads() if tid not in python)]
