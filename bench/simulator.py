# SPDX-License-Identifier: MIT
"""How fast the cache model is, in simulated accesses a second, and how long the largest case of its users takes.

Each case is simulated several times, and must count the same each time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from harness import RESULTS, machine, slug
from tqdm import tqdm

from frontgi_pyg import Graph, Topology, plan
from frontgi_pyg.cachesim import simulate
from frontgi_pyg.datasets import generate
from frontgi_pyg.plan import ScheduleKind


class Case(NamedTuple):
    graph: str
    width: int
    topology: str
    schedule: ScheduleKind | None  # None: the planner's choice
    remote: bool = True


EPYC_9754 = "llc:16x8:16MiB"
CASES = [
    Case("kronecker:14", 256, "llc:1x1:32MiB", "hierarchical"),
    Case("kronecker:14", 256, "llc:1x1:32MiB", "mixed"),
    Case("kronecker:17", 256, EPYC_9754, "hierarchical", remote=False),
    Case("kronecker:17", 256, EPYC_9754, "mixed", remote=False),
    Case("kronecker:17", 256, EPYC_9754, "hierarchical"),
    Case("kronecker:17", 256, EPYC_9754, "mixed"),
    Case("kronecker:19", 1024, EPYC_9754, "node_parallel"),
    Case("kronecker:19", 1024, EPYC_9754, "hierarchical"),
    Case("kronecker:19", 1024, EPYC_9754, None),
]


def measure(case: Case, graph: Graph, samples: int) -> dict[str, Any]:
    made = plan(
        graph,
        case.width,
        topology=Topology.parse(case.topology),
        schedule=case.schedule,
        slice_width=16 if case.schedule == "mixed" else 0,
    )
    seconds, counts = [], None
    for _ in range(samples):
        start = time.perf_counter()
        again = simulate(made, remote=case.remote)
        seconds.append(time.perf_counter() - start)
        if counts not in (None, again):
            raise SystemExit(f"{case}: counted otherwise the second time")
        counts = again
    assert counts is not None
    simulated = counts.accesses * counts.sampled
    return {
        **case._asdict(),
        "plan": str(made.schedule),
        "seconds": seconds,
        "simulated": simulated,
        "sampled": counts.sampled,
        "error": counts.error,
        "accesses_per_second": simulated / statistics.median(seconds),
    }


def rendered(run: dict[str, Any]) -> str:
    lines = [
        "| graph | width | machine | schedule | remote hits | simulated | seconds | million accesses a second |",
        "|---" * 8 + "|",
    ]
    for case in run["cases"]:
        cells = (
            case["graph"],
            case["width"],
            case["topology"],
            case["plan"],
            "counted" if case["remote"] else "left out",
            f"{case['simulated'] / 1e6:,.0f} M ({case['sampled']:.0%})",
            f"{statistics.median(case['seconds']):.2f}",
            f"{case['accesses_per_second'] / 1e6:.1f}",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="+", metavar="GRAPH", help="only cases of these")
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of one, the model uses one")
    parser.add_argument("--out", type=Path, help="where the JSON goes (default: bench/results)")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    described = machine(args.threads)
    cases = [case for case in CASES if not args.graphs or case.graph in args.graphs]
    run: dict[str, Any] = {"machine": described, "samples": args.samples, "threads": args.threads, "cases": []}
    graphs: dict[str, Graph] = {}
    for case in tqdm(cases):
        if case.graph not in graphs:
            edges = generate(case.graph)
            graphs = {case.graph: Graph.from_edge_index(edges.edge_index, edges.num_nodes)}
        run["cases"].append(measure(case, graphs[case.graph], args.samples))
    out = args.out or RESULTS / f"simulator-{slug(described['cpu'], described['cpus'])}.json"
    out.write_text(json.dumps(run, indent=1) + "\n")
    print(rendered(run))


if __name__ == "__main__":
    main()
