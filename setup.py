# SPDX-License-Identifier: MIT
"""Builds the compiled library: everything else about the package is in pyproject.toml."""

from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

ROOT = Path(__file__).parent
TORCH_2_11 = "0x020b000000000000"  # the oldest torch whose stable ABI has all that is used

sources = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "csrc").rglob("*.cpp")
    if "tests" not in path.relative_to(ROOT).parts
)
headers = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "csrc").rglob("*.h"))

setup(
    ext_modules=[
        CppExtension(
            "frontgi_pyg._C",
            sources,
            depends=headers,
            py_limited_api=True,
            # -ffp-contract=off: the kernels say where a multiply-add is fused, so that every piece of a row and every
            # instruction set rounds alike.
            extra_compile_args=[
                "-O3",
                "-std=c++20",
                "-ffp-contract=off",
                "-fno-math-errno",
                "-fvisibility=hidden",
                "-Wall",
                "-Wextra",
                f"-DTORCH_TARGET_VERSION={TORCH_2_11}",
            ],
        )
    ],
    cmdclass={"build_ext": BuildExtension.with_options(no_python_abi_suffix=True)},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
