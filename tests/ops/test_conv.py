# SPDX-License-Identifier: MIT
"""``frontgi::conv``: its values are those of its two halves, bit for bit where the order is the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from frontgi_pyg import Graph, forced_schedule, ops
from frontgi_pyg.plan import order_for

from ..graphs import MESSY, ODD, Edges, edges, power_law
from .samples import DTYPES, HALVES, Sample, check_forward, layouts, samples
from .test_aggregate import MALFORMED

pytestmark = pytest.mark.usefixtures("one_thread")

CONVS = samples("conv")
by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
AGGREGATE_TERMS = ("edge_weight", "row_scale", "col_scale", "self_scale", "x_self")


# Values -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", CONVS, ids=str)
@pytest.mark.parametrize("name", ODD)
def test_matches_the_reference(sample: Sample, name: str) -> None:
    for dtype in DTYPES:
        if sample.suits(ODD[name]):
            check_forward(sample, ODD[name], sample.tensors(ODD[name], dtype))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edges(), st.sampled_from(CONVS), st.sampled_from(DTYPES), st.integers(0, 40), st.integers(0, 40), st.integers(0, 9)
)
def test_matches_the_reference_anywhere(
    e: Edges, sample: Sample, dtype: torch.dtype, width: int, out_width: int, seed: int
) -> None:
    if sample.suits(e):
        check_forward(sample, e, sample.tensors(e, dtype, width, out_width, seed))


@pytest.mark.parametrize("multiply_first", [False, True])
def test_tiles_of_many_rows(multiply_first: bool) -> None:
    """More rows than a tile holds, a hub among them, and an output that is streamed."""
    e = power_law(17001, 40000, 3000)
    for sample in CONVS:
        if sample.name == f"gcn-{multiply_first}":
            check_forward(sample, e, sample.tensors(e, torch.float32, 48, 272))


def halves_of(sample: Sample, graph: Graph, tensors: dict[str, Tensor]) -> Tensor:
    """Aggregates, then multiplies; a root term is a second block of columns of the same product."""
    terms = {name: tensors[name] for name in AGGREGATE_TERMS if name in tensors}
    options = {name: value for name, value in sample.options.items() if name in ("reduce", "skip_loops")}
    rows, weight = ops.aggregate(graph, tensors["x"], **terms, **options), tensors["weight"]
    if "x_root" in tensors:
        rows = torch.cat([rows, tensors["x_root"]], 1)
        weight = torch.cat([weight, tensors["root_weight"]], 1)
    return ops.linear(rows, weight, tensors.get("bias"), sample.options.get("activation"))


@by_dtype
@pytest.mark.parametrize("e", [MESSY, ODD["hub"], ODD["trailing_isolated"], power_law(400, 3000, 900)], ids=repr)
def test_has_the_bits_of_its_halves(e: Edges, dtype: torch.dtype) -> None:
    graph = e.graph()
    for sample in CONVS:
        if sample.options.get("multiply_first"):
            continue
        for width, out_width in ((19, 23), (64, 64), (130, 7)):
            tensors = sample.tensors(e, dtype, width, out_width)
            options = {**sample.options, "multiply_first": False}
            fused = ops.conv(graph, **tensors, **options)
            assert torch.equal(fused, halves_of(sample, graph, tensors)), (str(sample), width)


@by_dtype
@pytest.mark.parametrize("kind", ["serial", "hierarchical", "mixed"])
def test_has_the_bits_of_its_halves_in_every_schedule(kind: Any, dtype: torch.dtype) -> None:
    graph = MESSY.graph()
    for sample in CONVS:
        if sample.options.get("multiply_first"):
            continue
        for width, out_width in ((40, 50), (50, 40)):
            tensors = sample.tensors(MESSY, dtype, width, out_width)
            expected = halves_of(sample, graph, tensors)
            with forced_schedule(kind, slice_width=16 if kind == "mixed" else 0):
                fused = ops.conv(graph, **tensors, **{**sample.options, "multiply_first": False})
            assert torch.equal(fused, expected), (str(sample), width)


@by_dtype
def test_multiplying_first_has_the_bits_of_its_halves(dtype: torch.dtype) -> None:
    graph = MESSY.graph()
    x, weight, bias = torch.randn(20, 31).to(dtype), torch.randn(9, 31).to(dtype), torch.randn(9).to(dtype)
    fused = ops.conv(graph, x, weight, bias, "mean", multiply_first=True)
    assert torch.equal(fused, ops.aggregate(graph, ops.linear(x, weight), "mean", bias=bias))


@pytest.mark.parametrize(("width", "out_width"), [(8, 8), (8, 9), (9, 8), (17, 16), (1, 70), (70, 1)])
def test_the_default_order_gathers_narrower_rows(width: int, out_width: int) -> None:
    x, weight = torch.randn(20, width), torch.randn(out_width, width)
    orders = {first: ops.conv(MESSY.graph(), x, weight, multiply_first=first) for first in (False, True)}
    assert not torch.equal(orders[False], orders[True])
    expected = orders[order_for(width, out_width) == "multiply_first"]
    assert torch.equal(ops.conv(MESSY.graph(), x, weight), expected)
    assert (order_for(width, out_width) == "multiply_first") == (width in (17, 70))


def test_the_default_order_is_one_that_the_algebra_allows() -> None:
    """Each of these would be refused multiplied first, which its widths ask for."""
    x, weight = torch.randn(20, 19), torch.randn(3, 19)
    root = {"x_root": torch.randn(20, 5), "root_weight": torch.randn(3, 5)}
    for terms in ({"reduce": "max"}, {"x_self": x}, {"self_scale": torch.ones(20), **root}):
        with pytest.raises(ValueError, match=r"^conv: .*multiply_first"):
            ops.conv(MESSY.graph(), x, weight, multiply_first=True, **terms)
        expected = ops.conv(MESSY.graph(), x, weight, multiply_first=False, **terms)
        assert torch.equal(ops.conv(MESSY.graph(), x, weight, **terms), expected)


# Layouts, sizes, modes ----------------------------------------------------------------------------


@by_dtype
@pytest.mark.parametrize("multiply_first", [False, True])
def test_any_layout_gives_the_same_bits(multiply_first: bool, dtype: torch.dtype) -> None:
    sample = next(s for s in CONVS if s.name == f"sage-{multiply_first}")
    tensors = sample.tensors(MESSY, dtype, 37, 21)
    expected = sample.run(MESSY.graph(), tensors)
    for name in ("x", "weight", "x_root", "root_weight"):
        for layout, view in layouts(tensors[name]).items():
            assert torch.equal(sample.run(MESSY.graph(), {**tensors, name: view}), expected), (name, layout)


def test_every_element_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3).isnan().all()  # fresh memory now holds NaN
        for e in ODD.values():
            for sample in CONVS:
                if sample.suits(e):
                    assert not sample.run(e.graph(), sample.tensors(e, torch.float32, 37, 21)).isnan().any()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("multiply_first", [False, True])
def test_features_beyond_2_to_the_31_elements(multiply_first: bool, far_rows: Tensor) -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 7, 8, 8, 1], [0, 0, 0, 1, 1]]), (9, 9))
    weight = torch.randn(11, 48)
    options: dict[str, Any] = {"root_weight": torch.randn(11, 48), "multiply_first": multiply_first}
    near = far_rows.clone()
    out = ops.conv(graph, far_rows, weight, x_root=far_rows, **options)
    assert torch.equal(out, ops.conv(graph, near, weight, x_root=near, **options))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("multiply_first", [False, True])
def test_autocast(multiply_first: bool, dtype: torch.dtype) -> None:
    sample = next(s for s in CONVS if s.name == f"sage-{multiply_first}")
    tensors = sample.tensors(MESSY, torch.float32)
    expected = sample.run(MESSY.graph(), {name: t.to(dtype) for name, t in tensors.items()})
    with torch.autocast("cpu", dtype):
        out = sample.run(MESSY.graph(), tensors)
    assert out.dtype == dtype
    assert torch.equal(out, expected)


def test_vmap() -> None:
    graph, x, weight = MESSY.graph(), torch.randn(3, 20, 5), torch.randn(3, 4, 5)
    out = torch.vmap(lambda x, weight: ops.conv(graph, x, weight))(x, weight)
    assert torch.equal(out, torch.stack([ops.conv(graph, x[i], weight[i]) for i in range(3)]))


# Bad input ----------------------------------------------------------------------------------------

X, WEIGHT = torch.ones(20, 4), torch.ones(3, 4)


@pytest.mark.parametrize(
    ("error", "message", "changed"),
    [
        (ValueError, r"'x' must be 2-D \(got \[20\]\)", {"x": torch.ones(20)}),
        (ValueError, r"'x' must be 2-D \(got \[\]\)", {"x": torch.ones(())}),
        (ValueError, r"'x' must have one row for each of the 20 sources", {"x": X[1:]}),
        (ValueError, r"'x' must be float32, .* \(got int64 \[20, 4\]\)", {"x": X.long(), "weight": WEIGHT.long()}),
        (ValueError, r"'x' must be on the CPU \(got meta\)", {"x": X.to("meta")}),
        (ValueError, r"'x' must be dense", {"x": X.to_sparse()}),
        (TypeError, r"'graph' must be a Graph.* \(got NoneType\)", {"graph": None}),
        (TypeError, r"'weight' must be a tensor \(got list\)", {"weight": WEIGHT.tolist()}),
        (ValueError, r"'weight' must be 2-D", {"weight": torch.ones(4)}),
        (ValueError, r"'weight' must be \[out_width, 4\]", {"weight": torch.ones(3, 5)}),
        (ValueError, r"'weight' must have the dtype of 'x'", {"weight": WEIGHT.double()}),
        (ValueError, r"'bias' must have 3 elements", {"bias": torch.ones(4)}),
        (ValueError, r"'bias' must be float32", {"bias": torch.ones(3).double()}),
        (ValueError, r"'reduce' must be .* \(got 'std'\)", {"reduce": "std", "multiply_first": False}),
        (ValueError, r"'activation' must be", {"activation": "elu"}),
        (ValueError, r"'edge_weight' must be", {"edge_weight": torch.ones(1)}),
        (ValueError, r"'x_root' and 'root_weight' go together", {"x_root": X}),
        (ValueError, r"'x_root' and 'root_weight' go together", {"root_weight": WEIGHT}),
        (ValueError, r"'x_root' must have 20 rows \(got .*\)", {"x_root": X[1:], "root_weight": WEIGHT}),
        (ValueError, r"'x_root' must have the dtype", {"x_root": X.double(), "root_weight": WEIGHT.double()}),
        (ValueError, r"'root_weight' must have the dtype of 'x_root'", {"x_root": X, "root_weight": WEIGHT.double()}),
        (ValueError, r"'root_weight' must be \[out_width, 4\]", {"x_root": X, "root_weight": torch.ones(3, 9)}),
        (ValueError, r"'root_weight' must be \[3, 4\]", {"x_root": X, "root_weight": torch.ones(2, 4)}),
        (ValueError, r"no gradient reaches 'col_scale'", {"col_scale": torch.ones(20, requires_grad=True)}),
        (ValueError, r"multiply_first needs a linear reduction \(got 'max'\)", {"reduce": "max", "multiply_first": 1}),
        (ValueError, r"'skip_loops' goes with reduce='sum' alone", {"skip_loops": True, "reduce": "min"}),
    ],
)
def test_bad_input(error: type[Exception], message: str, changed: dict[str, Any]) -> None:
    with pytest.raises(error, match=f"^conv: {message}"):
        ops.conv(**{"graph": MESSY.graph(), "x": X, "weight": WEIGHT, **changed})


def raw(**changed: Any) -> Tensor:
    """The bare op on a graph that nobody has checked."""
    arguments: dict[str, Any] = {
        "rowptr": torch.tensor([0, 1, 3, 3]), "col": torch.tensor([2, 0, 1]), "x": torch.ones(3, 2),
        "weight": torch.ones(1, 2), "bias": None, "edge_weight": None, "row_scale": None, "col_scale": None,
        "self_scale": None, "x_self": None, "x_root": None, "root_weight": None, "rowptr_t": None, "col_t": None,
        "perm_t": None, "num_cols": 3, "reduce": "sum", "skip_loops": False, "relu": False, "multiply_first": False,
        "trusted": False, "schedule": [],
    }  # fmt: skip
    return torch.ops.frontgi.conv(**{**arguments, **changed})


@pytest.mark.parametrize("multiply_first", [False, True])
@pytest.mark.parametrize(("error", "message", "changed"), MALFORMED)
def test_a_malformed_graph_is_refused(
    error: type[Exception], message: str, changed: dict[str, Any], multiply_first: bool
) -> None:
    with pytest.raises(error, match=f"^conv: {message}"):
        raw(multiply_first=multiply_first, **changed)


def test_the_bare_op_on_a_sound_graph() -> None:
    assert raw().tolist() == [[2], [4], [0]]
    assert raw(multiply_first=True).tolist() == [[2], [4], [0]]
