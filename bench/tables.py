# SPDX-License-Identifier: MIT
"""Renders results as Markdown, so that no number in a document is typed.

    python bench/tables.py bench/results/layers-*.json                    print every table
    python bench/tables.py bench/results/layers-*.json --into README.md   put the short table between two markers

The markers are ``<!-- bench -->`` and ``<!-- /bench -->``. With ``--check`` nothing is written, and it is an error if
the document does not show what the results say.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Run = dict[str, Any]

TIMES = "\N{MULTIPLICATION SIGN}"
NONE = "\N{EN DASH}"


def grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table, its first column aligned left and the others right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def times(ratio: float | None) -> str:
    """Returns a ratio to three digits."""
    if ratio is None:
        return NONE
    return f"{ratio:.2f}{TIMES}" if ratio < 10 else f"{ratio:.1f}{TIMES}"


def seconds(value: float) -> str:
    """Returns seconds, or milliseconds where they are few."""
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def size(value: float | None) -> str:
    """Returns bytes in GB or MB."""
    if value is None:
        return NONE
    return f"{value / 1e9:.2f} GB" if value >= 1e9 else f"{value / 1e6:.0f} MB"


def ratios(run: Run) -> str:
    """Returns the short table: each peer's median time over ours, by case."""
    cases = run["cases"]
    names = [name for name in run["sides"] if any("ratio" in case["sides"].get(name, {}) for case in cases.values())]
    labels = {name: result["label"] for case in cases.values() for name, result in case["sides"].items()}
    rows = [
        [labels[name], *(times(case["sides"].get(name, {}).get("ratio")) for case in cases.values())]
        for name in names
        if name != "frontgi"
    ]
    return grid(["time of … over ours", *cases], rows)


def targets(run: Run) -> str:
    """Returns what was asked for and what was reached."""
    rows = []
    for name, case in run["cases"].items():
        for target in case["targets"]:
            label = case["sides"][target["side"]]["label"]
            verdict = {True: "reached", False: "**missed**", None: "not measured"}[target["reached"]]
            if target.get("ceiling", target["least"]) < target["least"]:
                verdict += f" (this machine's peak allows {times(target['ceiling'])})"
            if not target["binding"]:
                verdict += " (asked for on AMD only)"
            rows.append([f"{name} over {label}", f"{target['least']:g}{TIMES}", times(target["ratio"]), verdict])
    return grid(["target", "at least", "got", ""], rows) if rows else ""


def details(case: Run) -> str:
    """Returns all that is known of one case."""
    rows = []
    for result in case["sides"].values():
        if "reason" in result:
            rows.append([result["label"], *[NONE] * 6, f"no result: {result['reason']}"])
            continue
        low, high = result["quartiles_seconds"]
        spread = NONE
        if "quartiles_ratio" in result:
            spread = f"{times(result['ratio'])} ({' to '.join(times(r) for r in result['quartiles_ratio'])})"
        notes = []
        if result["path"] not in (None, "native"):
            notes.append(f"**not native: {result['path']}**")
        if "gflops" in result:
            notes.append(f"{result['gflops']:.0f} GFLOP/s")
        rows.append(
            [
                result["label"],
                spread,
                seconds(result["median_seconds"]),
                f"{seconds(low)} to {seconds(high)}",
                seconds(result["first_seconds"]),
                size(result["peak_bytes"]),
                f"{result['error']:.0e}",
                ", ".join(notes),
            ]
        )
    header = ["side", "over ours (quartiles)", "median", "quartiles", "first call", "peak memory", "error", ""]
    return grid(header, rows)


def setting(run: Run) -> str:
    """Returns, in a sentence or two, what the numbers were taken on."""
    machine, graph = run["machine"], run["graph"]
    caches = ", ".join(f"{level} {text}iB" for level, text in machine["caches"].items())
    versions: dict[str, str] = {}
    for case in run["cases"].values():
        for result in case["sides"].values():
            versions |= result.get("versions", {})
    peak = machine["peak_gflops"]
    peak = "" if peak is None else f", multiply-add peak {peak:.0f} GFLOP/s"
    load = machine["load_average"][0]
    busy = " (busy: repeat this run on a quiet machine)" if load > machine["cpus"] / 4 else ""
    return (
        f"{machine['cpu']}, {machine['cpus']} CPUs ({', '.join(machine['isa'])}; {caches}), "
        f"{run['threads']} threads{peak}, huge pages: {machine['huge_pages']}, "
        f"load average before: {load:.1f}{busy}. "
        f"{graph['spec']}: {graph['nodes']:,} nodes, {graph['edges']:,} edges, largest in-degree "
        f"{graph['max_degree']:,}; width {run['width']}, float32, {run['samples']} samples a side, in turn. "
        f"{', '.join(f'{name} {version}' for name, version in versions.items())}. {run['date']}."
    )


def document(run: Run) -> str:
    """Returns every table of one run."""
    parts = [f"## {run['name']}", setting(run), ratios(run), targets(run)]
    for name, case in run["cases"].items():
        parts += [f"### {name}", case["about"], details(case)]
    notes = (
        "Peak memory is what a call adds to the process's resident memory at its highest, output included. "
        "Errors are the largest relative error of a checked row against float64. "
        "“Huge pages” is PyTorch's `THP_MEM_ALLOC_ENABLE=1`; ours runs without it."
    )
    return "\n\n".join(part for part in [*parts, notes] if part) + "\n"


def put_into(text: str, table: str) -> str:
    """Returns a document with what stands between its markers replaced."""
    pattern = re.compile(r"(<!-- bench -->\n).*?(<!-- /bench -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit("no '<!-- bench -->' … '<!-- /bench -->' in the document")
    return pattern.sub(lambda match: f"{match[1]}{table}\n{match[2]}", text)


def main() -> None:
    """Prints tables, or puts the short ones into a document."""
    parser = argparse.ArgumentParser(description="Render benchmark results as Markdown.")
    parser.add_argument("results", nargs="+", type=Path, help="JSON files in bench/results")
    parser.add_argument("--into", type=Path, metavar="DOCUMENT", help="replace what stands between its markers")
    parser.add_argument("--check", action="store_true", help="with --into: write nothing, fail if it would change")
    args = parser.parse_args()
    runs = [json.loads(path.read_text()) for path in args.results]
    if args.into is None:
        print("\n".join(map(document, runs)), end="")
        return
    short = "\n\n".join(f"{ratios(run)}\n\n{setting(run)}" for run in runs)
    before = args.into.read_text()
    after = put_into(before, short)
    if not args.check:
        args.into.write_text(after)
    elif after != before:
        sys.exit(f"{args.into} does not show what the results say: render it with bench/tables.py --into")


if __name__ == "__main__":
    main()
