# SPDX-License-Identifier: MIT
"""The ops' gradients: against the reference's, against differences, twice, and under every mode of autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import forward_ad

from frontgi_pyg import Graph, ops
from frontgi_pyg.ops.gradients import column_sum, edge_dot, row_dot, weight_grad

from .. import reference
from ..graphs import MESSY, ODD, Edges, edges, power_law
from .samples import (
    DIFFERENTIABLE,
    DTYPES,
    HALVES,
    SAMPLES,
    Sample,
    Tensors,
    check_backward,
    differentiated,
    gradients,
    layouts,
)

pytestmark = pytest.mark.usefixtures("one_thread")

by_sample = pytest.mark.parametrize("sample", SAMPLES, ids=str)

# A loop, a duplicate edge, a node that nothing reaches and one that reaches nothing.
SMALL = Edges(torch.tensor([[0, 1, 1, 2, 0, 3, 3, 0, 1], [1, 1, 2, 0, 1, 0, 2, 2, 0]]), 5, 5)


def checkable(dtype: torch.dtype, sample: Sample) -> bool:
    """In half precision an extremum has ties, and a ReLU's input may round across zero."""
    return dtype not in HALVES or not (sample.extremum or sample.relu)


# Values -------------------------------------------------------------------------------------------


@by_sample
@pytest.mark.parametrize("name", ODD)
def test_match_the_reference(sample: Sample, name: str) -> None:
    for dtype in DTYPES:
        if sample.suits(ODD[name]) and checkable(dtype, sample):
            check_backward(sample, ODD[name], sample.tensors(ODD[name], dtype))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges(), st.sampled_from(SAMPLES), st.sampled_from(DTYPES), st.integers(0, 40), st.integers(0, 40))
def test_match_the_reference_anywhere(e: Edges, sample: Sample, dtype: torch.dtype, width: int, out_width: int) -> None:
    if sample.suits(e) and checkable(dtype, sample):
        check_backward(sample, e, sample.tensors(e, dtype, width, out_width))


def test_sums_over_many_rows() -> None:
    """More rows than one chunk of a weight's gradient."""
    e = power_law(20000, 30000, 2000)
    for sample in SAMPLES:
        if str(sample) in ("linear-bias-relu", "conv-sage-True", "aggregate-one-self-scale"):
            for dtype in (torch.float32, torch.float64):
                check_backward(sample, e, sample.tensors(e, dtype, 21, 10))


@by_sample
def test_gradcheck(sample: Sample) -> None:
    run, inputs = as_function(sample, SMALL)
    assert torch.autograd.gradcheck(run, inputs)


@by_sample
def test_gradgradcheck(sample: Sample) -> None:
    run, inputs = as_function(sample, SMALL)
    if sample.twice_differentiable():
        assert torch.autograd.gradgradcheck(run, inputs)
        return
    tensors = differentiated(sample.tensors(SMALL, torch.float64, 3, 2))
    (grad,) = torch.autograd.grad(sample.run(SMALL.graph(), tensors).sum(), tensors["x"], create_graph=True)
    with pytest.raises(NotImplementedError, match="aggregate: 'min' and 'max' cannot be differentiated twice"):
        grad.sum().backward()


def as_function(sample: Sample, e: Edges) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    """The sample as a function of the tensors that have gradients."""
    graph, tensors = e.graph(), differentiated(sample.tensors(e, torch.float64, 3, 2, seed=3))
    names = [name for name in tensors if name in DIFFERENTIABLE]

    def run(*values: Tensor) -> Tensor:
        return sample.run(graph, {**tensors, **dict(zip(names, values, strict=True))})

    return run, tuple(tensors[name] for name in names)


