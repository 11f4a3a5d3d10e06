# SPDX-License-Identifier: MIT
"""Is what the planner chooses the fastest schedule? Times every one it could have chosen, and says how far off it was.

Idea: all schedules give the same bits, so that they are timed in turn in one process, on the same arrays. Medians are
compared. The planner goes by the rates of a calibration made just before (``frontgi calibrate``), whose graphs are its
own: none of the cases here has a part in it.

Invariant: no time is kept of a call whose output differs in a bit from the first schedule's.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from harness import RESULTS, machine, slug
from tqdm import tqdm

import frontgi_pyg
from frontgi_pyg import AskedSchedule, Graph, Plan, Topology, forced_schedule, library, ops, plan
from frontgi_pyg.calibrate import calibrate
from frontgi_pyg.datasets import generate
from frontgi_pyg.rates import Rates

# GRAPH@WIDTH
CASES = """
    kronecker:14@1024 kronecker:16@64 kronecker:16@256 kronecker:17x8@512 kronecker:17@1024
    uniform:20000x30@512 uniform:60000x60@256 uniform:132534x20@1024 uniform:132534x150@256 uniform:300000x40@128
    powerlaw:60000x3000000:2.2@256 powerlaw:160000x3000000:2.3@1024 powerlaw:600000x8000000:2.3@128
    molecules:400000x860000@256
    kronecker:15@512 kronecker:18x4@256 uniform:40000x100@128 uniform:90000x50@512 uniform:250000x12@512
    powerlaw:100000x4000000:2.1@512 powerlaw:300000x3000000:2.6@256 molecules:150000x320000@1024
    kronecker:16x24@512 kronecker:18@128 uniform:50000x80@384 uniform:110000x30@256 uniform:30000x200@128
    powerlaw:120000x5000000:2.2@256 powerlaw:250000x6000000:2.4@256 molecules:250000x540000@512
"""
SPLIT_CASES = "kronecker:16@256 uniform:60000x60@256 molecules:400000x860000@256"
DOMAINS = (1, 2, 4, 16)
SPLIT_SAMPLES = 5  # times as many as of the cases: these take milliseconds, and a few in a hundred are asked about
CLOSE = 1.05  # a choice this near to the fastest is called right
PREDICTED = 0.25  # a time this near to the measured one is called predicted
COMPETES = 1.25  # of schedules that are slower than the fastest by more, no prediction is asked


def candidates(made: Plan) -> list[AskedSchedule]:
    """By rows, and slices of one cache line, two, four, ..., of all source rows and of 1, 2 and 4 times what fits."""
    line, nodes = 64 // made.element_bytes, made.graph.num_src_nodes
    found = [AskedSchedule("hierarchical")]
    caches = [size for size in made.llc_bytes if size]
    width = line
    while width < made.width:
        found.append(AskedSchedule("mixed", slice_width=width))
        for caches_full in (1, 2, 4) if caches else ():
            fitting = int(0.55 * caches_full * min(caches)) // (width * made.element_bytes)
            if 0 < fitting < nodes:
                blocks = -(-nodes // fitting)
                found.append(AskedSchedule("mixed", slice_width=width, block_columns=-(-nodes // blocks)))
        width *= 2
    return found


def chosen_by(made: Plan) -> AskedSchedule:
    """The planner's choice as a candidate: of all threads, by rows where one would do."""
    s = made.schedule
    kind = "hierarchical" if s.kind == "serial" else s.kind
    return AskedSchedule(kind, slice_width=s.slice_width, block_columns=s.block_columns)


def label(schedule: AskedSchedule) -> str:
    if schedule.kind != "mixed":
        return schedule.kind
    return f"mixed {schedule.slice_width}" + (f" / {schedule.block_columns}" if schedule.block_columns else "")


def measure(spec: str, width: int, samples: int, rates: Rates, known: dict[str, list[float]]) -> dict[str, Any]:
    """Times every candidate on one case, the planner's own choice among them; or judges it anew by the times known."""
    edges = generate(spec)
    graph = Graph.from_edge_index(edges.edge_index, edges.num_nodes)
    made = plan(graph, width, rates=rates)
    chosen = chosen_by(made)
    sides = {label(side): side for side in [*candidates(made), chosen]}
    if known and not sides.keys() <= known.keys():
        raise SystemExit(f"{spec}@{width}: {', '.join(sides.keys() - known.keys())} was not timed; run it anew")
    seconds = known or timed(graph, width, sides, samples)
    medians = {name: statistics.median(seconds[name]) for name in sides}
    fastest = min(medians, key=medians.__getitem__)
    return {
        "graph": spec,
        "width": width,
        "nodes": graph.num_src_nodes,
        "edges": graph.num_edges,
        "chosen": label(chosen),
        "fastest": fastest,
        "chosen_to_fastest": medians[label(chosen)] / medians[fastest],
        "schedules": {
            name: {"seconds": seconds[name], "median": medians[name], "cost": asdict(made.cost(side))}
            for name, side in sides.items()
        },
    }


