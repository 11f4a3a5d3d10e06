# SPDX-License-Identifier: MIT
"""What the Python faces refuse before anything runs; shapes, dtypes and values are checked by the compiled ops."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from frontgi_pyg.graph import Graph


def require_graph(op: str, graph: Any) -> None:
    """Raises :class:`TypeError` unless ``graph`` is a :class:`Graph`, :class:`ValueError` if it was written to."""
    if not isinstance(graph, Graph):
        raise TypeError(f"{op}: 'graph' must be a Graph, as Graph.from_edge_index makes it (got {_kind(graph)})")
    graph.require_unwritten()


def require_dense(op: str, **inputs: Any) -> None:
    """Checks that every input given is a dense tensor on the CPU, and that no derivative of it would be lost.

    Raises:
        TypeError: If an input is not a tensor.
        ValueError: If one is on another device or has another layout.
        NotImplementedError: Under forward-mode differentiation and under ``torch.func.grad``, which have no rule.
    """
    for name, t in inputs.items():
        if t is None:
            continue
        if not isinstance(t, Tensor):
            raise TypeError(f"{op}: '{name}' must be a tensor (got {_kind(t)})")
        if not t.is_cpu:
            raise ValueError(f"{op}: '{name}' must be on the CPU (got {t.device})")
        if t.layout != torch.strided:
            raise ValueError(f"{op}: '{name}' must be dense (got {t.layout})")
    if torch.compiler.is_compiling():
        return
    if forward_ad._current_level < 0 and torch._C._functorch.peek_interpreter_stack() is None:
        return
    if forward_ad._current_level >= 0 and any(
        t is not None and forward_ad.unpack_dual(t).tangent is not None for t in inputs.values()
    ):
        raise NotImplementedError(f"{op}: forward-mode differentiation is not supported")
    stack = torch._C._functorch.get_interpreter_stack() or ()
    if any(layer.key() == torch._C._functorch.TransformType.Grad for layer in stack):
        raise NotImplementedError(f"{op}: torch.func.grad is not supported (torch.autograd.grad is)")


def differentiated(*inputs: Tensor | None) -> bool:
    """Returns whether a gradient of an op on these inputs may be asked for."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs)


def require_scales_detached(op: str, **scales: Tensor | None) -> None:
    """Raises :class:`ValueError` if a gradient is expected of a scale, which none reaches."""
    for name, scale in scales.items():
        if scale is not None and scale.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{op}: no gradient reaches '{name}': pass it detached, or as edge weights")


def require_activation(op: str, activation: str | None) -> None:
    """Raises :class:`ValueError` unless ``activation`` is one that is fused."""
    if activation not in (None, "relu"):
        raise ValueError(f"{op}: 'activation' must be 'relu' or None (got {activation!r})")


def require_edge_weight(op: str, graph: Graph, edge_weight: Tensor | None) -> None:
    """Raises :class:`ValueError` unless ``edge_weight`` fits the graph."""
    if edge_weight is not None and (edge_weight.dim() != 1 or edge_weight.size(0) != graph.num_edges):
        raise ValueError(f"{op}: 'edge_weight' must be [{graph.num_edges}] (got {list(edge_weight.shape)})")


def require_matrix(op: str, **inputs: Tensor) -> None:
    """Raises :class:`ValueError` unless every input is 2-D."""
    for name, t in inputs.items():
        if t.dim() != 2:
            raise ValueError(f"{op}: '{name}' must be 2-D (got {list(t.shape)})")


def _kind(value: Any) -> str:
    return f"a tensor {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
