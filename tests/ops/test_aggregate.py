# SPDX-License-Identifier: MIT
"""``frontgi::aggregate``: values, dtypes, layouts, sizes and bad input."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from frontgi_pyg import Graph, ops

from ..graphs import MESSY, ODD, Edges, edges, power_law
from .samples import DTYPES, HALVES, Sample, check_forward, layouts, samples

pytestmark = pytest.mark.usefixtures("one_thread")

AGGREGATES = samples("aggregate")
by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


# Values -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", AGGREGATES, ids=str)
@pytest.mark.parametrize("name", ODD)
def test_matches_the_reference(sample: Sample, name: str) -> None:
    for dtype in DTYPES:
        if sample.suits(ODD[name]):
            check_forward(sample, ODD[name], sample.tensors(ODD[name], dtype))


def test_a_bipartite_graph_has_no_features_of_its_own() -> None:
    with pytest.raises(ValueError, match=r"aggregate: the self term must be \[3, 2\] \(got float32 \[7, 2\]\)"):
        ops.aggregate(ODD["bipartite"].graph(), torch.ones(7, 2), self_scale=torch.ones(3))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges(), st.sampled_from(AGGREGATES), st.sampled_from(DTYPES), st.integers(0, 70), st.integers(0, 99))
def test_matches_the_reference_anywhere(e: Edges, sample: Sample, dtype: torch.dtype, width: int, seed: int) -> None:
    if sample.suits(e):
        check_forward(sample, e, sample.tensors(e, dtype, width, seed=seed))


@by_dtype
@pytest.mark.parametrize("width", [0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100, 127, 128, 129, 255, 257, 300])
def test_every_width(dtype: torch.dtype, width: int) -> None:
    for sample in AGGREGATES:
        if sample.name in ("sum", "max-weighted", "everything"):
            check_forward(sample, MESSY, sample.tensors(MESSY, dtype, width))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_half_types_accumulate_in_float32(dtype: torch.dtype) -> None:
    count = 4096
    graph = Graph.from_edge_index(torch.stack([torch.arange(count), torch.zeros(count, dtype=torch.long)]), count)
    x = torch.ones(count, 3, dtype=dtype, requires_grad=True)
    assert ops.aggregate(graph, x)[0].tolist() == [4096.0] * 3
    assert ops.aggregate(graph, x, edge_weight=torch.ones(count, dtype=dtype))[0].tolist() == [4096.0] * 3
    assert ops.aggregate(graph, x, "mean")[0].tolist() == [1.0] * 3
    out = ops.aggregate(graph.t(), x)
    out.sum().backward()
    assert x.grad is not None
    assert x.grad[0].tolist() == [4096.0] * 3  # node 0 is read by all
    assert x.grad[1:].eq(0).all()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("weight", [1.0, 1 / 3, 1e-3, 300.0, 2e4, 3e-8])
def test_half_types_round_as_torch_does(weight: float, dtype: torch.dtype) -> None:
    """Every value there is; rounded, beyond the largest, below the smallest, in whole vectors and in tails."""
    x = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype).view(-1, 64)
    loops = torch.arange(x.size(0))
    graph = Graph.from_edge_index(torch.stack([loops, loops]), x.size(0), torch.full((x.size(0),), weight))
    expected = (x.float() * torch.tensor(weight)).to(dtype)
    for width in (64, 61):
        out = ops.aggregate(graph, x[:, :width])
        assert torch.equal(out.isnan(), expected[:, :width].isnan())
        assert torch.equal(out.nan_to_num(7), expected[:, :width].nan_to_num(7))


@pytest.mark.parametrize("reduce", ["min", "max"])
@by_dtype
def test_rows_without_edges_are_zero(reduce: str, dtype: torch.dtype) -> None:
    x = torch.full((5, 20), -3.0 if reduce == "max" else 3.0, dtype=dtype)
    out = ops.aggregate(ODD["isolated"].graph(), x, reduce)
    assert out[[1, 2, 3]].eq(0).all()
    assert out[[0, 4]].eq(x[0, 0]).all()


def test_mean_of_fewer_edges_than_rows_is_finite() -> None:
    generator = torch.Generator().manual_seed(0)
    e = Edges(torch.randint(2000, (2, 400), generator=generator), 2000, 2000)
    out = ops.aggregate(e.graph(), torch.randn(2000, 8, generator=generator), "mean")
    assert out.isfinite().all()
    without = torch.ones(2000, dtype=torch.bool)
    without[e.index[1]] = False
    assert out[without].eq(0).all()
    assert out[~without].abs().sum(1).gt(0).all()


@pytest.mark.parametrize("reduce", ["sum", "mean", "min", "max"])
@by_dtype
def test_nan_and_infinity_come_through(reduce: str, dtype: torch.dtype) -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2, 1, 2], [3, 3, 3, 4, 5]]), 6)
    x = torch.ones(6, 21, dtype=dtype)
    x[0, 3], x[2, 5], x[2, 20] = float("nan"), float("inf"), -float("inf")
    out = ops.aggregate(graph, x, reduce)
    assert out[3, 3].isnan()
    assert out[4].eq(1).all()
    assert out[5].isfinite().sum() == 19
    assert out.isnan().sum() == 1
    expected = {"min": (1.0, -float("inf")), "max": (float("inf"), 1.0)}
    infinite = (float("inf"), -float("inf"))
    assert (out[3, 5].item(), out[3, 20].item()) == expected.get(reduce, infinite)


def test_relu_keeps_nan() -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [0, 1]]), 2)
    x = torch.tensor([[float("nan")], [-1.0]])
    out = ops.aggregate(graph, x, activation="relu")
    assert out[0].isnan()
    assert out[1] == 0


# Edge weights -------------------------------------------------------------------------------------


def test_edge_weights_are_in_the_given_order() -> None:
    graph = Graph.from_edge_index(torch.tensor([[2, 0, 1], [0, 0, 1]]), 3)
    assert graph.col.tolist() == [0, 2, 1]
    out = ops.aggregate(graph, torch.eye(3), edge_weight=torch.tensor([10.0, 20.0, 30.0]))
    assert out.tolist() == [[20, 0, 10], [0, 30, 0], [0, 0, 0]]


def test_a_graph_brings_its_own_weights() -> None:
    weight = torch.rand(MESSY.num_edges)
    x = torch.randn(20, 6)
    own = ops.aggregate(MESSY.graph(weight), x)
    assert torch.equal(own, ops.aggregate(MESSY.graph(), x, edge_weight=weight))
    other = torch.rand(MESSY.num_edges)
    given = ops.aggregate(MESSY.graph(weight), x, edge_weight=other)
    assert torch.equal(given, ops.aggregate(MESSY.graph(), x, edge_weight=other))
    assert not torch.equal(given, own)


def test_edge_weights_changed_in_place_are_read_anew() -> None:
    graph, x, weight = MESSY.graph(), torch.randn(20, 6), torch.rand(MESSY.num_edges)
    before = ops.aggregate(graph, x, edge_weight=weight)
    weight.mul_(2)
    assert torch.equal(ops.aggregate(graph, x, edge_weight=weight), before * 2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64], ids=str)
def test_edge_weights_of_another_dtype_are_converted(dtype: torch.dtype) -> None:
    weight = torch.arange(MESSY.num_edges) % 7
    x = torch.randn(20, 6)
    expected = ops.aggregate(MESSY.graph(), x, edge_weight=weight.float())
    assert torch.equal(ops.aggregate(MESSY.graph(), x, edge_weight=weight.to(dtype)), expected)


# Layouts and sizes --------------------------------------------------------------------------------


@by_dtype
def test_any_layout_gives_the_same_bits(dtype: torch.dtype) -> None:
    sample = next(s for s in AGGREGATES if s.name == "everything")
    tensors = sample.tensors(MESSY, dtype, width=37)
    expected = sample.run(MESSY.graph(), tensors)
    for name in ("x", "x_self"):
        for layout, view in layouts(tensors[name]).items():
            assert torch.equal(sample.run(MESSY.graph(), {**tensors, name: view}), expected), (name, layout)
    for name in ("edge_weight", "row_scale", "col_scale", "self_scale", "bias"):
        strided = tensors[name].repeat_interleave(3)[::3]
        assert torch.equal(sample.run(MESSY.graph(), {**tensors, name: strided}), expected), name


@by_dtype
def test_expanded_features(dtype: torch.dtype) -> None:
    graph = MESSY.graph()
    row = torch.randn(1, 37).to(dtype)
    for x in (row.expand(20, -1), row[:, :1].expand(20, 37), row[0, 0].expand(20, 37)):
        assert torch.equal(ops.aggregate(graph, x), ops.aggregate(graph, x.contiguous()))


def test_every_element_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3).isnan().all()  # fresh memory now holds NaN
        for e in ODD.values():
            for sample in AGGREGATES:
                if sample.suits(e):
                    assert not sample.run(e.graph(), sample.tensors(e, torch.float32, width=37)).isnan().any()
    finally:
        torch.use_deterministic_algorithms(False)


def test_outputs_that_are_streamed() -> None:
    """Too large to stay in a cache; rows aligned for streaming stores and not."""
    e = power_law(17001, 40000, 3000)
    for sample in AGGREGATES:
        if sample.name in ("sum", "normalised"):
            width = 272 if sample.name == "sum" else 263
            check_forward(sample, e, sample.tensors(e, torch.float32, width))


def test_64_bit_columns() -> None:
    graph = MESSY.graph()
    wide = Graph(graph.rowptr, graph.col.long(), None, graph.perm)
    for sample in AGGREGATES:
        for dtype in DTYPES:
            tensors = sample.tensors(MESSY, dtype)
            assert torch.equal(sample.run(wide, tensors), sample.run(graph, tensors))


@pytest.mark.parametrize("reduce", ["sum", "mean", "min", "max"])
def test_features_beyond_2_to_the_31_elements(reduce: str, far_rows: Tensor) -> None:
    near = far_rows.clone()
    graph = Graph.from_edge_index(torch.tensor([[0, 7, 8, 8, 1], [0, 0, 0, 1, 1]]), (9, 2))
    out = ops.aggregate(graph, far_rows, reduce)
    assert torch.equal(out, ops.aggregate(graph, near, reduce))
    assert out.abs().sum(1).gt(0).all()
    assert torch.equal(ops.aggregate(graph.t(), torch.zeros(2, 48), x_self=far_rows), near)


def test_more_than_2_to_the_31_edge_features() -> None:
    num_edges, width = (1 << 19) + 1, 4096
    assert num_edges * width > 1 << 31
    source = torch.arange(num_edges) % 4
    graph = Graph.from_edge_index(torch.stack([source, torch.ones_like(source)]), (4, 2))
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])[:, None].expand(4, width)
    out = ops.aggregate(graph, x)
    assert out[0].eq(0).all()
    assert out[1].eq(float((source + 1).sum())).all()


# Transforms and modes -----------------------------------------------------------------------------


def test_vmap() -> None:
    graph = MESSY.graph()
    x, weight = torch.randn(3, 20, 5), torch.rand(3, MESSY.num_edges)
    out = torch.vmap(lambda x, w: ops.aggregate(graph, x, edge_weight=w))(x, weight)
    expected = torch.stack([ops.aggregate(graph, x[i], edge_weight=weight[i]) for i in range(3)])
    assert torch.equal(out, expected)
    out = torch.vmap(lambda x: ops.aggregate(graph, x, "max"))(x)
    assert torch.equal(out, torch.stack([ops.aggregate(graph, x[i], "max") for i in range(3)]))


def test_inference_mode() -> None:
    graph, x = MESSY.graph(), torch.randn(20, 5, requires_grad=True)
    expected = ops.aggregate(graph, x)
    with torch.inference_mode():
        out = ops.aggregate(graph, x)
    assert torch.equal(out, expected)
    assert out.is_inference()


def test_autocast_leaves_aggregation_alone() -> None:
    graph, x = MESSY.graph(), torch.randn(20, 5)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(ops.aggregate(graph, x), ops.aggregate(graph, x.clone()))
        assert ops.aggregate(graph, x).dtype == torch.float32


# Bad input ----------------------------------------------------------------------------------------

X = torch.ones(20, 4)


@pytest.mark.parametrize(
    ("error", "message", "changed"),
    [
        (ValueError, r"'x' must be 2-D \(got float32 \[20\]\)", {"x": torch.ones(20)}),
        (ValueError, r"'x' must be 2-D \(got float32 \[1, 20, 4\]\)", {"x": torch.ones(1, 20, 4)}),
        (ValueError, r"'x' must have one row for each of the 20 sources \(got float32 \[19, 4\]\)", {"x": X[1:]}),
        (ValueError, r"'x' must be float32, .* \(got int64 \[20, 4\]\)", {"x": X.long()}),
        (ValueError, r"'x' must be float32, .* \(got .*\)", {"x": X.to(torch.complex64)}),
        (ValueError, r"'x' must be on the CPU \(got meta\)", {"x": X.to("meta")}),
        (ValueError, r"'x' must be dense \(got torch.sparse_coo\)", {"x": X.to_sparse()}),
        (TypeError, r"'x' must be a tensor \(got list\)", {"x": X.tolist()}),
        (TypeError, r"'graph' must be a Graph.* \(got a tensor \[2, .*\]\)", {"graph": MESSY.index}),
        (ValueError, r"'reduce' must be .* \(got 'median'\)", {"reduce": "median"}),
        (ValueError, r"'activation' must be .* \(got 'tanh'\)", {"activation": "tanh"}),
        (ValueError, r"'edge_weight' must be \[\d+\] \(got \[3\]\)", {"edge_weight": torch.ones(3)}),
        (ValueError, r"'edge_weight' must be", {"edge_weight": torch.ones(MESSY.num_edges, 1)}),
        (ValueError, r"'edge_weight' must be on the CPU", {"edge_weight": torch.ones(MESSY.num_edges, device="meta")}),
        (ValueError, r"'row_scale' must have 20 elements \(got float32 \[1\]\)", {"row_scale": torch.ones(1)}),
        (ValueError, r"'col_scale' must be 1-D", {"col_scale": torch.ones(20, 1)}),
        (ValueError, r"'self_scale' must have 20 elements", {"self_scale": torch.ones(2)}),
        (ValueError, r"'self_scale' must be 1-D", {"self_scale": torch.ones(())}),
        (ValueError, r"the self term must be \[20, 4\] \(got float32 \[20, 5\]\)", {"x_self": torch.ones(20, 5)}),
        (ValueError, r"'x_self' must have the dtype of 'x'", {"x_self": X.double()}),
        (ValueError, r"'bias' must have 4 elements", {"bias": torch.ones(5)}),
        (TypeError, r"'bias' must be a tensor \(got float\)", {"bias": 1.0}),
        (ValueError, r"no gradient reaches 'row_scale'", {"row_scale": torch.ones(20, requires_grad=True)}),
        (ValueError, r"'skip_loops' goes with reduce='sum'", {"skip_loops": True, "reduce": "mean"}),
        (ValueError, r"'skip_loops' goes with reduce='sum'", {"skip_loops": True, "reduce": "max"}),
    ],
)
def test_bad_input(error: type[Exception], message: str, changed: dict[str, Any]) -> None:
    arguments = {"graph": MESSY.graph(), "x": X, **changed}
    with pytest.raises(error, match=f"^aggregate: {message}"):
        ops.aggregate(**arguments)


def raw(**changed: Any) -> Tensor:
    """The bare op on a graph that nobody has checked."""
    arguments: dict[str, Any] = {
        "rowptr": torch.tensor([0, 1, 3, 3]), "col": torch.tensor([2, 0, 1]), "x": torch.ones(3, 2),
        "edge_weight": None, "row_scale": None, "col_scale": None, "self_scale": None, "x_self": None, "bias": None,
        "rowptr_t": None, "col_t": None, "perm_t": None, "num_cols": 3, "reduce": "sum", "skip_loops": False,
        "relu": False, "trusted": False, "schedule": [],
    }  # fmt: skip
    return torch.ops.frontgi.aggregate(**{**arguments, **changed})


MALFORMED = [
    (ValueError, r"'rowptr' must be int64 \(got int32 \[4\]\)", {"rowptr": torch.tensor([0, 1, 3, 3]).int()}),
    (ValueError, r"'rowptr' must be 1-D", {"rowptr": torch.tensor([[0, 1, 3, 3]])}),
    (ValueError, r"'rowptr' must have at least one element", {"rowptr": torch.tensor([], dtype=torch.long)}),
    (ValueError, r"'rowptr' must start at 0 \(got 1\)", {"rowptr": torch.tensor([1, 1, 3, 3])}),
    (ValueError, r"'rowptr' must start at 0 \(got -1\)", {"rowptr": torch.tensor([-1, 1, 3, 3])}),
    (ValueError, r"'rowptr' must never fall \(got 9 then 3 at position 2\)", {"rowptr": torch.tensor([0, 9, 3, 3])}),
    (ValueError, r"'rowptr' must never fall", {"rowptr": torch.tensor([0, -(1 << 62), 1 << 62, 3])}),
    (ValueError, r"'rowptr' must end at the number of edges, 3 \(got 2\)", {"rowptr": torch.tensor([0, 1, 2, 2])}),
    (ValueError, r"'rowptr' must end at the number of edges, 3 \(got 4\)", {"rowptr": torch.tensor([0, 1, 3, 4])}),
    (ValueError, r"'col' must be int32 or int64 \(got float32 \[3\]\)", {"col": torch.ones(3)}),
    (ValueError, r"'col' must be 1-D", {"col": torch.ones(3, 1).long()}),
    (IndexError, r"'col' must be in \[0, 3\) \(got 3 at position 1\)", {"col": torch.tensor([2, 3, 1])}),
    (IndexError, r"'col' must be in \[0, 3\) \(got -1 at position 0\)", {"col": torch.tensor([-1, 0, 1])}),
    (IndexError, r"'col' must be in \[0, 3\) \(got -1 at position 2\)", {"col": torch.tensor([1, 0, -1]).int()}),
    (IndexError, r"'col' must be in \[0, 3\)", {"col": torch.tensor([1, 0, 1 << 40])}),
    (ValueError, r"'num_cols' must not be negative \(got -1\)", {"num_cols": -1}),
]


@pytest.mark.parametrize(("error", "message", "changed"), MALFORMED)
def test_a_malformed_graph_is_refused(error: type[Exception], message: str, changed: dict[str, Any]) -> None:
    with pytest.raises(error, match=f"^aggregate: {message}"):
        raw(**changed)


def test_an_int32_column_cannot_name_every_one_of_more_columns() -> None:
    """Such a column's -1 would pass for 2^32 - 1."""
    many = 1 << 33
    with pytest.raises(ValueError, match=f"^aggregate: an int32 'col' cannot name every one of {many} columns"):
        raw(col=torch.tensor([-1, 0, 1]).int(), x=torch.ones(1, 2).expand(many, 2), num_cols=many)


