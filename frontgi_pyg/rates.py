# SPDX-License-Identifier: MIT
"""How fast this machine is, as the planner needs it: measured once by ``frontgi calibrate``, kept in a file.

The file lies in the user's cache directory (``FRONTGI_CALIBRATION`` names another one, or ``off``) and holds for the
processor and the caches that it names. Without one the planner goes by the rates of a core of 2022 (:data:`TYPICAL`),
and for machines that are only described by those of ``csrc/run/rates.h``. Rates choose among schedules, which change no
bit of a result.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from frontgi_pyg import config
from frontgi_pyg.topology import Topology


@dataclass(frozen=True)
class Rates:
    """What one worker does in a second, or the seconds that one thing takes it; see ``csrc/run/rates.h``.

    Args:
        gather_seconds: An edge in one slice, beside its bytes.
        worker_llc_bytes: Bytes a second gathered out of the last-level cache.
        worker_memory_bytes: Bytes a second gathered from memory.
        domain_memory_bytes: Bytes a second between memory and all workers of a domain.
        shared_memory_bytes: A worker's share of all memory's bytes a second; where it comes to more than the domains',
            it counts.
        row_seconds: A row begun and written, in one slice.
        pack_row_seconds: A source row packed, in one slice, beside its bytes.
        pack_bytes: Bytes a second packed.
        region_seconds: All workers waking, and waiting for the last.
        llc_share: The part of a last-level cache that is there for us.
    """

    gather_seconds: float
    worker_llc_bytes: float
    worker_memory_bytes: float
    domain_memory_bytes: float
    shared_memory_bytes: float
    row_seconds: float
    pack_row_seconds: float
    pack_bytes: float
    region_seconds: float
    llc_share: float

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, float) or not math.isfinite(value) or value < 0:
                raise ValueError(f"rates: '{name}' must be a number, finite and not negative (got {value!r})")
        positive = self.worker_llc_bytes, self.worker_memory_bytes, self.pack_bytes, self.llc_share
        if min(positive) <= 0 or max(self.domain_memory_bytes, self.shared_memory_bytes) <= 0:
            raise ValueError("rates: bytes a second and the share of a cache must be positive")

    def numbers(self) -> list[float]:
        """Returns the rates as the planner's ops take them."""
        return list(astuple(self))


TYPICAL = Rates(
    gather_seconds=0.0,
    worker_llc_bytes=130e9,
    worker_memory_bytes=16.5e9,
    domain_memory_bytes=0.0,
    shared_memory_bytes=16.5e9,
    row_seconds=9e-9,
    pack_row_seconds=42e-9,
    pack_bytes=4.3e9,
    region_seconds=5e-6,
    llc_share=0.75,
)
"""What :func:`frontgi_pyg.calibrate.calibrate` found on a Zen 4 (``bench/results``), and more of the cache than its
neighbours left there."""


def described(topology: Topology) -> dict[str, Any]:
    """Returns what rates hold for: the processor, its caches, and how many CPUs there are for us."""
    return {
        "processor": _processor(),
        "llc_bytes": [domain.size_bytes for domain in topology.llc_domains],
        "cpus": len(topology.cpu_to_domain()),
    }


def path() -> Path | None:
    """Returns where the calibration is kept; :obj:`None` if none is wanted."""
    override = config.calibration_override()
    if override is None:
        return user_cache_path("frontgi_pyg") / "calibration.json"
    return None if override == "off" else Path(override)


def load(topology: Topology) -> Rates | None:
    """Returns the rates kept for this machine; :obj:`None` if there are none. A file that makes no sense is named."""
    where = path()
    if where is None:
        return None
    try:
        kept = json.loads(where.read_text())
        rates = Rates(**kept["rates"])
        return rates if kept["machine"] == described(topology) else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        warnings.warn(f"frontgi_pyg: {where} is no calibration and was passed over ({error})", stacklevel=2)
        return None


def save(rates: Rates, topology: Topology, measured: Mapping[str, Any]) -> Path:
    """Keeps the rates for this machine, with what they come from, and returns the file.

    Raises:
        ValueError: If no file is wanted (``FRONTGI_CALIBRATION=off``).
        OSError: If it cannot be written.
    """
    where = path()
    if where is None:
        raise ValueError("calibrate: FRONTGI_CALIBRATION is 'off': there is no file to keep the rates in")
    where.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"machine": described(topology), "rates": asdict(rates), **measured}, indent=1)
    with tempfile.NamedTemporaryFile("w", dir=where.parent, suffix=".json", delete=False) as file:
        file.write(text + "\n")
    os.replace(file.name, where)  # whole or not at all: other processes may read it
    return where


def _processor() -> str:
    """The first CPU's name, family and model; virtual machines often say no more than "AMD EPYC" by name."""
    try:
        with open("/proc/cpuinfo") as file:
            first = file.read(4096)
    except OSError:
        first = ""
    found = re.findall(r"^(?:vendor_id|cpu family|model|model name|CPU part)\s*:\s*(.+)$", first.split("\n\n")[0], re.M)
    return " ".join(found) or " ".join(os.uname()[3:]) if hasattr(os, "uname") else "unknown"
