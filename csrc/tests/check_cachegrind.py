# SPDX-License-Identifier: MIT
"""Compares the cache model with Cachegrind, which sees every access that the kernels really make.

Usage: check_cachegrind.py DRIVER. Cachegrind's rule is the model's with one worker and no L2: an access to the first
level, on a miss to the last. What the second of two passes adds is the difference of two runs, one of which does it
once; it leaves out the making of the graph. Exits with 77 where there is no Cachegrind.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
TOLERANCE = 0.15
KIB = 1 << 10

# kind, rows, degree, width, slice_width, block_columns, bytes of the last level
CASES = {
    "serial, thrashes": ("serial", 4000, 16, 64, 0, 0, 256 * KIB),
    "serial, the features fit": ("serial", 2000, 16, 64, 0, 0, 1024 * KIB),
    "serial, odd width": ("serial", 3000, 12, 75, 0, 0, 256 * KIB),
    "mixed, slices that fit": ("mixed", 2000, 40, 128, 16, 0, 256 * KIB),
    "mixed, slices that do not": ("mixed", 4000, 20, 128, 32, 0, 256 * KIB),
    "mixed, slices and blocks": ("mixed", 4000, 40, 64, 32, 1000, 256 * KIB),
    "mixed, blocks of all features": ("mixed", 4000, 24, 64, 64, 500, 256 * KIB),
}


def last_level_misses(driver: str, case: tuple[str | int, ...], passes: int, folder: Path) -> int:
    """Runs the driver under Cachegrind; returns its misses of data, read or written, in the last level."""
    out = folder / f"cachegrind.{passes}"
    subprocess.run(
        [
            "valgrind", "--tool=cachegrind", "--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64",
            f"--LL={case[-1]},16,64", f"--cachegrind-out-file={out}", driver, *map(str, case), str(passes),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    lines = out.read_text().splitlines()
    events = next(line for line in lines if line.startswith("events:")).split()[1:]
    totals = next(line for line in lines if line.startswith("summary:")).split()[1:]
    count = dict(zip(events, map(int, totals), strict=True))
    return count["DLmr"] + count["DLmw"]


def main() -> int:
    """Returns the code to exit with."""
    driver = sys.argv[1]
    if shutil.which("valgrind") is None:
        print("no valgrind here")
        return SKIPPED
    failed = 0
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            once, twice = (last_level_misses(driver, case, passes, Path(folder)) for passes in (1, 2))
        modelled = int(
            subprocess.run([driver, "--model", *map(str, case), "2"], check=True, capture_output=True).stdout
        )
        seen = twice - once
        wrong = abs(modelled - seen) > TOLERANCE * seen
        failed += wrong
        print(f"{name}: Cachegrind {seen}, model {modelled} ({modelled / seen - 1:+.1%}){' <- WRONG' if wrong else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
