# SPDX-License-Identifier: MIT
"""What the tests share."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

os.environ.setdefault("FRONTGI_CALIBRATION", "off")  # before the package reads it: plans are the same on every machine

from frontgi_pyg import Graph
from frontgi_pyg import graph as graph_module


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real graphs and machine descriptions; ``FRONTGI_SHARED`` says where it lies."""
    default = Path(__file__).resolve().parents[2] / "shared"
    path = Path(os.environ.get("FRONTGI_SHARED", default))
    if not path.is_dir():
        pytest.skip(f"no shared data at {path} (set FRONTGI_SHARED)")
    return path


@pytest.fixture
def set_threads() -> Iterator[Callable[[int], None]]:
    """Sets the number of torch's threads, until the test ends."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def one_thread(set_threads: Callable[[int], None]) -> None:
    """For tests of small things, which a busy machine would make wait at the end of every parallel region."""
    set_threads(1)


@pytest.fixture
def run_python(tmp_path: Path) -> Callable[..., str]:
    """Runs a program in a process of its own and returns what it printed; fails if it fails or hangs."""

    def run(program: str, *args: str, env: dict[str, str] | None = None, timeout_s: float = 120) -> str:
        script = tmp_path / "program.py"
        script.write_text(program)
        paths = (str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH"))
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))} | (env or {})
        done = subprocess.run(
            [sys.executable, str(script), *args], env=environment, timeout=timeout_s, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows with every conversion, by its name."""
    done: list[str] = []
    for name in ("from_edge_index", "from_csr", "from_sparse"):
        original = getattr(Graph, name).__func__

        def counted(cls: type[Graph], *args: Any, _call: Any = original, _name: str = name, **kwargs: Any) -> Graph:
            done.append(_name)
            return _call(cls, *args, **kwargs)

        monkeypatch.setattr(Graph, name, classmethod(counted))
    transpose = graph_module.transpose
    monkeypatch.setattr(graph_module, "transpose", lambda *args: done.append("transpose") or transpose(*args))
    return done
