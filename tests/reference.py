# SPDX-License-Identifier: MIT
"""The ops again: slow, in plain sight, and in whatever dtype they are given (tests give them float64).

Written over edges rather than CSR, so that they share nothing with what they check. All of them differentiate.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

OptTensor = Tensor | None


def aggregate(
    edges: Tensor,
    num_dst: int,
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
) -> Tensor:
    """``frontgi_pyg.ops.aggregate`` over ``edges`` (sources, destinations), ``[2, num_edges]``."""
    source, target = edges.long()
    if skip_loops:
        kept = source != target
        source, target = source[kept], target[kept]
        edge_weight = None if edge_weight is None else edge_weight[kept]
    message = x[source]
    if edge_weight is not None:
        message = message * edge_weight[:, None]
    if col_scale is not None:
        message = message * col_scale[source][:, None]
    if reduce in ("sum", "mean"):
        out = x.new_zeros(num_dst, x.size(1)).index_add(0, target, message)
        if reduce == "mean":
            count = torch.bincount(target, minlength=num_dst).clamp(min=1)
            out = out / count[:, None].to(x.dtype)
    else:
        rows = []
        for node in range(num_dst):
            arriving = message[target == node]
            if arriving.size(0) == 0:
                rows.append(x.new_zeros(x.size(1)))
            else:
                rows.append(arriving.amin(0) if reduce == "min" else arriving.amax(0))
        out = torch.stack(rows) if rows else x.new_zeros(0, x.size(1))
    if row_scale is not None:
        out = out * row_scale[:, None]
    if self_scale is not None or x_self is not None:
        own = x if x_self is None else x_self
        out = out + (own if self_scale is None else own * self_scale[:, None])
    if bias is not None:
        out = out + bias
    return torch.relu(out) if activation == "relu" else out


def linear(x: Tensor, weight: Tensor, bias: OptTensor = None, activation: str | None = None) -> Tensor:
    """``frontgi_pyg.ops.linear``."""
    out = x @ weight.t()
    if bias is not None:
        out = out + bias
    return torch.relu(out) if activation == "relu" else out


def conv(
    edges: Tensor,
    num_dst: int,
    x: Tensor,
    weight: Tensor,
    bias: OptTensor = None,
    reduce: str = "sum",
    edge_weight: OptTensor = None,
    *,
    x_root: OptTensor = None,
    root_weight: OptTensor = None,
    activation: str | None = None,
    multiply_first: bool | None = None,
    **terms: Any,
) -> Tensor:
    """``frontgi_pyg.ops.conv``; the order makes no difference here."""
    out = linear(aggregate(edges, num_dst, x, reduce, edge_weight, **terms), weight, bias)
    if x_root is not None and root_weight is not None:
        out = out + linear(x_root, root_weight)
    return torch.relu(out) if activation == "relu" else out


def attend(
    edges: Tensor,
    num_dst: int,
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
) -> tuple[Tensor, Tensor]:
    """``frontgi_pyg.ops.attend``: the result, and alpha of all edges, then of the added loops."""
    source, target = edges.long()
    added = torch.arange(min(x.size(0), num_dst) if self_loops else 0)
    absent = torch.cat([(source == target) & self_loops, torch.zeros_like(added, dtype=torch.bool)])
    source, target = torch.cat([source, added]), torch.cat([target, added])
    shape = (heads, x.size(1) // heads)
    features = x.reshape(x.size(0), *shape)
    if src_score is not None:
        score = src_score[source]
        if dst_score is not None:
            score = score + dst_score[target]
        own = torch.zeros_like(score)
        if edge_score is not None:
            own[: edges.size(1)] = edge_score
        if loop_score is not None:
            own[edges.size(1) :] = loop_score
        score = torch.nn.functional.leaky_relu(score + own, negative_slope)
    else:
        assert x_dst is not None
        assert att is not None
        both = features[source] + x_dst.reshape(num_dst, *shape)[target]
        score = (torch.nn.functional.leaky_relu(both, negative_slope) * att.view(shape)).sum(-1)
    alpha = torch.zeros_like(score)
    for node in range(num_dst):
        arriving = (target == node) & ~absent
        alpha[arriving] = score[arriving].softmax(0)
    message = alpha[:, :, None] * features[source]
    out = message.new_zeros(num_dst, heads, features.size(-1)).index_add(0, target, message).flatten(1)
    return (out if bias is None else out + bias), alpha


def coo_to_csr(row: list[int], col: list[int], num_rows: int) -> tuple[list[int], list[int], list[int]]:
    """Edges sorted by row, then column, then given position: ``rowptr``, ``col``, ``perm``."""
    perm = sorted(range(len(row)), key=lambda i: (row[i], col[i], i))
    rowptr = [sum(r < bound for r in row) for bound in range(num_rows + 1)]
    return rowptr, [col[i] for i in perm], perm


def gcn_norm(
    edges: Tensor, num_nodes: int, edge_weight: OptTensor, fill: float, loops: str
) -> tuple[list[float], list[float]]:
    """The inverse root of each node's degree, and the scale of its own features."""
    weights = [1.0] * edges.size(1) if edge_weight is None else edge_weight.tolist()
    degree = [0.0] * num_nodes
    loop = [0.0 if loops == "none" else fill] * num_nodes
    for source, target, weight in zip(*edges.tolist(), weights, strict=True):
        if source != target or loops in ("none", "add"):
            degree[target] += weight
        elif loops == "remain":
            loop[target] = weight  # the last one, if there are several
    degree = [d + own for d, own in zip(degree, loop, strict=True)]
    inv_sqrt = [1 / math.sqrt(d) if d > 0 else 0.0 if d == 0 else math.nan for d in degree]
    return inv_sqrt, [r * own * r for r, own in zip(inv_sqrt, loop, strict=True)]


# How far from the exact result a result may be ----------------------------------------------------


def error_bound(dtype: torch.dtype, norm: float, theirs: float = 0.0, depth: int = 1) -> float:
    """The largest error allowed of a result in ``dtype``.

    Args:
        dtype: What the result is stored in.
        norm: The largest result that inputs of these magnitudes could give: the exact one of their absolute values.
        theirs: The error of torch's own operators on the same inputs.
        depth: How many results of this norm are rounded to ``dtype`` one after another.
    """
    if dtype == torch.float64:
        return 1e-12 * norm
    if dtype == torch.float32:
        return max(2 * theirs, 4 * depth * torch.finfo(dtype).eps * norm)
    # Sums are kept in float32, so that half types round to nearest once a stage, and little is added to that.
    return 1.02 * depth * torch.finfo(dtype).eps / 2 * max(norm, torch.finfo(dtype).smallest_normal)