@pytest.mark.parametrize(
    ("message", "changed"),
    [
        (
            r"aggregate: 'x' must have one row for each of the 2 sources",
            {"num_cols": 2, "col": torch.tensor([1, 0, 1])},
        ),
        (r"aggregate: 'edge_weight' must be float32 \(got float64 \[3\]\)", {"edge_weight": torch.ones(3).double()}),
        (r"aggregate: 'edge_weight' must have 3 elements", {"edge_weight": torch.ones(4)}),
        (r"aggregate: 'bias' must be float32", {"bias": torch.ones(2).double()}),
        (r"plan: a schedule is \[kind, workers, slice_width, block_columns\] \(got 2 numbers\)", {"schedule": [0, 0]}),
        (r"plan: a schedule's kind is 0, 1, 2 or 3 \(got 4\)", {"schedule": [4, 0, 0, 0]}),
        (r"plan: workers, slice_width and block_columns must not be negative", {"schedule": [1, -1, 0, 0]}),
        (r"plan: workers, slice_width and block_columns must not be negative", {"schedule": [2, 0, -1, 0]}),
        (r"plan: slice_width and block_columns are for the mixed schedule alone", {"schedule": [1, 0, 8, 0]}),
        (r"plan: the serial schedule has one worker \(got 2\)", {"schedule": [0, 2, 0, 0]}),
        (r"plan: there may be at most 65536 workers", {"schedule": [1, 1 << 62, 0, 0]}),
    ],
)
def test_the_bare_op_checks_its_arguments(message: str, changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        raw(**changed)


def test_the_bare_op_on_a_sound_graph() -> None:
    assert raw().tolist() == [[1, 1], [2, 2], [0, 0]]
    assert raw(col=torch.tensor([2, 0, 1]).int()).tolist() == [[1, 1], [2, 2], [0, 0]]
    spread = torch.tensor([0, -5, 1, -5, 3, -5, 3])[::2]
    assert raw(rowptr=spread).tolist() == [[1, 1], [2, 2], [0, 0]]
