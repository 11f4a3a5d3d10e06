# SPDX-License-Identifier: MIT
"""The planner's rates (``csrc/run/cost.h``), from a run of ``planner.py``: least squares of relative errors.

Cases held out there are left out here, and schedules that are far slower than the fastest: no choice depends on how
much. What is printed is of one worker.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

COMPETES = 1.25  # a schedule whose time is at most so many times the fastest's


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="the JSON of planner.py")
    run = json.loads(parser.parse_args().run.read_text())
    sides = []
    for case in run["cases"]:
        fastest = case["schedules"][case["fastest"]]["median"]
        if not case["held_out"]:
            sides += [side for side in case["schedules"].values() if side["median"] <= COMPETES * fastest]
    names = ("memory_bytes", "llc_bytes", "row_visits", "regions")
    costs = np.array([[side["cost"][name] for name in names] for side in sides])
    seconds = np.array([side["median"] for side in sides])
    rates, _ = nnls(costs / seconds[:, None], np.ones(seconds.size))
    error = float(np.sqrt(np.mean((costs @ rates / seconds - 1) ** 2)))
    workers = run["threads"]
    print(f"{seconds.size} times, relative error {error:.0%} (root mean square)")
    for name, rate in zip(names[:2], rates[:2], strict=True):
        print(f"{name}: {1 / rate / workers / 1e9:.1f} GB/s" if rate else f"{name}: free")
    print(f"row_visits: {rates[2] * workers * 1e9:.0f} ns; regions: {rates[3] * 1e6:.1f} us")


if __name__ == "__main__":
    main()
