# SPDX-License-Identifier: MIT
r"""``frontgi::attend``: edge softmax and weighted sum of the neighbours in one sweep over a row.

.. math::
    \mathbf{y}_{i,h} = \sum_{e = (j, i)} \alpha_{e,h} \mathbf{x}_{j,h} + \mathbf{b}_h, \qquad
    \alpha_{e,h} = \frac{\exp(s_{e,h})}{\sum_{e^{\prime} = (k, i)} \exp(s_{e^{\prime},h})}

Training keeps :math:`\alpha`, ``[num_edges, heads]``; inference keeps nothing for an edge.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from frontgi_pyg.graph import Graph, transpose
from frontgi_pyg.library import call, fake_kernel
from frontgi_pyg.ops.aggregate import accumulator_dtype, cast, transposed_for
from frontgi_pyg.ops.checks import differentiated, require_dense, require_graph
from frontgi_pyg.ops.gradients import column_sum

OptTensor = Tensor | None
_op = torch.ops.frontgi.attend.default


def attend(
    graph: Graph,
    x: Tensor,
    heads: int = 1,
    *,
    src_score: OptTensor = None,
    dst_score: OptTensor = None,
    edge_score: OptTensor = None,
    loop_score: OptTensor = None,
    x_dst: OptTensor = None,
    att: OptTensor = None,
    negative_slope: float = 0.2,
    self_loops: bool = False,
    bias: OptTensor = None,
    return_alpha: bool = False,
) -> tuple[Tensor, OptTensor]:
    r"""Sums the features of each node's neighbours, weighted by attention, for every head.

    With ``src_score``, the scores are those of GAT (Veličković et al., 2018), with ``x_dst`` and ``att`` those of
    GATv2 (Brody et al., 2022):

    .. math::
        s_{e,h} &= \mathrm{LeakyReLU}(u_{j,h} + v_{i,h} + w_{e,h}) \\
        s_{e,h} &= \mathbf{a}_h^{\top} \mathrm{LeakyReLU}(\mathbf{x}_{j,h} + \mathbf{x}^{\prime}_{i,h})

    The softmax is safe for scores of any size; a row whose scores are all :math:`-\infty` gives the bias, as does one
    without edges. Half types accumulate in float32, and
    scores are kept in the dtype of sums. The bits do not depend on the number of threads.

    Args:
        graph: The graph, ``num_src_nodes`` by ``num_dst_nodes``; its edge weights take no part.
        x: ``[num_src_nodes, heads * channels]``, float32, float64, bfloat16 or float16.
        heads: How many heads there are.
        src_score: :math:`u`, ``[num_src_nodes, heads]``.
        dst_score: :math:`v`, ``[num_dst_nodes, heads]`` (optional).
        edge_score: :math:`w`, ``[num_edges, heads]`` in the order the graph was given in (optional).
        loop_score: :math:`w` of added self-loops, ``[min(num_src_nodes, num_dst_nodes), heads]`` (optional).
        x_dst: :math:`\mathbf{x}^{\prime}`, ``[num_dst_nodes, heads * channels]`` in the dtype of ``x``.
        att: :math:`\mathbf{a}`, ``[heads * channels]``.
        negative_slope: Of the LeakyReLU.
        self_loops: Replace edges from a node to itself by one such edge a node.
        bias: ``[heads * channels]`` (optional).
        return_alpha: Return :math:`\alpha`, too.

    Returns:
        ``[num_dst_nodes, heads * channels]`` in the dtype of ``x``; and :math:`\alpha` in the dtype of sums, the edges
        in the order the graph was given in (0 for replaced ones), then the added self-loops, or :obj:`None`.

    Raises:
        TypeError: If ``graph`` is not a :class:`Graph` or an input not a tensor.
        ValueError: If a shape, dtype or device is wrong, with what was got.
        NotImplementedError: Under forward-mode differentiation and under ``torch.func.grad``.

    Example:
        >>> import torch
        >>> from frontgi_pyg import Graph, ops
        >>> graph = Graph.from_edge_index(torch.tensor([[0, 1], [2, 2]]), num_nodes=3)
        >>> x = torch.tensor([[1.0], [3.0], [5.0]])
        >>> ops.attend(graph, x, src_score=torch.zeros(3, 1))[0]
        tensor([[0.],
                [0.],
                [2.]])
    """
    require_graph("attend", graph)
    scores = {"src_score": src_score, "dst_score": dst_score, "edge_score": edge_score, "loop_score": loop_score}
    require_dense("attend", x=x, **scores, x_dst=x_dst, att=att, bias=bias)
    sums = accumulator_dtype(x.dtype)
    if edge_score is not None:
        if edge_score.dim() != 2 or edge_score.size(0) != graph.num_edges:
            shape = list(edge_score.shape)
            raise ValueError(f"attend: 'edge_score' must be [{graph.num_edges}, {heads}] (got {shape})")
        if graph.perm is not None:
            edge_score = edge_score[graph.perm]
    inputs = (
        x,
        cast(src_score, sums),
        cast(dst_score, sums),
        cast(edge_score, sums),
        cast(loop_score, sums),
        x_dst,
        cast(att, sums),
        cast(bias, x.dtype),
    )
    tracked = differentiated(*inputs)
    out, alpha = call(
        _op,
        tracked,
        graph.rowptr,
        graph.col,
        *inputs,
        *transposed_for(graph, *inputs),
        graph.num_src_nodes,
        heads,
        float(negative_slope),
        self_loops,
        tracked or return_alpha,
        True,
    )
    if not return_alpha:
        return out, None
    if graph.perm is None:
        return out, alpha
    edges = graph.num_edges
    given = torch.empty_like(alpha[:edges]).index_copy(0, graph.perm.long(), alpha[:edges])
    return out, torch.cat([given, alpha[edges:]])


# Fake kernels and gradients -----------------------------------------------------------------------


def _num_values(rows: int, columns: int, edges: int, loops: bool) -> int:
    return edges + torch.sym_min(rows, columns) if loops else edges


@fake_kernel("attend")
def _fake(rowptr: Tensor, col: Tensor, x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    num_cols, heads, _, loops, with_alpha, _ = rest[-6:]
    rows = rowptr.size(0) - 1
    values = _num_values(rows, num_cols, col.size(0), loops) if with_alpha else 0
    return x.new_empty(rows, x.size(1)), x.new_empty(values, heads, dtype=accumulator_dtype(x.dtype))


@fake_kernel("attend_grad_rows")
def _grad_rows_fake(
    rowptr: Tensor, col: Tensor, x: Tensor, src_score: OptTensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    heads, _, loops, _ = rest[-4:]
    rows, dtype = rowptr.size(0) - 1, accumulator_dtype(x.dtype)
    values = _num_values(rows, x.size(0), col.size(0), loops)
    static = src_score is not None
    return (
        x.new_empty(values, heads, dtype=dtype),
        x.new_empty(rows if static else 0, heads, dtype=dtype),
        x.new_empty(0 if static else rows, x.size(1), dtype=dtype),
    )


@fake_kernel("attend_grad_columns")
def _grad_columns_fake(
    rowptr_t: Tensor, col_t: Tensor, perm_t: Tensor, x: OptTensor, x_dst: OptTensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    _, _, grad, heads, *_ = rest
    columns, dtype = rowptr_t.size(0) - 1, accumulator_dtype(grad.dtype)
    static = x is None
    return (
        grad.new_empty(columns, grad.size(1)),
        grad.new_empty(columns if static else 0, heads, dtype=dtype),
        grad.new_empty(0 if static else columns, grad.size(1), dtype=dtype),
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.options = inputs[13:17]
    bias = inputs[9]
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.save_for_backward(*inputs[:9], *inputs[10:13], output[1] if inputs[17] else None)


def _backward(ctx: Any, grad: OptTensor, grad_alpha: OptTensor) -> tuple[Any, ...]:
    rowptr, col, x, src_score, dst_score, edge_score, loop_score, x_dst, att, *transposed, alpha = ctx.saved_tensors
    num_cols, heads, slope, loops = ctx.options
    needs = ctx.needs_input_grad
    rows, edges = rowptr.size(0) - 1, col.size(0)
    grad = x.new_zeros(rows, x.size(1)) if grad is None else grad.contiguous()
    scores = (src_score, dst_score, edge_score, loop_score, x_dst)
    if alpha is None:
        grad_alpha = None  # of nothing
        _, alpha = torch.ops.frontgi.attend(
            rowptr, col, x, *scores, att, None, None, None, None, num_cols, heads, slope, loops, True, True
        )
    grad_score, grad_dst, dst_slopes = torch.ops.frontgi.attend_grad_rows(
        rowptr, col, x, *scores, alpha, grad, grad_alpha, heads, slope, loops, True
    )
    grad_x = grad_src = grad_x_dst = grad_att = None
    if needs[2] or needs[3] or needs[8]:
        if transposed[0] is None:
            transposed = list(transpose(rowptr, col, num_cols))
        own = (x, x_dst) if src_score is None else (None, None)
        grad_x, grad_src, src_slopes = torch.ops.frontgi.attend_grad_columns(
            *transposed, *own, alpha, grad_score, grad, heads, slope, loops, True
        )
        if src_score is None:
            grad_x = torch.addcmul(grad_x, att, src_slopes).to(x.dtype)
            if needs[8]:  # leaky(z) = leaky'(z) z
                grad_att = column_sum(x_dst * dst_slopes) + column_sum(x * src_slopes)
    if src_score is None and needs[7]:
        grad_x_dst = (att * dst_slopes).to(x.dtype)
    return (
        None,
        None,
        grad_x if needs[2] else None,
        grad_src if needs[3] else None,
        grad_dst if needs[4] else None,
        grad_score[:edges] if needs[5] else None,
        grad_score[edges:] if needs[6] else None,
        grad_x_dst,
        grad_att,
        column_sum(grad).to(ctx.bias_dtype) if needs[9] else None,
        *(None,) * 9,
    )


def _no_second_gradient(ctx: Any, *_: Any) -> tuple[Any, ...]:
    raise NotImplementedError("attend: attention cannot be differentiated twice")


torch.library.register_autograd("frontgi::attend", _backward, setup_context=_setup)
torch.library.register_autograd("frontgi::attend_grad_rows", _no_second_gradient)
torch.library.register_autograd("frontgi::attend_grad_columns", _no_second_gradient)
