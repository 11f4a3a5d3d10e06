# SPDX-License-Identifier: MIT
"""``frontgi::attend`` and its gradients against the reference: every dtype, every graph, scores of any size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from frontgi_pyg import Graph, ops
from frontgi_pyg.graph import transpose

from .. import reference
from ..graphs import MESSY, ODD, Edges, edges, power_law
from .samples import DTYPES, Tensors, gradients, layouts, sums
from .test_opcheck import check

pytestmark = pytest.mark.usefixtures("one_thread")

frontgi = torch.ops.frontgi
SCORES = ("src_score", "dst_score", "edge_score", "loop_score", "att")  # in the dtype of sums


@dataclass(frozen=True)
class Sample:
    """The optional tensors that the op is given, and its other arguments."""

    name: str
    given: tuple[str, ...]
    heads: int = 3
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def tensors(self, e: Edges, dtype: torch.dtype, channels: int = 7, seed: int = 0) -> Tensors:
        loops = min(e.num_src, e.num_dst) if self.options.get("self_loops") else 0
        width = self.heads * channels
        shapes = {
            "x": (e.num_src, width),
            "src_score": (e.num_src, self.heads),
            "dst_score": (e.num_dst, self.heads),
            "edge_score": (e.num_edges, self.heads),
            "loop_score": (loops, self.heads),
            "x_dst": (e.num_dst, width),
            "att": (width,),
            "bias": (width,),
        }
        generator = torch.Generator().manual_seed(seed)
        return {
            name: torch.randn(shapes[name], generator=generator, dtype=torch.float64).to(
                sums(dtype) if name in SCORES else dtype
            )
            for name in ("x", *self.given)
        }

    def run(self, graph: Graph, tensors: Tensors) -> Tensor:
        return ops.attend(graph, heads=self.heads, **tensors, **self.options)[0]

    def expect(self, e: Edges, tensors: Tensors) -> Tensor:
        return reference.attend(e.index, e.num_dst, heads=self.heads, **tensors, **self.options)[0]


LOOPS = {"self_loops": True}
GAT, GATV2 = ("src_score", "dst_score"), ("x_dst", "att")
SAMPLES = [
    Sample("sources", ("src_score",)),
    Sample("gat", (*GAT, "bias"), options=LOOPS),
    Sample("one-head", (*GAT, "edge_score"), heads=1),
    Sample("many-heads", GAT, heads=19, options=LOOPS),
    Sample("edges", (*GAT, "edge_score"), options={"negative_slope": 0.5}),
    Sample("edges-and-loops", (*GAT, "edge_score", "loop_score"), options=LOOPS),
    Sample("gatv2", (*GATV2, "bias"), options=LOOPS),
    Sample("gatv2-one-head", GATV2, heads=1, options={"negative_slope": -0.3}),
    Sample("gatv2-many-heads", GATV2, heads=19),
]
by_sample = pytest.mark.parametrize("sample", SAMPLES, ids=str)


def leaves(tensors: Tensors, dtype: torch.dtype | None = None) -> Tensors:
    return {name: t.detach().to(dtype or t.dtype).clone().requires_grad_() for name, t in tensors.items()}


def check_all(sample: Sample, e: Edges, tensors: Tensors) -> None:
    """The output and every gradient, as near the exact ones as torch's own operators, or a few roundings away."""
    dtype = tensors["x"].dtype
    grad_out = torch.randn(e.num_dst, tensors["x"].size(1), generator=torch.Generator().manual_seed(1)).bfloat16()
    found = []
    for given_to, run in (
        (leaves(tensors), lambda t: sample.run(e.graph(), t)),
        (leaves(tensors, torch.float64), lambda t: sample.expect(e, t)),
        (leaves(tensors, sums(dtype)), lambda t: sample.expect(e, t)),
    ):
        out = run(given_to)
        found.append({"out": out.detach(), **gradients(out, given_to, grad_out.to(out.dtype))})
    ours, exact, theirs = found
    for name, expected in exact.items():
        assert ours[name].dtype == (dtype if name == "out" else tensors[name].dtype)
        assert ours[name].shape == expected.shape
        if expected.numel() == 0:
            continue
        norm = max(1.0, expected.abs().max().item())
        error = (ours[name].double() - expected).abs().max().item()
        their_error = (theirs[name].double() - expected).abs().max().item()
        # Rounded at its end and, on its way, as often as a sum has chains, in the dtype of sums. GATv2's gradient to
        # att is the sum of both ends', whose terms are larger than what is left of them.
        ends = 4 if name == "att" else 1
        bound = 32 * ends * torch.finfo(sums(dtype)).eps * norm + torch.finfo(dtype).eps * norm
        assert error <= max(2 * their_error, bound), (str(sample), dtype, name, error)


@by_sample
@pytest.mark.parametrize("name", ODD)
def test_match_the_reference(sample: Sample, name: str) -> None:
    for dtype in DTYPES:
        check_all(sample, ODD[name], sample.tensors(ODD[name], dtype))