@pytest.mark.parametrize("name", ["column_sum", "weight_grad", "edge_dot", "row_dot"])
def test_the_ops_of_gradients_have_gradients(name: str) -> None:
    a, b = (torch.randn(5, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    graph, scale = SMALL.graph(), torch.randn(2, 5, dtype=torch.float64)
    run, inputs = {
        "column_sum": (column_sum, (a,)),
        "weight_grad": (weight_grad, (a, b)),
        "row_dot": (row_dot, (a, b)),
        "edge_dot": (lambda a, b: edge_dot(graph.rowptr, graph.col, a, b, *scale), (a, b)),
    }[name]
    assert torch.autograd.gradcheck(run, inputs)
    assert torch.autograd.gradgradcheck(run, inputs)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [0, 1, 7, 16, 33, 64, 130])
def test_the_ops_of_gradients_match_the_reference(dtype: torch.dtype, width: int) -> None:
    graph = MESSY.graph()
    a, b = torch.randn(20, width).to(dtype), torch.randn(20, width).to(dtype)
    wide_a, wide_b = a.double(), b.double()
    target, source = torch.repeat_interleave(torch.arange(20), graph.rowptr.diff()), graph.col.long()
    scale = torch.randn(20, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    rows, columns = wide_a[target], wide_b[source]
    wide_scale = scale.double()[:, None]
    cases = [
        (edge_dot(graph.rowptr, graph.col, a, b, scale, None), wide_scale[target] * rows, columns),
        (edge_dot(graph.rowptr, graph.col, a, b, None, scale), wide_scale[source] * rows, columns),
        (row_dot(a, b), wide_a, wide_b),
    ]
    kept = torch.float64 if dtype == torch.float64 else torch.float32
    for ours, left, right in cases:
        norm = float((left * right).abs().sum(1).max()) if width else 0.0
        assert ours.dtype == kept
        assert float((ours.double() - (left * right).sum(1)).abs().max()) <= reference.error_bound(kept, norm)
    product, sums = weight_grad(a, b), column_sum(a)
    assert product.dtype == sums.dtype == kept
    bound = reference.error_bound(kept, float((wide_a.abs().t() @ wide_b.abs()).max()) if width else 0.0)
    assert (product.double() - wide_a.t() @ wide_b).abs().le(bound).all()
    assert (sums.double() - wide_a.sum(0)).abs().le(reference.error_bound(kept, float(wide_a.abs().sum()))).all()


# Extrema ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduce", ["min", "max"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_first_edge_that_reached_the_extremum_takes_the_gradient(reduce: str, dtype: torch.dtype) -> None:
    graph = Graph.from_edge_index(torch.tensor([[3, 1, 2, 0, 1], [0, 0, 0, 0, 1]]), 4)
    sign = 1 if reduce == "max" else -1
    x = (sign * torch.tensor([[1.0, 0.0], [2.0, 0.0], [2.0, -1.0], [2.0, 0.0]])).to(dtype).requires_grad_()
    weight = torch.ones(5, requires_grad=True)
    ops.aggregate(graph, x, reduce, edge_weight=weight).backward(torch.tensor([[1.0, 10.0], [100.0, 0]] + [[0, 0]] * 2))
    assert x.grad is not None
    assert weight.grad is not None
    assert x.grad.tolist() == [[0, 10], [101, 0], [0, 0], [0, 0]]
    assert weight.grad.tolist() == [0, sign * 2, 0, 0, sign * 200]


def test_an_extremum_that_is_nan_passes_its_gradient_to_the_nan() -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2], [0, 0, 0]]), 3)
    x = torch.tensor([[5.0], [float("nan")], [7.0]], requires_grad=True)
    ops.aggregate(graph, x, "max")[0].sum().backward()
    assert x.grad is not None
    assert x.grad.flatten().tolist() == [0, 1, 0]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_rounded_extremum_finds_its_edge(dtype: torch.dtype) -> None:
    """In half precision the product that was largest is not equal to the result, which was rounded."""
    e = power_law(60, 500, 80)
    x = (torch.rand(60, 9) + 0.5).to(dtype).requires_grad_()
    weight = torch.rand(e.num_edges) + 0.5
    out = ops.aggregate(e.graph(), x, "max", edge_weight=weight)
    out.sum().backward()
    assert x.grad is not None
    wide = x.detach().float().requires_grad_()
    reference.aggregate(e.index, 60, wide, "max", weight).sum().backward()
    assert wide.grad is not None
    assert (x.grad.float() - wide.grad).abs().max() <= torch.finfo(dtype).eps * wide.grad.abs().max()


