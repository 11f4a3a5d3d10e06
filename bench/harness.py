# SPDX-License-Identifier: MIT
"""Times several sides of one case, in turn, and writes down all that the numbers depend on.

Idea: machines are shared and drift, so nothing is timed alone. Every side (see ``sides.py``) is a process of its own,
kept alive and called in turn: A, B, C, A, B, C, …; ratios are taken within a round. In its turn a side is called unseen
first, at once followed by the call that counts. A side's environment, allocator and thread pool are its own; the arrays
are the same, through memory maps.

Invariant: no time is reported of a call whose output was not checked. Each call's checked rows are compared with a
float64 reference, and the mean of each side's whole output with ours. A side that is absent, crashes, would not fit the
memory or is wrong keeps its place in the results, with the reason.
"""

from __future__ import annotations

import json
import os
import platform
import re
import selectors
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import numpy as np
from peak import multiply_add_peak
from sides import THP, label_of, side_of

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).resolve().parent / "results"
OURS = "frontgi"

# A row of float32 sums over thousands of neighbours is off by about 1e-6; a wrong kernel by much more.
ERROR_MAX = 2e-5
MEAN_ERROR_MAX = 1e-4
ANSWER_SECONDS_MAX = 900
# Idle OpenMP threads spin for some milliseconds: let the last side's go to sleep before the next one is timed.
PAUSE_SECONDS = 0.05


class SideError(Exception):
    """Why a side has no numbers."""


@dataclass(frozen=True)
class Case:
    """One row of a table: what is run, on which arrays, and what it is checked against.

    Args:
        name: As ``sides.py`` knows it.
        arrays: ``indptr``, ``indices``, ``x``, ``weight``, ``weight2``.
        rows: Checked rows of the output.
        reference: What they must be, float64.
        flops: Of the dense part, the least that any implementation computes.
        targets: Ratios that are asked for, by side.
        amd_only: Whether the targets bind on AMD alone.
    """

    name: str
    arrays: Mapping[str, np.ndarray]
    rows: np.ndarray
    reference: np.ndarray
    flops: int | None = None
    targets: Mapping[str, float] | None = None
    amd_only: bool = False


# ---- workers -------------------------------------------------------------------------------------