@settings(
    derandomize=True, max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(edges(), st.sampled_from(SAMPLES), st.sampled_from(DTYPES), st.integers(0, 40))
def test_match_the_reference_anywhere(e: Edges, sample: Sample, dtype: torch.dtype, channels: int) -> None:
    check_all(sample, e, sample.tensors(e, dtype, channels))


@by_sample
def test_long_rows(sample: Sample) -> None:
    """More edges than one chunk of a row."""
    e = power_law(300, 900, 400)
    check_all(sample, e, sample.tensors(e, torch.float32, 20))


@pytest.mark.parametrize("masked", [range(70), range(30, 100), range(0, 100, 2), range(100)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_edges_of_score_minus_infinity_weigh_nothing(masked: range, dtype: torch.dtype) -> None:
    graph = Graph.from_edge_index(torch.stack([torch.arange(100), torch.zeros(100, dtype=torch.int64)]), (100, 1))
    x = torch.randn(100, 4, dtype=dtype, generator=torch.Generator().manual_seed(0))
    score = torch.linspace(-3, 3, 100, dtype=dtype)
    score[list(masked)] = float("-inf")
    out, alpha = ops.attend(graph, x, 1, src_score=score[:, None], negative_slope=1.0, return_alpha=True)
    expected = score.softmax(0) if len(masked) < 100 else torch.zeros_like(score)
    assert torch.allclose(alpha[:, 0], expected, rtol=1e-5)
    assert torch.allclose(out[0], expected @ x, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [1e4, 6e4])
@pytest.mark.parametrize("given_scores", [GAT, GATV2], ids=str)
def test_scores_of_any_size(dtype: torch.dtype, size: float, given_scores: tuple[str, ...]) -> None:
    e = power_law(100, 300, 200)
    sample = Sample("large", given_scores, options=LOOPS)
    tensors = sample.tensors(e, dtype)
    for name in ("src_score", "att"):
        if name in tensors:
            tensors[name] = tensors[name].sign() * size
    out = sample.run(e.graph(), tensors)
    assert out.isfinite().all()
    exact = sample.expect(e, {name: t.double() for name, t in tensors.items()})
    # A score's own rounding, size * eps, is alpha's relative error.
    bound = (size * 8 * torch.finfo(sums(dtype)).eps + torch.finfo(dtype).eps) * 4
    assert (out.double() - exact).abs().max() <= bound


@by_sample
@pytest.mark.parametrize("name", ["messy", "bipartite", "no_edges", "duplicates"])
def test_alpha_in_the_given_order(sample: Sample, name: str) -> None:
    e = ODD[name]
    tensors = leaves(sample.tensors(e, torch.float64))
    _, alpha = ops.attend(e.graph(), heads=sample.heads, **tensors, **sample.options, return_alpha=True)
    expected = reference.attend(e.index, e.num_dst, heads=sample.heads, **tensors, **sample.options)[1]
    assert torch.allclose(alpha, expected, rtol=1e-12)
    cotangent = torch.randn(alpha.shape, dtype=torch.float64)
    wanted = [t for name, t in tensors.items() if name not in ("bias", *(("x",) if "src_score" in tensors else ()))]
    if e.num_edges:
        found, exact = (torch.autograd.grad(t, wanted, cotangent) for t in (alpha, expected))
        for a, b in zip(found, exact, strict=True):
            assert torch.allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("channels", [1, 4, 8, 16, 32, 33, 64, 300])
@pytest.mark.parametrize("given_scores", [GAT, GATV2], ids=str)
def test_widths(channels: int, given_scores: tuple[str, ...]) -> None:
    sample = Sample("wide", (*given_scores, "bias"), heads=8, options=LOOPS)
    check_all(sample, MESSY, sample.tensors(MESSY, torch.float32, channels))


@by_sample
def test_layouts(sample: Sample) -> None:
    tensors = sample.tensors(MESSY, torch.float32)
    expected = sample.run(MESSY.graph(), tensors)
    for name in tensors:
        if tensors[name].dim() == 2:
            for layout in layouts(tensors[name]).values():
                assert torch.equal(sample.run(MESSY.graph(), {**tensors, name: layout}), expected)


def test_inference_keeps_no_alpha() -> None:
    tensors = SAMPLES[1].tensors(MESSY, torch.float32)
    graph = MESSY.graph()
    _, alpha = frontgi.attend(
        graph.rowptr, graph.col, tensors["x"], tensors["src_score"], tensors["dst_score"], *(None,) * 8, 20, 3, 0.2,
        True, False, True,
    )  # fmt: skip
    assert alpha.numel() == 0


@by_sample
def test_gradcheck(sample: Sample) -> None:
    small = Edges(torch.tensor([[0, 1, 1, 2, 0, 3, 3, 0, 1], [1, 1, 2, 0, 1, 0, 2, 2, 0]]), 5, 5)
    graph, tensors = small.graph(), leaves(sample.tensors(small, torch.float64, 2, seed=3))

    def run(*values: Tensor) -> Any:
        named = dict(zip(tensors, values, strict=True))
        return ops.attend(graph, heads=sample.heads, **named, **sample.options, return_alpha=True)

    assert torch.autograd.gradcheck(run, tuple(tensors.values()))


def test_no_second_gradient() -> None:
    sample = SAMPLES[1]
    tensors = leaves(sample.tensors(MESSY, torch.float64))
    (grad,) = torch.autograd.grad(sample.run(MESSY.graph(), tensors).sum(), tensors["x"], create_graph=True)
    with pytest.raises(NotImplementedError, match="cannot be differentiated twice"):
        grad.sum().backward()


def bare_arguments(sample: Sample, e: Edges, dtype: torch.dtype, transposed: bool, with_alpha: bool) -> tuple[Any, ...]:
    graph = e.graph()
    tensors = leaves(sample.tensors(e, dtype, 2))
    names = ("src_score", "dst_score", "edge_score", "loop_score", "x_dst", "att", "bias")
    terms = [tensors.get(name) for name in names]
    back = graph.transposed() if transposed else (None, None, None)
    loops = sample.options.get("self_loops", False)
    return (
        graph.rowptr,
        graph.col,
        tensors["x"],
        *terms,
        *back,
        e.num_src,
        sample.heads,
        0.2,
        loops,
        with_alpha,
        False,
    )


@by_sample
@pytest.mark.parametrize("with_alpha", [False, True])
def test_opcheck(sample: Sample, with_alpha: bool) -> None:
    check(frontgi.attend, *bare_arguments(sample, MESSY, torch.float32, False, with_alpha))
    check(frontgi.attend, *bare_arguments(sample, ODD["bipartite"], torch.bfloat16, True, with_alpha))


@by_sample
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_opcheck_of_the_gradients(sample: Sample, dtype: torch.dtype) -> None:
    graph = MESSY.graph()
    arguments = bare_arguments(sample, MESSY, dtype, False, True)
    rowptr, col, x, *scores, att, _ = (None if t is None else t.detach() for t in arguments[:10])
    heads, slope, loops = arguments[14:17]
    _, alpha = frontgi.attend(*(t.detach() if isinstance(t, Tensor) else t for t in arguments))
    grad = torch.randn(x.shape).to(dtype)
    rows = (rowptr, col, x, *scores, alpha, grad, None, heads, slope, loops, False)
    check(frontgi.attend_grad_rows, *rows)
    grad_score = frontgi.attend_grad_rows(*rows)[0]
    own = (None, None) if att is None else (x, scores[-1])
    turned = transpose(rowptr, col, graph.num_src_nodes)
    check(frontgi.attend_grad_columns, *turned, *own, alpha, grad_score, grad, heads, slope, loops, False)


@by_sample
def test_same_bits_for_any_threads(sample: Sample, set_threads: Callable[[int], None]) -> None:
    e = power_law(3000, 9000, 4000)
    graph, tensors = e.graph(), sample.tensors(e, torch.float32, 40)
    found = []
    for threads in (1, 2, 3, 7):
        set_threads(threads)
        given_to = leaves(tensors)
        out = sample.run(graph, given_to)
        found.append([out, *torch.autograd.grad(out.square().sum(), list(given_to.values()))])
    for other in found[1:]:
        assert all(map(torch.equal, other, found[0]))


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 2}, "multiple of 2 columns"),
        ({"src_score": torch.zeros(19, 3)}, r"'src_score' must be \[20, 3\]"),
        ({"dst_score": torch.zeros(20, 2)}, r"'dst_score' must be \[20, 3\]"),
        ({"edge_score": torch.zeros(4, 3)}, "'edge_score' must be"),
        ({"src_score": None}, "either 'src_score' or 'x_dst'"),
        ({"src_score": None, "dst_score": None, "x_dst": torch.zeros(20, 21)}, "'att' and 'x_dst' go together"),
        ({"bias": torch.zeros(20)}, "'bias' must have 21 elements"),
        ({"x": torch.zeros(20, 21, dtype=torch.int64)}, "'x' must be float32"),
        ({"x": torch.zeros(20)}, "'x' must be 2-D"),
    ],
    ids=str,
)
def test_errors(change: dict[str, Any], message: str) -> None:
    given_to = {"x": torch.zeros(20, 21), "heads": 3, "src_score": torch.zeros(20, 3), "dst_score": torch.zeros(20, 3)}
    with pytest.raises(ValueError, match=f"attend: .*{message}"):
        ops.attend(MESSY.graph(), **{**given_to, **change})


def test_not_a_graph() -> None:
    with pytest.raises(TypeError, match="attend: 'graph' must be a Graph"):
        ops.attend(MESSY.index, torch.zeros(20, 3), src_score=torch.zeros(20, 1))  # type: ignore[arg-type]


def test_positions_of_raw_tensors_are_checked() -> None:
    values = torch.zeros(1, 1)
    with pytest.raises(IndexError):
        frontgi.attend_grad_columns(
            torch.tensor([0, 1]), torch.tensor([0]), torch.tensor([7]), None, None, values, values, values, 1, 0.2,
            False, False,
        )  # fmt: skip
