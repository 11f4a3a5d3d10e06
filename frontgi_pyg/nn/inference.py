# SPDX-License-Identifier: MIT
"""Inference layer by layer: two activations at a time, however many layers there are.

A layer's output is normalised and activated in its own memory, a block of rows at a time, and its input is given up
before the next layer begins. Rows are independent in what is done by blocks, so the bits are those of the model.
"""

from __future__ import annotations

from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor, nn
from torch_geometric.nn.models.basic_gnn import BasicGNN

from frontgi_pyg.nn.linear import is_plain

BLOCK_BYTES = 4 << 20  # a block stays in cache between its normalisation, its activation and the copy

_BY_ROWS = (
    nn.Identity,
    nn.ReLU,
    nn.LeakyReLU,
    nn.PReLU,
    nn.ELU,
    nn.CELU,
    nn.SELU,
    nn.GELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Tanh,
    nn.Softplus,
    nn.Hardtanh,
    nn.ReLU6,
    nn.LayerNorm,
    nn.BatchNorm1d,
    torch_geometric.nn.BatchNorm,
)


def layerwise_inference(
    model: BasicGNN,
    x: Tensor,
    edge_index: Any,
    edge_weight: Tensor | None = None,
    edge_attr: Tensor | None = None,
    *,
    block_rows: int | None = None,
) -> Tensor:
    r"""Runs a whole graph through a :class:`~torch_geometric.nn.models.basic_gnn.BasicGNN`, one layer at a time.

    The result is that of ``model(x, edge_index)`` without gradients. Beside ``x``, two activations are held at a time,
    a layer's input and its output, and what the layer itself needs: of our layers, at most one intermediate of
    ``num_nodes`` times the narrower of both widths. :meth:`BasicGNN.inference`, of PyG, visits a loader's batches
    instead, and gathers the features of every batch.

    Args:
        model: A model in evaluation mode, usually one that :func:`accelerate` returned, with ``jk`` :obj:`None` or
            ``"last"`` (the others read the activations of every layer).
        x: ``[num_nodes, in_channels]``; it is not written to.
        edge_index: Any adjacency that the layers of ``model`` take, also a :class:`frontgi_pyg.Graph`.
        edge_weight: ``[num_edges]``, for models that support it.
        edge_attr: ``[num_edges, ...]``, for models that support it.
        block_rows: How many rows are normalised and activated at a time; by default, 4 MB of them.

    Returns:
        ``[num_nodes, out_channels]``.

    Raises:
        TypeError: If ``model`` is not a ``BasicGNN``, or has a ``forward`` of its own.
        ValueError: If it is in training mode, or reads the activations of every layer, or ``block_rows`` is below 1.

    Example:
        >>> import torch
        >>> from torch_geometric.nn import GraphSAGE
        >>> from frontgi_pyg.nn import accelerate, layerwise_inference
        >>> model = accelerate(GraphSAGE(8, 16, num_layers=3, out_channels=4)).eval()
        >>> layerwise_inference(model, torch.randn(3, 8), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 4])
    """
    if not isinstance(model, BasicGNN):
        raise TypeError(f"layerwise_inference: 'model' must be a BasicGNN (got {type(model).__name__})")
    if type(model).forward is not BasicGNN.forward:
        raise TypeError(f"layerwise_inference: {type(model).__name__} has a forward() of its own")
    if model.training:
        raise ValueError("layerwise_inference: 'model' must be in evaluation mode (call model.eval())")
    if model.jk_mode not in (None, "last"):
        raise ValueError(f"layerwise_inference: 'model' must have jk=None or jk='last' (got {model.jk_mode!r})")
    if block_rows is not None and block_rows < 1:
        raise ValueError(f"layerwise_inference: 'block_rows' must be at least 1 (got {block_rows})")
    beside: dict[str, Any] = {}
    if model.supports_edge_weight:
        beside["edge_weight"] = edge_weight
    if model.supports_edge_attr:
        beside["edge_attr"] = edge_attr
    with torch.no_grad():
        for layer, conv in enumerate(model.convs):
            out = conv(x, edge_index, **beside)
            own = is_plain(conv) and out.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
            x = out  # the input is given up
            if layer < model.num_layers - 1 or model.jk_mode is not None:
                x = _activated(model, layer, x, own, block_rows)
            del out
        return model.lin(x) if hasattr(model, "lin") else x


def _is_by_rows(step: nn.Module) -> bool:
    """Returns whether a row's result depends on that row alone: not where a batch's own statistics are taken."""
    norm = step.module if isinstance(step, torch_geometric.nn.BatchNorm) else step
    of_batch = isinstance(norm, nn.BatchNorm1d) and (norm.training or norm.running_mean is None)
    return type(step) in _BY_ROWS and is_plain(step) and is_plain(norm) and not of_batch


def _activated(model: BasicGNN, layer: int, x: Tensor, own: bool, block_rows: int | None) -> Tensor:
    """Returns a layer's output normalised and activated, in its own memory where that can be done."""
    norm, act = model.norms[layer], model.act
    steps = [step for step in ((act, norm) if model.act_first else (norm, act)) if step is not None]
    if not own or not all(map(_is_by_rows, steps)):
        for step in steps:
            x = step(x)
        return x
    rows = block_rows or max(1, BLOCK_BYTES // max(1, x.size(-1) * x.element_size()))
    for block in x.split(rows):  # views
        result = block
        for step in steps:
            result = step(result)
        if result is not block:
            block.copy_(result)
    return x