class Worker:
    """One side's process."""

    def __init__(self, name: str, threads: int, folder: Path) -> None:
        self.name = name
        python = ROOT / side_of(name).venv / "bin" / "python"
        if side_of(name).venv == ".venv":  # whatever environment the benchmark itself runs in
            python = Path(sys.executable)
        elif not python.exists():
            raise SideError(f"no {side_of(name).venv} (make peers)")
        self._log = TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        self._process = subprocess.Popen(
            [python, Path(__file__).with_name("sides.py"), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment(name, threads, folder),
        )

    def send(self, do: str, **request: Any) -> None:
        """Asks for something; the answer is read by :meth:`answer`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **request}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise SideError(self._last_words()) from None

    def answer(self) -> dict[str, Any]:
        """Returns the answer to what was sent."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(ANSWER_SECONDS_MAX):
                raise SideError(f"no answer in {ANSWER_SECONDS_MAX} s")
        line = self._process.stdout.readline()
        if not line:
            raise SideError(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise SideError(answer["failed"])
        return answer

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Sends and waits."""
        self.send(do, **request)
        return self.answer()

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def _last_words(self) -> str:
        code = self._process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        how = f"killed by signal {-code}" if code < 0 else f"exit status {code}"
        return f"{how}: {lines[-1][:200]}" if lines else how


def environment(name: str, threads: int, folder: Path) -> dict[str, str]:
    """Returns the environment of a side's process."""
    env = {key: value for key, value in os.environ.items() if key not in (THP, "PYTHONPATH")}
    env |= {"OMP_NUM_THREADS": str(threads), "TORCHINDUCTOR_CACHE_DIR": str(folder / f"inductor-{name}")}
    return env | ({THP: "1"} if name.endswith("+thp") else {})


# ---- measuring -----------------------------------------------------------------------------------


def measure(
    case: Case, sides: Sequence[str], *, samples: int, warmup: int, threads: int, tick: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """Runs one case on every side and returns the results by side.

    Args:
        case: What to run.
        sides: Names; ours is added if it is not among them, those that have nothing for this case are left out.
        samples: Timed rounds.
        warmup: Unseen calls before each timed one, but not before each side's very first call. A side that waited for
            its turn is not in its steady state: caches are cold, and what it freed may be gone from a virtual machine
            whose host takes free memory back. Fetching 512 MB of huge pages anew was seen to take ten times as long.
        threads: Of each process.
        tick: Called before each call with a few words.
    """
    sides = [name for name in dict.fromkeys([OURS, *sides]) if case.name in side_of(name).cases]
    results: dict[str, dict[str, Any]] = {name: {"label": label_of(name)} for name in sides}
    calls: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    with (
        TemporaryDirectory(prefix="frontgi-bench-") as folder,
        opened(sides, threads, Path(folder), results) as workers,
    ):
        write_arrays(case, Path(folder))
        each(workers, results, lambda worker: worker.send("load", folder=folder, case=case.name))
        each(workers, results, lambda worker: results[worker.name].update(worker.answer()))
        for turn in range(1 + samples):

            def call(worker: Worker, turn: int = turn) -> None:
                tick(f"{case.name}, {worker.name}")
                if turn == 0:
                    require_memory(worker.name, case)
                time.sleep(PAUSE_SECONDS)
                answer = worker.ask("call", warmup=0 if turn == 0 else warmup, whole=turn == 0)
                require_right(answer, calls[OURS])
                calls[worker.name].append(answer)

            each(workers, results, call)
        measured = list(workers)
    ours = [answer["seconds"] for answer in calls[OURS][1:]]
    for name in measured:
        results[name].update(summary(calls[name], ours if OURS in measured else None))
    if case.flops is not None and not case.arrays["indices"].size:  # nothing but the dense part
        for name in measured:
            results[name]["gflops"] = case.flops / results[name]["median_seconds"] / 1e9
    return results


@contextmanager
def opened(
    sides: Iterable[str], threads: int, folder: Path, results: dict[str, dict[str, Any]]
) -> Iterator[dict[str, Worker]]:
    """Starts the workers that can be started, and ends them all."""
    workers: dict[str, Worker] = {}
    try:
        for name in sides:
            try:
                workers[name] = Worker(name, threads, folder)
            except SideError as error:
                results[name]["reason"] = str(error)
        yield workers
    finally:
        for worker in workers.values():
            worker.close()


def each(workers: dict[str, Worker], results: dict[str, dict[str, Any]], do: Callable[[Worker], Any]) -> None:
    """Does something with each worker in turn; one that fails is ended and its reason kept."""
    for name, worker in list(workers.items()):
        try:
            do(worker)
        except SideError as error:
            results[name]["reason"] = str(error)
            workers.pop(name).close()


def write_arrays(case: Case, folder: Path) -> None:
    """Writes the arrays where every side maps them."""
    for name, array in {**case.arrays, "rows": case.rows, "reference": case.reference}.items():
        np.save(folder / f"{name}.npy", array)
    os.sync()  # or the disk is written to while the first sides are timed


def require_memory(name: str, case: Case) -> None:
    """Raises if this side's messages would not fit what is free now."""
    width = case.arrays["weight"].shape[1]
    needed = side_of(name).edge_messages * case.arrays["indices"].size * width * 4
    available = available_bytes()
    if available is not None and needed > 0.9 * available:
        raise SideError(f"would need about {needed / 1e9:.0f} GB, {available / 1e9:.0f} GB are free")


def require_right(answer: dict[str, Any], ours: Sequence[dict[str, Any]]) -> None:
    """Raises if an output is not what it must be."""
    error = answer["error"]
    if not error <= ERROR_MAX:
        raise SideError(f"wrong result: relative error {error:.1e}")
    if "mean_abs" in answer and ours:
        mine, theirs = ours[0]["mean_abs"], answer["mean_abs"]
        if not abs(mine - theirs) <= MEAN_ERROR_MAX * abs(mine):
            raise SideError(f"wrong result: mean {theirs:.6g}, ours {mine:.6g}")


def summary(calls: Sequence[dict[str, Any]], ours_seconds: Sequence[float] | None) -> dict[str, Any]:
    """Returns what is reported of one side's calls, the very first and the timed ones."""
    timed = calls[1:]
    seconds = [call["seconds"] for call in timed]
    # The first call among them: what ours keeps for its next output is resident before each later call.
    peaks = [call["peak_bytes"] for call in calls if call["peak_bytes"] is not None]
    result: dict[str, Any] = {
        "first_seconds": calls[0]["seconds"],
        "seconds": seconds,
        "median_seconds": statistics.median(seconds),
        "quartiles_seconds": quartiles(seconds),
        "cpu_seconds": statistics.median(call["cpu_seconds"] for call in timed),
        "peak_bytes": max(peaks) if peaks else None,
        "error": max(call["error"] for call in calls),
        "mean_abs": calls[0]["mean_abs"],
        "path": timed[-1]["path"],
    }
    if ours_seconds is not None:
        result["ratio"] = result["median_seconds"] / statistics.median(ours_seconds)
        result["quartiles_ratio"] = quartiles([s / ours for s, ours in zip(seconds, ours_seconds, strict=True)])
    return result


def quartiles(values: Sequence[float]) -> list[float]:
    """Returns the 25 and 75 % points."""
    low, _, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return [low, high]


def judged(case: Case, results: Mapping[str, Mapping[str, Any]], machine: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns each target of a case with what was reached.

    ``binding`` is whether it is asked for on this machine, ``ceiling`` the ratio that the peak of this machine allows.
    """
    found = []
    for name, least in (case.targets or {}).items():
        if name in results:
            ratio = results[name].get("ratio")
            binding = not case.amd_only or "AMD" in machine["cpu"]
            reached = None if ratio is None else ratio >= least
            target = {"side": name, "least": least, "ratio": ratio, "reached": reached, "binding": binding}
            if case.flops is not None and ratio is not None and machine["peak_gflops"] is not None:
                # What the side took, or would have taken had nobody made it wait, over the least we can take.
                result = results[name]
                took_seconds = min(result["median_seconds"], result["cpu_seconds"] / result["threads"])
                target["ceiling"] = took_seconds * machine["peak_gflops"] * 1e9 / case.flops
            found.append(target)
    return found


# ---- the machine ---------------------------------------------------------------------------------


def machine(threads: int) -> dict[str, Any]:
    """Returns what the numbers depend on besides the code."""
    load_average = list(os.getloadavg())  # of what others do: nothing here has run yet
    peak = multiply_add_peak(threads)
    cpuinfo = _text("/proc/cpuinfo")
    model = re.search(r"^(?:model name|Processor|CPU part)\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    flags = set((re.search(r"^(?:flags|Features)\s*:\s*(.+)$", cpuinfo, re.MULTILINE) or ["", ""])[1].split())
    chosen = re.search(r"\[(\w+)\]", _text("/sys/kernel/mm/transparent_hugepage/enabled"))
    memory = re.search(r"^MemTotal:\s*(\d+) kB", _text("/proc/meminfo"), re.MULTILINE)
    return {
        "cpu": (model[1].strip() if model else platform.processor() or platform.machine()) + generation(cpuinfo),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "isa": [flag for flag in ("avx2", "fma", "avx512f", "avx512_bf16", "asimd", "sve") if flag in flags],
        "caches": caches(),
        "memory_bytes": int(memory[1]) << 10 if memory else None,
        "huge_pages": chosen[1] if chosen else None,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": load_average,
        "peak_gflops": None if peak is None else peak / 1e9,
    }


def generation(cpuinfo: str) -> str:
    """Returns what tells processors of one name apart: virtual machines often say no more than "AMD EPYC"."""
    found = [re.search(rf"^{key}\s*:\s*(\d+)$", cpuinfo, re.MULTILINE) for key in ("cpu family", "model")]
    return "".join(f" {name} {match[1]}" for name, match in zip(("family", "model"), found, strict=True) if match)


def caches() -> dict[str, str]:
    """Returns the size of each level of the first CPU's caches, e.g. ``{"L3": "32768K"}``."""
    found = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if _text(index / "type").strip() != "Instruction":
            found[f"L{_text(index / 'level').strip()}"] = _text(index / "size").strip()
    return found


def available_bytes() -> int | None:
    """Returns how much memory is free for use; :obj:`None` where the system does not say."""
    free = re.search(r"^MemAvailable:\s*(\d+) kB", _text("/proc/meminfo"), re.MULTILINE)
    limit, used = _text("/sys/fs/cgroup/memory.max").strip(), _text("/sys/fs/cgroup/memory.current").strip()
    bounds = [int(free[1]) << 10] if free else []
    if limit.isdecimal() and used.isdecimal():
        bounds.append(int(limit) - int(used))
    return min(bounds, default=None)


def slug(cpu: str, cpus: int) -> str:
    """Returns the part of a file's name that tells the machine."""
    return re.sub(r"[^a-z0-9]+", "-", cpu.lower()).strip("-") + f"-{cpus}cpu"


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