def timed(graph: Graph, width: int, sides: dict[str, AskedSchedule], samples: int) -> dict[str, list[float]]:
    x = torch.randn(graph.num_src_nodes, width, generator=torch.Generator().manual_seed(0))
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    expected: torch.Tensor | None = None
    for turn in range(samples + 1):  # the first one is not counted
        for name, side in sides.items():
            with forced_schedule(side.kind, slice_width=side.slice_width, block_columns=side.block_columns):
                start = time.perf_counter()
                out = ops.aggregate(graph, x)
                took = time.perf_counter() - start
            expected = out if expected is None else expected
            if not torch.equal(out, expected):
                raise SystemExit(f"{name} gives other bits")
            if turn:
                seconds[name].append(took)
    return seconds


def split_machine(spec: str, width: int, samples: int, threads: int, rates: Rates, shared: bool) -> dict[str, Any]:
    """Times the planner's choice where the machine is said to have 1, 2, 4 or 16 domains.

    Each has a cache as large as the real one, or its share of it. The second is planned for smaller caches than there
    are: what such a plan saves is not there to be saved. Beside both stands the plain schedule: rows dealt to the
    threads, whatever the caches.
    """
    edges = generate(spec)
    graph = Graph.from_edge_index(edges.edge_index, edges.num_nodes)
    x = torch.randn(graph.num_src_nodes, width, generator=torch.Generator().manual_seed(0))
    detected = library.DETECTED
    whole = min(domain.size_bytes or 0 for domain in detected.llc_domains)
    sides = {"plain": 1} | {str(domains): domains for domains in DOMAINS}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    chosen: dict[str, str] = {}
    expected: torch.Tensor | None = None
    try:
        for turn in range(SPLIT_SAMPLES * samples + 1):
            for name, domains in sides.items():
                size = whole // domains if shared else whole
                topology = Topology.parse(f"llc:{domains}x1:{max(1, size)}B")
                library.use_topology(topology)
                s = chosen_by(plan(graph, width, topology=topology, workers=threads, rates=rates))
                if name == "plain":
                    s = AskedSchedule("hierarchical")
                chosen[name] = label(s)
                with forced_schedule(s.kind, slice_width=s.slice_width, block_columns=s.block_columns):
                    ops.aggregate(graph, x)
                    start = time.perf_counter()
                    out = ops.aggregate(graph, x)
                    took = time.perf_counter() - start
                expected = out if expected is None else expected
                if not torch.equal(out, expected):
                    raise SystemExit(f"{name} domains give other bits")
                if turn:
                    seconds[name].append(took)
    finally:
        library.use_topology(detected)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    return {
        "graph": spec,
        "width": width,
        "cache_shared": shared,
        "chosen": chosen,
        "seconds": seconds,
        "to_plain": {name: medians[name] / medians["plain"] for name in sides},
    }


