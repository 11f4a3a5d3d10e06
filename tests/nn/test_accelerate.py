# SPDX-License-Identifier: MIT
"""accelerate(model): the same numbers from the same parameters, and the model it was given as it was."""

import copy
import pickle
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import HeteroData

import frontgi_pyg
from frontgi_pyg import Graph, accelerate, report

from .compare import LEVELS, NEAR, C, features, random_edges

pytestmark = pytest.mark.usefixtures("one_thread")

MODELS = {"GCN": pyg.GCN, "GraphSAGE": pyg.GraphSAGE, "GIN": pyg.GIN}
KERNEL_CONVS = (frontgi_pyg.nn.GCNConv, frontgi_pyg.nn.SAGEConv, frontgi_pyg.nn.GINConv, frontgi_pyg.nn.SGConv)


def close(ours: Tensor, theirs: Tensor, layers: int = 3) -> bool:
    """A few roundings for each of some layers."""
    norm = theirs.abs().max().item()
    return (ours - theirs).abs().max().item() <= C * (LEVELS + NEAR) * layers * torch.finfo(theirs.dtype).eps * norm


def state_of(model: nn.Module) -> dict[str, Any]:
    return {
        "types": [type(module) for module in model.modules()],
        "ids": [id(module) for module in model.modules()],
        "parameters": [(name, id(p), p.detach().clone()) for name, p in model.named_parameters()],
        "buffers": [(name, id(b), b.clone()) for name, b in model.named_buffers()],
        "repr": repr(model),
        "training": [module.training for module in model.modules()],
        "hooks": [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()],
    }


def same_state(before: dict[str, Any], after: dict[str, Any]) -> bool:
    plain = ("types", "ids", "repr", "training", "hooks")
    tensors = zip(before["parameters"] + before["buffers"], after["parameters"] + after["buffers"], strict=True)
    return all(before[key] == after[key] for key in plain) and all(
        a[:2] == b[:2] and torch.equal(a[2], b[2]) for a, b in tensors
    )


