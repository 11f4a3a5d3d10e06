# SPDX-License-Identifier: MIT
"""Times the ops and the layers against DGL, PyG and torch.

    python bench/layers.py                                   everything, about half an hour on two cores
    python bench/layers.py --cases gcn --sides dgl pyg       one case, two peers
    python bench/layers.py --graph kronecker:12 --width 64   a quick look

Idea: the four layers of FrontGI's evaluation (eq. 3 to 7), the aggregation alone and the linear layer alone, as DGL and
PyG define them with the same weights. SGC has its self-loops added beforehand, on every side.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import warnings
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import OURS, RESULTS, Case, judged, machine, measure, slug
from sides import DEFAULT_SIDES, side_of
from tables import document
from tqdm import tqdm

# Drawn with 8 edges a node, in one direction, isolated nodes kept: 131,072 nodes and a million edges. PyG's messages at
# width 1024 then fit 24 GB of memory; those of the undirected kronecker:17 do not.
GRAPH = "directed-kronecker:17x8"
WIDTH = 1024
ROWS = 131072
CHECKED_ROWS = 64
COLUMNS_AT_ONCE = 128

ABOUT = {
    "aggregate": "The sum of each node's neighbours: `frontgi_pyg.ops.aggregate`, `dgl.ops.copy_u_sum`, PyG's "
    "`SimpleConv(aggr='sum')`.",
    "linear": "`frontgi_pyg.ops.linear` and `torch.nn.functional.linear`, {rows} by {width} by {width}.",
    "gcn": "ReLU(A X W), plain sum: `GCNConv(normalize=False, bias=False)`, DGL's `GraphConv(norm='none')`.",
    "sage": "ReLU(mean(X) W₁ + X W₂): `SAGEConv(aggr='mean', bias=False)`.",
    "gin": "ReLU(MLP(X + A X)), the MLP of two layers: `GINConv`.",
    "sgc": "Â² X W, Â normalised symmetrically, self-loops in the graph: `SGConv(K=2, bias=False)`.",
}
# Products of features and a weight matrix: over all rows, and over those alone that have edges (the others are zeros).
PRODUCTS = {"aggregate": (0, 0), "linear": (1, 0), "gcn": (0, 1), "sage": (1, 1), "gin": (2, 0), "sgc": (0, 1)}
TARGETS = {"aggregate": {"dgl": 2.2, "pyg": 15.0}, "gcn": {"dgl": 2.0, "pyg": 5.0}, "linear": {"torch": 1.9}}


# ---- inputs and what must come out ---------------------------------------------------------------


def draw_csr(spec: str) -> dict[str, np.ndarray]:
    """Returns the graph that ``spec`` names, as CSR by destination."""
    from frontgi_pyg import Graph
    from frontgi_pyg.datasets import generate, kronecker

    directed = re.fullmatch(r"directed-kronecker:(\d+)x(\d+)", spec, re.ASCII)
    if directed:
        scale, edge_factor = map(int, directed.groups())
        edges = kronecker(scale, edge_factor, symmetric=False, keep_isolated=True)
    else:
        edges = generate(spec)
    graph = Graph.from_edge_index(edges.edge_index, edges.num_nodes)
    return {"indptr": graph.rowptr.numpy(), "indices": graph.col.int().numpy()}


def with_self_loops(graph: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the graph with one loop on every node, put in front of its row."""
    indptr, indices = graph["indptr"], graph["indices"]
    nodes = np.arange(indptr.size - 1, dtype=indices.dtype)
    looped = np.insert(indices, indptr[:-1], nodes)
    return {"indptr": indptr + np.arange(indptr.size), "indices": looped}


def draw_features(nodes: int, width: int) -> dict[str, np.ndarray]:
    """Returns seeded features and weights."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((nodes, width), dtype=np.float32)
    weight, weight2 = (rng.standard_normal((width, width), dtype=np.float32) / np.float32(width**0.5) for _ in "12")
    return {"x": x, "weight": weight, "weight2": weight2}


def propagate(arrays: Mapping[str, np.ndarray], rows: np.ndarray, hops: int, scale: torch.Tensor) -> torch.Tensor:
    """Returns ``rows`` of ``(D A D)^hops X`` in float64, some columns at a time."""
    nodes = arrays["indptr"].size - 1
    indptr, indices = torch.from_numpy(arrays["indptr"]), torch.from_numpy(arrays["indices"]).long()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls its CSR a beta
        adjacency = torch.sparse_csr_tensor(indptr, indices, torch.ones(indices.numel()).double(), (nodes, nodes))
    parts = []
    for part in torch.from_numpy(arrays["x"]).split(COLUMNS_AT_ONCE, dim=1):
        values = part.double()
        for _ in range(hops):
            values = scale * (adjacency @ (scale * values))
        parts.append(values[rows])
    return torch.cat(parts, dim=1)


def reference(case: str, arrays: Mapping[str, np.ndarray], rows: np.ndarray) -> np.ndarray:
    """Returns rows of a case's output, in float64 and without anything of ours."""
    x = torch.from_numpy(arrays["x"][rows]).double()
    weight, weight2 = (torch.from_numpy(arrays[name]).double() for name in ("weight", "weight2"))
    if case == "linear":
        return (x @ weight).numpy()
    degree = torch.from_numpy(np.diff(arrays["indptr"])).double().clamp(min=1).unsqueeze(1)
    scale = degree**-0.5 if case == "sgc" else torch.ones_like(degree)
    neighbours = propagate(arrays, rows, 2 if case == "sgc" else 1, scale)
    out = {
        "aggregate": lambda: neighbours,
        "gcn": lambda: (neighbours @ weight).relu(),
        "sage": lambda: (neighbours / degree[rows] @ weight + x @ weight2).relu(),
        "gin": lambda: (((x + neighbours) @ weight).relu() @ weight2).relu(),
        "sgc": lambda: neighbours @ weight,
    }[case]()
    return out.numpy()


