# SPDX-License-Identifier: MIT
"""``to_huge_pages`` copies, whatever it is given; ``empty_cache`` gives back what is kept."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import frontgi_pyg
from frontgi_pyg import ops, to_huge_pages

LARGE = (3_000_000, 1)


def resident_bytes() -> int:
    found = re.search(r"VmRSS:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (0, 3), (3, 0), (4, 3), (2, 3, 4), LARGE], ids=str)
def test_a_copy(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    out = to_huge_pages(x)
    assert torch.equal(out, x)
    assert out.is_contiguous()
    assert out.dtype == dtype
    assert out.shape == x.shape
    assert out.numel() == 0 or out.data_ptr() != x.data_ptr()


def test_compiled() -> None:
    x = torch.randn(6, 8)
    compiled = torch.compile(to_huge_pages, fullgraph=True, backend="aot_eager", dynamic=True)
    assert torch.equal(compiled(x), x)


@pytest.mark.filterwarnings("error")
def test_strided_features_and_their_gradients() -> None:
    x = torch.randn(6, 8, requires_grad=True)
    out = to_huge_pages(x[::2, 1::3])
    assert torch.equal(out, x[::2, 1::3])
    out.sum().backward()
    expected = torch.zeros(6, 8)
    expected[::2, 1::3] = 1
    assert torch.equal(x.grad, expected)


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="no huge pages")
def test_large_features_lie_on_a_huge_page() -> None:
    assert to_huge_pages(torch.ones(LARGE)).data_ptr() % (2 << 20) == 0


@pytest.mark.parametrize(
    "x", [torch.ones(3, dtype=torch.int64), torch.eye(3).to_sparse(), torch.ones(3, device="meta")]
)
def test_what_cannot_be_moved(x: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"^to_huge_pages: 'x' must be a dense float tensor on the CPU"):
        to_huge_pages(x)
    with pytest.raises(TypeError, match=r"^to_huge_pages: 'x' must be a tensor"):
        to_huge_pages([1.0])  # type: ignore[arg-type]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux has the pool")
def test_what_is_kept_is_given_back() -> None:
    def output() -> torch.Tensor:
        return ops.linear(torch.ones(400_000, 1), torch.ones(64, 1))

    held = output()
    del held
    before = resident_bytes()
    in_use = output()
    kept = output()
    del kept
    frontgi_pyg.empty_cache()
    assert resident_bytes() < before + 0.5 * 400_000 * 64 * 4
    assert bool((in_use == 1).all())
    frontgi_pyg.empty_cache()  # of nothing