# Models of PyG ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"dropout": 0.5},
        {"norm": "batch_norm"},
        {"norm": "layer_norm", "act": "elu", "act_first": True},
        {"jk": "cat"},
        {"jk": "max", "out_channels": 5},
        {"jk": "lstm"},
    ],
    ids=str,
)
def test_basic_models(name: str, kwargs: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = MODELS[name](16, 24, num_layers=3, **{"out_channels": 7, **kwargs}).eval()
    edges, x = random_edges(60), features(60, 16)
    before = state_of(model)
    expected = model(x, edges.index)
    fast = accelerate(model)
    for given in (edges.index, Graph.from_edge_index(edges.index, 60)):
        assert close(fast(x, given), expected)
    assert same_state(before, state_of(model))
    assert torch.equal(model(x, edges.index), expected)
    assert all(type(conv) in KERNEL_CONVS for conv in fast.convs)
    assert [conv.path_taken for conv in fast.convs] == ["native"] * 3
    assert str(report(fast)).splitlines()[0] == "3 of 3 convs run on frontgi_pyg"


def test_edge_weights_reach_the_convs() -> None:
    torch.manual_seed(0)
    model = pyg.GCN(16, 24, num_layers=2, out_channels=7)
    edges, x = random_edges(60, weighted=True), features(60, 16)
    expected = model(x, edges.index, edge_weight=edges.weight)
    assert close(accelerate(model)(x, edges.index, edge_weight=edges.weight), expected)


@pytest.mark.parametrize("name", MODELS)
def test_trimmed_to_its_layers(name: str) -> None:
    """A sampled batch is cut down layer by layer: what was made of the whole must not be used for its part."""
    torch.manual_seed(0)
    model = MODELS[name](16, 24, num_layers=2, out_channels=7)
    index = torch.tensor([[1, 2, 3, 4, 5, 6, 7], [0, 0, 1, 1, 2, 3, 3]])
    batch = {"num_sampled_nodes_per_hop": [1, 2, 5], "num_sampled_edges_per_hop": [2, 5]}
    x = features(8, 16)
    expected = model(x, index, **batch)
    fast = accelerate(model)
    assert close(fast(x, index, **batch), expected)
    assert close(fast(x, index, **batch), expected)


class HandWritten(nn.Module):
    """A bit of everything: containers, a shared conv, convs we have no kernels for."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.GCNConv(16, 16), pyg.SAGEConv(16, 16)])
        self.by_name = nn.ModuleDict({"sg": pyg.SGConv(16, 16, K=2), "cheb": pyg.ChebConv(16, 16, K=2)})
        self.again = self.convs[0]
        self.gin = pyg.GINConv(nn.Sequential(nn.Linear(16, 16), nn.ReLU(), pyg.Linear(16, 7)), train_eps=True)
        self.sequence = pyg.Sequential(
            "x, edge_index", [(pyg.GCNConv(16, 16), "x, edge_index -> x"), nn.ReLU(), nn.Linear(16, 16)]
        )

    def forward(self, x: Tensor, edge_index: Any) -> Tensor:
        for conv in (*self.convs, self.by_name["sg"], self.by_name["cheb"], self.again):
            x = conv(x, edge_index).relu()
        return self.gin(self.sequence(x, edge_index), edge_index)


def test_a_model_written_by_hand() -> None:
    torch.manual_seed(0)
    model = HandWritten()
    edges, x = random_edges(60), features(60, 16)
    before = state_of(model)
    expected = model(x, edges.index)
    fast = accelerate(model)
    assert type(fast) is HandWritten
    assert close(fast(x, edges.index), expected, layers=8)
    assert same_state(before, state_of(model))
    assert fast.again is fast.convs[0]
    assert type(fast.by_name["cheb"]) is pyg.ChebConv
    assert type(fast.gin.nn[0]) is frontgi_pyg.nn.Linear
    assert type(fast.gin.nn[2]) is frontgi_pyg.nn.PyGLinear
    assert type(fast.sequence[2]) is nn.Linear


def test_report() -> None:
    torch.manual_seed(0)
    model = HandWritten()
    model.more = nn.ModuleList([pyg.GCNConv(16, 16, aggr="mean"), Doubled(16, 16)])
    fast = accelerate(model)
    assert str(report(model)).splitlines()[0] == "0 of 8 convs run on frontgi_pyg"
    assert "  convs.0: GCNConv(16, 16), left: not accelerated" in str(report(model)).splitlines()
    assert str(report(fast)).splitlines() == [
        "5 of 8 convs run on frontgi_pyg",
        "  convs.0: GCNConv(16, 16), not called yet",
        "  convs.1: SAGEConv(16, 16, aggr=mean), not called yet",
        "  by_name.sg: SGConv(16, 16, K=2), not called yet",
        "  by_name.cheb: ChebConv(16, 16, K=2, normalization=sym), left: no kernels for ChebConv",
        "  gin: " + " ".join(str(fast.gin).split()) + ", not called yet",
        "  sequence.module_0: GCNConv(16, 16), not called yet",
        "  more.0: GCNConv(16, 16), on PyG's path: no kernel for a normalised aggr=mean",
        "  more.1: Doubled(16, 16), left: a subclass of GCNConv, which may do something else",
    ]
    fast(features(60, 16), random_edges(60).index)
    convs = {conv.name: conv for conv in report(fast).convs}
    assert convs["convs.0"].status == "native"
    assert convs["convs.0"].detail == "native"
    assert convs["more.0"].status == "pyg"
    assert convs["by_name.cheb"].status == "left"


class Doubled(pyg.GCNConv):
    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
        return 2 * super().message(x_j, edge_weight)


def test_subclasses_are_left() -> None:
    torch.manual_seed(0)
    model = nn.Sequential()
    model.conv = Doubled(16, 8)
    fast = accelerate(model)
    assert type(fast.conv) is Doubled
    x, edges = features(60, 16), random_edges(60)
    assert torch.equal(fast.conv(x, edges.index), model.conv(x, edges.index))
    assert [conv.status for conv in report(fast).convs] == ["left"]


@pytest.mark.parametrize("conv", [pyg.FeaStConv(16, 8), pyg.TransformerConv(16, 8), pyg.ChebConv(16, 8, K=2)], ids=repr)
def test_unknown_convs_are_left(conv: nn.Module) -> None:
    fast = accelerate(conv)
    assert type(fast) is type(conv)
    x, edges = features(60, 16), random_edges(60)
    assert torch.equal(fast(x, edges.index), conv(x, edges.index))
    assert report(fast).convs[0].detail == f"left: no kernels for {type(conv).__name__}"


def test_a_bare_conv() -> None:
    conv = pyg.SAGEConv(16, 8)
    fast = accelerate(conv)
    assert type(fast) is frontgi_pyg.nn.SAGEConv
    assert type(conv) is pyg.SAGEConv
    assert repr(fast) == repr(conv)
    assert str(report(fast)).splitlines()[1] == "  (model): SAGEConv(16, 8, aggr=mean), not called yet"


def test_twice() -> None:
    torch.manual_seed(0)
    model = pyg.GIN(16, 24, num_layers=2, out_channels=7)
    once = accelerate(model)
    twice = accelerate(once)
    x, edges = features(60, 16), random_edges(60)
    assert torch.equal(once(x, edges.index), twice(x, edges.index))
    assert [type(m) for m in once.modules()] == [type(m) for m in twice.modules()]
    assert all(a is b for a, b in zip(model.parameters(), twice.parameters(), strict=True))


@pytest.mark.parametrize("model", [None, "model", pyg.GCN, lambda x: x], ids=str)
def test_not_a_module(model: Any) -> None:
    with pytest.raises(TypeError, match=r"accelerate: 'model' must be a torch\.nn\.Module"):
        accelerate(model)


# What is shared -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_parameters_and_buffers_are_shared(name: str) -> None:
    model = MODELS[name](16, 24, num_layers=2, out_channels=7, norm="batch_norm")
    fast = accelerate(model)
    for theirs, ours in (
        (model.named_parameters(), fast.named_parameters()),
        (model.named_buffers(), fast.named_buffers()),
    ):
        theirs, ours = dict(theirs), dict(ours)
        assert list(theirs) == list(ours)
        assert all(ours[key] is tensor for key, tensor in theirs.items())
    assert all(a is not b for a, b in zip(model.modules(), fast.modules(), strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_training_moves_the_shared_parameters(name: str) -> None:
    torch.manual_seed(0)
    edges, x, target = random_edges(60), features(60, 16), torch.arange(60) % 7
    models = [MODELS[name](16, 24, num_layers=2, out_channels=7, norm="batch_norm") for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    fast = accelerate(models[1])
    losses = []
    for trained in (models[0], fast):
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.05)
        for _ in range(4):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(trained(x, edges.index), target)
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    for theirs, ours in zip(models[0].state_dict().values(), models[1].state_dict().values(), strict=True):
        assert torch.allclose(theirs.double(), ours.double(), rtol=1e-3, atol=1e-4)
    assert torch.equal(models[1].eval()(x, edges.index).argmax(1), fast.eval()(x, edges.index).argmax(1))


def test_one_parameter_in_two_places() -> None:
    model = nn.ModuleList([pyg.GCNConv(16, 16), pyg.GCNConv(16, 16)])
    model[1].lin.weight = model[0].lin.weight
    fast = accelerate(model)
    assert fast[1].lin.weight is fast[0].lin.weight is model[0].lin.weight


def test_a_frozen_parameter_stays_frozen() -> None:
    model = pyg.GCN(16, 24, num_layers=2)
    model.convs[0].requires_grad_(False)
    fast = accelerate(model)
    assert [p.requires_grad for p in fast.parameters()] == [p.requires_grad for p in model.parameters()]
    fast(features(60, 16), random_edges(60).index).sum().backward()
    assert fast.convs[0].lin.weight.grad is None
    assert fast.convs[1].lin.weight.grad is not None


def test_lazy_widths_are_shared_too() -> None:
    """The first of the two to be called gives both their weights."""
    model = pyg.GraphSAGE(-1, 24, num_layers=2, out_channels=7)
    fast = accelerate(model)
    x, edges = features(60, 16), random_edges(60)
    out = fast(x, edges.index)
    assert close(model(x, edges.index), out)
    assert all(a is b for a, b in zip(model.parameters(), fast.parameters(), strict=True))
    assert [p.shape for p in model.parameters()] == [p.shape for p in fast.parameters()]
    fast(x, edges.index)
    assert [conv.path_taken for conv in fast.convs] == ["native", "native"]

    model = pyg.GraphSAGE(-1, 24, num_layers=2, out_channels=7)
    fast = accelerate(model)
    expected = model(x, edges.index)
    assert close(fast(x, edges.index), expected)


def test_random_numbers_are_left_alone() -> None:
    model = pyg.GCN(16, 24, num_layers=2)
    before = torch.get_rng_state()
    accelerate(model)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_layer_with_a_filled_cache() -> None:
    model = nn.ModuleList([pyg.GCNConv(16, 8, cached=True), pyg.SGConv(16, 8, K=2, cached=True)])
    x, edges = features(60, 16).requires_grad_(), random_edges(60, weighted=True)
    weight = edges.weight.requires_grad_()
    expected = [conv(x, edges.index, weight) for conv in model]
    fast = accelerate(model)
    for conv, out in zip(fast, expected, strict=True):
        assert close(conv(x, edges.index, weight), out)


def test_the_copy_has_caches_of_its_own() -> None:
    model = pyg.GCNConv(16, 8, cached=True)
    fast = accelerate(model)
    fast(features(60, 16), random_edges(60).index)
    assert model._cached_edge_index is None
    assert fast._cached_edge_index is not None


# Hooks --------------------------------------------------------------------------------------------


def test_hooks_stay() -> None:
    model = pyg.GCN(16, 24, num_layers=2, out_channels=7)
    calls: list[str] = []
    model.convs[0].register_forward_hook(lambda *_: calls.append("conv"))
    model.convs[0].register_forward_pre_hook(lambda *_: calls.append("before"))
    model.convs[1].lin.register_forward_hook(lambda *_: calls.append("linear"))
    model.register_full_backward_hook(lambda *_: calls.append("backward"))
    fast = accelerate(model)
    x, edges = features(60, 16), random_edges(60)
    expected = model(x, edges.index)
    theirs, calls[:] = list(calls), []
    out = fast(x, edges.index)
    assert calls == theirs == ["before", "conv", "linear"]
    assert close(out, expected)
    out.sum().backward()
    assert calls[-1] == "backward"
    assert [conv.path_taken for conv in fast.convs] == ["native", "native"]


def test_a_hook_that_changes_the_output() -> None:
    model = pyg.SAGEConv(16, 8)
    handle = model.register_forward_hook(lambda _module, _args, out: out * 3)
    fast = accelerate(model)
    x, edges = features(60, 16), random_edges(60)
    assert close(fast(x, edges.index), model(x, edges.index))
    handle.remove()  # of the model, not of its copy
    assert close(fast(x, edges.index), 3 * model(x, edges.index))


# Heterogeneous graphs -----------------------------------------------------------------------------


class Hetero(nn.Module):
    def __init__(self, convs: Any, in_width: Any = (-1, -1)) -> None:
        super().__init__()
        self.first = convs.SAGEConv(in_width, 16)
        self.second = convs.SAGEConv(in_width, 7)

    def forward(self, x: Tensor, edge_index: Any) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


def hetero_data() -> HeteroData:
    data = HeteroData()
    data["paper"].x = features(60, 16)
    data["author"].x = features(40, 10)
    data["author", "writes", "paper"].edge_index = random_edges(40, 60).index
    data["paper", "written by", "author"].edge_index = random_edges(60, 40, seed=1).index
    data["paper", "cites", "paper"].edge_index = random_edges(60, seed=2).index
    return data


@pytest.mark.parametrize("aggr", ["sum", "mean"])
def test_to_hetero(aggr: str) -> None:
    torch.manual_seed(0)
    data = hetero_data()
    model = pyg.to_hetero(Hetero(pyg), data.metadata(), aggr=aggr)
    expected = model(data.x_dict, data.edge_index_dict)
    before = state_of(model)
    fast = accelerate(model)
    found = fast(data.x_dict, data.edge_index_dict)
    assert same_state(before, state_of(model))
    assert found.keys() == expected.keys()
    assert all(close(found[key], expected[key], layers=6) for key in expected)
    statuses = [conv.status for conv in report(fast).convs]
    assert statuses == ["native"] * 6
    sum(out.sum() for out in found.values()).backward()
    assert all(p.grad is not None for p in model.parameters())


def test_to_hetero_of_our_own_layers() -> None:
    data = hetero_data()
    models = []
    for convs in (pyg, frontgi_pyg.nn):
        torch.manual_seed(0)
        models.append(pyg.to_hetero(Hetero(convs), data.metadata()))
    found = []
    for model in models:
        torch.manual_seed(1)
        found.append(model(data.x_dict, data.edge_index_dict))
    assert all(close(found[1][key], found[0][key], layers=6) for key in found[0])
    again = models[1](data.x_dict, data.edge_index_dict)
    assert all(close(again[key], found[0][key], layers=6) for key in again)
    assert [conv.status for conv in report(models[1]).convs] == ["native"] * 6


def test_hetero_conv() -> None:
    torch.manual_seed(0)
    data = hetero_data()
    model = pyg.HeteroConv(
        {
            ("author", "writes", "paper"): pyg.SAGEConv((10, 16), 8),
            ("paper", "written by", "author"): pyg.GATConv((16, 10), 8, add_self_loops=False),
            ("paper", "cites", "paper"): pyg.GCNConv(16, 8),
        }
    )
    expected = model(data.x_dict, data.edge_index_dict)
    fast = accelerate(model)
    found = fast(data.x_dict, data.edge_index_dict)
    assert all(close(found[key], expected[key]) for key in expected)
    assert sorted(conv.status for conv in report(fast).convs) == ["native"] * 3


# The copy is a module like any other --------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_copied_and_pickled(name: str) -> None:
    torch.manual_seed(0)
    fast = accelerate(MODELS[name](16, 24, num_layers=2, out_channels=7))
    x, edges = features(60, 16), random_edges(60)
    expected = fast(x, edges.index)
    for other in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert torch.equal(other(x, edges.index), expected)
        assert [type(m) for m in other.modules()] == [type(m) for m in fast.modules()]


def test_state_dict_goes_back() -> None:
    torch.manual_seed(0)
    model = pyg.GIN(16, 24, num_layers=2, out_channels=7)
    fresh = pyg.GIN(16, 24, num_layers=2, out_channels=7)
    fresh.load_state_dict(accelerate(model).state_dict())
    x, edges = features(60, 16), random_edges(60)
    assert torch.equal(fresh(x, edges.index), model(x, edges.index))


def test_repr_of_an_accelerated_model() -> None:
    model = pyg.GCN(16, 24, num_layers=2, norm="batch_norm")
    assert repr(accelerate(model)) == repr(model)


def test_whole_training_loop_in_half_precision() -> None:
    torch.manual_seed(0)
    model = pyg.GraphSAGE(16, 24, num_layers=2, out_channels=7)
    fast = accelerate(model).bfloat16()
    assert next(model.parameters()).dtype == torch.bfloat16  # shared: cast in place, as torch does
    out = fast(features(60, 16, torch.bfloat16), random_edges(60).index)
    assert out.dtype == torch.bfloat16
    assert [conv.path_taken for conv in fast.convs] == ["native", "native"]
