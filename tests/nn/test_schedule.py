# SPDX-License-Identifier: MIT
"""A layer's own schedule: it is the one taken, compiled or not, and changes no bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from frontgi_pyg import AskedSchedule, Graph, accelerate
from frontgi_pyg.datasets import uniform

from .compare import default_twins, network, twins

NODES, WIDTH = 60, 40
BLOCKED = AskedSchedule("mixed", workers=2, slice_width=16, block_columns=13)
IMPOSSIBLE = AskedSchedule("serial", workers=2)


@pytest.fixture(params=["GCNConv", "SAGEConv", "GINConv", "SGConv"])
def layer(request: pytest.FixtureRequest) -> torch.nn.Module:
    pair = twins("GINConv", network(WIDTH, WIDTH, WIDTH)) if request.param == "GINConv" else None
    return (pair or default_twins(request.param, WIDTH, WIDTH)).ours


@pytest.fixture
def graph() -> Graph:
    drawn = uniform(NODES, 7)
    return Graph.from_edge_index(drawn.edge_index, drawn.num_nodes)


def inputs() -> Tensor:
    return torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(0))


def test_a_layers_schedule_is_taken_and_changes_no_bit(layer: torch.nn.Module, graph: Graph) -> None:
    expected = layer(inputs(), graph)
    layer.schedule = BLOCKED
    assert torch.equal(layer(inputs(), graph), expected)
    layer.schedule = IMPOSSIBLE
    with pytest.raises(ValueError, match=r"^plan: the serial schedule has one worker \(got 2\)"):
        layer(inputs(), graph)


def test_it_comes_before_the_one_around_the_call(layer: torch.nn.Module, graph: Graph) -> None:
    from frontgi_pyg import forced_schedule

    layer.schedule = BLOCKED
    with forced_schedule("serial", workers=2):  # which cannot run
        layer(inputs(), graph)


def test_compiled_layers_keep_it(layer: torch.nn.Module, graph: Graph) -> None:
    expected = layer(inputs(), graph)
    layer.schedule = BLOCKED
    compiled = torch.compile(layer, fullgraph=True)
    torch.testing.assert_close(compiled(inputs(), graph), expected)
    layer.schedule = IMPOSSIBLE
    with pytest.raises(ValueError, match="the serial schedule has one worker"):
        torch.compile(layer, fullgraph=True)(inputs(), graph)


def test_copies_of_a_model_keep_their_layers_schedules(graph: Graph) -> None:
    pair = default_twins("GCNConv", WIDTH, WIDTH)
    model = accelerate(torch.nn.Sequential(pair.theirs))
    model[0].schedule = BLOCKED
    assert accelerate(model)[0].schedule == BLOCKED
