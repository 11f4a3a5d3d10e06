# SPDX-License-Identifier: MIT
"""The sides of a comparison, and the worker process that each of them runs in.

Idea: a side is a library, a way of calling it and a process environment. Every side maps the same arrays and makes its
own graph formats before anything is timed; then it is called when the harness says so. A name with ``+thp`` behind it
is the same side with PyTorch's ``THP_MEM_ALLOC_ENABLE=1``, a switch of a whole process. Before each call the features
are copied into memory that the side's own allocator gives, so that the switch reaches them too, and afterwards that
memory is given back: a dozen sides need not hold a dozen copies.

Layout: a folder of ``.npy`` files holds the graph as CSR by destination (``indptr`` int64, ``indices`` int32), the
features ``x``, the weights ``weight`` and ``weight2`` (``[in, out]``), and the checked ``rows`` of the output with
their ``reference`` in float64.

Protocol: one JSON object a line, on stdin and stdout. ``load`` prepares a case, ``call`` runs it once and reports.

This file is run as ``python sides.py NAME`` by the interpreter of the side's own environment: at the top it imports
nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

THP = "THP_MEM_ALLOC_ENABLE"
LAYERS = ("gcn", "sage", "gin", "sgc")
DECOMPOSED = 8

Call = Callable[[Any], Any]  # features → output


@dataclass(frozen=True)
class Side:
    """A library and a way of calling it."""

    label: str
    cases: tuple[str, ...] = ("aggregate", *LAYERS)
    venv: str = ".venv"
    edge_messages: float = 0.0  # peak, in tensors of [num_edges, width]: tells beforehand what would not fit


# What to compare with, by name. With edge weights, PyG holds two tensors of messages at once, and some more beside.
SIDES = {
    "frontgi": Side("frontgi_pyg", cases=("aggregate", "linear", *LAYERS)),
    "frontgi-unpooled": Side("frontgi_pyg, outputs in fresh memory", cases=("aggregate", "linear", *LAYERS)),
    "dgl": Side("DGL", venv=".venv-dgl"),
    "pyg": Side("PyG, edge_index", edge_messages=2.5),
    "pyg-csr": Side("PyG, torch CSR"),
    "pyg-sparse": Side("PyG, SparseTensor"),
    "pyg-decomposed": Side(f"PyG, decomposed_layers={DECOMPOSED}", edge_messages=2.5 / DECOMPOSED),
    "pyg-compile": Side("PyG, torch.compile", edge_messages=2.5),
    "torch": Side("torch (sparse.mm with 'sum', linear)", cases=("aggregate", "linear", "gcn")),
    "onednn": Side("torch's oneDNN on the whole matrix", cases=("linear",)),
}
DEFAULT_SIDES = (
    *(
        "frontgi",
        "frontgi-unpooled",
        "dgl",
        "dgl+thp",
        "pyg",
        "pyg+thp",
        "pyg-csr",
        "pyg-csr+thp",
        "pyg-sparse",
        "pyg-sparse+thp",
    ),
    *("pyg-decomposed", "pyg-compile", "torch", "torch+thp", "onednn", "onednn+thp"),
)


def side_of(name: str) -> Side:
    """Returns the side called ``name``, with or without ``+thp``."""
    base = name.removesuffix("+thp")
    if base not in SIDES:
        raise ValueError(f"side {name!r} is not one of {', '.join(SIDES)} (each may end in +thp)")
    return SIDES[base]


def label_of(name: str) -> str:
    """Returns the name of a side as tables show it."""
    return side_of(name).label + (", huge pages" if name.endswith("+thp") else "")


# ---- what each side runs -------------------------------------------------------------------------


@dataclass
class Inputs:
    """The tensors of a case but its features."""

    indptr: Any
    indices: Any
    weight: Any
    weight2: Any

    @property
    def num_nodes(self) -> int:
        return self.indptr.numel() - 1

    def destinations(self) -> Any:
        import torch

        return torch.repeat_interleave(torch.arange(self.num_nodes), self.indptr.diff())

    def edge_index(self) -> Any:
        import torch

        return torch.stack([self.indices.long(), self.destinations()])


def load_tensor(folder: Path, name: str) -> Any:
    """Returns an array of the case in memory of this process's own."""
    import numpy as np
    import torch

    mapped = torch.from_numpy(np.load(folder / f"{name}.npy", mmap_mode="c"))
    return torch.empty_like(mapped).copy_(mapped)


def linear_layer(weight: Any) -> Any:
    import torch

    layer = torch.nn.Linear(*weight.shape, bias=False)
    layer.weight.copy_(weight.t())
    return layer


