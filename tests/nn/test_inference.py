# SPDX-License-Identifier: MIT
"""layerwise_inference: the model's own numbers, and no activation kept that is not read. Memory: see test_memory.py."""

from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from frontgi_pyg import Graph, accelerate
from frontgi_pyg.nn import layerwise_inference

from .compare import features, random_edges

pytestmark = pytest.mark.usefixtures("one_thread")


def model_of(name: str, **kwargs: Any) -> nn.Module:
    torch.manual_seed(0)
    model = getattr(pyg, name)(16, 24, num_layers=3, **{"out_channels": 7, **kwargs})
    for norm in model.norms:
        for module in norm.modules():
            if isinstance(module, nn.BatchNorm1d) and module.running_mean is not None:
                nn.init.normal_(module.running_mean)
    return model.eval()


@pytest.mark.parametrize("name", ["GCN", "GraphSAGE", "GIN", "GAT"])
@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"out_channels": None},
        {"norm": "batch_norm", "act": "elu"},
        {"norm": "layer_norm", "act_first": True},
        {"norm": "graph_norm", "act": "tanh"},
        {"norm": "batch_norm", "act": None, "jk": "last"},
        {"act": torch.cos, "dropout": 0.5},
    ],
    ids=str,
)
@pytest.mark.parametrize("block_rows", [None, 1, 7, 1000])
def test_the_bits_of_the_model(name: str, kwargs: dict[str, Any], block_rows: int | None) -> None:
    model, edges, x = accelerate(model_of(name, **kwargs)), random_edges(60), features(60, 16)
    before = x.clone()
    for given in (edges.index, Graph.from_edge_index(edges.index, 60)) if name != "GAT" else (edges.index,):
        with torch.no_grad():
            expected = model(x, given)
        out = layerwise_inference(model, x, given, block_rows=block_rows)
        assert torch.allclose(out, expected, rtol=1e-6, atol=1e-6)  # torch rounds functions by blocks of its own
        assert not out.requires_grad
        assert torch.equal(x, before)


def test_edge_weights() -> None:
    model, edges, x = accelerate(model_of("GCN")), random_edges(60, weighted=True), features(60, 16)
    assert torch.equal(
        layerwise_inference(model, x, edges.index, edges.weight), model(x, edges.index, edge_weight=edges.weight)
    )


@pytest.mark.parametrize("num_nodes", [0, 1])
def test_small_graphs(num_nodes: int) -> None:
    model, index = accelerate(model_of("GraphSAGE", norm="batch_norm")), torch.empty(2, 0, dtype=torch.int64)
    x = features(num_nodes, 16)
    assert torch.equal(layerwise_inference(model, x, index), model(x, index))


class Unchanged(pyg.MessagePassing):
    """A layer that gives its input back."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return x


def test_features_are_not_written_to() -> None:
    model, x = model_of("GraphSAGE", out_channels=None), features(60, 24)
    model.convs = nn.ModuleList([Unchanged() for _ in range(3)])
    before = x.clone()
    out = layerwise_inference(model, x, random_edges(60).index)
    assert torch.equal(x, before)
    assert torch.equal(out, model(x, random_edges(60).index))


def test_hooks_are_called_once_for_all_rows() -> None:
    model, rows = accelerate(model_of("GCN")), []
    model.act.register_forward_hook(lambda _module, _args, out: rows.append(out.size(0)))
    layerwise_inference(model, features(60, 16), random_edges(60).index, block_rows=7)
    assert rows == [60, 60]


def test_statistics_of_a_batch_are_those_of_all_rows() -> None:
    x, index = features(60, 16), random_edges(60).index
    own = accelerate(model_of("GraphSAGE", norm="batch_norm", norm_kwargs={"track_running_stats": False}))
    training = accelerate(model_of("GraphSAGE", norm="batch_norm"))
    training.norms.train()
    for model in (own, training):
        with torch.no_grad():
            expected = model(x, index)
        assert torch.allclose(layerwise_inference(model, x, index, block_rows=59), expected, rtol=1e-5, atol=1e-6)


def test_what_a_hook_keeps_of_a_conv_is_not_written_to() -> None:
    model, kept = accelerate(model_of("GraphSAGE")), []
    model.convs[0].register_forward_hook(lambda _module, _args, out: kept.append((out, out.clone())))
    layerwise_inference(model, features(60, 16), random_edges(60).index)
    assert torch.equal(*kept[0])


def test_a_forward_of_its_own() -> None:
    class Doubled(pyg.GraphSAGE):
        def forward(self, *args: Any, **kwargs: Any) -> Tensor:
            return 2 * super().forward(*args, **kwargs)

    with pytest.raises(TypeError, match=r"Doubled has a forward\(\) of its own"):
        layerwise_inference(Doubled(16, 24, 2).eval(), features(60, 16), random_edges(60).index)


def test_what_it_refuses() -> None:
    x, index = features(60, 16), random_edges(60).index
    with pytest.raises(TypeError, match="BasicGNN"):
        layerwise_inference(nn.Linear(16, 8), x, index)
    with pytest.raises(ValueError, match="eval"):
        layerwise_inference(model_of("GCN").train(), x, index)
    with pytest.raises(ValueError, match="'cat'"):
        layerwise_inference(model_of("GCN", jk="cat"), x, index)
    with pytest.raises(ValueError, match="block_rows"):
        layerwise_inference(model_of("GCN"), x, index, block_rows=0)
