# SPDX-License-Identifier: MIT
"""What the layers share: when a layer takes PyG's own path, and how an adjacency becomes a :class:`Graph`.

A layer never fails where PyG's would not: whatever our kernels do not cover goes through PyG's ``forward``, and
``path_taken`` says so. Nothing is looked up by address, and nothing here runs a kernel.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch_geometric import EdgeIndex
from torch_geometric.nn import MessagePassing
from torch_geometric.typing import SparseTensor

from frontgi_pyg.adjacency import graph_of, graph_of_sparse
from frontgi_pyg.graph import Graph, Loops
from frontgi_pyg.nn.linear import apply_linear, exporting, is_plain_linear, retyped
from frontgi_pyg.ops.aggregate import aggregate
from frontgi_pyg.plan import AskedSchedule

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
LOOPS: dict[str, Loops] = {
    "edge_index": "remain",
    "sparse_tensor": "replace",
    "torch_sparse": "add",
}
_HOOKS = tuple(
    f"_{method}_forward_{when}"
    for method in ("propagate", "edge_update", "message", "aggregate", "message_and_aggregate")
    for when in ("pre_hooks", "hooks")
)
_METHODS = (
    "propagate",
    "edge_update",
    "message",
    "aggregate",
    "update",
    "message_and_aggregate",
    "explain_message",
)


class NativeConv(MessagePassing):  # type: ignore[misc]
    """Mixed in before one of PyG's convs, whose class is :attr:`pyg_class`.

    Args:
        path_taken: ``"native"`` or the reason why the last call took PyG's path; :obj:`None` before the first call.
        schedule: A schedule for this layer instead of the planner's; to be set before the layer is compiled.
    """

    pyg_class: ClassVar[type[MessagePassing]] = MessagePassing
    path_taken: str | None = None
    schedule: AskedSchedule | None = None
    _overridden: ClassVar[str | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._overridden = None  # what a class between this one and ours says is found again
        for base in cls.__mro__:
            if "pyg_class" in base.__dict__:  # one of ours: what lies before it is the user's
                break
            cls._overridden = next((name for name in _METHODS if _defines(base, name)), cls._overridden)

    def _set_jittable_templates(self, raise_on_error: bool = False) -> None:
        super()._set_jittable_templates(raise_on_error)
        if self._overridden != "propagate":
            # PyG keeps what it finds on the class as the propagate() that can explain, and from the second class in a
            # family on that is a generated one, which cannot.
            type(self)._orig_propagate = MessagePassing.propagate

    def unsupported(self) -> str | None:
        """Returns why this layer, as configured, always takes PyG's path; :obj:`None` if it does not."""
        if self._overridden is not None:
            return f"{self._overridden}() is overridden"
        if self.decomposed_layers > 1:
            return "decomposed_layers > 1"
        if self.aggr not in ("add", "sum", "mean", "min", "max"):
            return f"no kernel for aggr={self.aggr}"
        return None

    def fallback_reason(self, x: Any, edge_index: Any) -> str | None:
        """Returns why a call on these inputs takes PyG's path; :obj:`None` if our kernels serve it."""
        reason = self.unsupported()
        if reason is not None:
            return reason
        if exporting():
            return "TorchScript or ONNX"
        if self.explain:
            return "explaining"
        own = self.__dict__
        if any(own[hooks] for hooks in _HOOKS):
            return "message passing hooks"
        if not torch.compiler.is_compiling() and (
            forward_ad._current_level >= 0 or torch._C._functorch.peek_interpreter_stack() is not None
        ):
            return "functional transforms"
        return _unusable_features(x, self) or _unusable_adjacency(edge_index, x, self.flow)

    def took(self, path: str) -> None:
        """Records the path a call took; compiled graphs record nothing."""
        if not torch.compiler.is_compiling() and self.path_taken != path:
            self.path_taken = path

    def __prepare_scriptable__(self) -> MessagePassing:
        """Returns PyG's own layer on the same parameters, for TorchScript."""
        twin: Any = retyped(self, self.pyg_class)
        twin._set_jittable_templates()  # PyG's class may never have been constructed
        return twin


def _defines(cls: type, method: str) -> bool:
    """Returns whether ``cls`` itself defines ``method``; PyG puts a generated propagate() on every class it meets."""
    own = cls.__dict__.get(method)
    generated = own is cls.__dict__.get("_jinja_propagate") and own is not cls.__dict__.get("_orig_propagate")
    return own is not None and not generated


def _unusable_features(x: Any, conv: MessagePassing) -> str | None:
    pair = isinstance(x, (tuple, list))
    features = [t for t in x if t is not None] if pair else [x]
    if not features or not all(isinstance(t, Tensor) for t in features):
        return "features are not tensors"
    if pair and (len(x) != 2 or x[0] is None):
        return "no source features"
    first = features[0]
    for t in features:
        if not t.is_cpu or t.layout != torch.strided or t.dtype not in DTYPES:
            return f"features on {t.device}, {t.layout}, {t.dtype}"
        if t.dtype != first.dtype or t.dim() != first.dim() or t.dim() not in (2, 3):
            return "features of unequal or unsupported shapes"
    if conv.node_dim not in (-2, first.dim() - 2):
        return f"node_dim={conv.node_dim}"
    if first.dim() == 3 and any(t.size(0) != first.size(0) for t in features):
        return "features of unequal or unsupported shapes"
    if conv.aggr in ("min", "max") and torch.is_grad_enabled() and any(t.requires_grad for t in features):
        return f"gradients of aggr={conv.aggr}"  # PyG shares them among ties on edge_index
    return None


