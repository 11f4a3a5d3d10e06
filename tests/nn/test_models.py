# SPDX-License-Identifier: MIT
"""accelerate on PyG's own models: their numbers, and what runs on our kernels; nothing breaks."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.nn import models as pyg_models

from frontgi_pyg import accelerate, report

from .compare import features, random_edges

pytestmark = pytest.mark.usefixtures("one_thread")

NODES, WIDTH = 60, 16
Case = tuple[Callable[[], nn.Module], Callable[[nn.Module], Any], str]


def index() -> Tensor:
    return random_edges(NODES).index


def x() -> Tensor:
    return features(NODES, WIDTH)


def pna(**kwargs: Any) -> nn.Module:
    degree = torch.bincount(index()[1].bincount(minlength=NODES))
    return pyg.PNA(
        WIDTH, 24, 2, 7, aggregators=["mean", "max", "std"], scalers=["identity", "linear"], deg=degree, **kwargs
    )


def on_graph(model: nn.Module) -> Any:
    return model(x(), index())


# How a model is made and called, and the status of its convs once it was: none of them may be of another.
CASES: dict[str, Case] = {
    "GCN": (lambda: pyg.GCN(WIDTH, 24, 2, 7), on_graph, "native"),
    "GraphSAGE": (lambda: pyg.GraphSAGE(WIDTH, 24, 2, 7), on_graph, "native"),
    "GIN": (lambda: pyg.GIN(WIDTH, 24, 2, 7), on_graph, "native"),
    "GAT": (lambda: pyg.GAT(WIDTH, 24, 2, 7), on_graph, "any"),
    "PNA": (pna, on_graph, "any"),
    "EdgeCNN": (lambda: pyg.EdgeCNN(WIDTH, 24, 2, 7), on_graph, "left"),
    "GAE": (lambda: pyg.GAE(pyg.GCN(WIDTH, 24, 2, 7)), lambda model: model.encode(x(), index()), "native"),
    "ARGA": (
        lambda: pyg.ARGA(pyg.GCN(WIDTH, 24, 2, 7), nn.Linear(7, 1)),
        lambda model: model.encode(x(), index()),
        "native",
    ),
    "DeepGraphInfomax": (
        lambda: pyg.DeepGraphInfomax(
            7,
            encoder=pyg.GCN(WIDTH, 24, 2, 7),
            summary=lambda z, *args, **kwargs: z.mean(0),
            corruption=lambda x, *args: (x.flip(0), *args),
        ),
        lambda model: model(x(), index())[0],
        "native",
    ),
    "DeepGCNLayer": (
        lambda: pyg.DeepGCNLayer(pyg.GraphConv(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU(), block="res+"),
        on_graph,
        "native",
    ),
    "JumpingKnowledge": (lambda: pyg.GCN(WIDTH, 24, 3, 7, jk="lstm"), on_graph, "native"),
    "LightGCN": (
        lambda: pyg.LightGCN(NODES, WIDTH, 3),
        lambda model: model.get_embedding(index()),
        "native",
    ),
    "LabelPropagation": (
        lambda: pyg.LabelPropagation(3, 0.7),
        lambda model: model(torch.arange(NODES) % 4, index(), torch.arange(0, NODES, 2)),
        "left",
    ),
    "GraphUNet": (lambda: pyg.GraphUNet(WIDTH, 24, 7, depth=2), on_graph, "native"),
    "SignedGCN": (
        lambda: pyg.SignedGCN(WIDTH, 24, 2),
        lambda model: model(x(), index(), index().flip(0)),
        "left",
    ),
    "RECT_L": (lambda: pyg.RECT_L(WIDTH, 24), on_graph, "native"),
    "GroupAddRev": (
        lambda: pyg.GroupAddRev(pyg.SAGEConv(WIDTH // 2, WIDTH // 2), num_groups=2),
        on_graph,
        "native",
    ),
    "LINKX": (lambda: pyg.LINKX(NODES, WIDTH, 24, 7, num_layers=2), on_graph, "any"),
    "PMLP": (lambda: pyg_models.PMLP(WIDTH, 24, 7, num_layers=2), on_graph, "any"),
    "AttentiveFP": (
        lambda: pyg.AttentiveFP(WIDTH, 24, 7, edge_dim=4, num_layers=2, num_timesteps=2),
        lambda model: model(x(), index(), features(index().size(1), 4), torch.zeros(NODES, dtype=torch.int64)),
        "any",
    ),
    "NeuralFingerprint": (
        lambda: pyg_models.NeuralFingerprint(WIDTH, 24, 7, num_layers=2),
        lambda model: model(x(), index(), torch.zeros(NODES, dtype=torch.int64)),
        "left",
    ),
    "MaskLabel": (
        lambda: pyg.MaskLabel(4, WIDTH),
        lambda model: model(x(), torch.arange(NODES) % 4, torch.arange(NODES) % 2 == 0),
        "none",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_models(name: str) -> None:
    make, call, status = CASES[name]
    torch.manual_seed(0)
    model = make().eval()
    fast = accelerate(model)
    with torch.no_grad():
        expected, found = call(model), call(fast)
    assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()
    convs = report(fast).convs
    assert all(conv.detail == "native" or "left: " in conv.detail or "PyG's path: " in conv.detail for conv in convs)
    if status == "none":
        assert not convs
    elif status != "any":
        assert convs
        assert {conv.status for conv in convs} == {status}, str(report(fast))


@pytest.mark.parametrize("name", ["GCN", "GAE", "LightGCN", "GraphUNet", "DeepGCNLayer"])
def test_training_of_models(name: str) -> None:
    make, call, _ = CASES[name]
    torch.manual_seed(0)
    model = make().eval()
    found = []
    for module in (model, accelerate(model)):
        model.zero_grad()
        call(module).square().sum().backward()
        found.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    for theirs, ours in zip(*found, strict=True):
        assert (ours - theirs).abs().max() <= 1e-4 * max(1.0, theirs.abs().max().item())
