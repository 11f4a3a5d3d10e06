# SPDX-License-Identifier: MIT
"""``frontgi::linear``: values, dtypes, layouts, sizes and bad input."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from frontgi_pyg import ops

from ..graphs import Edges
from .samples import DTYPES, HALVES, check_forward, layouts, samples

pytestmark = pytest.mark.usefixtures("one_thread")

LINEARS = samples("linear")
by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def rows(count: int) -> Edges:
    """As many rows of features; no edges."""
    return Edges(torch.zeros(2, 0, dtype=torch.long), count, count)


@by_dtype
@pytest.mark.parametrize("count", [0, 1, 2, 5, 6, 7, 13, 14, 15, 29, 200])
def test_any_number_of_rows(dtype: torch.dtype, count: int) -> None:
    for sample in LINEARS:
        check_forward(sample, rows(count), sample.tensors(rows(count), dtype, 33, 17))


@by_dtype
@pytest.mark.parametrize("out_width", [0, 1, 3, 8, 15, 16, 17, 32, 33, 47, 64, 100])
@pytest.mark.parametrize("width", [0, 1, 5, 16, 255, 256, 257, 530])
def test_any_widths(dtype: torch.dtype, width: int, out_width: int) -> None:
    for sample in LINEARS:
        check_forward(sample, rows(21), sample.tensors(rows(21), dtype, width, out_width))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 80), st.integers(0, 80), st.integers(0, 80), st.sampled_from(LINEARS), st.sampled_from(DTYPES),
    st.integers(0, 99),
)  # fmt: skip
def test_any_shape(count: int, width: int, out_width: int, sample: Any, dtype: torch.dtype, seed: int) -> None:
    check_forward(sample, rows(count), sample.tensors(rows(count), dtype, width, out_width, seed))


def test_tiles_of_many_rows() -> None:
    """More rows than a packed tile holds, a partial panel at the end, and an output that is streamed."""
    for sample in LINEARS:
        check_forward(sample, rows(16411), sample.tensors(rows(16411), torch.float32, 48, 272))


@by_dtype
def test_a_row_is_the_same_in_any_company(dtype: torch.dtype) -> None:
    x, weight = torch.randn(1100, 70).to(dtype), torch.randn(37, 70).to(dtype)
    whole = ops.linear(x, weight)
    for begin, end in ((0, 1), (1, 2), (3, 20), (500, 1100), (1099, 1100)):
        assert torch.equal(ops.linear(x[begin:end], weight), whole[begin:end])


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_half_types_accumulate_in_float32(dtype: torch.dtype) -> None:
    assert ops.linear(torch.ones(2, 4096, dtype=dtype), torch.ones(3, 4096, dtype=dtype)).eq(4096).all()


@by_dtype
def test_more_dimensions(dtype: torch.dtype) -> None:
    x, weight, bias = torch.randn(2, 3, 4, 10).to(dtype), torch.randn(7, 10).to(dtype), torch.randn(7).to(dtype)
    out = ops.linear(x, weight, bias, "relu")
    assert torch.equal(out, ops.linear(x.reshape(-1, 10), weight, bias, "relu").reshape(2, 3, 4, 7))
    assert torch.equal(ops.linear(x[0, 0, 0], weight, bias, "relu"), out[0, 0, 0])
    assert ops.linear(x[:0], weight).shape == (0, 3, 4, 7)
    assert ops.linear(x[..., :0], weight[:, :0], bias).eq(bias).all()
    assert ops.linear(x[..., :0], weight[:, :0], bias).shape == (2, 3, 4, 7)


@by_dtype
def test_any_layout_gives_the_same_bits(dtype: torch.dtype) -> None:
    x, weight, bias = torch.randn(29, 70).to(dtype), torch.randn(37, 70).to(dtype), torch.randn(37).to(dtype)
    expected = ops.linear(x, weight, bias)
    for layout, view in layouts(x).items():
        assert torch.equal(ops.linear(view, weight, bias), expected), layout
    for layout, view in layouts(weight).items():
        assert torch.equal(ops.linear(x, view, bias), expected), layout
    assert torch.equal(ops.linear(x, weight, bias.repeat_interleave(2)[::2]), expected)
    for broad in (x[:1].expand(29, -1), x[:, :1].expand(-1, 70)):
        assert torch.equal(ops.linear(broad, weight), ops.linear(broad.contiguous(), weight))
    narrow = weight[:1].expand(37, -1)
    assert torch.equal(ops.linear(x, narrow), ops.linear(x, narrow.contiguous()))


def test_every_element_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3).isnan().all()  # fresh memory now holds NaN
        for count in (0, 1, 15, 40):
            for width, out_width in ((0, 5), (3, 1), (40, 33)):
                assert not ops.linear(torch.ones(count, width), torch.ones(out_width, width)).isnan().any()
    finally:
        torch.use_deterministic_algorithms(False)


def test_nan_and_infinity_come_through() -> None:
    x, weight = torch.ones(20, 9), torch.ones(40, 9)
    x[3, 4], x[17, 8] = float("nan"), float("inf")
    out = ops.linear(x, weight, activation="relu")
    assert out[3].isnan().all()
    assert out[17].isposinf().all()
    assert out.isfinite().sum() == 18 * 40


def test_features_beyond_2_to_the_31_elements(far_rows: Tensor) -> None:
    weight = torch.randn(11, 48)
    assert torch.equal(ops.linear(far_rows, weight), ops.linear(far_rows.clone(), weight))
    assert torch.equal(ops.linear(weight, far_rows), ops.linear(weight, far_rows.clone()))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_autocast(dtype: torch.dtype) -> None:
    x, weight, bias = torch.randn(9, 10), torch.randn(7, 10), torch.randn(7)
    expected = ops.linear(x.to(dtype), weight.to(dtype), bias.to(dtype))
    with torch.autocast("cpu", dtype):
        out = ops.linear(x, weight, bias)
        assert out.dtype == torch.nn.functional.linear(x, weight, bias).dtype == dtype
        assert torch.equal(out, expected)
        assert torch.equal(ops.linear(x.to(dtype), weight, bias), expected)
        wide = ops.linear(x.double(), weight.double())  # autocast leaves float64 alone
    assert torch.equal(wide, ops.linear(x.double(), weight.double()))


def test_autocast_reaches_the_gradients() -> None:
    x = torch.randn(9, 10)
    weight = torch.randn(7, 10, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        out = ops.linear(x, weight)
    out.sum().backward()
    half = weight.detach().bfloat16().requires_grad_()
    ops.linear(x.bfloat16(), half).sum().backward()
    assert weight.grad is not None
    assert half.grad is not None
    assert weight.grad.dtype == torch.float32
    assert torch.equal(weight.grad, half.grad.float())


def test_vmap() -> None:
    x, weight = torch.randn(3, 8, 5), torch.randn(3, 4, 5)
    expected = torch.stack([ops.linear(x[i], weight[i]) for i in range(3)])
    assert torch.equal(torch.vmap(ops.linear)(x, weight), expected)
    shared = torch.vmap(ops.linear, in_dims=(0, None))(x, weight[0])
    assert torch.equal(shared, torch.stack([ops.linear(x[i], weight[0]) for i in range(3)]))


def test_inference_mode() -> None:
    x, weight = torch.randn(8, 5), torch.randn(4, 5, requires_grad=True)
    expected = ops.linear(x, weight)
    with torch.inference_mode():
        assert torch.equal(ops.linear(x, weight), expected)


X, WEIGHT = torch.ones(6, 4), torch.ones(3, 4)


@pytest.mark.parametrize(
    ("error", "message", "changed"),
    [
        (ValueError, r"'x' must have at least one dimension", {"x": torch.ones(())}),
        (ValueError, r"'x' must be float32, .* \(got int64 \[6, 4\]\)", {"x": X.long()}),
        (ValueError, r"'x' must be on the CPU \(got meta\)", {"x": X.to("meta")}),
        (ValueError, r"'x' must be dense \(got torch.sparse_csr\)", {"x": X.to_sparse_csr()}),
        (TypeError, r"'x' must be a tensor \(got list\)", {"x": X.tolist()}),
        (ValueError, r"'weight' must be 2-D \(got float32 \[4\]\)", {"weight": torch.ones(4)}),
        (
            ValueError,
            r"'weight' must be \[out_width, 4\] for 'x' float32 \[6, 4\] \(got float32 \[3, 5\]\)",
            {"weight": torch.ones(3, 5)},
        ),
        (ValueError, r"'weight' must be \[out_width, 5\]", {"x": torch.ones(2, 3, 5)}),
        (ValueError, r"'weight' must have the dtype of 'x'", {"weight": WEIGHT.double()}),
        (ValueError, r"'weight' must be on the CPU", {"weight": WEIGHT.to("meta")}),
        (ValueError, r"'bias' must have 3 elements \(got float32 \[4\]\)", {"bias": torch.ones(4)}),
        (ValueError, r"'bias' must be 1-D", {"bias": torch.ones(3, 1)}),
        (ValueError, r"'bias' must be float32 \(got float64 \[3\]\)", {"bias": torch.ones(3).double()}),
        (TypeError, r"'bias' must be a tensor \(got bool\)", {"bias": True}),
        (ValueError, r"'activation' must be 'relu' or None \(got 'gelu'\)", {"activation": "gelu"}),
    ],
)
def test_bad_input(error: type[Exception], message: str, changed: dict[str, Any]) -> None:
    with pytest.raises(error, match=f"^linear: {message}"):
        ops.linear(**{"x": X, "weight": WEIGHT, **changed})


def test_the_bare_op_checks_its_arguments() -> None:
    bare = torch.ops.frontgi.linear
    with pytest.raises(ValueError, match=r"^linear: 'x' must be 2-D \(got float32 \[1, 6, 4\]\)"):
        bare(X[None], WEIGHT, None, False)
    with pytest.raises(ValueError, match=r"^linear: 'weight' must be \[out_width, 4\]"):
        bare(X, WEIGHT.t(), None, False)
    with pytest.raises(ValueError, match=r"^weight_grad: 'g' and 'x' must have the same rows and dtype"):
        torch.ops.frontgi.weight_grad(X, X[1:])
    with pytest.raises(ValueError, match=r"^weight_grad: 'x' must be 2-D"):
        torch.ops.frontgi.weight_grad(X, X[0])
    with pytest.raises(ValueError, match=r"^column_sum: 'g' must be float32 or float64 \(got bfloat16 \[6, 4\]\)"):
        torch.ops.frontgi.column_sum(X.bfloat16())
    with pytest.raises(ValueError, match=r"^column_sum: 'g' must be 2-D"):
        torch.ops.frontgi.column_sum(X[0])
