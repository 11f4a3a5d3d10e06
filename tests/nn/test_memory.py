# SPDX-License-Identifier: MIT
"""Peak memory of a layer's inference, beyond its input, its output and the graph, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from . import measure_memory

MB = 1 << 20
WIDTHS = ((1024, 1024), (1024, 256), (256, 1024))
CASES = [f"{name}:Graph:{i}:{o}" for name in ("GCNConv", "SAGEConv", "SGConv", "GINConv") for i, o in WIDTHS]
PLAIN_CASES = [f"{name}:edge_index:1024:1024" for name in ("GCNConv", "SAGEConv", "SGConv", "GINConv")]
LAYERWISE = [f"Layerwise{name}:Graph:256:256" for name in ("GCN", "GraphSAGE", "GIN")]
CASES += LAYERWISE
PLAIN_CASES += ["SAGEConv:EdgeIndex:1024:1024"]
THEIRS = "PyGSAGEConv:edge_index:256:256"

pytestmark = pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="this kernel cannot reset a process's high-water mark"
)


def allowed_bytes(case: str, num_nodes: int, workers: int) -> int:
    """Buffers of a cache's size, and what a layer that is not fused by rows has to keep."""
    name, kind, in_width, out_width = case.split(":")
    narrow = 4 * num_nodes * min(int(in_width), int(out_width))
    fused = int(in_width) <= int(out_width)
    allowed = 64 * MB + 8 * MB * workers
    if name == "SGConv":
        allowed += 2 * narrow
    elif not fused:
        allowed += narrow
    if name.startswith("Layerwise"):
        allowed += narrow + 4 * num_nodes * int(out_width)  # an intermediate, a layer's input
    if name == "GINConv":
        allowed += 4 * num_nodes * int(out_width)  # what its network keeps between two linear layers
    if kind != "Graph":
        allowed += 64 * measure_memory.DEGREE * num_nodes  # the conversion, a few integers an edge
    return allowed


def measure(num_nodes: int, cases: list[str]) -> dict[str, int]:
    script = Path(measure_memory.__file__)
    run = subprocess.run(
        [sys.executable, str(script), str(num_nodes), *cases], capture_output=True, text=True, timeout=600, check=False
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, int] = json.loads(run.stdout)
    return found


@pytest.fixture(scope="module")
def small() -> dict[str, int]:
    return measure(1 << 15, [*CASES, *PLAIN_CASES, THEIRS])


@pytest.mark.parametrize("case", [*CASES, *PLAIN_CASES])
def test_peak_memory(small: dict, case: str) -> None:
    extra, allowed = small["extra_bytes"][case], allowed_bytes(case, 1 << 15, small["workers"])
    assert extra <= allowed, f"{extra / MB:.0f} MB, allowed {allowed / MB:.0f} MB"


def test_a_tensor_of_all_messages_would_be_seen(small: dict) -> None:
    """PyG's layer makes one, and is caught by the same measure."""
    messages = 4 * (measure_memory.DEGREE << 15) * 256
    assert small["extra_bytes"][THEIRS] >= messages
    assert small["extra_bytes"][THEIRS] > allowed_bytes(THEIRS, 1 << 15, small["workers"])


@pytest.mark.slow
@pytest.mark.parametrize("case", [*CASES, *PLAIN_CASES])
def test_peak_memory_on_a_large_graph(case: str) -> None:
    found = measure(1 << 17, [case])
    extra, allowed = found["extra_bytes"][case], allowed_bytes(case, 1 << 17, found["workers"])
    assert extra <= allowed, f"{extra / MB:.0f} MB, allowed {allowed / MB:.0f} MB"
