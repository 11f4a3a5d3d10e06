# SPDX-License-Identifier: MIT
"""The benchmark and the demo, small: the commands as they are given, on tiny graphs."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import frontgi_pyg

ROOT = Path(__file__).resolve().parents[1]
QUICK = [
    "--graph",
    "kronecker:8",
    "--width",
    "32",
    "--rows",
    "500",
    "--samples",
    "2",
    "--warmup",
    "0",
    "--threads",
    "1",
]


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def bench(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, ROOT / "bench" / script, *options], capture_output=True, text=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bench") / "run.json"
    done = bench("layers.py", *QUICK, "--sides", "pyg", "torch+thp", "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_every_case_is_native_and_right(run: Path) -> None:
    cases = json.loads(run.read_text())["cases"]
    assert list(cases) == ["aggregate", "linear", "gcn", "sage", "gin", "sgc"]
    for name, case in cases.items():
        assert "frontgi" in case["sides"] and len(case["sides"]) > 1, name
        for side, result in case["sides"].items():
            assert "reason" not in result, (name, side, result["reason"])
            assert len(result["seconds"]) == 2
            assert 0 <= result["error"] < 2e-5
            assert result["path"] == ("native" if side == "frontgi" else None)
        assert case["sides"]["frontgi"]["ratio"] == 1


def test_run_tells_the_machine(run: Path) -> None:
    result = json.loads(run.read_text())
    machine = result["machine"]
    assert machine["cpu"] and machine["cpus"] >= 1 and len(machine["load_average"]) == 3
    assert result["threads"] == 1
    side = result["cases"]["gcn"]["sides"]["frontgi"]
    assert {"torch", "torch_geometric", "frontgi_pyg", "frontgi_isa"} <= side["versions"].keys()
    assert side["threads"] == 1


def test_tables_go_into_a_document_and_are_checked(run: Path, tmp_path: Path) -> None:
    document = tmp_path / "README.md"
    document.write_text("before\n<!-- bench -->\nold\n<!-- /bench -->\nafter\n")
    assert bench("tables.py", str(run), "--into", str(document), "--check").returncode != 0
    assert bench("tables.py", str(run), "--into", str(document)).returncode == 0
    text = document.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    ratio = json.loads(run.read_text())["cases"]["gcn"]["sides"]["pyg"]["ratio"]
    assert (f"{ratio:.2f}\u00d7" if ratio < 10 else f"{ratio:.1f}\u00d7") in text
    assert bench("tables.py", str(run), "--into", str(document), "--check").returncode == 0


def test_a_side_that_is_absent_keeps_its_place(tmp_path: Path) -> None:
    script = tmp_path / "absent.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT / 'bench')!r})\n"
        "import sides\n"
        "sides.SIDES['dgl'] = sides.Side('DGL', venv='nowhere')\n"
        "import layers; layers.main()\n"
    )
    out = tmp_path / "run.json"
    options = [*QUICK, "--cases", "aggregate", "--sides", "dgl", "--out", str(out)]
    done = subprocess.run([sys.executable, script, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())["cases"]["aggregate"]["sides"]["dgl"]
    assert result == {"label": "DGL", "reason": "no nowhere (make peers)"}
    assert "no result: no nowhere (make peers)" in done.stdout


def test_a_wrong_or_crashing_side_gets_no_time() -> None:
    code = f"""
import sys; sys.path.insert(0, {str(ROOT / "bench")!r})
import harness
for error, word in ((float("nan"), "wrong"), (1.0, "wrong"), (0.0, "")):
    try:
        harness.require_right({{"error": error, "mean_abs": 1.0}}, [{{"mean_abs": 1.0}}])
        assert not word
    except harness.SideError as reason:
        assert word and word in str(reason)
worker = harness.Worker("pyg", 1, harness.ROOT)
worker._process.kill()
try:
    worker.ask("load", folder="", case="gcn")
    raise AssertionError("no SideError")
except harness.SideError as reason:
    assert "killed by signal 9" in str(reason)
worker.close()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_unknown_side_is_refused() -> None:
    done = bench("layers.py", "--sides", "nonsense")
    assert done.returncode == 2
    assert "'nonsense' is not one of frontgi, dgl" in done.stderr


# ---- the demo ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    pytest.importorskip("matplotlib")
    return load("examples/demo.py")


@pytest.fixture
def data() -> Data:
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
    torch.manual_seed(0)
    model = GCN(8, 16, num_layers=2, out_channels=3)
    demo.train(model, data, epochs=20, seconds_max=60)
    fast = frontgi_pyg.accelerate(model)
    comparison = demo.compare(model, fast, data, samples=2)
    assert comparison.difference <= demo.DIFFERENCE_MAX
    assert comparison.pyg.accuracy > comparison.guessing + 0.1
    assert abs(comparison.pyg.accuracy - comparison.ours.accuracy) < 0.02
    assert all(conv.status == "native" for conv in frontgi_pyg.report(fast).convs)
    text = demo.table(comparison)
    assert f"{comparison.pyg.accuracy:.1%}" in text and "times as fast" in text
    demo.draw(comparison, tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_demo_without_memory_figures(demo: ModuleType, tmp_path: Path) -> None:
    sides = [demo.Side(name, 0.5, 1.0, seconds, None) for name, seconds in (("PyG", 2.0), ("frontgi_pyg", 0.5))]
    comparison = demo.Comparison(*sides, difference=1e-7, guessing=0.1)
    assert "4.0 times as fast" in demo.table(comparison)
    assert "does not tell" in demo.table(comparison)
    demo.draw(comparison, tmp_path / "demo.png")
    assert (tmp_path / "demo.png").stat().st_size > 1000