def _unusable_adjacency(adjacency: Any, x: Any, flow: str) -> str | None:
    if isinstance(adjacency, Graph):
        return None
    x_l, x_r = x if isinstance(x, (tuple, list)) else (x, x)
    if isinstance(adjacency, SparseTensor):
        if flow == "target_to_source":
            return "a sparse adjacency with target_to_source"
        value = adjacency.storage.value()
        if adjacency.device().type != "cpu":
            return "an adjacency on another device"
        if value is not None and (value.requires_grad or value.dim() != 1 or value.dtype not in DTYPES):
            return "a SparseTensor whose values need a gradient or are not one float an edge"
        return None
    if not isinstance(adjacency, Tensor) or not adjacency.is_cpu:
        return "an adjacency that is not a tensor on the CPU"
    if adjacency.layout != torch.strided:
        if flow == "target_to_source":
            return "a sparse adjacency with target_to_source"
        if adjacency.requires_grad:
            return "a sparse adjacency that needs a gradient"
        if adjacency.dtype != x_l.dtype:
            return f"an adjacency in {adjacency.dtype} on features in {x_l.dtype}"
        if adjacency.layout not in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc) or adjacency.dim() != 2:
            return f"an adjacency of layout {adjacency.layout}"
        return None
    if adjacency.dtype not in (torch.int32, torch.int64) or adjacency.dim() != 2 or adjacency.size(0) != 2:
        return "not an edge_index"
    if isinstance(adjacency, EdgeIndex) and not torch.compiler.is_compiling():
        nodes = [None if t is None else t.size(-2) for t in (x_l, x_r)]
        if any(None not in pair and pair[0] != pair[1] for pair in zip(adjacency.sparse_size(), nodes, strict=True)):
            return "an EdgeIndex of another size"  # PyG says so
    return None


def weight_reason(x: Tensor, adjacency: Any, edge_weight: Tensor | None) -> str | None:
    """Returns why PyG's path is taken with this edge weight, if it is."""
    if edge_weight is None or is_sparse(adjacency):
        return None
    num_edges = adjacency.num_edges if isinstance(adjacency, Graph) else adjacency.size(1)
    one_each = edge_weight.dim() == 1 and (edge_weight.size(0) != 1 or num_edges == 1)  # PyG broadcasts others
    if not one_each or edge_weight.device.type != "cpu":
        return "edge weights that are not one value an edge"
    if not edge_weight.is_floating_point() or torch.promote_types(edge_weight.dtype, x.dtype) != x.dtype:
        return f"edge weights in {edge_weight.dtype} on features in {x.dtype}"
    return None


def is_sparse(adjacency: Any) -> bool:
    """Returns whether ``adjacency`` is a SparseTensor or a ``torch.sparse`` matrix."""
    return isinstance(adjacency, SparseTensor) or (isinstance(adjacency, Tensor) and adjacency.layout != torch.strided)


def to_graph(adjacency: Any, num_nodes: int | tuple[int, int], flow: Any) -> Graph:
    """Returns any adjacency PyG takes as a :class:`Graph`, remembered where it can be."""
    if isinstance(adjacency, Graph):
        return adjacency
    if is_sparse(adjacency):
        return graph_of_sparse(adjacency)
    return graph_of(adjacency, num_nodes, flow)


def pyg_adjacency(adjacency: Any, edge_weight: Tensor | None, flow: str) -> tuple[Any, Tensor | None]:
    """Returns ``adjacency`` as PyG's own path takes it: a :class:`Graph` goes back to what it was made from."""
    if not isinstance(adjacency, Graph):
        return adjacency, edge_weight
    weight = adjacency.edge_weight if edge_weight is None else edge_weight
    if flow == "target_to_source":
        return adjacency.edge_index().flip(0), weight
    if adjacency.origin == "edge_index":
        return adjacency.edge_index(), weight
    rowptr, col, perm = adjacency.rowptr, adjacency.col.long(), adjacency.perm
    value = weight if weight is None or perm is None else weight[perm]
    size = (adjacency.num_dst_nodes, adjacency.num_src_nodes)
    if adjacency.origin == "sparse_tensor":
        return SparseTensor(rowptr=rowptr, col=col, value=value, sparse_sizes=size, is_sorted=True), None
    return torch.sparse_csr_tensor(rowptr, col, torch.ones(col.size(0)) if value is None else value, size), None


def materialize(linear: Any, x: Tensor) -> None:
    """Gives a lazy linear layer the width of ``x``, as its first call would."""
    if type(getattr(linear, "weight", None)) is torch.nn.parameter.UninitializedParameter:
        linear.initialize_parameters(linear, (x,))


def project(linear: Any, x: Tensor) -> Tensor:
    """Calls a linear layer, on our kernel where that is all that calling it does."""
    materialize(linear, x)
    if is_plain_linear(linear):
        return apply_linear(x, linear.weight, linear.bias)
    return linear(x)  # type: ignore[no-any-return]


def aggregate_nodes(graph: Graph, x: Tensor, reduce: str, **terms: Any) -> Tensor:
    """:func:`frontgi_pyg.ops.aggregate` on ``[num_nodes, width]`` or a static graph's ``[batch, num_nodes, width]``.

    A batch is laid out node by node, so that all of it is aggregated in one pass over the edges.
    """
    if x.dim() == 2:
        return aggregate(graph, x, reduce, **terms)
    batch, _, width = x.shape

    def by_node(t: Tensor) -> Tensor:
        return t.transpose(0, 1).reshape(t.size(1), batch * width)

    own = terms.pop("x_self", None)
    if own is not None:
        terms["x_self"] = by_node(own)
    out = aggregate(graph, by_node(x), reduce, **terms)
    return out.reshape(out.size(0), batch, width).transpose(0, 1)
