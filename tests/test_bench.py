# SPDX-License-Identifier: MIT
"""The benchmark and the demo, small: on tiny graphs, and the command as it is given."""

import importlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import frontgi_pyg
from frontgi_pyg.rates import Rates

ROOT = Path(__file__).resolve().parents[1]
QUICK = ["--graph=kronecker:8", "--width=32", "--rows=500", "--samples=2", "--warmup=0", "--threads=1"]


@pytest.fixture(scope="module")
def bench() -> Iterator[SimpleNamespace]:
    """The benchmark's modules, as they import each other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "bench")
        names = ("sides", "harness", "layers", "tables", "planner", "cache_model", "limits", "simulator", "report")
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})


def command(script: str, *options: object) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, ROOT / script, *map(str, options)]
    return subprocess.run(arguments, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["aggregate", "linear", "gcn", "sage", "gin", "sgc"])
def test_sides_agree_with_the_reference(bench: SimpleNamespace, name: str, tmp_path: Path) -> None:
    args = bench.layers.parse(QUICK)
    case = bench.layers.make_case(name, bench.layers.draw_csr(args.graph), args)
    bench.harness.write_arrays(case, tmp_path)
    with torch.random.fork_rng(), torch.no_grad():
        for side in ("frontgi", "pyg", "pyg-csr", "torch"):
            if name in bench.sides.side_of(side).cases:
                worker = bench.sides.Worker(side)
                worker.load(str(tmp_path), name)
                answer = worker.call(warmup=1, whole=True)
                assert answer["error"] < 2e-6, side
                assert answer["path"] == ("native" if side == "frontgi" else None)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run by the command, each side in a process of its own."""
    out = tmp_path_factory.mktemp("bench") / "run.json"
    done = command("bench/layers.py", *QUICK, "--cases", "gcn", "--sides", "pyg", "torch+thp", "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| frontgi_pyg | 1.00" in done.stdout
    return out


def test_a_run_holds_what_its_numbers_depend_on(run: Path) -> None:
    result = json.loads(run.read_text())
    sides = result["cases"]["gcn"]["sides"]
    assert list(sides) == ["frontgi", "pyg", "torch+thp"]
    for side in sides.values():
        assert len(side["seconds"]) == 2
        assert side["first_seconds"] > 0
        assert 0 <= side["error"] < 2e-5
        assert side["threads"] == result["threads"] == 1
    assert sides["frontgi"]["path"] == "native"
    assert sides["frontgi"]["ratio"] == 1
    assert {"torch", "torch_geometric", "frontgi_pyg", "frontgi_isa"} <= sides["frontgi"]["versions"].keys()
    assert {"cpu", "cpus", "isa", "caches", "huge_pages", "load_average", "peak_gflops"} <= result["machine"].keys()


def test_tables_go_into_a_document_and_are_checked(run: Path, tmp_path: Path) -> None:
    document = tmp_path / "README.md"
    document.write_text("before\n<!-- bench -->\nold\n<!-- /bench -->\nafter\n")
    assert command("bench/tables.py", run, "--into", document, "--check").returncode != 0
    assert command("bench/tables.py", run, "--into", document).returncode == 0
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "PyG, edge_index" in text
    assert command("bench/tables.py", run, "--into", document, "--check").returncode == 0


def test_a_side_without_numbers_keeps_its_place(bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bench.sides.SIDES, "dgl", bench.sides.Side("DGL", venv="nowhere"))
    monkeypatch.setitem(bench.sides.SIDES, "pyg", bench.sides.Side("PyG", edge_messages=1e12))
    args = bench.layers.parse(QUICK)
    case = bench.layers.make_case("aggregate", bench.layers.draw_csr(args.graph), args)
    results = bench.harness.measure(case, ["dgl", "pyg"], samples=1, warmup=0, threads=1, tick=lambda _: None)
    assert results["dgl"] == {"label": "DGL", "reason": "no nowhere (make peers)"}
    assert "would need about" in results["pyg"]["reason"]
    assert results["frontgi"]["ratio"] == 1
    text = bench.tables.details({"sides": results})
    assert "no result: no nowhere (make peers)" in text


def test_a_wrong_result_gets_no_time(bench: SimpleNamespace) -> None:
    right = {"error": 0.0, "mean_abs": 1.0}
    bench.harness.require_right(right, [right])
    for wrong in ({"error": float("nan")}, {"error": 1e-3}, {"error": 0.0, "mean_abs": 1.1}):
        with pytest.raises(bench.harness.SideError, match="wrong result"):
            bench.harness.require_right(wrong, [right])


def test_a_crash_is_told(bench: SimpleNamespace, tmp_path: Path) -> None:
    worker = bench.harness.Worker("pyg", 1, tmp_path)
    worker._process.kill()
    with pytest.raises(bench.harness.SideError, match="killed by signal 9"):
        worker.ask("load", folder="", case="gcn")
    worker.close()


def test_targets_are_judged(bench: SimpleNamespace) -> None:
    case = bench.harness.Case("linear", {}, None, None, flops=10**9, targets={"torch": 1.9, "pyg": 2.0}, amd_only=True)
    measured = {"ratio": 1.2, "median_seconds": 0.02, "cpu_seconds": 0.02, "threads": 2}
    machine = {"cpu": "Other", "peak_gflops": 150.0}
    torch_target, pyg_target = bench.harness.judged(case, {"torch": measured, "pyg": {"reason": "absent"}}, machine)
    assert (torch_target["reached"], torch_target["binding"]) == (False, False)
    assert torch_target["ceiling"] == pytest.approx(1.5)
    assert pyg_target["reached"] is None


def test_an_unknown_side_is_refused(bench: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.layers.parse(["--sides", "nonsense"])
    assert "'nonsense' is not one of frontgi, frontgi-unpooled, dgl" in capsys.readouterr().err


def test_the_peak_needs_a_compiler(bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert bench.harness.multiply_add_peak(1) is None


# ---- the demo ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location("demo", ROOT / "examples" / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["demo"] = module  # where its dataclasses look for their names
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def data() -> Data:
    """Nodes whose class shows in their features."""
    generator = torch.Generator().manual_seed(0)
    nodes, classes = 200, 3
    y = torch.randint(classes, (nodes,), generator=generator)
    train = torch.arange(nodes) % 2 == 0
    return Data(
        x=torch.nn.functional.one_hot(y, 8).float() + 0.1 * torch.randn(nodes, 8, generator=generator),
        edge_index=torch.randint(nodes, (2, 300), generator=generator),
        y=y,
        train_mask=train,
        test_mask=~train,
    )


def test_demo_compares_and_draws(demo: ModuleType, data: Data, tmp_path: Path) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = GCN(8, 16, num_layers=2, out_channels=3)
        demo.train(model, data, epochs=20, seconds_max=60)
    fast = frontgi_pyg.accelerate(model)
    comparison = demo.compare(model, fast, data, samples=2)
    assert comparison.difference <= demo.DIFFERENCE_MAX
    assert comparison.pyg.accuracy > comparison.guessing + 0.1
    assert comparison.ours.accuracy == pytest.approx(comparison.pyg.accuracy, abs=0.02)
    assert all(conv.status == "native" for conv in frontgi_pyg.report(fast).convs)
    text = demo.table(comparison)
    assert f"{comparison.pyg.accuracy:.1%}" in text
    assert "times as fast" in text
    demo.draw(comparison, tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("peak_bytes", [None, 0, 10**6])
def test_demo_with_and_without_memory_figures(demo: ModuleType, peak_bytes: int | None, tmp_path: Path) -> None:
    pyg, ours = (demo.Side(name, 0.5, 1.0, time, peak_bytes) for name, time in (("PyG", 2.0), ("frontgi_pyg", 0.5)))
    comparison = demo.Comparison(pyg, ours, difference=1e-7, guessing=0.1)
    text = demo.table(comparison)
    assert "4.0 times as fast" in text
    assert ("100% of PyG's" if peak_bytes else "does not tell") in text
    demo.draw(comparison, tmp_path / "demo.png")
    assert (tmp_path / "demo.png").stat().st_size > 1000


def test_the_planners_choices_are_timed(tmp_path: Path) -> None:
    out = tmp_path / "planner.json"
    cases = ("kronecker:9@32", "uniform:300x20@48", "molecules:400@32")
    rates = tmp_path / "rates.json"
    rates.write_text(json.dumps({"rates": asdict(Rates(1e-9, 5e10, 1e10, 0.0, 1e10, 1e-8, 1e-8, 5e9, 5e-6, 0.8))}))
    options = ("--samples", "4", "--threads", "1", "--rates", rates, "--out", out)
    done = command("bench/planner.py", "--cases", *cases, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "in the other half in " in done.stdout
    assert "The planner's seconds are within 25%" in done.stdout
    assert "Within 5% of the fastest in " in done.stdout
    run = json.loads(out.read_text())
    assert [f"{case['graph']}@{case['width']}" for case in run["cases"]] == list(cases)
    for case in run["cases"]:
        assert case["chosen"] in case["schedules"]
        assert case["chosen_to_fastest"] >= 1
        assert {"hierarchical", "mixed 16"} <= case["schedules"].keys()
    judged = command("bench/planner.py", "--judge", "--threads", "1", "--cases", *cases, "--out", out)
    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert json.loads(out.read_text()) == run  # the same planner judges the same


def test_our_distance_from_the_limits_is_told(tmp_path: Path) -> None:
    out = tmp_path / "limits.json"
    cases = ("aggregate/uniform:300x20/48", "conv/kronecker:8/32/16", "linear/500/64/32")
    done = command("bench/limits.py", "--cases", *cases, "--samples", "2", "--threads", "1", "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    run = json.loads(out.read_text())
    for case, name in zip(run["cases"], cases, strict=True):
        assert name.startswith(case["op"])
        assert case["bytes"] > 0
        assert case["to_floor"] > 0.5
        assert case["graph"] in done.stdout


def test_the_cache_model_makes_its_tables(bench: SimpleNamespace, tmp_path: Path) -> None:
    out = tmp_path / "model.json"
    options = ("--graphs", "AX", "--share", "0.02", "--max-accesses", "100000", "--tables-only")
    done = command("bench/cache_model.py", *options, "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    case = json.loads(out.read_text())["graphs"]["AX"]
    for name in ("node-parallel", "hierarchical", "mixed, width / domains", "ours"):
        assert case["tables"][name]["llc_misses"] > 0
    assert "| AX | 2% |" in done.stdout


def test_the_cache_model_finds_the_best_of_all_schedules(
    bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = bench.cache_model.Graph.from_edge_index(torch.randint(300, (2, 6000)), 300)
    found = bench.cache_model.choices(graph, "llc:2x2:256KiB", 50_000, {})
    monkeypatch.setattr(bench.cache_model, "simulate", None)  # nothing is simulated again
    assert bench.cache_model.choices(graph, "llc:2x2:256KiB", 50_000, found["schedules"]) == found
    seconds = {name: case["seconds"] for name, case in found["schedules"].items()}
    assert found["chosen"] in seconds
    assert seconds[found["best"]] == min(seconds.values())
    assert not set(found["left_out"]) & seconds.keys()
    assert len(seconds) > 3
    assert found["chosen_to_best"] >= 1


def test_the_simulator_is_timed(bench: SimpleNamespace) -> None:
    simulator = bench.simulator
    edges = simulator.generate("kronecker:8")
    graph = simulator.Graph.from_edge_index(edges.edge_index, edges.num_nodes)
    cases = [
        simulator.measure(simulator.Case("kronecker:8", 32, "llc:2x2:16KiB", kind), graph, 2)
        for kind in ("hierarchical", "mixed", None)
    ]
    assert all(case["accesses_per_second"] > 0 and case["sampled"] == 1 for case in cases)
    assert simulator.rendered({"cases": cases}).count("kronecker:8") == 3


def test_the_results_are_rendered(bench: SimpleNamespace) -> None:
    bench.report.main(["--check"])