def make_case(name: str, graph: Mapping[str, np.ndarray], args: argparse.Namespace) -> Case:
    """Returns one case, ready to be measured."""
    if name == "linear":
        graph = {"indptr": np.zeros(1, np.int64), "indices": np.zeros(0, np.int32)}
    elif name == "sgc":
        graph = with_self_loops(graph)
    nodes = args.rows if name == "linear" else graph["indptr"].size - 1
    arrays = {**graph, **draw_features(nodes, args.width)}
    rows = np.random.default_rng(1).choice(nodes, min(CHECKED_ROWS, nodes), replace=False)
    if name != "linear":
        rows[0] = np.diff(graph["indptr"]).argmax()  # the longest sum
    of_all, of_connected = PRODUCTS[name]
    multiplied_rows = of_all * nodes + of_connected * int((np.diff(graph["indptr"]) > 0).sum())
    as_asked = args.width == WIDTH and (args.rows == ROWS if name == "linear" else args.graph == GRAPH)
    return Case(
        name,
        arrays,
        rows,
        reference(name, arrays, rows),
        flops=2 * multiplied_rows * args.width**2 or None,
        targets=TARGETS.get(name) if as_asked else None,
        amd_only=name == "linear",
    )


# ---- the command ---------------------------------------------------------------------------------


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Returns the options."""
    parser = argparse.ArgumentParser(description="Time frontgi_pyg's ops and layers against DGL, PyG and torch.")
    parser.add_argument("--cases", nargs="+", choices=list(ABOUT), default=list(ABOUT), metavar="CASE",
                        help=f"of {', '.join(ABOUT)}")  # fmt: skip
    parser.add_argument("--graph", default=GRAPH, help=f"as frontgi_pyg.datasets.generate takes it, or {GRAPH}")
    parser.add_argument("--width", type=int, default=WIDTH, help="features of a node, in and out")
    parser.add_argument("--rows", type=int, default=ROWS, help="of the linear case")
    parser.add_argument("--sides", nargs="+", default=list(DEFAULT_SIDES), metavar="SIDE",
                        help=f"of {', '.join(DEFAULT_SIDES)}")  # fmt: skip
    parser.add_argument("--samples", type=int, default=5, help="timed calls of each side, 5 at least for a result")
    parser.add_argument("--warmup", type=int, default=1, help="unseen calls right before each timed one")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of each side's process")
    parser.add_argument("--out", type=Path, help="where the JSON goes; bench/results by default")
    args = parser.parse_args(argv)
    for name in args.sides:
        try:
            side_of(name)
        except ValueError as error:
            parser.error(str(error))
    return args


def main() -> None:
    """Measures, writes the JSON, prints the tables; fails if ours did."""
    args = parse()
    run: dict[str, Any] = {
        "name": "layers" if set(args.cases) == set(ABOUT) else "layers-" + "-".join(args.cases),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "machine": machine(args.threads),
    }
    graph = draw_csr(args.graph)
    degrees = np.diff(graph["indptr"])
    run["graph"] = {
        "spec": args.graph,
        "nodes": degrees.size,
        "edges": graph["indices"].size,
        "max_degree": int(degrees.max(initial=0)),
    }
    run |= {"width": args.width, "threads": args.threads, "samples": args.samples, "warmup": args.warmup}
    run |= {"sides": args.sides, "cases": {}}
    torch.set_num_threads(args.threads)

    turns = 1 + args.samples
    offered = {name: sum(name in side_of(side).cases for side in {OURS, *args.sides}) for name in args.cases}
    done = 0
    with tqdm(total=turns * sum(offered.values()), unit="call") as bar:
        for name in args.cases:
            bar.set_postfix_str(f"{name}: preparing")

            def tick(text: str) -> None:
                bar.set_postfix_str(text, refresh=False)
                bar.update()

            case = make_case(name, graph, args)
            load = list(os.getloadavg())
            results = measure(
                case, args.sides, samples=args.samples, warmup=args.warmup, threads=args.threads, tick=tick
            )
            about = ABOUT[name].format(rows=args.rows, width=args.width)
            run["cases"][name] = {
                "about": about,
                "load_average": load,
                "sides": results,
                "targets": judged(case, results, run["machine"]),
            }
            done += turns * offered[name]
            bar.update(done - bar.n)  # sides that dropped out

    out = args.out or RESULTS / f"{run['name']}-{slug(run['machine']['cpu'], run['machine']['cpus'])}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(run, indent=1) + "\n")
    print(document(run))
    print(f"Written to {out}")
    ours = [case["sides"][OURS] for case in run["cases"].values()]
    if any(result.get("path") != "native" for result in ours):
        sys.exit("frontgi_pyg failed, was wrong or took PyG's path: see above")


if __name__ == "__main__":
    main()