@pytest.mark.parametrize("terms", [{"row_scale": torch.ones(5)}, {"x_self": torch.ones(5, 3)}])
def test_an_extremum_with_further_terms_refuses_its_gradient(terms: dict[str, Any]) -> None:
    x = torch.randn(5, 3, requires_grad=True)
    out = ops.aggregate(SMALL.graph(), x, "max", **terms)
    with pytest.raises(NotImplementedError, match=r"^aggregate: 'min' and 'max' with .* have no gradient"):
        out.sum().backward()


@pytest.mark.parametrize(
    ("message", "changed"),
    [
        (r"'x' must be float32 or float64 \(got bfloat16 \[3, 2\]\)", {"x": torch.ones(3, 2).bfloat16()}),
        (r"'x' must be 2-D", {"x": torch.ones(3)}),
        (r"'result' and 'grad_result' must be \[3, 2\]", {"result": torch.ones(3, 1)}),
        (r"'result' and 'grad_result' must be \[3, 2\]", {"grad_result": torch.ones(3, 2).double()}),
        (r"'edge_weight' must have 3 elements", {"edge_weight": torch.ones(2)}),
        (r"'rowptr' must end at the number of edges, 3 \(got 2\)", {"rowptr": torch.tensor([0, 1, 2, 2])}),
    ],
)
def test_the_bare_op_of_extrema_checks_its_arguments(message: str, changed: dict[str, Any]) -> None:
    arguments = {
        "rowptr": torch.tensor([0, 1, 3, 3]), "col": torch.tensor([2, 0, 1]), "x": torch.ones(3, 2),
        "edge_weight": None, "result": torch.ones(3, 2), "grad_result": torch.ones(3, 2), "trusted": False,
    }  # fmt: skip
    with pytest.raises(ValueError, match=f"^extremum_grad: {message}"):
        torch.ops.frontgi.extremum_grad(**{**arguments, **changed})


@pytest.mark.parametrize(
    ("error", "message", "changed"),
    [
        (ValueError, r"'a' must be \[3, 2\] in the dtype of 'b'", {"a": torch.ones(2, 2)}),
        (ValueError, r"'a' must be \[3, 2\] in the dtype of 'b'", {"a": torch.ones(3, 2).double()}),
        (ValueError, r"'b' must be 2-D", {"b": torch.ones(3)}),
        (ValueError, r"'row_scale' must have 3 elements", {"row_scale": torch.ones(2)}),
        (IndexError, r"'col' must be in \[0, 2\) \(got 2 at position 0\)", {"b": torch.ones(2, 2)}),
    ],
)
def test_the_bare_op_of_edge_weights_checks_its_arguments(
    error: type[Exception], message: str, changed: dict[str, Any]
) -> None:
    arguments = {
        "rowptr": torch.tensor([0, 1, 3, 3]), "col": torch.tensor([2, 0, 1]), "a": torch.ones(3, 2),
        "b": torch.ones(3, 2), "row_scale": None, "col_scale": None, "trusted": False,
    }  # fmt: skip
    with pytest.raises(error, match=f"^edge_dot: {message}"):
        torch.ops.frontgi.edge_dot(**{**arguments, **changed})


# Which inputs want a gradient ---------------------------------------------------------------------


def wanted(sample: Sample, tensors: Tensors, names: tuple[str, ...]) -> Tensors:
    leaves = {name: t.detach().clone().requires_grad_(name in names) for name, t in tensors.items()}
    out = sample.run(MESSY.graph(), leaves)
    out.backward(torch.linspace(-1, 1, out.numel()).view_as(out).to(out.dtype))
    assert all((t.grad is not None) == (name in names) for name, t in leaves.items())
    return {name: leaves[name].grad for name in names}


