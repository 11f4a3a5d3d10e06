# SPDX-License-Identifier: MIT
"""The ops that only gradients need, with gradients of their own, so that a second differentiation is right too.

Every sum over nodes is made in chunks fixed by the shape: a gradient's bits do not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from frontgi_pyg.graph import transpose
from frontgi_pyg.library import fake_kernel

OptTensor = Tensor | None


def activation_gradient(grad: Tensor, result: OptTensor) -> Tensor:
    """Returns ``grad``, contiguous, where the ReLU that gave ``result`` let it through (everywhere if :obj:`None`)."""
    return (grad if result is None else torch.where(result > 0, grad, 0)).contiguous()


def column_sum(g: Tensor) -> Tensor:
    """Returns the sum over the rows of ``[rows, width]``, ``[width]``; half types are summed in float32."""
    wide = g if g.dtype in (torch.float32, torch.float64) else g.float()
    return torch.ops.frontgi.column_sum(wide)  # type: ignore[no-any-return]


def weight_grad(g: Tensor, x: Tensor) -> Tensor:
    """Returns ``g.T @ x`` in the accumulator dtype: the gradient of a weight ``[g_width, x_width]``."""
    return torch.ops.frontgi.weight_grad(g, x)  # type: ignore[no-any-return]


def edge_dot(rowptr: Tensor, col: Tensor, a: Tensor, b: Tensor, row_scale: OptTensor, col_scale: OptTensor) -> Tensor:
    """Returns ``row_scale[i] * col_scale[j] * <a[i], b[j]>`` of every edge ``(i, j)``, ``[num_edges]``."""
    return torch.ops.frontgi.edge_dot(  # type: ignore[no-any-return]
        rowptr, col, a, b, row_scale, col_scale, True
    )


def row_dot(a: Tensor, b: Tensor) -> Tensor:
    """Returns ``<a[i], b[i]>`` of every row: an edge from each node to itself."""
    rowptr = torch.arange(a.size(0) + 1, device=a.device)
    return edge_dot(rowptr, rowptr[:-1], a, b, None, None)


@fake_kernel("column_sum")
def _column_sum_fake(g: Tensor) -> Tensor:
    return g.new_empty(g.size(1))


@fake_kernel("weight_grad")
def _weight_grad_fake(g: Tensor, x: Tensor) -> Tensor:
    dtype = torch.float64 if g.dtype == torch.float64 else torch.float32
    return g.new_empty(g.size(1), x.size(1), dtype=dtype)


@fake_kernel("edge_dot")
def _edge_dot_fake(rowptr: Tensor, col: Tensor, a: Tensor, *_: Any) -> Tensor:
    dtype = torch.float64 if a.dtype == torch.float64 else torch.float32
    return a.new_empty(col.size(0), dtype=dtype)


@fake_kernel("extremum_grad")
def _extremum_grad_fake(
    rowptr: Tensor, col: Tensor, x: Tensor, edge_weight: OptTensor, *_: Any
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(col.size(0) if edge_weight is not None else 0)


def _column_sum_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.rows = inputs[0].size(0)


def _column_sum_backward(ctx: Any, grad: Tensor) -> Tensor:
    return grad.expand(ctx.rows, -1)


def _weight_grad_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _weight_grad_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    g, x = ctx.saved_tensors
    weight = grad.to(g.dtype)
    return (
        torch.ops.frontgi.linear(x, weight, None, False),
        torch.ops.frontgi.linear(g, weight.t(), None, False),
    )


def _edge_dot_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:6])


def _edge_dot_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    rowptr, col, a, b, row_scale, col_scale = ctx.saved_tensors
    grad_a = torch.ops.frontgi.aggregate(
        rowptr, col, b, grad, row_scale, col_scale, None, None, None, None, None, None,
        b.size(0), "sum", False, False, True, [],
    )  # fmt: skip
    rowptr_t, col_t, perm_t = transpose(rowptr, col, b.size(0))
    grad_b = torch.ops.frontgi.aggregate(
        rowptr_t, col_t, a, grad[perm_t], col_scale, row_scale, None, None, None, None, None, None,
        a.size(0), "sum", False, False, True, [],
    )  # fmt: skip
    return None, None, grad_a, grad_b, None, None, None


def _extremum_grad_backward(ctx: Any, *_: Tensor) -> tuple[Any, ...]:
    raise NotImplementedError("aggregate: 'min' and 'max' cannot be differentiated twice")


torch.library.register_autograd("frontgi::column_sum", _column_sum_backward, setup_context=_column_sum_setup)
torch.library.register_autograd("frontgi::weight_grad", _weight_grad_backward, setup_context=_weight_grad_setup)
torch.library.register_autograd("frontgi::edge_dot", _edge_dot_backward, setup_context=_edge_dot_setup)
torch.library.register_autograd("frontgi::extremum_grad", _extremum_grad_backward)
