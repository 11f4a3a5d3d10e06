# SPDX-License-Identifier: MIT
"""Run as a script: the peak memory of one inference of each layer that was asked for, as JSON.

Usage: ``measure_memory.py NODES NAME:ADJACENCY:IN:OUT ...``, PyG's own layer where the name has a ``PyG`` before it, a
model of several layers under ``layerwise_inference`` where it has a ``Layerwise``.
The kernel's high-water mark is reset before each call.
"""

import json
import sys
from functools import partial
from pathlib import Path

import torch
import torch_geometric.nn
from torch_geometric import EdgeIndex

import frontgi_pyg.nn
from frontgi_pyg import Graph

DEGREE = 8
LAYERS = 5


def resident_bytes(field: str) -> int:
    """``VmRSS`` (now) or ``VmHWM`` (at most, since the last reset)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) << 10


def layer(name: str, in_width: int, out_width: int) -> torch.nn.Module:
    if name.startswith("Layerwise"):
        model = getattr(torch_geometric.nn, name.removeprefix("Layerwise"))
        return frontgi_pyg.accelerate(model(in_width, out_width, LAYERS, act="elu", norm="batch_norm")).eval()
    if name.startswith("PyG"):
        return getattr(torch_geometric.nn, name.removeprefix("PyG"))(in_width, out_width)
    if name == "GINConv":
        linear = torch.nn.Linear
        network = torch.nn.Sequential(linear(in_width, out_width), torch.nn.ReLU(), linear(out_width, out_width))
        return frontgi_pyg.nn.GINConv(network)
    kwargs = {"K": 2} if name == "SGConv" else {}
    return getattr(frontgi_pyg.nn, name)(in_width, out_width, **kwargs)


def adjacency(kind: str, num_nodes: int) -> object:
    index = torch.randint(0, num_nodes, (2, DEGREE * num_nodes), generator=torch.Generator().manual_seed(0))
    if kind == "Graph":
        graph = Graph.from_edge_index(index, num_nodes)
        graph.gcn_norm(None, "remain", 1.0, torch.float32)
        return graph
    return EdgeIndex(index, sparse_size=(num_nodes, num_nodes)) if kind == "EdgeIndex" else index


def extra_bytes(num_nodes: int, name: str, kind: str, in_width: int, out_width: int) -> int:
    """What one call takes beyond its input, its output and the graph."""
    module, edges = layer(name, in_width, out_width), adjacency(kind, num_nodes)
    small = adjacency("edge_index", 64)
    frontgi_pyg.set_output_pool_limit(0)  # what an earlier case left there would not be counted
    x = torch.randn(num_nodes, in_width)
    conv = module if not name.startswith("Layerwise") else partial(frontgi_pyg.nn.layerwise_inference, module)
    with torch.inference_mode():
        conv(x[:64], small)  # threads, libraries
        Path("/proc/self/clear_refs").write_text("5")
        before = resident_bytes("VmRSS")
        out = conv(x, edges)
        peak = resident_bytes("VmHWM")
    convs = [m for m in module.modules() if isinstance(m, torch_geometric.nn.MessagePassing)]
    assert name.startswith("PyG") or all(m.path_taken == "native" for m in convs)
    return peak - before - out.numel() * out.element_size()


if __name__ == "__main__":
    found = {}
    for case in sys.argv[2:]:
        name, kind, in_width, out_width = case.split(":")
        found[case] = extra_bytes(int(sys.argv[1]), name, kind, int(in_width), int(out_width))
    print(json.dumps({"workers": torch.get_num_threads(), "extra_bytes": found}))