@by_sample
def test_each_gradient_alone_is_the_same(sample: Sample) -> None:
    tensors = sample.tensors(MESSY, torch.float32)
    names = tuple(name for name in tensors if name in DIFFERENTIABLE)
    together = wanted(sample, tensors, names)
    for name in names:
        assert torch.equal(wanted(sample, tensors, (name,))[name], together[name]), name


def test_nothing_wanted() -> None:
    assert not ops.conv(MESSY.graph(), torch.randn(20, 4), torch.randn(3, 4)).requires_grad
    with torch.no_grad():
        assert not ops.aggregate(MESSY.graph(), torch.randn(20, 4, requires_grad=True)).requires_grad


def test_scales_of_parameters_are_fine_where_no_gradient_is_wanted() -> None:
    scale = torch.rand(20, requires_grad=True)
    with torch.no_grad():
        out = ops.aggregate(MESSY.graph(), torch.ones(20, 4), row_scale=scale, col_scale=scale)
    assert torch.equal(
        out, ops.aggregate(MESSY.graph(), torch.ones(20, 4), row_scale=scale.detach(), col_scale=scale.detach())
    )


# Modes of autograd --------------------------------------------------------------------------------


def test_used_twice_in_one_graph() -> None:
    graph, weight = MESSY.graph(), torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    x = torch.randn(20, 4, dtype=torch.float64, requires_grad=True)
    out = ops.conv(graph, ops.conv(graph, x, weight, activation="relu"), weight) + ops.aggregate(graph, x)
    ours = torch.autograd.grad((out / 100).sin().sum(), (x, weight))
    args = (MESSY.index, 20)
    hidden = reference.conv(*args, x, weight, activation="relu")
    expected = reference.conv(*args, hidden, weight) + reference.aggregate(*args, x)
    for one, other in zip(ours, torch.autograd.grad((expected / 100).sin().sum(), (x, weight)), strict=True):
        assert (one - other).abs().max() <= 1e-12 * other.abs().max()


def test_backward_twice_through_one_graph() -> None:
    x = torch.randn(20, 4, requires_grad=True)
    out = ops.aggregate(MESSY.graph(), x, activation="relu").sum()
    (first,) = torch.autograd.grad(out, x, retain_graph=True)
    (second,) = torch.autograd.grad(out, x)
    assert torch.equal(first, second)


@by_sample
def test_any_layout_of_the_incoming_gradient(sample: Sample) -> None:
    tensors = sample.tensors(MESSY, torch.float32)
    leaves = differentiated(tensors)
    out = sample.run(MESSY.graph(), leaves)
    wanting = [t for t in leaves.values() if t.requires_grad]
    grad_out = torch.randn_like(out)
    expected = torch.autograd.grad(out, wanting, grad_out, retain_graph=True)
    for layout, view in layouts(grad_out).items():
        found = torch.autograd.grad(out, wanting, view, retain_graph=True)
        assert all(map(torch.equal, found, expected)), layout
    ones = torch.autograd.grad(out, wanting, torch.ones_like(out), retain_graph=True)
    assert all(map(torch.equal, torch.autograd.grad(out.sum(), wanting), ones))  # a gradient of stride 0


@by_sample
def test_any_layout_of_the_features(sample: Sample) -> None:
    tensors = sample.tensors(MESSY, torch.float32)
    grad_out = torch.randn_like(sample.run(MESSY.graph(), tensors))

    def gradient(x: Tensor) -> tuple[Tensor, ...]:
        leaves = {**differentiated(tensors), "x": x}
        wanting = [t for t in leaves.values() if t.requires_grad]
        return torch.autograd.grad(sample.run(MESSY.graph(), leaves), wanting, grad_out)

    expected = gradient(tensors["x"].clone().requires_grad_())
    for layout, view in layouts(tensors["x"]).items():
        assert all(map(torch.equal, gradient(view.detach().requires_grad_()), expected)), layout