def mlp(inputs: Inputs) -> Any:
    import torch

    return torch.nn.Sequential(linear_layer(inputs.weight), torch.nn.ReLU(), linear_layer(inputs.weight2))


def pyg_layer(case: str, inputs: Inputs, **options: Any) -> Any:
    """Returns PyG's layer for a case, on the weights of the case."""
    import torch
    from torch_geometric.nn import GCNConv, GINConv, SAGEConv, SGConv, SimpleConv

    shape = tuple(inputs.weight.shape)
    if case == "aggregate":
        return SimpleConv(aggr="sum", **options)
    if case == "gcn":
        conv = GCNConv(*shape, normalize=False, add_self_loops=False, bias=False, **options)
        conv.lin.weight.copy_(inputs.weight.t())
    elif case == "sage":
        conv = SAGEConv(*shape, aggr="mean", bias=False, **options)
        conv.lin_l.weight.copy_(inputs.weight.t())
        conv.lin_r.weight.copy_(inputs.weight2.t())
    elif case == "gin":
        conv = GINConv(torch.nn.Identity(), **options)
        conv.nn = mlp(inputs)  # the constructor would draw its weights anew
    else:
        conv = SGConv(*shape, K=2, add_self_loops=False, bias=False, **options)
        conv.lin.weight.copy_(inputs.weight.t())
    return conv


def run_layer(case: str, layer: Any, adjacency: Any) -> Call:
    """Returns the timed call. The ReLU is in place on every side; SGC and a bare aggregation have none."""
    if case in ("aggregate", "sgc"):
        return lambda x: layer(x, adjacency)
    return lambda x: layer(x, adjacency).relu_()


def build_frontgi(case: str, inputs: Inputs) -> tuple[Call, Callable[[], str]]:
    import frontgi_pyg
    from frontgi_pyg import Graph, ops

    if case == "linear":
        weight = inputs.weight.t().contiguous()
        return lambda x: ops.linear(x, weight), lambda: "native"
    if case == "aggregate":
        graph = Graph.from_csr(inputs.indptr, inputs.indices)
        return lambda x: ops.aggregate(graph, x), lambda: "native"
    layer = frontgi_pyg.accelerate(pyg_layer(case, inputs))
    # The first call converts the edges; later ones find the graph remembered, as a user's calls do.
    return run_layer(case, layer, inputs.edge_index()), lambda: layer.path_taken


def build_frontgi_unpooled(case: str, inputs: Inputs) -> tuple[Call, Callable[[], str]]:
    import frontgi_pyg

    frontgi_pyg.set_output_pool_limit(0)
    return build_frontgi(case, inputs)


def build_dgl(case: str, inputs: Inputs) -> Call:
    import torch

    class Absent(types.ModuleType):
        """Stands where dgl.graphbolt would be: its library exists for older torch only, and nothing here uses it."""

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (object,), {})

    sys.modules["dgl.graphbolt"] = Absent("dgl.graphbolt")
    os.environ["DGLBACKEND"] = "pytorch"
    import dgl
    from dgl import nn

    graph = dgl.graph((inputs.indices, inputs.destinations().int()), num_nodes=inputs.num_nodes).formats("csc")
    graph.create_formats_()
    shape, relu = tuple(inputs.weight.shape), torch.relu_
    if case == "aggregate":
        return lambda x: dgl.ops.copy_u_sum(graph, x)
    if case == "gcn":
        conv = nn.GraphConv(*shape, norm="none", bias=False, activation=relu, allow_zero_in_degree=True)
        conv.weight.copy_(inputs.weight)
    elif case == "sage":
        conv = nn.SAGEConv(*shape, "mean", bias=False, activation=relu)
        conv.fc_neigh.weight.copy_(inputs.weight.t())
        conv.fc_self.weight.copy_(inputs.weight2.t())
    elif case == "gin":
        conv = nn.GINConv(mlp(inputs), "sum", activation=relu)
    else:
        conv = nn.SGConv(*shape, k=2, bias=False, allow_zero_in_degree=True)
        conv.fc.weight.copy_(inputs.weight.t())
    return lambda x: conv(graph, x)


def build_pyg(case: str, inputs: Inputs) -> Call:
    return run_layer(case, pyg_layer(case, inputs), inputs.edge_index())


def torch_csr(inputs: Inputs) -> Any:
    import torch

    ones = torch.ones(inputs.indices.numel())
    size = (inputs.num_nodes, inputs.num_nodes)
    return torch.sparse_csr_tensor(inputs.indptr, inputs.indices.long(), ones, size)


def build_pyg_csr(case: str, inputs: Inputs) -> Call:
    return run_layer(case, pyg_layer(case, inputs), torch_csr(inputs))


