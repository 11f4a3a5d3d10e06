# SPDX-License-Identifier: MIT
"""Large outputs lie in memory that is used again: never while somebody holds it, and never with what it held before."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import frontgi_pyg
from frontgi_pyg import Graph, ops

ROWS, WIDTH = 80_000, 64  # outputs of 10 MB and more, in every dtype
DEFAULT_LIMIT = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE") // 4

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self"), reason="only Linux has the pool")


@pytest.fixture(autouse=True)
def empty_pool() -> Iterator[None]:
    frontgi_pyg.set_output_pool_limit(0)
    frontgi_pyg.set_output_pool_limit(DEFAULT_LIMIT)
    yield
    frontgi_pyg.set_output_pool_limit(0)
    frontgi_pyg.set_output_pool_limit(DEFAULT_LIMIT)


@pytest.fixture(scope="module")
def graph() -> Graph:
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(0, ROWS // 2, (120_000,), generator=generator)  # half of the rows have no edges
    return Graph.from_edge_index(torch.stack([torch.randint(0, ROWS, (120_000,), generator=generator), target]), ROWS)


@pytest.fixture(scope="module")
def x() -> Tensor:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1))


def spoiled(dtype: torch.dtype = torch.float32) -> int:
    """Leaves a block of NaNs in the pool and returns its address."""
    block = ops.linear(torch.zeros(ROWS, 1, dtype=dtype), torch.zeros(WIDTH, 1, dtype=dtype)).fill_(float("nan"))
    return block.data_ptr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_every_element_is_written_where_memory_held_nan(graph: Graph, x: Tensor, dtype: torch.dtype) -> None:
    x = x.to(dtype)
    weight = torch.eye(WIDTH, dtype=dtype)
    calls = {
        "aggregate": lambda: ops.aggregate(graph, x),
        "max": lambda: ops.aggregate(graph, x, "max"),
        "linear": lambda: ops.linear(x, weight),
        "conv": lambda: ops.conv(graph, x, weight, multiply_first=False),
        "conv, multiply first": lambda: ops.conv(graph, x, weight, multiply_first=True),
        "conv with a root": lambda: ops.conv(graph, x, weight, x_root=x, root_weight=weight),
    }
    for name, call in calls.items():
        frontgi_pyg.set_output_pool_limit(0)
        fresh = call().clone()
        frontgi_pyg.set_output_pool_limit(DEFAULT_LIMIT)
        for _ in range(3):
            held = [ops.linear(torch.zeros(ROWS, 1, dtype=dtype), torch.zeros(WIDTH, 1, dtype=dtype)) for _ in range(3)]
            for block in held:
                block.fill_(float("nan"))
            del held, block
            assert torch.equal(call(), fresh), name


def test_memory_is_used_again_once_nobody_holds_it(x: Tensor) -> None:
    address = spoiled()
    weight = torch.eye(WIDTH)
    first = ops.linear(x, weight)
    assert first.data_ptr() == address
    view = first[5:].t()
    second = ops.linear(x, weight)
    assert second.data_ptr() != address
    array = second.numpy()
    freed = {first.data_ptr(), second.data_ptr()}
    del first, second
    others = [ops.linear(x, weight) for _ in range(3)]  # the view and the array still hold both
    assert freed.isdisjoint(other.data_ptr() for other in others)
    assert torch.equal(view.t(), x[5:])
    assert torch.equal(torch.from_numpy(array), x)
    del view, array
    assert ops.linear(x, weight).data_ptr() in freed


def test_gradients_keep_what_they_need(graph: Graph, x: Tensor) -> None:
    x = x.double()
    weight = torch.eye(WIDTH, dtype=torch.float64, requires_grad=True)
    loss = ops.conv(graph, x, weight, activation="relu").sum()
    for _ in range(4):
        spoiled(torch.float64)  # would land in the saved output, were it not held
    loss.backward()
    expected = torch.eye(WIDTH, dtype=torch.float64, requires_grad=True)
    torch.relu(ops.aggregate(graph, x) @ expected.t()).sum().backward()
    assert weight.grad is not None
    assert expected.grad is not None
    assert torch.allclose(weight.grad, expected.grad, rtol=0, atol=1e-12 * float(expected.grad.abs().max()))


def test_an_output_is_a_tensor_like_any_other(x: Tensor) -> None:
    """But for one thing: its memory cannot grow."""
    out = ops.linear(x, torch.eye(WIDTH))
    copy = pickle.loads(pickle.dumps(out))
    assert torch.equal(copy, x)
    with pytest.raises(RuntimeError, match="not resizable"):
        ops.linear(x, torch.eye(WIDTH)).resize_(ROWS + 1, WIDTH)
    shared = out.clone().share_memory_()
    out.share_memory_()
    assert torch.equal(out, shared)
    out.resize_(10, 10)
    assert out.shape == (10, 10)


@pytest.mark.parametrize(("rows", "columns"), [(1 << 21, (1 << 41) + 1), (1 << 40, 1 << 41), (1 << 31, 1 << 30)])
def test_an_output_larger_than_any_memory_is_an_error(rows: int, columns: int) -> None:
    with pytest.raises((ValueError, RuntimeError)):
        ops.linear(torch.empty(rows, 0), torch.empty(columns, 0))


def is_mapped(address: int) -> bool:
    """Whether memory lies at an address of this process."""
    with open("/proc/self/maps") as maps:
        ranges = [line.split(maxsplit=1)[0].split("-") for line in maps]
    return any(int(begin, 16) <= address < int(end, 16) for begin, end in ranges)


def test_a_limit_keeps_less() -> None:
    with pytest.raises(ValueError, match=r"set_output_pool_limit: 'limit_bytes' must not be negative \(got -1\)"):
        frontgi_pyg.set_output_pool_limit(-1)
    for limit in (1.5, None, True):
        with pytest.raises(TypeError, match="'limit_bytes' must be an integer"):
            frontgi_pyg.set_output_pool_limit(limit)  # type: ignore[arg-type]
    frontgi_pyg.set_output_pool_limit(1 << 70)
    kept = spoiled()
    assert is_mapped(kept)
    frontgi_pyg.set_output_pool_limit(0)
    assert not is_mapped(kept)
    assert not is_mapped(spoiled())


def test_threads_get_memory_of_their_own(graph: Graph, x: Tensor) -> None:
    expected = ops.aggregate(graph, x)
    right: list[int] = []

    def work(factor: int) -> None:  # a power of two: exact
        for _ in range(15):
            right.append(torch.equal(ops.aggregate(graph, x * factor), expected * factor))

    threads = [threading.Thread(target=work, args=(2**i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 45
