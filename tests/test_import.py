# SPDX-License-Identifier: MIT
"""Importing the package is quick and leaves the process as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import frontgi_pyg
from frontgi_pyg import library

PROGRAM = """
import json, os, random, signal, sys, time, warnings
import numpy, torch, torch_geometric


def state():
    tasks = os.listdir("/proc/self/task") if os.path.isdir("/proc/self/task") else []
    return {
        "threads": len(tasks),
        "affinity": [sorted(os.sched_getaffinity(int(task))) for task in tasks],
        "environment": dict(os.environ),
        "torch threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "dtype": str(torch.get_default_dtype()),
        "gradients": [torch.is_grad_enabled(), torch.is_inference_mode_enabled()],
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "random": [random.getstate()[1][:3], int(torch.get_rng_state().sum()), int(numpy.random.get_state()[1].sum())],
        "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)],
        "warnings": len(warnings.filters),
        "directory": os.getcwd(),
        "hooks": [str(sys.excepthook), str(sys.displayhook)],
        "path": sys.path,
    }


before = state()
start = time.perf_counter()
import frontgi_pyg
seconds = time.perf_counter() - start
json.dump({"seconds": seconds, "before": before, "after": state(), "modules": sorted(sys.modules)}, sys.stdout)
"""


def test_it_is_quick_and_changes_nothing(run_python: Callable[..., str]) -> None:
    fastest = float("inf")
    for _ in range(4):  # a busy machine is given further tries
        found = json.loads(run_python(PROGRAM))
        assert found["after"] == found["before"]
        fastest = min(fastest, found["seconds"])
        if fastest < 0.2:
            break
    assert fastest < 0.2  # seconds, beyond torch and PyG


def test_every_name_it_offers_is_there() -> None:
    for name in frontgi_pyg.__all__:
        assert getattr(frontgi_pyg, name) is not None


def test_a_missing_library_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library, "__file__", str(tmp_path / "library.py"))
    with pytest.raises(ImportError, match=r"^frontgi_pyg: the compiled library is missing; build it with"):
        library._load()


def test_a_library_that_does_not_load_is_an_error_that_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "_C.so").write_bytes(b"no library")
    monkeypatch.setattr(library, "__file__", str(tmp_path / "library.py"))
    with pytest.raises(ImportError, match=r"does not load with torch .*needs torch 2.11 or later$"):
        library._load()
