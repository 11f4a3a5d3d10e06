# SPDX-License-Identifier: MIT
"""Faults that users of graph libraries have met, one by one: each with the right result, on our layers."""

import copy
import os
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

import frontgi_pyg.nn
from frontgi_pyg import Graph, accelerate

from .compare import (
    HOPS,
    MESSAGE_PASSING,
    Edges,
    Twins,
    adjacency,
    assert_near,
    assert_same_outcome,
    compare,
    default_twins,
    features,
    random_edges,
    twins,
    width_of,
)

layers = pytest.mark.parametrize("name", MESSAGE_PASSING)
quiet = pytest.mark.usefixtures("one_thread")


def identity_conv(name: str, width: int, **kwargs: Any) -> Any:
    """One of our layers that does nothing but aggregate."""
    if name == "GINConv":
        return frontgi_pyg.nn.GINConv(torch.nn.Identity(), eps=-1, **kwargs)
    if name == "SAGEConv":
        kwargs.setdefault("root_weight", False)
    layer = getattr(frontgi_pyg.nn, name)(width, width, bias=False, **kwargs)
    torch.nn.init.eye_(layer.lin_l.weight if name == "SAGEConv" else layer.lin.weight)
    return layer


# Results ------------------------------------------------------------------------------------------


@quiet
@layers
def test_01_average_degree_below_one(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    edges = Edges(torch.randint(0, 2000, (2, 400), generator=generator), 2000, 2000)
    found = compare(default_twins(name, 16, 8), features(2000, 16), edges, hops=2 if name == "SGConv" else 1)
    assert found["out"].isfinite().all()
    lonely = edges.index[1].bincount(minlength=2000) == 0
    out = identity_conv("SAGEConv", 16)(features(2000, 16), edges.index)
    assert lonely.sum() > 1600
    assert torch.equal(out[lonely], torch.zeros(int(lonely.sum()), 16))


@quiet
@pytest.mark.parametrize("aggr", ["sum", "mean", "min", "max"])
@pytest.mark.parametrize("shape", [(0, 0, 16), (5, 0, 16), (0, 5, 16), (5, 4, 0)], ids=str)
def test_01_nothing_at_all(aggr: str, shape: tuple[int, int, int]) -> None:
    num_src, num_dst, width = shape
    index = torch.empty(2, 0, dtype=torch.int64)
    x = (torch.randn(num_src, width), None)
    with torch.no_grad():
        out = frontgi_pyg.nn.GINConv(torch.nn.Identity(), aggr=aggr)(x, index, size=(num_src, num_dst))
    assert torch.equal(out, torch.zeros(num_dst, width))


@quiet
def test_02_no_edges() -> None:
    layer, x = default_twins("SAGEConv", 16, 8).ours, features(7, 16)
    out = layer(x, torch.empty(2, 0, dtype=torch.int64))
    assert_near("out", out, layer.lin_r(x) + layer.lin_l.bias)


@quiet
@layers
def test_02_no_nodes(name: str) -> None:
    out = default_twins(name, 16, 8).ours(torch.empty(0, 16), torch.empty(2, 0, dtype=torch.int64))
    assert out.shape == (0, width_of(name, 16, 8))


@quiet
@pytest.mark.parametrize("name", ["GCNConv", "SGConv"])
@pytest.mark.parametrize(
    ("kind", "loop"),
    [
        ("edge_index", 0.5),
        ("EdgeIndex", 0.5),
        ("SparseTensor", 1.0),
        ("csr", 1.5),
        ("coo", 1.5),
        ("Graph of edge_index", 0.5),
        ("Graph of SparseTensor", 1.0),
        ("Graph of csr", 1.5),
    ],
)
def test_03_existing_loop_of_weight_one_half(name: str, kind: str, loop: float) -> None:
    edges = Edges.of([(0, 0), (1, 0)], 2, [0.5, 2.0])
    compare(twins(name, 2, 2), features(2, 2), edges, kind=kind)
    _, ours, beside = adjacency(kind, edges, edges.weight)
    out = identity_conv(name, 2)(torch.eye(2), ours, *([] if beside is None else [beside]))
    degree = loop + 2  # of node 0; node 1 has its new loop alone
    expected = torch.tensor([[loop / degree, 2 / degree**0.5], [0, 1]])
    assert torch.allclose(out, expected)


@quiet
@pytest.mark.parametrize("name", ["GCNConv", "SGConv"])
def test_04_backwards_uses_the_row_degree(name: str) -> None:
    edges = Edges.of([(0, 1), (0, 2), (1, 2)], 3)
    compare(twins(name, 3, 3, flow="target_to_source"), features(3, 3), edges)
    out = identity_conv(name, 3, flow="target_to_source", add_self_loops=False)(torch.eye(3), edges.index)
    degree = torch.tensor([2.0, 1.0, float("inf")])  # edges leaving each node; none leave the last
    dense = torch.tensor([[0.0, 1.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    assert torch.allclose(out, dense / degree.sqrt().unsqueeze(0) / degree.sqrt().unsqueeze(1))


@quiet
@layers
@pytest.mark.parametrize("kind", ["SparseTensor", "csr", "coo"])
def test_04_a_sparse_adjacency_cannot_flow_backwards(name: str, kind: str) -> None:
    _, ours, _ = adjacency(kind, random_edges(60), None)
    with pytest.raises(ValueError, match="target_to_source"):
        default_twins(name, 16, 8, flow="target_to_source").ours(features(60, 16), ours)


@quiet
@pytest.mark.parametrize("kind", ["SparseTensor", "csr", "csc", "coo"])
def test_05_a_sparse_adjacency_is_the_transposed_one(kind: str) -> None:
    """The row is the target: node 1 hears node 0, and nobody hears node 1."""
    _, ours, _ = adjacency(kind, Edges.of([(0, 1)], 2), None)
    out = identity_conv("SAGEConv", 2)(torch.eye(2), ours)
    assert torch.equal(out, torch.tensor([[0.0, 0.0], [1.0, 0.0]]))


@quiet
@layers
def test_06_trailing_isolated_nodes(name: str) -> None:
    edges = Edges.of([(0, 1), (1, 2), (2, 0)], 4)
    found = compare(default_twins(name, 16, 8), features(4, 16), edges, hops=HOPS.get(name, 1))
    assert found["out"].shape == (4, width_of(name, 16, 8))


@quiet
@layers
@pytest.mark.parametrize("index", [-1, 60, 2**31, -(2**31)])
@pytest.mark.parametrize("row", [0, 1])
def test_07_index_out_of_range(name: str, index: int, row: int) -> None:
    edges = random_edges(60).index.clone()
    edges[row, -1] = index
    with pytest.raises(IndexError, match="60"):
        default_twins(name, 16, 8).ours(features(60, 16), edges)


@quiet
@pytest.mark.parametrize("aggr", ["max", "min"])
def test_08_rows_without_edges_are_zero(aggr: str) -> None:
    for sign in (-1, 1):
        x = sign * (features(60, 16).abs() + 1)
        with torch.no_grad():
            out = identity_conv("SAGEConv", 16, aggr=aggr)(x, random_edges(60).index)
        lonely = random_edges(60).index[1].bincount(minlength=60) == 0
        assert torch.equal(out[lonely], torch.zeros(int(lonely.sum()), 16))
        assert (out[~lonely] * sign > 0).all()


@quiet
@pytest.mark.parametrize("name", ["GCNConv", "SGConv"])
@pytest.mark.parametrize(
    ("dtype", "weight_dtype"),
    [(torch.float32, torch.int64), (torch.float32, torch.float64), (torch.float64, torch.float64)],
    ids=str,
)
def test_09_weights_of_another_dtype(name: str, dtype: torch.dtype, weight_dtype: torch.dtype) -> None:
    edges = random_edges(60, weighted=True)
    weight = (4 * edges.weight).to(weight_dtype)
    assert_same_outcome(twins(name, 16, 8).to(dtype), features(60, 16, dtype), edges.index, weight)


@quiet
def test_09_double_features_and_float_weights() -> None:
    """PyG normalises in float; we do in double, and stay as near to PyG as float allows."""
    edges, x = random_edges(60, weighted=True), features(60, 16, torch.float64)
    pair = twins("GCNConv", 16, 8).to(torch.float64)
    theirs, ours = (layer(x, edges.index, edges.weight) for layer in (pair.theirs, pair.ours))
    assert ours.dtype == theirs.dtype == torch.float64
    assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    compare(pair, x, Edges(edges.index, 60, 60, edges.weight.double()))


@quiet
def test_10_no_normalisation() -> None:
    compare(twins("GCNConv", 16, 8, normalize=False), features(60, 16), random_edges(60))
    with pytest.raises(ValueError, match="self-loops"):
        frontgi_pyg.nn.GCNConv(16, 8, add_self_loops=True, normalize=False)


@quiet
@pytest.mark.parametrize("name", ["GCNConv", "SGConv"])
@pytest.mark.parametrize("how", ["edge_index", "EdgeIndex", "SparseTensor", "Graph", "weights of the Graph"])
@pytest.mark.parametrize("loops", [True, False])
def test_11_gradients_reach_edge_weights(name: str, how: str, loops: bool) -> None:
    edges, x = random_edges(60, weighted=True), features(60, 16)
    pair = twins(name, 16, 8, add_self_loops=loops)
    found = []
    for layer, kind in ((pair.theirs, how), (pair.ours, how)):
        weight = edges.weight.clone().requires_grad_()
        beside: Tensor | None = weight
        given: Any = edges.index
        if kind in ("EdgeIndex", "SparseTensor"):
            given, _, beside = adjacency(kind, edges, weight)
        elif layer is pair.ours and kind == "Graph":
            given = Graph.from_edge_index(edges.index, 60)
        elif layer is pair.ours and kind == "weights of the Graph":
            given, beside = Graph.from_edge_index(edges.index, 60, weight), None
        layer(x, given, beside).square().sum().backward()
        assert weight.grad is not None
        found.append(weight.grad)
    assert torch.allclose(found[1], found[0], rtol=1e-4, atol=1e-5)


@quiet
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["SAGEConv", "GINConv", "GCNConv"])
def test_12_many_ones_in_half_precision(dtype: torch.dtype, name: str) -> None:
    """4096 neighbours of one: forward one row, backward one column."""
    number = 4096
    hub = torch.zeros(number, dtype=torch.int64)
    index = torch.stack([torch.arange(1, number + 1), hub])
    kwargs = {"normalize": False} if name == "GCNConv" else {"aggr": "sum"}
    layer = identity_conv(name, 8, **kwargs).to(dtype)
    x = torch.ones(number + 1, 8, dtype=dtype)
    out = layer(x, index)
    assert (out[0] == number).all()
    assert layer.path_taken == "native"

    x.requires_grad_()
    layer(x, index.flip(0)).sum().backward()
    assert (x.grad[0] == number).all()

    if name == "SAGEConv":
        mean = identity_conv(name, 8).to(dtype)
        assert (mean(x, index)[0] == 1).all()
        x.grad = None
        mean(x, index).sum().backward()
        assert (x.grad[1:] * number == 1).all()


@quiet
@layers
def test_15_any_strides(name: str) -> None:
    layer, index = default_twins(name, 32, 8).ours, random_edges(60).index
    wide = features(60, 64)
    for x in (wide[:, ::2], features(32, 60).t(), features(1, 1921)[0, 1:].view(60, 32), wide[:, 16:48]):
        assert torch.equal(layer(x, index), layer(x.contiguous(), index))
    swapped = torch.stack([index[1], index[0]]).flip(0)
    assert torch.equal(layer(wide[:, :32], index.t().contiguous().t()), layer(wide[:, :32], swapped))


@pytest.fixture
def nan_memory() -> Any:
    """Memory is NaN before anything is written to it."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


@layers
@pytest.mark.parametrize("widths", [(16, 8), (8, 16), (64, 64), (257, 129)])
def test_16_every_element_is_written(name: str, widths: tuple[int, int], nan_memory: None) -> None:
    layer, edges = default_twins(name, *widths).ours, random_edges(700)
    for given in (edges.index, Graph.from_edge_index(edges.index, 700)):
        x = features(700, widths[0]).requires_grad_()
        out = layer(x, given)
        out.square().sum().backward()
        assert out.isfinite().all()
        assert x.grad.isfinite().all()
        assert all(p.grad.isfinite().all() for p in layer.parameters())


# Behaviour ----------------------------------------------------------------------------------------


@layers
def test_18_no_tensor_of_all_messages(name: str) -> None:
    """Nothing that is allocated comes near ``[num_edges, width]``."""
    num_nodes, num_edges, width = 1000, 50_000, 64
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(0, num_nodes, (2, num_edges), generator=generator)
    pair = default_twins(name, width, width)
    largest = {}
    for who, layer in (("PyG", pair.theirs), ("ours", pair.ours)):
        with torch.no_grad(), torch.profiler.profile(profile_memory=True) as profile:
            layer(features(num_nodes, width), index)
        largest[who] = max(event.self_cpu_memory_usage for event in profile.events())
    messages = 4 * num_edges * width
    assert largest["PyG"] >= messages  # the measure sees it
    assert largest["ours"] < messages / 4


def test_21_a_bare_fork(run_python: Callable[..., str]) -> None:
    """Torch's own pool hangs in a forked child; ours runs serially there, conversion and all."""
    program = """
import os, torch
import torch_geometric.nn as pyg
import frontgi_pyg

torch.manual_seed(0)
fast = frontgi_pyg.accelerate(pyg.GCN(64, 128, num_layers=2, out_channels=16))
index, other, x = torch.randint(0, 3000, (2, 60_000)), torch.randint(0, 3000, (2, 60_000)), torch.randn(3000, 64)
with torch.no_grad():
    expected = fast(x, index), fast.convs[0](x, index), fast.convs[0](x, other.clone())
    child = os.fork()
    if child == 0:
        found = fast.convs[0](x, index), fast.convs[0](x, other)
        torch.set_num_threads(1)  # from here on torch can compare
        os._exit(0 if torch.equal(found[0], expected[1]) and torch.equal(found[1], expected[2]) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert torch.equal(fast(x, index), expected[0])
print("done")
"""
    assert run_python(program, timeout_s=60).strip() == "done"


def test_21_training_in_a_bare_fork(run_python: Callable[..., str]) -> None:
    """What torch runs around our ops there (indexing, casts, reductions, the optimizer) must not wait for its pool."""
    program = """
import os, signal, torch
import frontgi_pyg
from frontgi_pyg import Graph
from frontgi_pyg.nn import GCNConv, SAGEConv

torch.manual_seed(0)
torch.set_num_threads(4)
index, weight, x = torch.randint(0, 3000, (2, 200_000)), torch.rand(200_000), torch.randn(3000, 64)

def step():
    torch.manual_seed(1)
    layers = torch.nn.ModuleList([GCNConv(64, 64), SAGEConv(64, 64)])
    adj_t = torch.sparse_coo_tensor(index, weight, (3000, 3000)).to_sparse_csr()
    graph = Graph.from_csr(adj_t.crow_indices(), adj_t.col_indices().flip(0).sort().values)
    hidden = layers[0](x, index.clone(), weight).relu()
    hidden = layers[1](hidden, adj_t) + layers[1](hidden, graph)
    hidden.square().mean().backward()
    torch.optim.Adam(layers.parameters()).step()
    return [p.detach().numpy().tobytes() for p in layers.parameters()]

torch.set_num_threads(1)
expected = step()
torch.set_num_threads(4)
torch.relu(torch.randn(1000, 1000))  # the pool has threads from here on
child = os.fork()
if child == 0:
    signal.alarm(60)
    threads = torch.get_num_threads()
    os._exit(0 if threads == 1 and step() == expected else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert torch.get_num_threads() == 4
print("done")
"""
    assert run_python(program, timeout_s=120).strip() == "done"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_21_dataloader_workers(method: str, run_python: Callable[..., str]) -> None:
    program = """
import torch, torch_geometric.nn as pyg, frontgi_pyg

class Inference(torch.utils.data.Dataset):
    def __init__(self):
        torch.manual_seed(0)
        self.fast = frontgi_pyg.accelerate(pyg.GCN(64, 128, num_layers=2, out_channels=16))
        self.index, self.x = torch.randint(0, 3000, (2, 60_000)), torch.randn(3000, 64)
    def __len__(self):
        return 4
    def __getitem__(self, i):
        with torch.no_grad():
            return self.fast(self.x + i, self.index)

if __name__ == "__main__":
    import sys
    data = Inference()
    expected = [data[i] for i in range(4)]
    loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=2, multiprocessing_context=sys.argv[1])
    assert all(torch.equal(a, b) for a, b in zip(loader, expected, strict=True))
    print("done")
"""
    assert run_python(program, method, timeout_s=120).strip() == "done"


def test_21_two_threads_at_once() -> None:
    torch.manual_seed(0)
    fast = accelerate(pyg.GraphSAGE(32, 64, num_layers=2, out_channels=16))
    inputs = [(features(2000, 32, seed=s), random_edges(2000, seed=s).index) for s in range(4)]
    with torch.no_grad():
        expected = [fast(*args) for args in inputs]
    failures: list[Any] = []

    def work(first: int) -> None:
        try:
            for turn in range(20):
                case = (first + turn) % len(inputs)
                fresh = inputs[case][1].clone() if turn % 3 == 0 else inputs[case][1]
                with torch.no_grad():
                    out = fast(inputs[case][0], fresh)
                assert torch.equal(out, expected[case])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    assert failures == []


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity on this system")
def test_22_settings_are_left_alone() -> None:
    def settings() -> tuple[Any, ...]:
        masks = [os.sched_getaffinity(int(task)) for task in os.listdir("/proc/self/task")]
        return os.sched_getaffinity(0), sorted(map(tuple, masks)), torch.get_num_threads(), dict(os.environ)

    layer = default_twins("GCNConv", 64, 64).ours
    index, x = random_edges(5000, degree=20).index, features(5000, 64)
    layer(x, index)
    before = settings()
    layer(x, index).sum().backward()
    broken = index.clone()
    broken[0, 3] = 10**6
    with pytest.raises(IndexError):
        layer(x, broken)
    with pytest.raises(ValueError, match="63"):
        layer(x[:, :63], index)
    after = settings()
    assert after[0] == before[0]
    assert set(after[1]) == set(before[1])
    assert after[2:] == before[2:]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_23_a_process_on_its_last_cpu_alone(run_python: Callable[..., str]) -> None:
    """A CPU's id is no index: on one CPU of a high id everything runs, and stays there."""
    program = """
import os
last = max(os.sched_getaffinity(0))
os.sched_setaffinity(0, {last})
import torch, frontgi_pyg
from frontgi_pyg.nn import SAGEConv
torch.manual_seed(0)
index, x = torch.randint(0, 3000, (2, 90_000)), torch.randn(3000, 64)
layer = SAGEConv(64, 64)
for threads in (1, 3):
    torch.set_num_threads(threads)
    out = layer(x, index)
    for kind in ("hierarchical", "mixed"):
        with frontgi_pyg.forced_schedule(kind, workers=3):
            assert torch.equal(layer(x, frontgi_pyg.Graph.from_edge_index(index, 3000)), out)
assert {cpu for task in os.listdir("/proc/self/task") for cpu in os.sched_getaffinity(int(task))} == {last}
print("done")
"""
    assert run_python(program).strip() == "done"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_24_one_openmp_runtime(run_python: Callable[..., str]) -> None:
    program = """
import re, torch, torch_geometric.nn
def runtimes():
    return {line.split()[-1] for line in open("/proc/self/maps") if re.search(r"lib(g|i?)omp[^/]*$|libomp[^/]*$", line)}
torch.randn(300, 300) @ torch.randn(300, 300)
before = runtimes()
from frontgi_pyg.nn import GCNConv
index = torch.randint(0, 3000, (2, 90_000))
GCNConv(64, 64)(torch.randn(3000, 64), index).sum().backward()
assert before and runtimes() == before, (before, runtimes())
print("done")
"""
    assert run_python(program).strip() == "done"


@quiet
@pytest.mark.parametrize("model", [pyg.GCN, pyg.GraphSAGE, pyg.GIN])
def test_25_copied_pickled_loaded(model: Any) -> None:
    torch.manual_seed(0)
    lazy = model is pyg.GraphSAGE
    theirs = model(-1 if lazy else 16, 24, num_layers=2, out_channels=7)
    fast = accelerate(theirs)
    x, index = features(60, 16), random_edges(60).index
    expected = fast(x, index)
    for other in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert torch.equal(other(x, index), expected)
    fresh = model(-1 if lazy else 16, 24, num_layers=2, out_channels=7)
    fresh.load_state_dict(fast.state_dict())
    assert_near("PyG's", fresh(x, index), expected)
    again = accelerate(model(-1 if lazy else 16, 24, num_layers=2, out_channels=7))
    again.load_state_dict(theirs.state_dict())
    assert torch.equal(again(x, index), expected)


@quiet
def test_26_batches_of_changing_sizes_compile_once() -> None:
    torch._dynamo.reset()
    layer = default_twins("GCNConv", 16, 8).ours
    graphs = []

    def backend(graph: Any, _inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=backend)
    for size in (40, 41, 57, 90, 13):
        index = random_edges(size).index
        assert_near("out", compiled(features(size, 16), index), layer(features(size, 16), index))
    assert len(graphs) == 1
    torch._dynamo.reset()


@quiet
@layers
def test_27_transforms_are_right_or_refused(name: str) -> None:
    pair, index, x = default_twins(name, 16, 8), random_edges(60).index, features(60, 16)
    outcomes = []
    for layer in (pair.theirs, pair.ours):
        tangent = torch.func.jvp(lambda t, layer=layer: layer(t, index), (x,), (x.cos(),))[1]
        batched = torch.func.vmap(lambda t, layer=layer: layer(t, index))(torch.stack([x, x.cos()]))
        outcomes.append((tangent, batched))
    for theirs, ours in zip(*outcomes, strict=True):
        assert_near("transformed", ours, theirs)
        assert ours.abs().max() > 0
    graph = Graph.from_edge_index(index, 60)
    with pytest.raises(NotImplementedError, match="forward-mode"):
        forward_mode(lambda t: frontgi_pyg.ops.aggregate(graph, t), x)


def forward_mode(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    with torch.autograd.forward_ad.dual_level():
        return function(torch.autograd.forward_ad.make_dual(x, x.cos()))


@layers
def test_28_the_same_bits_from_run_to_run(name: str, set_threads: Callable[[int], None]) -> None:
    layer, index, x = default_twins(name, 64, 64).ours, random_edges(3000, degree=30).index, features(3000, 64)
    expected = layer(x, index)
    for threads in (1, 2, 5):
        set_threads(threads)
        for given in (index, index.clone(), Graph.from_edge_index(index, 3000)):
            assert torch.equal(layer(x, given), expected)


def test_28_the_same_bits_for_any_order_of_the_edges() -> None:
    """Columns are sorted: without weights, the order in which edges are given plays no part."""
    edges = random_edges(60)
    shuffled = edges.index[:, torch.randperm(edges.index.size(1), generator=torch.Generator().manual_seed(3))]
    pair: Twins = default_twins("GCNConv", 16, 8)
    assert torch.equal(pair.ours(features(60, 16), edges.index), pair.ours(features(60, 16), shuffled))
