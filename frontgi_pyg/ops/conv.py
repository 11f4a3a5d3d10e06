# SPDX-License-Identifier: MIT
r"""``frontgi::conv``: Aggregate and Update as one op (FrontGI, section 3: the pipeline with a cache-sized buffer).

Rows are aggregated a tile at a time into a buffer that stays in the worker's L2 cache, and multiplied at once: the
aggregated matrix is never written out. With ``multiply_first``, :math:`\mathbf{A}(\mathbf{X}\mathbf{W}^{\top})` is
computed instead, through one ``[num_src_nodes, out_width]`` intermediate.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from frontgi_pyg.graph import Graph
from frontgi_pyg.library import call, fake_kernel
from frontgi_pyg.ops.aggregate import (
    Aggregation,
    accumulator_dtype,
    cast,
    transposed_for,
)
from frontgi_pyg.ops.checks import (
    differentiated,
    require_activation,
    require_dense,
    require_edge_weight,
    require_graph,
    require_matrix,
    require_scales_detached,
)
from frontgi_pyg.ops.gradients import activation_gradient, column_sum, weight_grad
from frontgi_pyg.ops.linear import autocast
from frontgi_pyg.plan import AskedSchedule, order_for, schedule_numbers

OptTensor = Tensor | None
_op = torch.ops.frontgi.conv.default


def conv(
    graph: Graph,
    x: Tensor,
    weight: Tensor,
    bias: OptTensor = None,
    reduce: str = "sum",
    edge_weight: OptTensor = None,
    *,
    row_scale: OptTensor = None,
    col_scale: OptTensor = None,
    self_scale: OptTensor = None,
    x_self: OptTensor = None,
    x_root: OptTensor = None,
    root_weight: OptTensor = None,
    activation: str | None = None,
    skip_loops: bool = False,
    multiply_first: bool | None = None,
    schedule: AskedSchedule | None = None,
) -> Tensor:
    r"""Aggregates and updates: a whole layer.

    .. math::
        \mathbf{Y} = \mathrm{act} \big( \mathrm{aggregate}(\mathbf{X}) \mathbf{W}^{\top}
        + \mathbf{X}_{\mathrm{root}} \mathbf{W}_{\mathrm{root}}^{\top} + \mathbf{b} \big)

    Args:
        graph: The graph, ``num_src_nodes`` by ``num_dst_nodes``.
        x: Features of the sources, ``[num_src_nodes, in_width]``.
        weight: ``[out_width, in_width]`` in the dtype of ``x``.
        bias: ``[out_width]`` (optional).
        reduce: See :func:`frontgi_pyg.ops.aggregate`, as for ``edge_weight``, ``row_scale``, ``col_scale``,
            ``self_scale``, ``x_self`` and ``skip_loops``.
        x_root: ``[num_dst_nodes, root_width]``, multiplied by ``root_weight`` and added.
        root_weight: ``[out_width, root_width]``.
        activation: ``"relu"`` or :obj:`None`.
        schedule: A schedule to use instead of the planner's; the bits stay.
        multiply_first: The order. By default the one that gathers narrower rows, where the algebra allows it.

    Returns:
        ``[num_dst_nodes, out_width]`` in the dtype of ``x``.

    Raises:
        TypeError: If ``graph`` is not a :class:`Graph` or an input not a tensor.
        ValueError: If a shape, dtype, device or name is wrong, with what was got.
        NotImplementedError: Under forward-mode differentiation and under ``torch.func.grad``.
    """
    require_graph("conv", graph)
    require_dense(
        "conv",
        x=x,
        weight=weight,
        bias=bias,
        edge_weight=edge_weight,
        row_scale=row_scale,
        col_scale=col_scale,
        self_scale=self_scale,
        x_self=x_self,
        x_root=x_root,
        root_weight=root_weight,
    )
    require_matrix("conv", x=x, weight=weight)
    require_activation("conv", activation)
    require_scales_detached("conv", row_scale=row_scale, col_scale=col_scale)
    require_edge_weight("conv", graph, edge_weight)
    x, weight, bias, x_self, x_root, root_weight = autocast(x, weight, bias, x_self, x_root, root_weight)
    if multiply_first is None:
        multiply_first = (
            reduce in ("sum", "add", "mean")
            and x_self is None
            and (self_scale is None or x_root is None)
            and order_for(x.size(1), weight.size(0)) == "multiply_first"
        )
    gathered = weight.size(0) if multiply_first else x.size(1)
    scale_dtype = accumulator_dtype(x.dtype)
    edge_scale = graph.csr_weight(edge_weight, scale_dtype)
    return call(  # type: ignore[no-any-return]
        _op,
        differentiated(x, weight, bias, edge_scale, self_scale, x_self, x_root, root_weight),
        graph.rowptr,
        graph.col,
        x,
        weight,
        bias,
        edge_scale,
        cast(row_scale, scale_dtype),
        cast(col_scale, scale_dtype),
        cast(self_scale, scale_dtype),
        x_self,
        x_root,
        root_weight,
        *transposed_for(graph, x, weight, edge_scale),
        graph.num_src_nodes,
        reduce,
        skip_loops,
        activation == "relu",
        multiply_first,
        True,
        schedule_numbers(graph, x, gathered, schedule, fused=not multiply_first),
    )


@fake_kernel("conv")
def _fake(rowptr: Tensor, col: Tensor, x: Tensor, weight: Tensor, *_: Any) -> Tensor:
    return x.new_empty(rowptr.size(0) - 1, weight.size(0))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    weight, bias, x_root, root_weight = inputs[3], inputs[4], inputs[10], inputs[11]
    ctx.relu, ctx.multiply_first = inputs[18:20]
    ctx.options = (*inputs[15:18], inputs[21])
    ctx.bias_dtype = None if bias is None else bias.dtype
    aggregation = (*inputs[:3], *inputs[5:10], *inputs[12:15])
    ctx.save_for_backward(*aggregation, weight, x_root, root_weight, output if ctx.relu else None)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    """The layer's two halves, one after the other; what the forward pass did not keep is made again."""
    *tensors, weight, x_root, root_weight, result = ctx.saved_tensors
    aggregation = Aggregation(*tensors, *ctx.options)
    x = aggregation.x
    grad = activation_gradient(grad, result)
    needs = ctx.needs_input_grad
    needs_x, needs_weight, needs_edge, needs_scale, needs_self = (needs[i] for i in (2, 3, 5, 8, 9))

    grad_x = grad_weight = grad_edge = grad_scale = grad_self = None
    if ctx.multiply_first:
        needs_product = needs_x or needs_weight
        # Where only x and weight need gradients, the product's values are not read.
        product = torch.ops.frontgi.linear(x, weight, None, False) if needs_edge or needs_scale else x
        inner = dataclasses.replace(aggregation, x=product)
        grad_product, grad_edge, grad_scale, _ = inner.gradients(grad, (needs_product, needs_edge, needs_scale, False))
        if needs_x:
            grad_x = torch.ops.frontgi.linear(grad_product, weight.t(), None, False)
        if needs_weight:
            assert grad_product is not None
            grad_weight = weight_grad(grad_product, x).to(weight.dtype)
    else:
        if needs_x or needs_edge or needs_scale or needs_self:
            grad_aggregated = torch.ops.frontgi.linear(grad, weight.t(), None, False)
            grad_x, grad_edge, grad_scale, grad_self = aggregation.gradients(
                grad_aggregated, (needs_x, needs_edge, needs_scale, needs_self)
            )
        if needs_weight:
            grad_weight = weight_grad(grad, aggregation.forward()).to(weight.dtype)
    grad_bias = column_sum(grad).to(ctx.bias_dtype) if needs[4] else None
    grad_root = torch.ops.frontgi.linear(grad, root_weight.t(), None, False) if needs[10] else None
    grad_root_weight = weight_grad(grad, x_root).to(root_weight.dtype) if needs[11] else None
    return (
        None, None, grad_x, grad_weight, grad_bias, grad_edge, None, None, grad_scale, grad_self, grad_root,
        grad_root_weight, *(None,) * 10,
    )  # fmt: skip


torch.library.register_autograd("frontgi::conv", _backward, setup_context=_setup)
