# SPDX-License-Identifier: MIT
"""``torch.library.opcheck`` of every op: schema, fake kernel, autograd registration, and all of it compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.library import opcheck

from ..graphs import MESSY, ODD, Edges
from .samples import DTYPES, SAMPLES, Sample, differentiated, sums

pytestmark = pytest.mark.usefixtures("one_thread")

frontgi = torch.ops.frontgi
AGGREGATED = ("edge_weight", "row_scale", "col_scale", "self_scale", "x_self")
by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def check(op: Any, *arguments: Any) -> None:
    """Runs all of opcheck's tests, and the op's fake kernel against the op's own result, strides too."""
    assert set(opcheck(op.default, arguments).values()) == {"SUCCESS"}
    found, made = op(*arguments), []
    with torch._subclasses.FakeTensorMode() as mode:
        fakes = [mode.from_tensor(a) if isinstance(a, Tensor) else a for a in arguments]
        made = op(*fakes)
    for real, fake in zip(as_tuple(found), as_tuple(made), strict=True):
        assert (real.shape, real.dtype, real.stride()) == (fake.shape, fake.dtype, fake.stride())


def as_tuple(result: Any) -> tuple[Tensor, ...]:
    return () if result is None else result if isinstance(result, tuple) else (result,)


def bare_arguments(sample: Sample, e: Edges, dtype: torch.dtype, transposed: bool) -> tuple[Any, ...]:
    """The sample as the bare op takes it."""
    tensors = differentiated(sample.tensors(e, dtype, 6, 5))
    relu = sample.relu
    if sample.op == "linear":
        return tensors["x"], tensors["weight"], tensors.get("bias"), relu
    graph = e.graph()
    weight = tensors.get("edge_weight")
    tensors["edge_weight"] = None if weight is None else weight.detach()[graph.perm].requires_grad_()
    terms = [tensors.get(name) for name in AGGREGATED]
    back = graph.transposed() if transposed else (None, None, None)
    options = (e.num_src, sample.options.get("reduce", "sum"), sample.options.get("skip_loops", False), relu)
    if sample.op == "aggregate":
        head = (graph.rowptr, graph.col, tensors["x"], *terms, tensors.get("bias"))
        return (*head, *back, *options, False, [])
    root = (tensors.get("x_root"), tensors.get("root_weight"))
    head = (graph.rowptr, graph.col, tensors["x"], tensors["weight"], tensors.get("bias"), *terms, *root)
    return (*head, *back, *options, sample.options.get("multiply_first") or False, False, [])


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_samples(sample: Sample) -> None:
    check(getattr(frontgi, sample.op), *bare_arguments(sample, MESSY, torch.float32, transposed=False))


@by_dtype
@pytest.mark.parametrize("name", ["aggregate-normalised", "linear-bias-relu", "conv-sage-True"])
def test_dtypes(name: str, dtype: torch.dtype) -> None:
    sample = next(s for s in SAMPLES if str(s) == name)
    check(getattr(frontgi, sample.op), *bare_arguments(sample, MESSY, dtype, transposed=True))


@pytest.mark.parametrize("name", ["no_edges", "bipartite", "hub"])
def test_graphs(name: str) -> None:
    for sample in SAMPLES:
        if str(sample) in ("aggregate-mean-weighted", "conv-max", "conv-sage-False"):
            check(getattr(frontgi, sample.op), *bare_arguments(sample, ODD[name], torch.float32, transposed=True))


@by_dtype
def test_the_ops_of_gradients(dtype: torch.dtype) -> None:
    graph = MESSY.graph()
    a, b = (torch.randn(20, 5).to(dtype).requires_grad_() for _ in range(2))
    scale = torch.rand(20, dtype=sums(dtype))
    check(frontgi.weight_grad, a, b[:, :3])
    check(frontgi.edge_dot, graph.rowptr, graph.col, a, b, None, None, False)
    check(frontgi.edge_dot, graph.rowptr, graph.col, a, b, scale, scale, True)
    if dtype == sums(dtype):
        weight = torch.rand(MESSY.num_edges, dtype=dtype)
        x, grad = a.detach(), b.detach()
        check(frontgi.column_sum, a)
        check(frontgi.extremum_grad, graph.rowptr, graph.col, x, None, x, grad, False)
        check(frontgi.extremum_grad, graph.rowptr, graph.col, x, weight, x, grad, True)


@pytest.mark.parametrize("name", ["empty", "no_edges", "bipartite", "messy"])
def test_conversions(name: str) -> None:
    e = ODD[name]
    source, target = e.index
    check(frontgi.coo_to_csr, target, source, e.num_dst, e.num_src)
    graph = e.graph()
    check(frontgi.check_csr, graph.rowptr, graph.col, e.num_src)
    check(frontgi.check_csr, graph.rowptr, graph.col.long(), e.num_src)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("loops", ["none", "add", "replace", "remain"])
def test_gcn_norm(loops: str, wide: bool) -> None:
    graph = MESSY.graph()
    weight = torch.rand(MESSY.num_edges, dtype=torch.float64 if wide else torch.float32)
    check(frontgi.gcn_norm, graph.rowptr, graph.col, None, 1.0, loops, wide, True)
    check(frontgi.gcn_norm, graph.rowptr, graph.col, weight, 2.0, loops, wide, False)
