# SPDX-License-Identifier: MIT
"""Loads the compiled library and tells it about the machine: its caches and its instruction set.

Nothing is started and no setting of the process is changed; two small things are written into the library's own state.
A child that this process forks once torch has threads is set to one thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

from frontgi_pyg import config, rates
from frontgi_pyg.topology import Topology

Function = TypeVar("Function", bound=Callable[..., Any])


def _load() -> None:
    found = sorted(Path(__file__).parent.glob("_C*.so")) + sorted(Path(__file__).parent.glob("_C*.pyd"))
    if not found:
        raise ImportError(
            "frontgi_pyg: the compiled library is missing; build it with "
            "'pip install --no-build-isolation -e .' in the project's folder"
        )
    try:
        torch.ops.load_library(str(found[0]))
    except OSError as error:
        raise ImportError(
            f"frontgi_pyg: the compiled library does not load with torch {torch.__version__} "
            f"({error}); frontgi_pyg needs torch 2.11 or later"
        ) from error


def use_topology(topology: Topology) -> None:
    """Makes the schedules plan for ``topology`` from now on."""
    by_cpu = topology.cpu_to_domain()
    domain_of_cpu = [-1] * (max(by_cpu, default=-1) + 1)
    for cpu, domain in by_cpu.items():
        domain_of_cpu[cpu] = domain
    llc_bytes = [domain.size_bytes or 0 for domain in topology.llc_domains]
    torch.ops.frontgi.set_machine(domain_of_cpu, llc_bytes, topology.forced)


def set_output_pool_limit(limit_bytes: int) -> None:
    """Sets how much freed memory of large outputs is kept for the next call; 0 keeps none, and frees what is kept.

    A kept block spares a call the system's zeroing of fresh pages. It is marked as one that the system may take back
    whenever it needs memory (``MADV_FREE``); monitors count it to the process until then.

    Args:
        limit_bytes: Bytes; a quarter of the machine's memory at first. Linux only: elsewhere nothing is kept.

    Raises:
        TypeError: If ``limit_bytes`` is not an integer.
        ValueError: If it is negative.
    """
    if not isinstance(limit_bytes, int) or isinstance(limit_bytes, bool):
        raise TypeError(f"set_output_pool_limit: 'limit_bytes' must be an integer (got {limit_bytes!r})")
    limit_bytes = min(limit_bytes, torch.iinfo(torch.int64).max)
    torch.ops.frontgi.set_output_pool_limit(limit_bytes)


def empty_cache() -> None:
    """Gives the memory that is kept for the next large outputs back to the system; outputs in use stay."""
    torch.ops.frontgi.empty_cache()


def call(op: Callable[..., Any], differentiated: bool, *args: Any) -> Any:
    """Calls an op, past its gradient rule where nothing will be differentiated.

    The rule is a Python function that torch runs at every call, for a third of a small op's time. Inside a transform
    (``vmap``, ``functionalize``) an input does not tell whether what it wraps is differentiated.
    """
    if differentiated or torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None:
        return op(*args)
    with torch._C._AutoDispatchBelowAutograd():
        return op(*args)


def fake_kernel(op: str) -> Callable[[Function], Function]:
    """Registers a function as what op ``frontgi::op`` returns for tensors without data (a typed decorator)."""
    decorator: Callable[[Function], Function] = torch.library.register_fake(f"frontgi::{op}")
    return decorator


def available_isas() -> tuple[str, ...]:
    """Returns the instruction sets this machine can run, narrowest first."""
    return tuple(torch.ops.frontgi.isa().split()[1:])


def current_isa() -> str:
    """Returns the instruction set in use: ``"baseline"``, ``"avx2"`` or ``"avx512"``; on AArch64 ``"neon"``."""
    return str(torch.ops.frontgi.isa().split()[0])


def _use_one_thread_where_the_pool_is_lost() -> None:
    """In a forked child, torch's pool names threads that only its parent has: whoever used it would wait for ever.

    Our kernels know. What torch runs around them in Python learns it here, as from a ``DataLoader`` in its workers.
    """
    if torch.ops.frontgi.pool_is_lost():
        torch.set_num_threads(1)


_load()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_use_one_thread_where_the_pool_is_lost)
if (_isa := config.isa_override()) is not None:
    try:
        torch.ops.frontgi.force_isa(_isa)
    except ValueError as error:
        raise ValueError(f"FRONTGI_ISA: {error}") from None
DETECTED = Topology.detect()
use_topology(DETECTED)
RATES = rates.load(DETECTED) or rates.TYPICAL
