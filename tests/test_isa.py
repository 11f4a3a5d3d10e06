# SPDX-License-Identifier: MIT
"""Every instruction set the machine has, each forced in a process of its own by ``FRONTGI_ISA``."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from frontgi_pyg import available_isas, current_isa

PROGRAM = """
import sys
import torch
from frontgi_pyg import available_isas, current_isa, ops
from tests.graphs import MESSY, Edges, power_law
from tests.ops.samples import DTYPES, SAMPLES, check_backward, check_forward, sums

torch.set_num_threads(1)
assert current_isa() == sys.argv[1], current_isa()
ROWS = Edges(torch.zeros(2, 0, dtype=torch.long), 31, 31)
results = []
for dtype in DTYPES:
    for sample in SAMPLES:
        for width, out_width in ((19, 13), (64, 48), (150, 33)):
            edges = ROWS if sample.op == "linear" else MESSY
            tensors = sample.tensors(edges, dtype, width, out_width)
            out = check_forward(sample, edges, tensors)
            if dtype == sums(dtype):
                check_backward(sample, edges, tensors)
            if sample.op == "aggregate":
                results.append(out)
    every = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(torch.float16)  # each half there is
    x = every.view(-1, 64).to(dtype)
    loops = torch.arange(x.size(0))
    for weight in (1.0, 1 / 3, 2e4, 3e-8):  # rounded, beyond the largest half, below the smallest
        graph = Edges(torch.stack([loops, loops]), x.size(0), x.size(0)).graph(torch.full((x.size(0),), weight))
        results.append(ops.aggregate(graph, x).nan_to_num(nan=7.0, posinf=torch.inf, neginf=-torch.inf))
        results.append(ops.aggregate(graph, x).isnan())
torch.save(results, sys.argv[2])
"""


@pytest.fixture(scope="module")
def results() -> dict[str, list[torch.Tensor]]:
    """What each instruction set that has run so far gave."""
    return {}


@pytest.mark.parametrize("isa", available_isas())
def test_each_is_right_and_aggregates_to_the_same_bits(
    isa: str, results: dict[str, list[torch.Tensor]], run_python: Callable[..., str], tmp_path: Path
) -> None:
    saved = tmp_path / "results.pt"
    run_python(PROGRAM, isa, str(saved), env={"FRONTGI_ISA": isa})
    results[isa] = torch.load(saved)
    for other, expected in results.items():
        assert len(results[isa]) == len(expected)
        assert all(map(torch.equal, results[isa], expected)), other


def test_those_there_are_those_of_the_processor() -> None:
    if platform.machine() in ("aarch64", "arm64"):
        assert available_isas() == ("neon",)
        return
    assert available_isas()[0] == "baseline"
    if platform.machine() != "x86_64" or not Path("/proc/cpuinfo").exists():
        pytest.skip("the flags of the processor are not known")
    line = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    flags = set(line.partition(":")[2].split())
    expected = ["baseline"]
    if flags.issuperset({"avx2", "fma", "f16c"}):
        expected.append("avx2")
        if flags.issuperset({"avx512f", "avx512bw", "avx512dq", "avx512vl"}):
            expected.append("avx512")
    assert available_isas() == tuple(expected)


def test_the_widest_is_the_default() -> None:
    if not os.environ.get("FRONTGI_ISA"):
        assert current_isa() == available_isas()[-1]


def test_another_name_is_refused_with_the_list_of_what_is_there(run_python: Callable[..., str]) -> None:
    program = "try:\n    import frontgi_pyg\nexcept ValueError as error:\n    print(error)"
    there = ", ".join(available_isas())
    message = f"FRONTGI_ISA: isa: this machine has {there} (got 'sse9')\n"
    assert run_python(program, env={"FRONTGI_ISA": "sse9"}) == message


def test_forcing_another_name_changes_nothing() -> None:
    before = current_isa()
    try:
        for isa in available_isas():
            torch.ops.frontgi.force_isa(isa)
            for name in ("vax", isa.upper(), f"{isa} ", ""):
                with pytest.raises(
                    ValueError, match=rf"^isa: this machine has {', '.join(available_isas())} \(got '{name}'\)"
                ):
                    torch.ops.frontgi.force_isa(name)
            assert current_isa() == isa
    finally:
        torch.ops.frontgi.force_isa(before)
