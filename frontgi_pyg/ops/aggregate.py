# SPDX-License-Identifier: MIT
r"""``frontgi::aggregate``: the Aggregate phase, with every linear term of a layer folded in (FrontGI, section 3.4).

.. math::
    \mathbf{y}_i = \mathrm{act} \Big( r_i \bigoplus_{e = (j, i)} w_e c_j \mathbf{x}_j
    + s_i \mathbf{x}^{\prime}_i + \mathbf{b} \Big)

The gradient of a linear reduction is the same op over the transposed graph with :math:`r` and :math:`c` exchanged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from frontgi_pyg.graph import Graph, expand_rowptr, transpose
from frontgi_pyg.library import call, fake_kernel
from frontgi_pyg.ops.checks import (
    differentiated,
    require_activation,
    require_dense,
    require_edge_weight,
    require_graph,
    require_scales_detached,
)
from frontgi_pyg.ops.gradients import activation_gradient, column_sum, edge_dot, row_dot
from frontgi_pyg.plan import AskedSchedule, schedule_numbers, without_plan

OptTensor = Tensor | None
_op = torch.ops.frontgi.aggregate.default


def aggregate(
    graph: Graph,
    x: Tensor,
    reduce: str = "sum",
    edge_weight: OptTensor = None,
    *,
    row_scale: OptTensor = None,
    col_scale: OptTensor = None,
    self_scale: OptTensor = None,
    x_self: OptTensor = None,
    bias: OptTensor = None,
    activation: str | None = None,
    skip_loops: bool = False,
    schedule: AskedSchedule | None = None,
) -> Tensor:
    r"""Reduces the features of each node's neighbours.

    .. math::
        \mathbf{y}_i = \bigoplus_{e = (j, i)} w_e \mathbf{x}_j

    Rows without edges give 0. Half types accumulate in float32. Nothing of size ``[num_edges, width]`` is made, and
    the bits do not depend on the number of threads. FrontGI, algorithm 2 and section 3.4.

    Args:
        graph: The graph, ``num_src_nodes`` by ``num_dst_nodes``.
        x: Features of the sources, ``[num_src_nodes, width]``, float32, float64, bfloat16 or float16.
        reduce: ``"sum"``, ``"mean"``, ``"min"`` or ``"max"``. A mean divides by the number of edges. The gradient of
            ``"min"`` and ``"max"`` goes to the first edge that reached the result.
        edge_weight: ``[num_edges]`` in the order the graph was given in; the graph's own weights by default.
        row_scale: :math:`r`, ``[num_dst_nodes]``, multiplied onto the reduction (no gradient reaches it).
        col_scale: :math:`c`, ``[num_src_nodes]``, multiplied onto each source (no gradient reaches it).
        self_scale: :math:`s`, ``[num_dst_nodes]`` or ``[1]``; adds ``self_scale * x_self``.
        x_self: :math:`\mathbf{x}^{\prime}`, ``[num_dst_nodes, width]``; ``x`` itself if only ``self_scale`` is given.
        bias: ``[width]``, added to every row.
        activation: ``"relu"`` or :obj:`None`, applied last.
        skip_loops: Leave out edges from a node to itself (sums only).
        schedule: A schedule to use instead of the planner's; the bits stay.

    Returns:
        ``[num_dst_nodes, width]`` in the dtype of ``x``.

    Raises:
        TypeError: If ``graph`` is not a :class:`Graph` or an input not a tensor.
        ValueError: If a shape, dtype, device or name is wrong, with what was got.
        NotImplementedError: Under forward-mode differentiation and under ``torch.func.grad``.

    Example:
        >>> import torch
        >>> from frontgi_pyg import Graph, ops
        >>> graph = Graph.from_edge_index(torch.tensor([[0, 1], [2, 2]]), num_nodes=3)
        >>> ops.aggregate(graph, torch.tensor([[1.0], [2.0], [4.0]]), reduce="mean")
        tensor([[0.0000],
                [0.0000],
                [1.5000]])
    """
    require_graph("aggregate", graph)
    require_dense(
        "aggregate",
        x=x,
        edge_weight=edge_weight,
        row_scale=row_scale,
        col_scale=col_scale,
        self_scale=self_scale,
        x_self=x_self,
        bias=bias,
    )
    require_activation("aggregate", activation)
    require_scales_detached("aggregate", row_scale=row_scale, col_scale=col_scale)
    require_edge_weight("aggregate", graph, edge_weight)
    scale_dtype = accumulator_dtype(x.dtype)
    weight = graph.csr_weight(edge_weight, scale_dtype)
    return call(  # type: ignore[no-any-return]
        _op,
        differentiated(x, weight, self_scale, x_self, bias),
        graph.rowptr,
        graph.col,
        x,
        weight,
        cast(row_scale, scale_dtype),
        cast(col_scale, scale_dtype),
        cast(self_scale, scale_dtype),
        x_self,
        cast(bias, x.dtype),
        *transposed_for(graph, x, weight),
        graph.num_src_nodes,
        reduce,
        skip_loops,
        activation == "relu",
        True,
        schedule_numbers(graph, x, x.size(-1) if x.dim() else 0, schedule),
    )


# Shared with ops/conv.py --------------------------------------------------------------------------


def accumulator_dtype(dtype: torch.dtype) -> torch.dtype:
    """Returns the dtype of sums, scales and edge weights for features of ``dtype``."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def cast(t: OptTensor, dtype: torch.dtype) -> OptTensor:
    """Returns ``t`` in ``dtype``."""
    return t if t is None or t.dtype == dtype else t.to(dtype)