def elected(cases: list[dict[str, Any]]) -> str:
    """How often what was the fastest in some rounds was so in the others, too: what any planner can reach."""
    shares = []
    for case in cases:
        times = {name: side["seconds"] for name, side in case["schedules"].items()}
        rounds = range(len(next(iter(times.values()))))
        if len(rounds) < 4:
            return "Too few rounds to tell how far the fastest is a matter of chance."
        for some in itertools.combinations(rounds, len(rounds) // 2):
            others = [turn for turn in rounds if turn not in some]
            before, after = (
                {name: statistics.median(seconds[turn] for turn in turns) for name, seconds in times.items()}
                for turns in (some, others)
            )
            shares.append(after[min(before, key=before.__getitem__)] <= CLOSE * min(after.values()))
    return (
        f"The schedule that was the fastest in half of the rounds was within {CLOSE - 1:.0%} of the fastest in the "
        f"other half in {statistics.mean(shares):.0%} of all ways to halve them: no planner can do better."
    )


def predictions(cases: list[dict[str, Any]]) -> str:
    """How near the planner's seconds come to the measured ones."""
    ratios = []
    for case in cases:
        sides = case["schedules"]
        near = COMPETES * sides[case["fastest"]]["median"]
        ratios += [side["cost"]["seconds"] / side["median"] for side in sides.values() if side["median"] <= near]
    met = statistics.mean(abs(ratio - 1) <= PREDICTED for ratio in ratios)
    return (
        f"The planner's seconds are within {PREDICTED:.0%} of the measured ones for {met:.0%} of the {len(ratios)} "
        f"schedules that took at most {COMPETES} times as long as the fastest of their case; on average they are "
        f"{statistics.geometric_mean(ratios):.2f} of them."
    )


def rendered(run: dict[str, Any]) -> str:
    """The run as a table, and how often the choice was right."""
    lines = ["| graph | width | chosen | fastest | chosen / fastest | by rows / fastest |", "|---|---|---|---|---|---|"]
    for case in run["cases"]:
        by_rows = case["schedules"]["hierarchical"]["median"] / case["schedules"][case["fastest"]]["median"]
        cells = (
            case["graph"],
            case["width"],
            case["chosen"],
            case["fastest"],
            f"{case['chosen_to_fastest']:.2f}",
            f"{by_rows:.2f}",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    ratios = [case["chosen_to_fastest"] for case in run["cases"]]
    if ratios:
        right, slower = sum(ratio <= CLOSE for ratio in ratios), statistics.geometric_mean(ratios) - 1
        lines.append(
            f"\nWithin {CLOSE - 1:.0%} of the fastest in {right} of {len(ratios)} cases; worst {max(ratios):.2f}, "
            f"slower than the fastest by {slower:.1%} on average."
        )
        lines.append(f"\n{elected(run['cases'])}\n\n{predictions(run['cases'])}")
    if run["split"]:
        lines += ["\nThe machine said to have several domains; times to those by rows.\n"]
        lines += [f"| graph | width | cache of each | {' | '.join(map(str, DOMAINS))} |"]
        lines += ["|---" * (len(DOMAINS) + 3) + "|"]
    for case in run["split"]:
        found = [f"{case['chosen'][str(d)]}: {case['to_plain'][str(d)]:.2f}" for d in DOMAINS]
        cache = "its share" if case["cache_shared"] else "the whole"
        lines.append(f"| {case['graph']} | {case['width']} | {cache} | {' | '.join(found)} |")
    return "\n".join(lines)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", metavar="GRAPH@WIDTH", help="instead of the built-in ones")
    parser.add_argument("--only", choices=("cases", "split"), help="run one part anew, of a run that there is")
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--judge", action="store_true", help="a changed planner, by the times that there are")
    parser.add_argument("--rates", type=Path, help="of this JSON, of a run or a calibration, instead of measuring")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, help="where the JSON goes (default: bench/results)")
    return parser.parse_args(argv)


def main() -> None:
    args = parse()
    torch.set_num_threads(args.threads)
    described = machine(args.threads)
    cases = args.cases or CASES.split()
    splits = [] if args.cases or args.judge else SPLIT_CASES.split()
    out = args.out or RESULTS / f"planner-{slug(described['cpu'], described['cpus'])}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    before = args.only or args.judge
    run: dict[str, Any] = json.loads(out.read_text()) if before else {"cases": [], "split": []}
    known = {
        f"{case['graph']}@{case['width']}": {name: side["seconds"] for name, side in case["schedules"].items()}
        for case in (run["cases"] if args.judge else [])
    }
    asked = {"samples": args.samples, "threads": args.threads}
    if args.only and any(run[name] != asked[name] for name in asked):
        raise SystemExit(f"the other part was run with {run['samples']} samples on {run['threads']} threads")
    if args.only and run["machine"]["cpu"] != described["cpu"]:
        raise SystemExit(f"the other part was run on {run['machine']['cpu']}")
    if args.rates:
        run["rates"] = json.loads(args.rates.read_text())["rates"]
    elif not before:
        run["rates"] = asdict(calibrate().rates)
    if not args.judge:
        isa = frontgi_pyg.current_isa()
        run |= {"machine": described, "isa": isa, "samples": args.samples, "threads": args.threads}
    rates = Rates(**run["rates"])
    parts = [("cases", case, False) for case in cases]
    parts += [("split", case, shared) for shared in (False, True) for case in splits]
    parts = [part for part in parts if args.only in (None, part[0])]
    run |= {part: [] for part, _, _ in parts}
    for part, case, shared in tqdm(parts):
        spec, _, width = case.rpartition("@")
        found = (
            measure(spec, int(width), args.samples, rates, known.get(case, {}))
            if part == "cases"
            else split_machine(spec, int(width), args.samples, args.threads, rates, shared)
        )
        run[part].append(found)
        if not before:
            out.write_text(json.dumps(run, indent=1) + "\n")  # what there is, should it be interrupted
    out.write_text(json.dumps(run, indent=1) + "\n")
    print(rendered(run))


if __name__ == "__main__":
    main()
