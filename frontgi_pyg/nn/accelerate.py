# SPDX-License-Identifier: MIT
"""``accelerate(model)``: a copy of a PyG model in which every conv we know runs on our kernels."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Literal

import torch
from torch_geometric.nn import MessagePassing

from frontgi_pyg.nn.appnp import APPNP
from frontgi_pyg.nn.cluster_gcn_conv import ClusterGCNConv
from frontgi_pyg.nn.gat_conv import GATConv
from frontgi_pyg.nn.gatv2_conv import GATv2Conv
from frontgi_pyg.nn.gcn2_conv import GCN2Conv
from frontgi_pyg.nn.gcn_conv import GCNConv
from frontgi_pyg.nn.gin_conv import GINConv
from frontgi_pyg.nn.graph_conv import GraphConv
from frontgi_pyg.nn.le_conv import LEConv
from frontgi_pyg.nn.lg_conv import LGConv
from frontgi_pyg.nn.linear import LINEAR_TYPES
from frontgi_pyg.nn.native import NativeConv
from frontgi_pyg.nn.rgcn_conv import FastRGCNConv, RGCNConv
from frontgi_pyg.nn.sage_conv import SAGEConv
from frontgi_pyg.nn.sg_conv import SGConv
from frontgi_pyg.nn.ssg_conv import SSGConv
from frontgi_pyg.nn.tag_conv import TAGConv

CONV_TYPES: dict[type[MessagePassing], type[NativeConv]] = {
    conv.pyg_class: conv
    for conv in (
        APPNP,
        ClusterGCNConv,
        FastRGCNConv,
        GATConv,
        GATv2Conv,
        GCN2Conv,
        GCNConv,
        GINConv,
        GraphConv,
        LEConv,
        LGConv,
        RGCNConv,
        SAGEConv,
        SGConv,
        SSGConv,
        TAGConv,
    )
}


def accelerate(model: torch.nn.Module) -> torch.nn.Module:
    r"""Returns a copy of ``model`` whose convs run on our kernels.

    Parameters and buffers are shared with ``model``, which is left as it was; modules used twice stay one module, hooks
    stay. Convs are replaced by exact type: a subclass, or a conv we have no kernels for, stays PyG's. The linear layers
    inside a GIN's network are replaced too. See :func:`report`.

    Args:
        model: Any module holding PyG convs: a ``BasicGNN``, a model made by ``to_hetero``, one written by hand.

    Raises:
        TypeError: If ``model`` is not a module.

    Example:
        >>> import torch
        >>> from torch_geometric.nn import GCN
        >>> import frontgi_pyg
        >>> fast = frontgi_pyg.accelerate(GCN(16, 32, num_layers=2, out_channels=4))
        >>> print(frontgi_pyg.report(fast))
        2 of 2 convs run on frontgi_pyg
          convs.0: GCNConv(16, 32), not called yet
          convs.1: GCNConv(32, 4), not called yet
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"accelerate: 'model' must be a torch.nn.Module (got {type(model).__name__})")
    shared: dict[int, object] = {}
    for module in model.modules():
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is not None:
                shared[id(tensor)] = tensor
        for value in vars(module).values():  # results that carry a gradient, such as a layer's cache, cannot be copied
            for item in value if isinstance(value, tuple) else (value,):
                if isinstance(item, torch.Tensor) and not item.is_leaf:
                    shared[id(item)] = item
    fast = copy.deepcopy(model, shared)
    for module in fast.modules():
        native = CONV_TYPES.get(type(module))
        if native is not None:
            # The class is all that differs: state, hooks and identity stay.
            module.__class__ = native
            if isinstance(module, GINConv) and isinstance(module.nn, torch.nn.Module):
                _accelerate_linears(module.nn)
    return fast


def _accelerate_linears(network: torch.nn.Module) -> None:
    for module in network.modules():
        native = LINEAR_TYPES.get(type(module))
        if native is not None:
            module.__class__ = native


# Report -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConvReport:
    """One conv of a model.

    Args:
        name: Its name in the model; empty if the model is the conv.
        conv: What it is.
        status: ``"native"``, ``"pyg"`` (ours, but PyG's path was or will be taken) or ``"left"``.
        detail: The path last taken, or why it was left.
    """

    name: str
    conv: str
    status: Literal["native", "pyg", "left"]
    detail: str


@dataclass(frozen=True)
class Report:
    """Every conv of a model, in order."""

    convs: tuple[ConvReport, ...]

    def __str__(self) -> str:
        native = sum(conv.status == "native" for conv in self.convs)
        lines = [f"{native} of {len(self.convs)} convs run on frontgi_pyg"]
        lines += [f"  {conv.name or '(model)'}: {conv.conv}, {conv.detail}" for conv in self.convs]
        return "\n".join(lines)


def report(model: torch.nn.Module) -> Report:
    """Returns which convs of ``model`` run on our kernels, which do not, and why.

    Args:
        model: Usually the result of :func:`accelerate`.
    """
    convs = []
    known = {conv.__name__ for conv in CONV_TYPES}
    for name, module in model.named_modules():
        if isinstance(module, MessagePassing):
            convs.append(_describe(name, module))
        elif isinstance(module, torch.jit.ScriptModule) and module.original_name in known:
            convs.append(ConvReport(name, module.original_name, "left", "left: TorchScript"))
    return Report(tuple(convs))


def _describe(name: str, conv: MessagePassing) -> ConvReport:
    text = " ".join(str(conv).split())
    if not isinstance(conv, NativeConv):
        known = next((c for c in type(conv).__mro__ if c in CONV_TYPES), None)
        if known is type(conv):
            why = "left: not accelerated"
        elif known is not None:
            why = f"left: a subclass of {known.__name__}, which may do something else"
        else:
            why = f"left: no kernels for {type(conv).__name__}"
        return ConvReport(name, text, "left", why)
    reason = conv.unsupported() or (conv.path_taken if conv.path_taken != "native" else None)
    if reason is not None:
        return ConvReport(name, text, "pyg", f"on PyG's path: {reason}")
    return ConvReport(name, text, "native", "native" if conv.path_taken else "not called yet")
