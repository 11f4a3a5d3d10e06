# SPDX-License-Identifier: MIT
"""What was derived from a tensor, remembered as long as the tensor lives and is not written to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

Value = TypeVar("Value")


def remember(memory: WeakIdKeyDictionary, tensor: Tensor, key: Any, build: Callable[[], Value]) -> Value:
    """Returns ``build()``, or what it gave the last time for this very tensor, unwritten since, and ``key``.

    The memory is weak and goes by identity and version counter, never by address. Nothing is remembered of tensors
    whose changes cannot be seen (inference tensors) or whose result carries gradients, nor while compiling or inside
    a ``torch.func`` transform, whose tensors are not valid outside.
    """
    if torch.compiler.is_compiling() or in_transform() or tensor.requires_grad:
        return build()
    # An EdgeIndex and the tensor that it wraps do not see what is written to the other.
    wrapped = plain(tensor)
    if tensor.is_inference() or (wrapped is not tensor and wrapped.is_inference()):
        return build()
    entries: dict[Any, tuple[tuple[int, int], Value]] | None = memory.get(tensor)
    if entries is None:
        entries = {}
        memory[tensor] = entries
    version = tensor._version, wrapped._version
    found = entries.get(key)
    if found is not None and found[0] == version:
        return found[1]
    with torch.inference_mode(False):  # what is remembered may be saved for a backward pass later
        value = build()
    entries[key] = (version, value)
    return value


def in_transform() -> bool:
    """Returns whether a ``torch.func`` transform is running."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def plain(edge_index: Tensor) -> Tensor:
    """Returns ``edge_index`` without its subclass (PyG's ``EdgeIndex``)."""
    if type(edge_index) is Tensor:
        return edge_index
    as_tensor = getattr(edge_index, "as_tensor", None)
    return as_tensor() if as_tensor is not None else edge_index
