# SPDX-License-Identifier: MIT
"""Which CPUs threads may run on: the masks as the system holds them, and as they were before any placement of ours."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

CpuSet = tuple[int, ...]

# For a thread inside pinned(), as attribute `given`: the masks that its workers and itself had before, by thread id.
placement = threading.local()


def given_masks() -> dict[int, frozenset[int]]:
    """Returns the masks from before the outermost :func:`frontgi_pyg.pinned` of this thread, by native thread id."""
    given: dict[int, frozenset[int]] = getattr(placement, "given", {})
    return given


def own_cpus() -> frozenset[int]:
    """Returns the CPUs that the calling thread was given, before any :func:`frontgi_pyg.pinned`."""
    if not hasattr(os, "sched_getaffinity"):
        return frozenset(range(os.cpu_count() or 1))
    return given_masks().get(threading.get_native_id()) or frozenset(os.sched_getaffinity(0))


def threads() -> set[int]:
    """Returns the native ids of this process's threads."""
    try:
        return {int(tid) for tid in os.listdir("/proc/self/task")}
    except OSError:  # a sandbox without /proc
        return {threading.get_native_id()}


def mask_of(tid: int) -> frozenset[int]:
    """Returns the CPUs a thread may run on; none if it has ended."""
    with suppress(ProcessLookupError):
        return frozenset(os.sched_getaffinity(tid))
    return frozenset()


def set_mask(tid: int, cpus: frozenset[int]) -> None:
    """Sets the CPUs a thread may run on, if it still lives."""
    with suppress(ProcessLookupError):
        os.sched_setaffinity(tid, cpus)
