# SPDX-License-Identifier: MIT
"""Linear layers on ``frontgi::linear``, and dense networks run through it."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import Linear as _PyGLinear

from frontgi_pyg.ops.linear import linear

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def apply_linear(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None = None) -> Tensor:
    """:func:`frontgi_pyg.ops.linear` where its kernel serves, else :func:`torch.nn.functional.linear`."""
    served = (
        x.is_cpu
        and x.layout == torch.strided
        and x.dim() >= 2
        and x.dtype in _DTYPES
        and x.dtype == weight.dtype
        and (torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is None)
        and not exporting()
        and torch.autograd.forward_ad._current_level < 0
    )
    if served:
        return linear(x, weight, bias, activation)
    out = F.linear(x, weight, bias)
    return out.relu() if activation == "relu" else out


def exporting() -> bool:
    """Returns whether TorchScript or ONNX is recording, which know nothing of our ops."""
    jit: Any = torch.jit
    if jit.is_scripting() or jit.is_tracing():
        return True
    return torch.compiler.is_compiling() and torch.onnx.is_in_onnx_export()  # which records what torch.export does


def retyped(module: torch.nn.Module, to: type[torch.nn.Module]) -> torch.nn.Module:
    """Returns a module of another class on the very same state."""
    twin = copy.copy(module)
    twin.__class__ = to
    return twin


class Linear(torch.nn.Linear):
    """:class:`torch.nn.Linear` on the row-blocked kernel."""

    def forward(self, input: Tensor) -> Tensor:
        """Applies the layer to ``[*, in_features]``."""
        return apply_linear(input, self.weight, self.bias)

    def __prepare_scriptable__(self) -> torch.nn.Module:
        """Returns torch's own layer on the same parameters, for TorchScript."""
        return retyped(self, torch.nn.Linear)


class PyGLinear(_PyGLinear):  # type: ignore[misc]
    """:class:`torch_geometric.nn.Linear` on the row-blocked kernel."""

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer to ``[*, in_channels]``."""
        return apply_linear(x, self.weight, self.bias)

    def __prepare_scriptable__(self) -> torch.nn.Module:
        """Returns PyG's own layer on the same parameters, for TorchScript."""
        return retyped(self, _PyGLinear)


LINEAR_TYPES: dict[type[torch.nn.Module], type[torch.nn.Module]] = {
    torch.nn.Linear: Linear,
    _PyGLinear: PyGLinear,
}


_PLAIN_LINEARS = frozenset((*LINEAR_TYPES, *LINEAR_TYPES.values()))


def is_plain(module: torch.nn.Module) -> bool:
    """Returns whether calling ``module`` does nothing but its forward: no hook of any kind."""
    return not (
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


def is_plain_linear(module: torch.nn.Module) -> bool:
    """Returns whether ``module`` is exactly torch's, PyG's or our linear layer, initialised and without hooks."""
    return (
        type(module) in _PLAIN_LINEARS
        and is_plain(module)
        and type(module.weight) is not torch.nn.parameter.UninitializedParameter
    )


def is_fusable(module: torch.nn.Module, x: Tensor) -> bool:
    """Returns whether the weight of ``module`` may be multiplied with ``x`` in its place."""
    return is_plain_linear(module) and module.weight.dtype == x.dtype


def run_dense(layers: list[torch.nn.Module], x: Tensor) -> Tensor:
    """Calls ``layers`` in turn on what one of our ops returned, a linear layer and a ReLU behind it as one op."""
    position = 0
    while position < len(layers):
        layer: Any = layers[position]
        if is_plain_linear(layer) and (weight := layer.weight).dtype == x.dtype:
            fused = relu_follows(layers, position)
            x = linear(x, weight, layer.bias, "relu" if fused else None)
            position += 2 if fused else 1
        else:
            x = layer(x)
            position += 1
    return x


def relu_follows(layers: list[torch.nn.Module], position: int) -> bool:
    """Returns whether the layer after ``position`` is exactly a ReLU without hooks."""
    following = layers[position + 1] if position + 1 < len(layers) else None
    return type(following) is torch.nn.ReLU and is_plain(following)
