# SPDX-License-Identifier: MIT
"""The command ``frontgi``: what the machine is, what would be done on it and why, and what that would touch.

A GRAPH is a file that :func:`frontgi_pyg.datasets.load` reads (an ``.npz`` CSR among them) or a generator's text such
as ``kronecker:17``. Mistakes end with exit code 2 and one line on standard error (the command
line's own with its usage), but for environment variables that make no sense: with those the package is not imported.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import torch

import frontgi_pyg
from frontgi_pyg import library, rates
from frontgi_pyg.cachesim import simulate
from frontgi_pyg.calibrate import calibrate
from frontgi_pyg.datasets import generate, load
from frontgi_pyg.graph import Graph
from frontgi_pyg.plan import Plan, ScheduleKind, plan
from frontgi_pyg.topology import Topology, list_of_cpus

_DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def read_graph(text: str) -> Graph:
    """Returns the graph that a file or a generator's text gives.

    Raises:
        ValueError: It is neither, or the file is broken; the message says where.
        OSError: The file cannot be read.
    """
    looks_like_a_file = Path(text).suffix or Path(text).exists() or "/" in text
    if looks_like_a_file and not _is_spec(text):
        if not Path(text).is_file():
            raise ValueError(f"{text!r} is no file, and no generator's text such as 'kronecker:17'")
        edges = load(text)
    else:
        edges = generate(text)
    return Graph.from_edge_index(edges.edge_index, edges.num_nodes)


def _is_spec(text: str) -> bool:
    return not Path(text).exists() and text.split(":")[0] in ("kronecker", "uniform", "powerlaw", "molecules")


def picture(topology: Topology) -> str:
    """Returns the machine drawn in text: a box for each last-level cache, node by node."""
    siblings = {cpu: group for group in topology.smt_siblings for cpu in group}
    node_of = {cpu: node for node, cpus in topology.numa_nodes.items() for cpu in cpus}
    lines = [
        f"{len(topology.cpu_to_domain())} of {len(topology.online_cpus)} online CPUs, "
        f"{len(topology.llc_domains)} last-level cache domain(s), {len(topology.numa_nodes)} NUMA node(s)"
        + (", as stated" if topology.forced else "")
    ]
    boxes: dict[tuple[int, ...], list[list[str]]] = {}
    for number, domain in enumerate(topology.llc_domains):
        nodes = tuple(sorted({node_of[cpu] for cpu in domain.cpus if cpu in node_of}))
        cores = len({siblings.get(cpu, (cpu,)) for cpu in domain.cpus})
        level = f"L{domain.level}" if domain.level else "LLC"
        size = f"{domain.size_bytes / 2**20:g} MiB" if domain.size_bytes else "size unknown"
        threads = f"{cores} core(s), {len(domain.cpus)} CPU(s)"
        boxes.setdefault(nodes, []).append([f"domain {number}", f"{level} {size}", threads, list_of_cpus(domain.cpus)])
    for nodes, texts in sorted(boxes.items()):
        if nodes:
            lines.append(f"NUMA node {', '.join(map(str, nodes))}")
        lines += _boxes(texts)
    return "\n".join([*lines, *(f"note: {note}" for note in topology.notes)])


def _boxes(texts: Sequence[Sequence[str]], columns: int = 100) -> list[str]:
    """Boxes of equal size, as many side by side as fit."""
    inner = max(len(line) for text in texts for line in text)
    beside = max(1, columns // (inner + 5))
    lines = []
    for first in range(0, len(texts), beside):
        row = texts[first : first + beside]
        edge = "  ".join("+" + "-" * (inner + 2) + "+" for _ in row)
        lines.append(edge)
        lines += ["  ".join(f"| {cell:<{inner}} |" for cell in cells) for cells in zip(*row, strict=True)]
        lines.append(edge)
    return [f"  {line}" for line in lines]


def _planned(args: argparse.Namespace) -> Plan:
    # The machine first: a slip in it should not cost the time a large graph takes.
    topology = Topology.parse(args.topology) if args.topology is not None else Topology.detect()
    return plan(
        read_graph(args.graph),
        args.width,
        args.out_width,
        topology,
        dtype=_DTYPES[args.dtype],
        workers=args.workers,
        schedule=args.schedule,
        slice_width=args.slice_width,
        block_columns=args.block_columns,
    )


def _topology(args: argparse.Namespace) -> str:
    return picture(Topology.parse(args.topology) if args.topology is not None else Topology.detect(args.sysfs_root))


def _explain(args: argparse.Namespace) -> str:
    return _planned(args).explain()


def _simulate(args: argparse.Namespace) -> str:
    made = _planned(args)
    return f"{made.schedule}, on {made.schedule.workers} worker(s)\n{simulate(made, max_accesses=args.max_accesses)}"


def _calibrate(args: argparse.Namespace) -> str:
    if rates.path() is None and not args.dry_run:
        raise ValueError("calibrate: FRONTGI_CALIBRATION is 'off'; use --dry-run")
    found = calibrate()
    if args.dry_run:
        return f"{found}\nnot kept"
    measured = {"multiply_flops": found.multiply_flops, "workers": found.workers, "error": found.error}
    return f"{found}\nkept in {rates.save(found.rates, library.DETECTED, measured)}"


def _version(args: argparse.Namespace) -> str:
    isas = ", ".join(frontgi_pyg.available_isas())
    return f"frontgi_pyg {frontgi_pyg.__version__}, {frontgi_pyg.current_isa()} (of {isas}), torch {torch.__version__}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="frontgi", description="Graph neural networks on CPUs, shaped to the machine."
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    topology = commands.add_parser("topology", help="show the last-level-cache domains and what lies on them")
    topology.add_argument("--topology", help="show this one, such as llc:16x8:16MiB")
    topology.add_argument("--sysfs-root", default="/sys", help="where devices/system/cpu lies (default: /sys)")
    topology.set_defaults(run=_topology)
    for name, run, text in (
        ("explain", _explain, "say how an aggregation would be done, and why"),
        ("simulate", _simulate, "count cache hits and misses of an aggregation on any machine"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("graph", metavar="GRAPH", help="a file (.npz CSR, ...) or a text such as kronecker:17")
        command.add_argument("--width", type=int, required=True, help="features a node")
        command.add_argument("--out-width", type=int, help="features a node after the update")
        command.add_argument("--topology", help="the machine, such as llc:16x8:16MiB (default: this one)")
        command.add_argument("--dtype", choices=_DTYPES, default="float32")
        command.add_argument("--workers", type=int, help="threads at hand (default: one for each CPU)")
        command.add_argument("--schedule", choices=get_args(ScheduleKind), help="instead of the planner's choice")
        command.add_argument("--slice-width", type=int, default=0, help="features in a slice (mixed)")
        command.add_argument("--block-columns", type=int, default=0, help="source rows gathered at a time (mixed)")
        command.set_defaults(run=run)
        if name == "simulate":
            command.add_argument(
                "--max-accesses",
                type=int,
                default=500_000_000,
                help="beyond, parts are simulated and counts scaled up (default: 500 million)",
            )
    measure = commands.add_parser("calibrate", help="measure this machine, for the planner to go by")
    measure.add_argument("--dry-run", action="store_true", help="keep nothing")
    measure.set_defaults(run=_calibrate)
    version = commands.add_parser("version", help="show the version and the instruction set in use")
    version.set_defaults(run=_version)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code: 0, or 2 where what was asked for makes no sense."""
    args = _parser().parse_args(argv)
    try:
        print(args.run(args))
    # Sizes beyond what memory or torch's integers hold end in the last three.
    except (ValueError, IndexError, OSError, MemoryError, OverflowError, RuntimeError) as error:
        print(f"frontgi: {str(error).splitlines()[0] if str(error) else type(error).__name__}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