def test_features_beyond_2_to_the_31_elements(far_rows: Tensor) -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 7, 8, 8, 1], [0, 0, 0, 1, 1]]), (9, 2))
    grad_out = torch.randn(2, 5)

    def found(features: Tensor) -> tuple[Tensor, ...]:
        x, edge_weight, weight = (
            features.detach().requires_grad_(), torch.ones(5, requires_grad=True), torch.ones(5, 48, requires_grad=True)
        )  # fmt: skip
        out = ops.conv(graph, x, weight, edge_weight=edge_weight, multiply_first=False)
        extremum = ops.aggregate(graph, x, "max", edge_weight=edge_weight)
        return (
            *torch.autograd.grad(out, (x, edge_weight, weight), grad_out),
            *torch.autograd.grad(extremum.sum(), (x, edge_weight)),
            weight_grad(features, features),
            edge_dot(graph.rowptr, graph.col, features[-2:], features, None, None),
        )

    for far, near in zip(found(far_rows), found(far_rows.clone()), strict=True):
        assert torch.equal(far, near)


def test_every_element_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3).isnan().all()  # fresh memory now holds NaN
        for e in ODD.values():
            for sample in SAMPLES:
                if sample.suits(e):
                    leaves = differentiated(sample.tensors(e, torch.float32))
                    out = sample.run(e.graph(), leaves)
                    found = gradients(out, leaves, torch.ones_like(out))
                    assert not any(gradient.isnan().any() for gradient in found.values()), str(sample)
    finally:
        torch.use_deterministic_algorithms(False)


def test_an_input_changed_after_the_forward_pass_is_noticed() -> None:
    x, weight = torch.randn(20, 4), torch.randn(3, 4, requires_grad=True)
    out = ops.linear(x, weight)
    x.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_gradients_after_inference_mode() -> None:
    """What a graph remembers in inference mode serves a backward pass later."""
    graph, weight = MESSY.graph(), torch.rand(MESSY.num_edges)
    with torch.inference_mode():
        graph.transposed()
        graph.csr_weight(weight, torch.float32)
        inv_sqrt, self_scale = graph.gcn_norm(None, "remain", 1.0, torch.float32)
    inv_sqrt, self_scale = graph.gcn_norm(None, "remain", 1.0, torch.float32)
    x = torch.randn(20, 4, requires_grad=True)
    terms = {"edge_weight": weight, "row_scale": inv_sqrt, "col_scale": inv_sqrt, "self_scale": self_scale}
    (grad,) = torch.autograd.grad(ops.aggregate(graph, x, **terms).sum(), x)
    (fresh,) = torch.autograd.grad(ops.aggregate(MESSY.graph(), x, **terms).sum(), x)
    assert torch.equal(grad, fresh)


@pytest.mark.parametrize("op", ["aggregate", "conv", "linear"])
def test_forward_mode_is_refused(op: str) -> None:
    """Not answered with tangents of zero."""
    graph, x, weight = SMALL.graph(), torch.randn(5, 3), torch.randn(2, 3)
    run: Callable[[Tensor], Tensor] = {
        "aggregate": lambda x: ops.aggregate(graph, x),
        "conv": lambda x: ops.conv(graph, x, weight),
        "linear": lambda x: ops.linear(x, weight),
    }[op]
    with forward_ad.dual_level():
        with pytest.raises(NotImplementedError, match=f"^{op}: forward-mode differentiation"):
            run(forward_ad.make_dual(x, torch.ones_like(x)))
        assert torch.equal(run(x), run(x.clone()))  # no tangent, nothing to lose
    with pytest.raises(NotImplementedError, match=f"^{op}: forward-mode differentiation"):
        torch.func.jvp(run, (x,), (x,))
    with pytest.raises(NotImplementedError, match=f"^{op}: "):
        torch.func.hessian(lambda x: run(x).square().sum())(x)


