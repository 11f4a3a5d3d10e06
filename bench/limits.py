# SPDX-License-Identifier: MIT
"""How far our ops are from what this machine allows: bytes over its bandwidth, operations over its peak.

The floor of a case is the longer of two times: of moving every feature, index and output once, as fast as memory is
copied, and of the multiplications, at the multiply-add peak (``peak.py``). A sparse aggregation gathers a row once for
each edge, and what does not come out of a cache passes the bandwidth again: that part of the distance is the graph's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from harness import RESULTS, machine, slug
from tqdm import tqdm

import frontgi_pyg
from frontgi_pyg import Graph, ops, to_huge_pages
from frontgi_pyg.datasets import generate

COPIED_BYTES = 512 << 20


class Case(NamedTuple):
    op: str  # aggregate, conv or linear
    graph: str  # of linear: the rows
    width: int
    out_width: int = 0


CASES = [
    Case("aggregate", "kronecker:17", 1024),
    Case("aggregate", "kronecker:17", 64),
    Case("aggregate", "uniform:132534x150", 256),
    Case("aggregate", "powerlaw:160000x3000000:2.3", 256),
    Case("aggregate", "molecules:400000x860000", 256),
    Case("conv", "kronecker:17", 1024, 1024),
    Case("conv", "molecules:400000x860000", 256, 256),
    Case("linear", "131072", 1024, 1024),
    Case("linear", "131072", 256, 256),
    Case("linear", "131072", 128, 64),
]


def timed(call: Callable[[], Any], samples: int) -> list[float]:
    """Seconds of each call, after one that is not counted."""
    call()
    seconds = []
    for _ in range(samples):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds


def copy_bandwidth(samples: int, size: int = COPIED_BYTES) -> float:
    """Bytes read and written a second: the best of torch's copy and of ours, which writes around the caches."""
    nodes = torch.arange(size // 1024)
    diagonal = Graph.from_edge_index(torch.stack([nodes, nodes]), nodes.numel())
    x = to_huge_pages(torch.ones(nodes.numel(), 256))
    out = torch.empty_like(x)
    best = min(timed(lambda: out.copy_(x), samples) + timed(lambda: ops.aggregate(diagonal, x), samples))
    return 2 * x.numel() * 4 / best


def prepared(case: Case) -> tuple[Callable[[], Any], float, float]:
    """Returns the call, the bytes that it cannot do without, and its operations."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(case.out_width, case.width, generator=generator)
    if case.op == "linear":
        x = torch.randn(int(case.graph), case.width, generator=generator)
        moved = 4.0 * (x.numel() + weight.numel() + x.size(0) * case.out_width)
        return lambda: ops.linear(x, weight), moved, 2.0 * x.numel() * case.out_width
    edges = generate(case.graph)
    graph = Graph.from_edge_index(edges.edge_index, edges.num_nodes)
    x = torch.randn(graph.num_src_nodes, case.width, generator=generator)
    moved = 4.0 * (graph.num_edges + x.numel() + graph.num_dst_nodes * (case.out_width or case.width))
    moved += 8.0 * graph.num_dst_nodes
    if case.op == "aggregate":
        return lambda: ops.aggregate(graph, x), moved, float(graph.num_edges * case.width)
    connected = int((graph.rowptr.diff() > 0).sum())
    operations = graph.num_edges * min(case.width, case.out_width) + 2.0 * connected * case.width * case.out_width
    return lambda: ops.conv(graph, x, weight), moved, operations


def measure(case: Case, samples: int, bandwidth: float, peak: float | None) -> dict[str, Any]:
    call, moved, operations = prepared(case)
    seconds = timed(call, samples)
    floors = {"moving": moved / bandwidth, "computing": operations / peak if peak else 0.0}
    return {
        **case._asdict(),
        "bytes": moved,
        "operations": operations,
        "floors": floors,
        "seconds": seconds,
        "to_floor": statistics.median(seconds) / max(floors.values()),
    }


def rendered(run: dict[str, Any]) -> str:
    """The run as a table."""
    peak = run["machine"]["peak_gflops"]
    known = f"{peak:.0f} GFLOP/s" if peak else "unknown (no C compiler)"
    lines = [
        f"Copied: {run['bandwidth'] / 1e9:.0f} GB/s, read and written. Multiply-add peak: {known}.\n",
        "| op | graph or rows | width | moving, ms | computing, ms | ours, ms | ours / floor |",
        "|---" * 7 + "|",
    ]
    for case in run["cases"]:
        widths = f"{case['width']}" + (f" → {case['out_width']}" if case["out_width"] else "")
        moving, computing = (f"{1e3 * case['floors'][name]:.2f}" for name in ("moving", "computing"))
        ours = f"{1e3 * statistics.median(case['seconds']):.2f}"
        cells = case["op"], case["graph"], widths, moving, computing, ours, f"{case['to_floor']:.2f}"
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def case_of(text: str) -> Case:
    """Returns the case that ``op graph width [out_width]``, with slashes between, names."""
    op, graph, *widths = text.split("/")
    return Case(op, graph, *map(int, widths))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", type=case_of, default=CASES, metavar="OP/GRAPH/WIDTH[/OUT_WIDTH]")
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, help="where the JSON goes (default: bench/results)")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    described = machine(args.threads)
    bandwidth = copy_bandwidth(args.samples)
    peak = described["peak_gflops"] and described["peak_gflops"] * 1e9
    run: dict[str, Any] = {"machine": described, "isa": frontgi_pyg.current_isa(), "samples": args.samples}
    run |= {"threads": args.threads, "bandwidth": bandwidth}
    run["cases"] = [measure(case, args.samples, bandwidth, peak) for case in tqdm(args.cases)]
    out = args.out or RESULTS / f"limits-{slug(described['cpu'], described['cpus'])}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(run, indent=1) + "\n")
    print(rendered(run))


if __name__ == "__main__":
    main()
