# SPDX-License-Identifier: MIT
"""Renders the results on the planner and the cache model as one document, so that no number in it is typed.

python bench/report.py            write bench/results/README.md
python bench/report.py --check    write nothing, fail if it would change
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import cache_model
import limits
import planner
import simulator
from harness import RESULTS

DOCUMENT = RESULTS / "README.md"
HEAD = """# Results

Rendered by `bench/report.py` from the JSON files beside this one; `layers-*.json` are rendered by `bench/tables.py`.
"""
PARTS = (
    ("The planner's choice, timed", "planner.py", "planner-*.json", planner.rendered),
    ("The cache model's tables, and the planner's choice in it", "cache_model.py", "cache-model.json",
     cache_model.rendered),
    ("How far from the machine's limits", "limits.py", "limits-*.json", limits.rendered),
    ("The cache model's speed", "simulator.py", "simulator-*.json", simulator.rendered),
)  # fmt: skip


def setting(run: dict[str, Any]) -> str:
    machine = run.get("machine")
    if machine is None:
        return "Modelled: no time of this machine is in it."
    caches = ", ".join(f"{level} {text}iB" for level, text in machine["caches"].items())
    return (
        f"{machine['cpu']}, {machine['cpus']} CPUs ({', '.join(machine['isa'])}; {caches}); {run['samples']} samples, "
        f"medians; load average before: {machine['load_average'][0]:.1f}."
    )


def document() -> str:
    parts = [HEAD]
    for title, script, pattern, rendered in PARTS:
        for path in sorted(RESULTS.glob(pattern)):
            run = json.loads(path.read_text())
            parts.append(f"## {title}\n\n`bench/{script}` → `{path.name}`. {setting(run)}\n\n{rendered(run)}\n")
    return "\n".join(parts)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail if the document would change")
    check = parser.parse_args(argv).check
    text = document()
    if not check:
        DOCUMENT.write_text(text)
    elif not DOCUMENT.exists() or DOCUMENT.read_text() != text:
        sys.exit(f"{DOCUMENT} does not show what the results say: render it with bench/report.py")


if __name__ == "__main__":
    main()