@pytest.mark.parametrize("op", ["aggregate", "conv", "linear"])
@pytest.mark.parametrize("transform", ["grad", "vjp", "jacrev", "vmap of grad"])
def test_functional_gradients_are_refused_and_leave_no_trace(op: str, transform: str) -> None:
    graph, weight, edge_weight = SMALL.graph(), torch.randn(2, 3), torch.rand(SMALL.num_edges)
    x = torch.randn(5, 3)
    run: Callable[[Tensor], Tensor] = {
        "aggregate": lambda x: ops.aggregate(graph, x, edge_weight=edge_weight).square().sum(),
        "conv": lambda x: ops.conv(graph, x, weight, edge_weight=edge_weight).square().sum(),
        "linear": lambda x: ops.linear(x, weight).square().sum(),
    }[op]
    call: Callable[[], Any] = {
        "grad": lambda: torch.func.grad(run)(x),
        "vjp": lambda: torch.func.vjp(run, x),
        "jacrev": lambda: torch.func.jacrev(run)(x),
        "vmap of grad": lambda: torch.vmap(torch.func.grad(run))(x.expand(2, 5, 3)),
    }[transform]
    with pytest.raises(NotImplementedError, match=rf"^{op}: torch.func.grad is not supported"):
        call()
    leaf = x.clone().requires_grad_()
    (ours,) = torch.autograd.grad(run(leaf), leaf)
    graph = SMALL.graph()
    (fresh,) = torch.autograd.grad(run(leaf), leaf)
    assert torch.equal(ours, fresh)


def test_what_a_graph_remembers_inside_a_transform_is_not_kept() -> None:
    graph, weight = Graph.from_edge_index(torch.tensor([[2, 0, 1], [0, 0, 1]]), 3), torch.tensor([1.0, 2.0, 3.0])

    def read(x: Tensor) -> Tensor:
        graph.transposed()
        graph.gcn_norm(weight, "none", 1.0, torch.float32)
        return (x * graph.csr_weight(weight, torch.float32)).sum()

    torch.func.grad(read)(torch.ones(3))
    torch.vmap(read)(torch.ones(2, 3))
    for t in (*graph.transposed(), *graph.gcn_norm(weight, "none", 1.0, torch.float32)):
        assert not torch._C._functorch.is_functorch_wrapped_tensor(t)
    stored = graph.csr_weight(weight, torch.float32)
    assert stored is not None
    assert stored.tolist() == [2.0, 1.0, 3.0]


@pytest.mark.parametrize("transform", ["vmap", "functionalize"])
def test_gradients_pass_through_transforms(transform: str) -> None:
    """Inside, an input does not tell that it is differentiated outside."""
    graph, weight = SMALL.graph(), torch.randn(4, 3)
    ops_of = {
        "aggregate": lambda x: ops.aggregate(graph, x),
        "conv": lambda x: ops.conv(graph, x, weight),
        "linear": lambda x: ops.linear(x, weight),
    }
    for name, op in ops_of.items():
        x = torch.randn(2, 5, 3, requires_grad=True)
        if transform == "vmap":
            out = torch.vmap(op)(x)
        else:
            out = torch.stack([torch.func.functionalize(op)(part) for part in x])
        (grad,) = torch.autograd.grad(out.square().sum(), x)
        other = x.detach().clone().requires_grad_()
        (expected,) = torch.autograd.grad(torch.stack([op(part) for part in other]).square().sum(), other)
        assert torch.equal(grad, expected), name


def test_vmap_over_a_backward_pass() -> None:
    graph, x = SMALL.graph(), torch.randn(5, 3, requires_grad=True)
    out = ops.aggregate(graph, x)
    grad_outs = torch.randn(4, 5, 3)
    (ours,) = torch.autograd.grad(out, x, grad_outs, is_grads_batched=True, retain_graph=True)
    expected = torch.stack([torch.autograd.grad(out, x, g, retain_graph=True)[0] for g in grad_outs])
    assert torch.equal(ours, expected)
