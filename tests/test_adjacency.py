# SPDX-License-Identifier: MIT
"""What layers remember of the adjacencies they are given."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import Tensor
from torch_geometric import EdgeIndex

from frontgi_pyg import Graph, adjacency, ops
from frontgi_pyg.adjacency import graph_of, graph_of_sparse
from frontgi_pyg.memory import remember

from .graphs import MESSY, sparse_forms

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.*Sparse .* tensor support is in beta"),
]


def test_a_plain_edge_index_is_converted_once(conversions: list[str]) -> None:
    index = MESSY.index.clone()
    first = graph_of(index, 20, "source_to_target")
    assert graph_of(index, 20, "source_to_target") is first
    assert conversions == ["from_edge_index"]
    assert graph_of(index, 21, "source_to_target").num_dst_nodes == 21
    assert graph_of(index, 20, "target_to_source") is not first
    assert graph_of(index, (20, 20), "source_to_target") is not first
    assert graph_of(index, 20, "source_to_target") is first
    assert conversions == ["from_edge_index"] * 4


def test_an_edge_index_written_to_is_converted_again(conversions: list[str]) -> None:
    index = torch.tensor([[0, 1], [1, 2]])
    assert graph_of(index, 3, "source_to_target").rowptr.tolist() == [0, 0, 1, 2]
    index[1, 0] = 0
    assert graph_of(index, 3, "source_to_target").rowptr.tolist() == [0, 1, 1, 2]
    index.copy_(torch.tensor([[0, 0], [0, 0]]))
    assert graph_of(index, 3, "source_to_target").rowptr.tolist() == [0, 2, 2, 2]
    index.t()[0, 1] = 2  # through a view
    assert graph_of(index, 3, "source_to_target").rowptr.tolist() == [0, 1, 1, 2]
    assert conversions == ["from_edge_index"] * 4


def test_an_edge_index_of_pyg_written_to_is_converted_again(conversions: list[str]) -> None:
    plain = torch.tensor([[0, 1], [1, 2]])
    index = EdgeIndex(plain)
    assert graph_of(index, 3, "source_to_target").rowptr.tolist() == [0, 0, 1, 2]
    assert graph_of(index, 3, "source_to_target") is graph_of(index, 3, "source_to_target")
    plain[1, 0] = 0
    assert graph_of(index, 3, "source_to_target").rowptr.tolist() == [0, 1, 1, 2]
    index[1, 0] = 2
    assert graph_of(index, 3, "source_to_target").rowptr.tolist() == [0, 0, 0, 2]
    assert conversions == ["from_edge_index"] * 3


def test_an_equal_edge_index_at_the_same_address_is_converted_anew(conversions: list[str]) -> None:
    index = torch.tensor([[0, 1], [1, 2]])
    first = graph_of(index, 3, "source_to_target")
    assert graph_of(index[:], 3, "source_to_target") is not first
    assert graph_of(index.clone(), 3, "source_to_target") is not first
    seen = set()
    for i in range(200):  # memory is used again at once; what was made of it before must not be
        index = torch.tensor([[i % 3], [(i + 1) % 3]])
        seen.add(index.data_ptr())
        assert graph_of(index, 3, "source_to_target").edge_index().tolist() == index.tolist()
        del index
    assert len(seen) < 200
    assert len(conversions) == 203


def test_memory_of_plain_tensors_is_weak() -> None:
    gc.collect()
    before = len(adjacency._graphs)
    index = torch.tensor([[0, 1], [1, 2]])
    made = weakref.ref(graph_of(index, 3, "source_to_target"))
    assert len(adjacency._graphs) == before + 1
    assert made() is not None
    del index
    gc.collect()
    assert made() is None
    assert len(adjacency._graphs) == before


@pytest.mark.parametrize(
    "form", ["uncoalesced COO", "COO", "CSR", "CSC", "SparseTensor", "SparseTensor without values"]
)
def test_memory_of_sparse_matrices_is_weak(form: str, conversions: list[str]) -> None:
    gc.collect()
    before = len(adjacency._graphs)
    adj_t = sparse_forms(MESSY, torch.rand(MESSY.num_edges))[form]
    first = graph_of_sparse(adj_t)
    count = len(conversions)
    again = graph_of_sparse(adj_t)
    assert len(conversions) == count
    assert again.rowptr is first.rowptr
    assert again._once is first._once
    made = weakref.ref(first.col)
    del adj_t, first, again
    gc.collect()
    assert made() is None
    assert len(adjacency._graphs) == before


@pytest.mark.parametrize("form", ["CSR", "CSC", "COO", "SparseTensor"])
def test_values_of_a_sparse_matrix_are_read_as_they_are_now(form: str) -> None:
    x = torch.randn(20, 3, dtype=torch.float64)
    adj_t = sparse_forms(MESSY, torch.rand(MESSY.num_edges, dtype=torch.float64))[form]
    before = ops.aggregate(graph_of_sparse(adj_t), x)
    (adj_t.storage.value() if form == "SparseTensor" else adj_t.values()).mul_(2)
    assert torch.allclose(ops.aggregate(graph_of_sparse(adj_t), x), 2 * before, rtol=1e-12)


def test_the_values_of_a_sparse_tensor_are_not_taken_for_anothers() -> None:
    """``set_value`` shares the structure."""
    x, weight = torch.randn(20, 3), torch.rand(MESSY.num_edges)
    one = sparse_forms(MESSY, weight)["SparseTensor"]
    first = graph_of_sparse(one)
    second = graph_of_sparse(one.set_value(torch.ones(MESSY.num_edges), layout="coo"))
    third = graph_of_sparse(one.set_value(None))
    assert first.rowptr is second.rowptr is third.rowptr
    assert third.edge_weight is None
    plain = ops.aggregate(MESSY.graph(), x)
    assert torch.equal(ops.aggregate(second, x), plain)
    assert torch.equal(ops.aggregate(third, x), plain)
    assert not torch.equal(ops.aggregate(first, x), plain)


def test_inference_tensors_are_not_remembered(conversions: list[str]) -> None:
    """They have no version counter: a change could not be seen."""
    with torch.inference_mode():
        index = torch.tensor([[0, 1], [1, 2]])
        first = graph_of(index, 3, "source_to_target")
        index[1, 0] = 0
        assert graph_of(index, 3, "source_to_target").rowptr.tolist() == [0, 1, 1, 2]
        weight = torch.rand(2)
        assert first.csr_weight(weight, torch.float64) is not first.csr_weight(weight, torch.float64)
    assert conversions == ["from_edge_index"] * 2


def test_what_is_remembered_in_inference_mode_can_be_trained_with() -> None:
    index = MESSY.index.clone()
    with torch.inference_mode():
        graph = graph_of(index, 20, "source_to_target")
        graph.transposed()
    assert graph_of(index, 20, "source_to_target") is graph
    x = torch.randn(20, 3, requires_grad=True)
    ops.aggregate(graph, x).sum().backward()
    assert x.grad is not None


def test_nothing_is_remembered_while_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    memory = torch.utils.weak.WeakIdKeyDictionary()
    assert remember(memory, torch.ones(1), "key", lambda: 5) == 5
    assert len(memory) == 0


def test_an_edge_index_is_converted_inside_a_compiled_function() -> None:
    @torch.compile(fullgraph=True, backend="aot_eager", dynamic=True)
    def aggregated(index: Tensor, x: Tensor) -> Tensor:
        return ops.aggregate(graph_of(index, x.size(0), "source_to_target"), x, "mean")

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    for num_nodes, num_edges in ((20, 100), (33, 90), (50, 7), (71, 300)):
        index = torch.randint(num_nodes, (2, num_edges), generator=torch.Generator().manual_seed(num_nodes))
        x = torch.randn(num_nodes, 6)
        expected = ops.aggregate(Graph.from_edge_index(index, num_nodes), x, "mean")
        assert torch.equal(aggregated(index, x), expected)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
