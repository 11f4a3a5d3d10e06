# SPDX-License-Identifier: MIT
"""The table of ops and sample inputs that correctness, gradients, opcheck and determinism are all driven by."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from frontgi_pyg import Graph, ops

from .. import reference
from ..graphs import Edges

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
HALVES = (torch.bfloat16, torch.float16)
DIFFERENTIABLE = ("x", "edge_weight", "self_scale", "x_self", "bias", "weight", "x_root", "root_weight")
SCALES = ("edge_weight", "row_scale", "col_scale", "self_scale")  # in the dtype of sums

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Sample:
    """An op, the optional tensors it is given beside its required ones, and its other arguments."""

    op: str
    name: str
    given: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    one_scale: bool = False  # self_scale is [1]

    def __str__(self) -> str:
        return f"{self.op}-{self.name}"

    @property
    def extremum(self) -> bool:
        return self.options.get("reduce") in ("min", "max")

    @property
    def relu(self) -> bool:
        return "activation" in self.options

    @property
    def depth(self) -> int:
        """How often a half result is rounded on its way."""
        return 1 + (self.op == "conv") + ("x_root" in self.given)

    def suits(self, edges: Edges) -> bool:
        """Whether the sample makes sense on this graph: a node's own features need a square one."""
        return edges.square or "self_scale" not in self.given or "x_self" in self.given

    def twice_differentiable(self) -> bool:
        return not self.extremum

    def tensors(self, edges: Edges, dtype: torch.dtype, width: int = 19, out_width: int = 13, seed: int = 0) -> Tensors:
        """The op's tensors by name, random."""
        out = width if self.op == "aggregate" else out_width
        shapes = {
            "x": (edges.num_src, width),
            "weight": (out, width),
            "edge_weight": (edges.num_edges,),
            "row_scale": (edges.num_dst,),
            "col_scale": (edges.num_src,),
            "self_scale": (1 if self.one_scale else edges.num_dst,),
            "x_self": (edges.num_dst, width),
            "bias": (out,),
            "x_root": (edges.num_dst, width + 1),
            "root_weight": (out, width + 1),
        }
        generator = torch.Generator().manual_seed(seed)
        required = ("x",) if self.op == "aggregate" else ("x", "weight")
        made = {}
        for name in (*required, *self.given):
            value = torch.randn(shapes[name], generator=generator, dtype=torch.float64)
            made[name] = value.to(sums(dtype) if name in SCALES else dtype)
        return made

    def run(self, graph: Graph, tensors: Tensors) -> Tensor:
        """Our op."""
        if self.op == "linear":
            return ops.linear(**tensors, **self.options)
        face = ops.aggregate if self.op == "aggregate" else ops.conv
        return face(graph, **tensors, **self.options)

    def expect(self, edges: Edges, tensors: Tensors) -> Tensor:
        """The reference, in the dtype of the tensors."""
        if self.op == "linear":
            return reference.linear(**tensors, **self.options)
        face = reference.aggregate if self.op == "aggregate" else reference.conv
        return face(edges.index, edges.num_dst, **tensors, **self.options)

    def magnitude(self, edges: Edges, tensors: Tensors) -> Tensor:
        """The reference without cancellation: what errors are measured against."""
        bare = {key: value for key, value in self.options.items() if key != "activation"}
        if self.extremum:
            bare["reduce"] = "max"
        return replace(self, options=bare).expect(edges, {name: t.abs() for name, t in tensors.items()})


