# SPDX-License-Identifier: MIT
"""Calibration: rates are found again from times that they make, kept for one machine, and planned by."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from frontgi_pyg import AskedSchedule, Graph, Topology, library, plan, rates
from frontgi_pyg.calibrate import Timed, fit
from frontgi_pyg.cli import main
from frontgi_pyg.datasets import generate
from frontgi_pyg.rates import Rates

MADE_UP = Rates(
    gather_seconds=3e-10,
    worker_llc_bytes=5e10,
    worker_memory_bytes=1e10,
    domain_memory_bytes=0.0,
    shared_memory_bytes=1e10,
    row_seconds=2e-8,
    pack_row_seconds=3e-8,
    pack_bytes=4e9,
    region_seconds=5e-6,
    llc_share=0.7,
)


@pytest.fixture
def machine() -> Topology:
    return Topology.parse("llc:1x2:1MiB")


@pytest.fixture
def kept_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "folder" / "rates.json"
    monkeypatch.setenv("FRONTGI_CALIBRATION", str(path))
    return path


def graph_of(text: str) -> Graph:
    edges = generate(text)
    return Graph.from_edge_index(edges.edge_index, edges.num_nodes)


def timed_by(known: Rates, machine: Topology) -> list[Timed]:
    """Times of some schedules, as the model has them."""
    schedules = [AskedSchedule("hierarchical")] + [AskedSchedule("mixed", 0, width) for width in (16, 32, 64)]
    schedules.append(AskedSchedule("mixed", 0, 64, 1000))
    found = []
    for text in ("uniform:2000x30", "uniform:8000x10", "powerlaw:4000x80000:2.2", "molecules:9000x18000"):
        made = plan(graph_of(text), 256, topology=machine, rates=known)
        found += [Timed(made, asked, made.cost(asked).seconds) for asked in schedules]
    return found


def test_rates_are_found_again(machine: Topology) -> None:
    found, error = fit(timed_by(MADE_UP, machine))
    assert error < 1e-6
    assert found.llc_share == MADE_UP.llc_share
    assert found.numbers() == pytest.approx(MADE_UP.numbers(), rel=1e-4)


def test_what_costs_nothing_is_not_given_a_negative_rate(machine: Topology) -> None:
    found, error = fit(timed_by(replace(MADE_UP, gather_seconds=0.0, row_seconds=0.0), machine))
    assert error < 1e-3
    assert min(found.numbers()) >= 0


def test_the_planner_goes_by_the_rates(machine: Topology) -> None:
    graph = graph_of("uniform:8000x40")
    costly_packing = replace(MADE_UP, pack_row_seconds=1e-4)
    assert plan(graph, 256, topology=machine, rates=costly_packing).schedule.kind == "hierarchical"
    made = plan(graph, 256, topology=machine, rates=replace(MADE_UP, worker_memory_bytes=1e9, shared_memory_bytes=1e9))
    assert made.schedule.kind == "mixed"
    assert "by this machine's rates" in made.explain()
    assert "by a server core's rates" in plan(graph, 256, topology=machine).explain()


def test_kept_and_loaded(machine: Topology, kept_in: Path) -> None:
    assert rates.load(machine) is None
    assert rates.save(MADE_UP, machine, {"workers": 2}) == kept_in
    assert rates.load(machine) == MADE_UP
    assert list(kept_in.parent.iterdir()) == [kept_in]
    assert rates.load(Topology.parse("llc:2x2:1MiB")) is None  # another machine's


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"machine": 1}', '{"rates": {}, "machine": 1}', "\0"])
def test_a_broken_file_is_named_and_passed_over(machine: Topology, kept_in: Path, text: str) -> None:
    kept_in.parent.mkdir()
    kept_in.write_text(text)
    with pytest.warns(UserWarning, match=r"rates\.json is no calibration and was passed over"):
        assert rates.load(machine) is None


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), "1", None, 1])
def test_rates_that_are_none(machine: Topology, kept_in: Path, value: object) -> None:
    with pytest.raises(ValueError, match=r"^rates: 'row_seconds' must be a number, finite and not negative"):
        replace(MADE_UP, row_seconds=value)  # type: ignore[arg-type]
    rates.save(MADE_UP, machine, {})
    kept = json.loads(kept_in.read_text())
    kept["rates"]["row_seconds"] = value
    kept_in.write_text(json.dumps(kept))
    with pytest.warns(UserWarning, match="row_seconds"):
        assert rates.load(machine) is None


def test_rates_that_would_divide_by_zero() -> None:
    for name in ("pack_bytes", "worker_llc_bytes", "llc_share", "shared_memory_bytes"):
        with pytest.raises(ValueError, match=r"^rates: bytes a second and the share of a cache must be positive"):
            replace(MADE_UP, **{name: 0.0})


def test_a_path_that_cannot_be_read(machine: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRONTGI_CALIBRATION", "/" + "long" * 100)
    with pytest.warns(UserWarning, match="is no calibration and was passed over"):
        assert rates.load(machine) is None


def test_off(machine: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRONTGI_CALIBRATION", "off")
    assert rates.load(machine) is None
    with pytest.raises(ValueError, match="FRONTGI_CALIBRATION is 'off'"):
        rates.save(MADE_UP, machine, {})
    assert main(["calibrate"]) == 2  # before anything is measured


def test_the_command(
    machine: Topology, kept_in: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(library, "DETECTED", machine)
    assert main(["calibrate", "--dry-run"]) == 0
    assert "not kept" in capsys.readouterr().out
    assert not kept_in.exists()
    assert main(["calibrate"]) == 0
    out = capsys.readouterr().out
    assert str(kept_in) in out
    assert "GFLOP/s" in out
    found = rates.load(machine)
    assert found is not None
    assert found.worker_memory_bytes > 0
