# SPDX-License-Identifier: MIT
"""Dependencies run one way: read from the imports and the includes themselves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "frontgi_pyg"
CSRC = ROOT / "csrc"

# What each part of the package may import of the others, beside itself; "" is the package's face.
BELOW_OPS = {"plan", "adjacency", "graph", "memory", "topology", "rates", "library", "config"}
MAY_IMPORT = {
    "config": set(),
    "affinity": set(),
    "topology": {"affinity", "config"},
    "pinning": {"topology", "affinity"},
    "rates": {"topology", "config"},
    "library": {"rates", "topology", "config"},
    "memory": set(),
    "huge_pages": {"library"},
    "graph": {"memory", "library", "config"},
    "adjacency": {"graph", "memory"},
    "plan": {"graph", "topology", "rates", "library", "config"},
    "ops": BELOW_OPS,
    "nn": {"ops", *BELOW_OPS},
    "datasets": {"ops", *BELOW_OPS},
    "cachesim": {"ops", *BELOW_OPS},
    "calibrate": {"datasets", "ops", *BELOW_OPS},
    "store": {"ops", *BELOW_OPS},
    "sampler": {"store", "ops", *BELOW_OPS},
    "loader": {"sampler", "store", "ops", *BELOW_OPS},
    "cli": {"", "nn", "datasets", "cachesim", "calibrate", "store", "sampler", "loader", "ops", *BELOW_OPS},
    "": {
        "nn",
        "datasets",
        "cachesim",
        "calibrate",
        "store",
        "sampler",
        "loader",
        "ops",
        "pinning",
        "huge_pages",
        *BELOW_OPS,
    },
}

# What each folder of csrc may include of the others, beside itself; "" is library.cpp.
MAY_INCLUDE = {
    "kernels": set(),
    "hw": set(),
    "graph": set(),
    "run": {"kernels", "graph", "hw"},
    "sample": {"kernels", "graph", "hw"},
    "store": {"kernels", "graph", "hw"},
    "cachesim": {"run", "kernels", "graph", "hw"},
    "ops": {"run", "sample", "store", "cachesim", "kernels", "graph", "hw"},
    "": {"ops"},
}
# Against the direction, each for a reason, and no more of them than these.
EXCEPTIONS = {
    ("hw/isa.h", "kernels/kernels.h"),  # the table that the choice of an instruction set is a choice of
    ("graph/convert.h", "run/executor.h"),  # the interface of a parallel region: no thread of its own
}

Import = tuple[str, str]  # what imports, what is imported


def python_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str:
    return module.partition(".")[2].partition(".")[0]


def imports_of(path: Path) -> Iterator[str]:
    """Every module a file imports, wherever in it; relative ones by their full name."""
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module in ("frontgi_pyg", ""):  # the names themselves may be modules
                yield from (f"{module}.{alias.name}" for alias in node.names)
            else:
                yield module


def test_every_part_of_the_package_has_a_place() -> None:
    assert {part_of(module_name(path)) for path in python_files()} <= MAY_IMPORT.keys()


@pytest.mark.parametrize("path", python_files(), ids=lambda path: module_name(path))
def test_imports_run_one_way(path: Path) -> None:
    part = part_of(module_name(path))
    for module in imports_of(path):
        if module.split(".")[0] == "frontgi_pyg":
            imported = part_of(module)
            assert imported == part or imported in MAY_IMPORT[part], f"{module_name(path)} imports {module}"


def test_no_part_may_reach_itself_through_another() -> None:
    """The rule above is itself a direction."""
    left = {part: set(below) for part, below in MAY_IMPORT.items()}
    while left:
        lowest = [part for part, below in left.items() if not below & left.keys()]
        assert lowest, left
        for part in lowest:
            del left[part]


def test_layers_know_nothing_of_stores_samplers_and_loaders() -> None:
    assert not MAY_IMPORT["nn"] & {"store", "sampler", "loader"}
    assert not MAY_IMPORT["ops"] & {"nn", "store", "sampler", "loader"}


def test_nothing_imports_tests_examples_or_benchmarks() -> None:
    outside = {"tests", "examples", "bench"}
    product = [*python_files(), *(ROOT / "examples").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]
    for path in product:
        own = {path.relative_to(ROOT).parts[0]} - {"examples"}
        for module in imports_of(path):
            assert module.split(".")[0] not in outside - own, f"{path.relative_to(ROOT)} imports {module}"
    for path, header in includes():
        assert not outside & set(Path(header).parts), f"{path} includes {header}"


def test_only_config_reads_the_environment() -> None:
    names = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
    readers = set()
    for path in python_files():
        for node in ast.walk(ast.parse(path.read_text())):
            found = {node.attr} if isinstance(node, ast.Attribute) else set()
            if isinstance(node, ast.ImportFrom):
                found = {alias.name for alias in node.names}
            if found & names:
                readers.add(module_name(path))
    assert readers == {"frontgi_pyg.config"}
    for path in cpp_files():
        assert not re.search(r"\b(secure_)?getenv\b|\bsetenv\b|\bputenv\b|\benviron\b", path.read_text()), path


# C++ ----------------------------------------------------------------------------------------------


def cpp_files() -> list[Path]:
    files = [path for path in sorted(CSRC.rglob("*")) if path.suffix in (".cpp", ".h")]
    return [path for path in files if path.relative_to(CSRC).parts[0] != "tests"]


def includes() -> Iterator[Import]:
    """Every include of every file: own headers by their path in csrc, others as they stand, in angle brackets."""
    for path in cpp_files():
        for line in path.read_text().splitlines():
            if found := re.match(r'\s*#\s*include\s*(<[^>]+>|"[^"]+")', line):
                header = found[1]
                if header.startswith('"'):
                    own = (path.parent / header.strip('"')).resolve()
                    assert own.is_file(), f"{path} includes {header}, which is not there"
                    header = str(own.relative_to(CSRC))
                yield str(path.relative_to(CSRC)), header


def folder_of(path: str) -> str:
    return path.rpartition("/")[0].partition("/")[0]


def test_every_folder_has_a_place() -> None:
    assert {folder_of(path) for path, _ in includes()} <= MAY_INCLUDE.keys()
    assert {folder_of(str(path.relative_to(CSRC))) for path in cpp_files()} <= MAY_INCLUDE.keys()


def test_includes_run_one_way() -> None:
    against = set()
    for path, header in includes():
        if not header.startswith("<"):
            folder, included = folder_of(path), folder_of(header)
            if included != folder and included not in MAY_INCLUDE[folder]:
                against.add((path, header))
    assert against == EXCEPTIONS


def test_only_the_boundary_knows_torch() -> None:
    known = re.compile(r"<(torch|ATen|c10|caffe2|pybind11)/|<Python\.h>")
    for path, header in includes():
        if known.match(header):
            assert folder_of(path) == "ops" or path == "library.cpp", f"{path} includes {header}"


def test_kernels_know_neither_threads_nor_inline_library_code() -> None:
    """The linker keeps one copy of an inline function, and might keep the one that was compiled for AVX-512."""
    allowed = {"<cstddef>", "<cstdint>", "<immintrin.h>", "<arm_neon.h>"}
    for path, header in includes():
        if folder_of(path) == "kernels" and header.startswith("<"):
            assert header in allowed, f"{path} includes {header}"
    words = r"\bstd::|#\s*pragma\s+omp|\bthread_local\b|\bparallel_for\b|\bExecutor\b|\bmalloc\b|\bnew\b"
    for path in cpp_files():
        if path.parent.name == "kernels":
            code = re.sub(r"//[^\n]*", "", path.read_text())
            assert not re.search(words, code), path


def test_threads_are_started_by_the_cache_model_alone() -> None:
    words = r"<(thread|future|omp\.h)>|\bpthread_create\b|#\s*pragma\s+omp|\bstd::(jthread|thread|async)\b"
    found = {str(path.relative_to(CSRC)) for path in cpp_files() if re.search(words, path.read_text())}
    assert found == {"cachesim/pipeline.h"}  # for as long as a simulation takes, if torch may have two threads


def test_no_build_is_for_the_building_machine_alone() -> None:
    for name in ("setup.py", "CMakeLists.txt", "Makefile", "pyproject.toml"):
        path = ROOT / name
        if path.exists():
            assert "march=native" not in path.read_text(), name
