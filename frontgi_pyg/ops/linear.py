# SPDX-License-Identifier: MIT
r"""``frontgi::linear``: the row-blocked Update phase (FrontGI, algorithm 5 and section 3.3)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from frontgi_pyg.library import call, fake_kernel
from frontgi_pyg.ops.checks import differentiated, require_activation, require_dense
from frontgi_pyg.ops.gradients import activation_gradient, column_sum, weight_grad

OptTensor = Tensor | None
_op = torch.ops.frontgi.linear.default


def linear(x: Tensor, weight: Tensor, bias: OptTensor = None, activation: str | None = None) -> Tensor:
    r"""Applies :math:`\mathrm{act}(\mathbf{X} \mathbf{W}^{\top} + \mathbf{b})`.

    Each worker multiplies its own blocks of rows by the whole weight; bias and activation are applied before a block
    leaves the registers. Half types accumulate in float32. A row's bits do not depend on how many rows there are, on
    the block it is in or on the number of threads. Under autocast, inputs are cast as
    :func:`torch.nn.functional.linear` casts them.

    Args:
        x: ``[*, in_width]``, float32, float64, bfloat16 or float16.
        weight: ``[out_width, in_width]`` in the dtype of ``x``.
        bias: ``[out_width]`` (optional).
        activation: ``"relu"`` or :obj:`None`.

    Returns:
        ``[*, out_width]`` in the dtype of ``x``.

    Raises:
        TypeError: If an input is not a tensor.
        ValueError: If a shape, dtype, device or name is wrong, with what was got.
        NotImplementedError: Under forward-mode differentiation and under ``torch.func.grad``.

    Example:
        >>> import torch
        >>> from frontgi_pyg import ops
        >>> ops.linear(torch.tensor([[1.0, -2.0]]), torch.eye(2), activation="relu")
        tensor([[1., 0.]])
    """
    require_dense("linear", x=x, weight=weight, bias=bias)
    require_activation("linear", activation)
    x, weight, bias = autocast(x, weight, bias)
    tracked = differentiated(x, weight, bias)
    if x.dim() == 2:
        return call(_op, tracked, x, weight, bias, activation == "relu")  # type: ignore[no-any-return]
    if x.dim() == 0:
        raise ValueError("linear: 'x' must have at least one dimension (got a scalar)")
    rows = x.reshape(-1, x.size(-1)) if x.numel() or x.size(-1) else x.new_empty(x.shape[:-1].numel(), 0)
    out = call(_op, tracked, rows, weight, bias, activation == "relu")
    return out.reshape(*x.shape[:-1], weight.size(0))  # type: ignore[no-any-return]


def autocast(*tensors: Any) -> tuple[Any, ...]:
    """Returns the tensors as autocast on the CPU would have them: float32 ones in its dtype."""
    if not torch.is_autocast_enabled("cpu"):
        return tensors
    dtype = torch.get_autocast_dtype("cpu")
    halves = (torch.float32, torch.bfloat16, torch.float16)
    return tuple(t.to(dtype) if t is not None and t.dtype in halves else t for t in tensors)


@fake_kernel("linear")
def _fake(x: Tensor, weight: Tensor, bias: OptTensor, relu: bool) -> Tensor:
    return x.new_empty(x.size(0), weight.size(0))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias, ctx.relu = inputs
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.save_for_backward(x, weight, output if ctx.relu else None)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, weight, result = ctx.saved_tensors
    needs = ctx.needs_input_grad
    grad = activation_gradient(grad, result)
    return (
        torch.ops.frontgi.linear(grad, weight.t(), None, False) if needs[0] else None,
        weight_grad(grad, x).to(weight.dtype) if needs[1] else None,
        column_sum(grad).to(ctx.bias_dtype) if needs[2] else None,
        None,
    )


torch.library.register_autograd("frontgi::linear", _backward, setup_context=_setup)