def sums(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums and scales."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def differentiated(tensors: Tensors) -> Tensors:
    """The same tensors, as leaves that want gradients where there are any."""
    return {name: t.detach().clone().requires_grad_(name in DIFFERENTIABLE) for name, t in tensors.items()}


def gradients(out: Tensor, tensors: Tensors, grad_out: Tensor) -> Tensors:
    """The gradient to each tensor that wants one."""
    names = [name for name, t in tensors.items() if t.requires_grad]
    found: list[Tensor | None] = [None] * len(names)
    if out.requires_grad:  # the reference of an empty result depends on nothing
        found = list(torch.autograd.grad(out, [tensors[name] for name in names], grad_out, allow_unused=True))
    return {name: torch.zeros_like(tensors[name]) if g is None else g for name, g in zip(names, found, strict=True)}


def _aggregate(name: str, *given: str, one_scale: bool = False, **options: Any) -> Sample:
    return Sample("aggregate", name, given, options, one_scale)


def _conv(name: str, *given: str, one_scale: bool = False, **options: Any) -> Sample:
    return Sample("conv", name, given, options, one_scale)


NORM = ("row_scale", "col_scale", "self_scale")

SAMPLES: list[Sample] = [
    *(_aggregate(reduce, reduce=reduce) for reduce in ("sum", "mean", "min", "max")),
    *(_aggregate(f"{reduce}-weighted", "edge_weight", reduce=reduce) for reduce in ("sum", "mean", "min", "max")),
    *(_aggregate(f"{reduce}-bias-relu", "bias", reduce=reduce, activation="relu") for reduce in ("sum", "max")),
    _aggregate("scaled", "row_scale", "col_scale"),
    _aggregate("mean-scaled", "row_scale", "col_scale", "edge_weight", reduce="mean"),
    _aggregate("self-scale", "self_scale"),
    _aggregate("one-self-scale", "self_scale", one_scale=True),
    _aggregate("x-self", "x_self"),
    _aggregate("x-self-scaled", "x_self", "self_scale"),
    _aggregate("x-self-scaled-by-one", "x_self", "self_scale", one_scale=True),
    _aggregate("mean-self", "self_scale", "bias", reduce="mean", activation="relu"),
    _aggregate("loops-skipped", skip_loops=True),
    _aggregate("normalised", *NORM, "edge_weight", "bias", skip_loops=True),
    _aggregate("everything", *NORM, "edge_weight", "x_self", "bias", activation="relu", skip_loops=True),
    Sample("linear", "plain"),
    Sample("linear", "bias", ("bias",)),
    Sample("linear", "bias-relu", ("bias",), {"activation": "relu"}),
    *(_conv(reduce, reduce=reduce, multiply_first=False) for reduce in ("sum", "mean", "min", "max")),
    _conv("max-weighted", "edge_weight", "bias", reduce="max"),
    _conv("weighted", "edge_weight", multiply_first=False),
    _conv("weighted-multiply-first", "edge_weight", multiply_first=True),
    _conv("mean-multiply-first", "bias", reduce="mean", multiply_first=True),
    *(
        _conv(f"gcn-{first}", *NORM, "edge_weight", "bias", skip_loops=True, multiply_first=first)
        for first in (False, True)
    ),
    *(_conv(f"gcn-relu-{first}", *NORM, "bias", activation="relu", multiply_first=first) for first in (False, True)),
    *(_conv(f"one-self-scale-{first}", "self_scale", one_scale=True, multiply_first=first) for first in (False, True)),
    *(
        _conv(f"sage-{first}", "x_root", "root_weight", "bias", reduce="mean", multiply_first=first)
        for first in (False, True)
    ),
    _conv("sage-relu", "x_root", "root_weight", "bias", "edge_weight", activation="relu", multiply_first=True),
    _conv("sage-max", "x_root", "root_weight", "bias", reduce="max"),
    _conv("gin", "x_self", "self_scale", "bias", one_scale=True, multiply_first=False),
    _conv("everything", *NORM, "edge_weight", "x_self", "x_root", "root_weight", "bias", activation="relu"),
]


def samples(op: str | None = None) -> list[Sample]:
    """The samples of an op, of all ops by default."""
    return [sample for sample in SAMPLES if op is None or sample.op == op]


# Correctness, once for every test that asks for it ------------------------------------------------


def check_forward(sample: Sample, edges: Edges, tensors: Tensors, graph: Graph | None = None) -> Tensor:
    """Asserts that our op's output is as near the exact one as its dtype allows, and returns it."""
    out = sample.run(edges.graph() if graph is None else graph, tensors)
    wide = {name: t.double() for name, t in tensors.items()}
    exact = sample.expect(edges, wide)
    dtype = tensors["x"].dtype
    assert out.shape == exact.shape
    assert out.dtype == dtype
    theirs = _distance(sample.expect(edges, tensors), exact) if dtype == torch.float32 else 0.0
    bound = reference.error_bound(dtype, _largest(sample.magnitude(edges, wide)), theirs, sample.depth)
    assert _distance(out, exact) <= bound, (str(sample), dtype)
    return out


def check_backward(sample: Sample, edges: Edges, tensors: Tensors, graph: Graph | None = None) -> None:
    """Asserts the same of the gradients to every tensor that has one."""
    dtype = tensors["x"].dtype
    leaves = differentiated(tensors)
    out = sample.run(edges.graph() if graph is None else graph, leaves)
    grad_out = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    ours = gradients(out, leaves, grad_out)

    wide = differentiated({name: t.double() for name, t in tensors.items()})
    exact = gradients(sample.expect(edges, wide), wide, grad_out.double())
    positive = differentiated({name: t.double().abs() for name, t in tensors.items()})
    norms = gradients(sample.magnitude(edges, positive), positive, grad_out.double().abs())
    theirs = {}
    if dtype == torch.float32:
        narrow = differentiated(tensors)
        theirs = gradients(sample.expect(edges, narrow), narrow, grad_out)
    assert ours.keys() == exact.keys()
    for name, expected in exact.items():
        assert ours[name].dtype == tensors[name].dtype
        assert ours[name].shape == expected.shape
        their_error = _distance(theirs[name], expected) if theirs else 0.0
        # A gradient is rounded once more than the result: after each stage backwards, and at its end.
        bound = reference.error_bound(dtype, _largest(norms[name]), their_error, sample.depth + 1)
        assert _distance(ours[name], expected) <= bound, (str(sample), dtype, name)


def _largest(t: Tensor) -> float:
    return float(t.detach().abs().max()) if t.numel() else 0.0


def _distance(a: Tensor, b: Tensor) -> float:
    return _largest(a.detach().double() - b.detach().double())


# The same values, laid out in every way a tensor can be -------------------------------------------


def layouts(t: Tensor) -> dict[str, Tensor]:
    """Equal tensors of other strides and offsets; the storage around them holds NaN."""
    rows, columns = t.shape
    around = t.new_full((rows + 2, 2 * columns + 3), float("nan"))
    sliced = around[:rows, : 2 * columns : 2]
    padded = around.clone()[1 : rows + 1, 1 : columns + 1]
    every_other_row = t.new_full((2 * rows, columns), float("nan"))[::2]
    offset = t.new_full((rows * columns + 1,), float("nan"))[1:].view(rows, columns)
    fresh = {"sliced": sliced, "padded": padded, "every other row": every_other_row, "offset": offset}
    for view in fresh.values():
        view.copy_(t)
    return {**fresh, "transposed": t.t().contiguous().t(), "negated view": torch._neg_view(-t)}