def build_pyg_sparse(case: str, inputs: Inputs) -> Call:
    layer = pyg_layer(case, inputs)
    from torch_sparse import SparseTensor

    size = (inputs.num_nodes, inputs.num_nodes)
    adjacency = SparseTensor(rowptr=inputs.indptr, col=inputs.indices.long(), sparse_sizes=size, is_sorted=True)
    return run_layer(case, layer, adjacency)


def build_pyg_decomposed(case: str, inputs: Inputs) -> Call:
    return run_layer(case, pyg_layer(case, inputs, decomposed_layers=DECOMPOSED), inputs.edge_index())


def build_pyg_compile(case: str, inputs: Inputs) -> Call:
    import torch

    layer, edges = pyg_layer(case, inputs), inputs.edge_index()
    return torch.compile(run_layer(case, layer, edges))  # the first call compiles


def build_torch(case: str, inputs: Inputs) -> Call:
    import torch
    from torch.nn.functional import linear

    weight = inputs.weight.t().contiguous()
    if case == "linear":
        return lambda x: linear(x, weight)
    adjacency = torch_csr(inputs)
    if case == "aggregate":
        return lambda x: torch.sparse.mm(adjacency, x, "sum")
    return lambda x: linear(torch.sparse.mm(adjacency, x, "sum"), weight).relu_()


def build_onednn(_: str, inputs: Inputs) -> Call:
    import torch

    weight = inputs.weight.t().contiguous()
    return lambda x: torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")


# ---- the worker ----------------------------------------------------------------------------------


class Worker:
    """Holds one prepared case and answers requests."""

    def __init__(self, name: str) -> None:
        self.name = name

    def load(self, folder: str, case: str) -> dict[str, Any]:
        """Makes the layer and the graph formats."""
        import torch

        torch.set_grad_enabled(False)
        self.folder = Path(folder)
        inputs = Inputs(*(load_tensor(self.folder, name) for name in ("indptr", "indices", "weight", "weight2")))
        self.rows, self.reference = (load_tensor(self.folder, name) for name in ("rows", "reference"))
        built = globals()["build_" + self.name.removesuffix("+thp").replace("-", "_")](case, inputs)
        self.run, self.path = built if isinstance(built, tuple) else (built, lambda: None)
        return {"versions": versions(), "threads": torch.get_num_threads()}

    def call(self, warmup: int, whole: bool) -> dict[str, Any]:
        """Runs ``warmup`` times unseen, then once. ``whole`` adds the mean of the whole output, to compare sides by."""
        x = load_tensor(self.folder, "x")
        for _ in range(warmup):
            self.run(x)
        before = resident_bytes("VmRSS") if reset_peak() else None
        cpu = time.process_time()
        start = time.perf_counter()
        out = self.run(x)
        seconds = time.perf_counter() - start
        answer = {
            "seconds": seconds,
            "cpu_seconds": time.process_time() - cpu,
            "peak_bytes": None if before is None else max(resident_bytes("VmHWM") - before, 0),
            "path": self.path(),
            "error": self._error(out),
        }
        if whole:
            answer["mean_abs"] = sum(float(part.double().abs().sum()) for part in out.split(4096)) / out.numel()
        return answer

    def _error(self, out: Any) -> float:
        """Largest relative error of a checked row against float64, in the 2-norm; rows of zeros: absolute."""
        norm = self.reference.norm(dim=1)
        norm[norm == 0] = 1
        return float(((out[self.rows].double() - self.reference).norm(dim=1) / norm).max())


def versions() -> dict[str, str]:
    """Returns the version of each library in use, and our instruction set."""
    found = {}
    for module in ("torch", "torch_geometric", "torch_sparse", "dgl", "frontgi_pyg"):
        version = getattr(sys.modules.get(module), "__version__", None)
        if version is not None:
            found[module] = str(version)
    if "frontgi_pyg" in found:
        found["frontgi_isa"] = sys.modules["frontgi_pyg"].current_isa()
    return found


def reset_peak() -> bool:
    """Makes the peak of this process's resident memory start anew; whether the system can do that."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def resident_bytes(key: str) -> int:
    """Returns ``VmRSS`` (now) or ``VmHWM`` (peak) of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) << 10
    raise OSError(f"no {key} in /proc/self/status")


def main() -> None:
    """Answers requests until stdin ends."""
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with contextlib.suppress(OSError):  # If memory runs out, let it be this process that ends.
        Path("/proc/self/oom_score_adj").write_text("1000")
    worker = Worker(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(worker, request.pop("do"))(**request)
        except Exception as error:
            traceback.print_exc()
            first_line = (str(error).splitlines() or [""])[0]
            answer = {"failed": f"{type(error).__name__}: {first_line}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