def transposed_for(graph: Graph, *inputs: OptTensor) -> tuple[OptTensor, OptTensor, OptTensor]:
    """Returns the graph's cached transpose if a backward pass may come, else nothing."""
    if differentiated(*inputs) and not torch.compiler.is_compiling():
        return graph.transposed()
    return None, None, None


# Fake kernel and gradients ------------------------------------------------------------------------


@fake_kernel("aggregate")
def _fake(rowptr: Tensor, col: Tensor, x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(rowptr.size(0) - 1, x.size(1))


@dataclasses.dataclass
class Aggregation:
    """The tensors of an aggregation without bias and activation, and its gradients: shared with ``frontgi::conv``."""

    rowptr: Tensor
    col: Tensor
    x: Tensor
    edge_weight: OptTensor
    row_scale: OptTensor
    col_scale: OptTensor
    self_scale: OptTensor
    x_self: OptTensor
    rowptr_t: OptTensor
    col_t: OptTensor
    perm_t: OptTensor
    num_cols: int
    reduce: str
    skip_loops: bool
    schedule: list[int]  # as asked for: what was planned was planned for another width, or the other direction

    def __post_init__(self) -> None:
        self.schedule = without_plan(self.schedule)

    def forward(self) -> Tensor:
        """Returns the aggregation, ``[rows, width]``."""
        return torch.ops.frontgi.aggregate(  # type: ignore[no-any-return]
            self.rowptr, self.col, self.x, self.edge_weight, self.row_scale, self.col_scale, self.self_scale,
            self.x_self, None, self.rowptr_t, self.col_t, self.perm_t,
            self.num_cols, self.reduce, self.skip_loops, False, True, self.schedule,
        )  # fmt: skip

    def gradients(self, grad: Tensor, needs: Sequence[bool]) -> tuple[OptTensor, ...]:
        """Returns the gradients to x, edge_weight, self_scale and x_self, of those that are needed."""
        needs_x, needs_weight, needs_scale, needs_self = needs
        grad_x = grad_weight = grad_scale = grad_self = None
        if needs_x or needs_weight:
            if self.reduce in ("min", "max"):
                grad_x, grad_weight = self._extremum_gradients(grad)
            else:
                grad_x, grad_weight = self._linear_gradients(grad, needs_x, needs_weight)
        if needs_scale:
            assert self.self_scale is not None
            grad_scale = row_dot(grad, self.x if self.x_self is None else self.x_self)
            if self.self_scale.size(0) == 1 and grad.size(0) != 1:
                grad_scale = column_sum(grad_scale.unsqueeze(1))
        if needs_self:
            scaled = grad if self.self_scale is None else grad * self.self_scale.unsqueeze(1)
            grad_self = scaled.to(grad.dtype)
        return grad_x, grad_weight, grad_scale, grad_self

    def _linear_gradients(self, grad: Tensor, needs_x: bool, needs_weight: bool) -> tuple[OptTensor, OptTensor]:
        row_scale = self.row_scale
        if self.reduce == "mean":
            row_scale = mean_scale(self.rowptr, row_scale, accumulator_dtype(self.x.dtype))
        grad_x = grad_weight = None
        if needs_x:
            rowptr_t, col_t, perm_t = self.rowptr_t, self.col_t, self.perm_t
            if rowptr_t is None or col_t is None or perm_t is None:
                rowptr_t, col_t, perm_t = transpose(self.rowptr, self.col, self.num_cols)
            weight = None if self.edge_weight is None else self.edge_weight[perm_t]
            own = self.self_scale if self.x_self is None else None
            grad_x = torch.ops.frontgi.aggregate(
                rowptr_t, col_t, grad, weight, self.col_scale, row_scale, own, None, None, None, None, None,
                self.rowptr.size(0) - 1, "sum", self.skip_loops, False, True, self.schedule,
            )  # fmt: skip
        if needs_weight:
            grad_weight = edge_dot(self.rowptr, self.col, grad, self.x, row_scale, self.col_scale)
            if self.skip_loops:
                loops = self.col == expand_rowptr(self.rowptr, self.col.size(0))
                grad_weight = grad_weight.masked_fill(loops, 0)
        return grad_x, grad_weight

    def _extremum_gradients(self, grad: Tensor) -> tuple[Tensor, OptTensor]:
        extras = (self.row_scale, self.col_scale, self.self_scale, self.x_self)
        if any(t is not None for t in extras):
            raise NotImplementedError("aggregate: 'min' and 'max' with scales or a self term have no gradient")
        # Half results were rounded: who reached them is found in float32.
        dtype = accumulator_dtype(self.x.dtype)
        wide = dataclasses.replace(self, x=self.x.to(dtype))
        grad_x, grad_weight = torch.ops.frontgi.extremum_grad(
            self.rowptr, self.col, wide.x, self.edge_weight, wide.forward(), grad.to(dtype), True
        )
        return grad_x.to(self.x.dtype), None if self.edge_weight is None else grad_weight


def mean_scale(rowptr: Tensor, row_scale: OptTensor, dtype: torch.dtype) -> Tensor:
    """Returns the row scale under which a sum is the mean."""
    inverse = 1 / rowptr.diff().clamp(min=1).to(dtype)
    return inverse if row_scale is None else inverse * row_scale


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    bias, ctx.relu = inputs[8], inputs[15]
    ctx.options = (*inputs[12:15], inputs[17])
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.save_for_backward(*inputs[:8], *inputs[9:12], output if ctx.relu else None)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    *tensors, result = ctx.saved_tensors
    grad = activation_gradient(grad, result)
    needs = ctx.needs_input_grad
    grad_x, grad_weight, grad_scale, grad_self = Aggregation(*tensors, *ctx.options).gradients(
        grad, (needs[2], needs[3], needs[6], needs[7])
    )
    grad_bias = column_sum(grad).to(ctx.bias_dtype) if needs[8] else None
    return (
        None,
        None,
        grad_x,
        grad_weight,
        None,
        None,
        grad_scale,
        grad_self,
        grad_bias,
        *(None,) * 9,
    )


torch.library.register_autograd("frontgi::aggregate", _backward, setup_context=_setup)
