# SPDX-License-Identifier: MIT
"""The command ``frontgi``: what it prints, and how it ends where what was asked for makes no sense."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from frontgi_pyg import Topology, __version__, current_isa
from frontgi_pyg.cli import main, picture, read_graph

CHIPLETS = "llc:16x8:16MiB"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command prints that ends well."""
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command says that is refused."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("frontgi: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "version")
    assert f"frontgi_pyg {__version__}" in out
    assert current_isa() in out


def test_topology_draws_each_domain_once(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "topology", "--topology", "0-3:16MiB;4-7,12:32MiB;8-11:512KiB")
    for part in ("domain 0", "domain 1", "domain 2", "16 MiB", "32 MiB", "0.5 MiB", "0-3", "4-7,12", "8-11"):
        assert out.count(part) == 1
    assert "13 of 13 online CPUs, 3 last-level cache domain(s)" in out
    assert "as stated" in out
    many = picture(Topology.parse(CHIPLETS)).splitlines()
    assert max(map(len, many)) <= 100
    assert sum(line.count("domain ") for line in many) == 16


def test_topology_of_this_machine_and_of_a_broken_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "domain 0" in said(capsys, "topology")
    out = said(capsys, "topology", "--sysfs-root", str(tmp_path))
    assert "size unknown" in out
    assert "note: " in out


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "explain", "uniform:20000x40", "--width", "1024", "--topology", CHIPLETS)
    assert out.startswith("mixed in slices of ")
    assert "on 128 worker(s) over 16 of 16 cache domain(s) of 16 MiB" in out
    forced = said(
        capsys, "explain", "uniform:2000x4", "--width", "64", "--topology", CHIPLETS, "--schedule", "mixed",
        "--slice-width", "16", "--block-columns", "500", "--workers", "3",
    )  # fmt: skip
    assert forced.startswith("mixed in slices of 16 features and blocks of 500 source rows, on 3 worker(s)")


def test_simulate(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "simulate", "kronecker:8", "--width", "64", "--topology", "llc:2x2:1MiB")
    for part in ("L1", "L2", "LLC", "remote", "memory: "):
        assert part in out


def test_a_graph_is_a_file_or_a_generators_text(tmp_path: Path) -> None:
    np.savez(tmp_path / "small.npz", indptr=np.array([0, 1, 3]), indices=np.array([1, 0, 1]), shape=np.array([2, 2]))
    graph = read_graph(str(tmp_path / "small.npz"))
    assert (graph.num_dst_nodes, graph.num_edges) == (2, 3)
    assert read_graph("uniform:10x3").num_edges == 30


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("explain", "kronecker:x", "--width", "4"), "kronecker:SCALE"),
        (("explain", "nothing-of-this-name", "--width", "4"), "kronecker:SCALE"),
        (("explain", "/nowhere/graph.npz", "--width", "4"), "'/nowhere/graph.npz' is no file"),
        (("explain", "uniform:10x3", "--width", str(1 << 60)), "more bytes than there are addresses"),
        (("simulate", "uniform:10x3", "--width", str(1 << 40), "--topology", "llc:1x1:1MiB"), "2^31 lines"),
        (("explain", "uniform:10x3", "--width", str(1 << 63)), "frontgi: "),
        (("explain", "uniform:10x3", "--width", "4", "--workers", "0"), "at least one worker"),
        (("explain", "uniform:10x3", "--width", "4", "--slice-width", "4"), "go with schedule='mixed'"),
        (("explain", "uniform:10x3", "--width", "4", "--topology", ""), "expected 'llc:"),
        (("topology", "--topology", "llc:1x1:999999999999999G"), "is not a size of a cache"),
        (("explain", "uniform:10x3", "--width", "-4"), "widths must not be negative"),
        (
            ("explain", "uniform:10x3", "--width", "4", "--topology", "16 chiplets"),
            "expected 'llc:DOMAINSxCPUS[:SIZE]'",
        ),
        (("topology", "--topology", "llc:0x4"), "llc:"),
        (
            ("explain", "uniform:10x3", "--width", "4", "--schedule", "serial", "--slice-width", "4"),
            "mixed schedule alone",
        ),
        (("simulate", "uniform:10x3", "--width", "4", "--topology", "llc:2x2"), "size"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    arguments: tuple[str, ...], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert part in refused(capsys, *arguments)


def test_a_broken_file_is_named_with_the_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.savez(tmp_path / "broken.npz", indptr=np.array([0, 5, 3]), indices=np.array([1, 0, 1]), shape=np.array([2, 2]))
    assert "broken.npz" in refused(capsys, "explain", str(tmp_path / "broken.npz"), "--width", "4")


def test_the_command_is_installed() -> None:
    script = Path(sys.executable).with_name("frontgi")
    done = subprocess.run([script, "version"], capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"})
    assert done.returncode == 0, done.stderr
    assert __version__ in done.stdout
    unknown = subprocess.run([script, "levitate"], capture_output=True, text=True)
    assert unknown.returncode == 2
    assert "usage: frontgi" in unknown.stderr
