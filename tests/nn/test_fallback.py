# SPDX-License-Identifier: MIT
"""Where our kernels do not serve, a layer takes PyG's path, says why, and gives PyG's result."""

import contextlib
import copy
import importlib.util
import io
from collections.abc import Callable
from typing import Any, Optional

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch.autograd import forward_ad
from torch_geometric.explain import Explainer, GNNExplainer, PGExplainer
from torch_geometric.explain.config import ModelConfig

import frontgi_pyg.nn
from frontgi_pyg import Graph, accelerate, report

from .compare import (
    MESSAGE_PASSING,
    OF_ONE_WIDTH,
    Twins,
    adjacency,
    assert_near,
    assert_same_outcome,
    default_twins,
    features,
    random_edges,
)

pytestmark = pytest.mark.usefixtures("one_thread")

layers = pytest.mark.parametrize("name", MESSAGE_PASSING)


# Explaining ---------------------------------------------------------------------------------------


MODEL = ModelConfig(mode="multiclass_classification", task_level="node", return_type="raw")


@pytest.mark.parametrize("model", [pyg.GCN, pyg.GraphSAGE, pyg.GIN])
def test_gnn_explainer(model: Any) -> None:
    """The masks that PyG's model learns, edge for edge."""
    torch.manual_seed(0)
    theirs = model(16, 24, num_layers=2, out_channels=7).eval()
    fast = accelerate(theirs)
    edges, x = random_edges(40, degree=2), features(40, 16)
    found = []
    for explained in (theirs, fast):
        torch.manual_seed(1)
        explainer = Explainer(
            explained, GNNExplainer(epochs=5), explanation_type="model", node_mask_type="attributes",
            edge_mask_type="object", model_config=MODEL,
        )  # fmt: skip
        found.append(explainer(x, edges.index, index=3))
    assert found[0].edge_mask.unique().numel() > 2
    assert torch.allclose(found[0].edge_mask, found[1].edge_mask, atol=1e-4)
    assert torch.allclose(found[0].node_mask, found[1].node_mask, atol=1e-4)
    fast(x, edges.index)
    assert [conv.path_taken for conv in fast.convs] == ["native", "native"]


def test_pg_explainer() -> None:
    torch.manual_seed(0)
    theirs = pyg.GCN(16, 24, num_layers=2, out_channels=7).eval()
    edges, x = random_edges(40, degree=2), features(40, 16)
    found = []
    for explained in (theirs, accelerate(theirs)):
        torch.manual_seed(1)
        algorithm = PGExplainer(epochs=2)
        explainer = Explainer(
            explained, algorithm, explanation_type="phenomenon", edge_mask_type="object", model_config=MODEL
        )
        target = theirs(x, edges.index).argmax(1)
        for epoch in range(2):
            loss = algorithm.train(epoch, explained, x, edges.index, target=target, index=torch.tensor([3]))
        found.append((loss, explainer(x, edges.index, target=target, index=3).edge_mask))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-3)
    assert torch.allclose(found[0][1], found[1][1], atol=1e-3)


@layers
@pytest.mark.parametrize("kind", ["edge_index", "Graph of edge_index"])
def test_an_edge_mask_counts(name: str, kind: str) -> None:
    pair, edges, x = default_twins(name, 16, 8), random_edges(60), features(60, 16)
    theirs, ours, _ = adjacency(kind, edges, None)
    mask = torch.randn(edges.index.size(1), generator=torch.Generator().manual_seed(0))
    plain = pair.ours(x, ours)
    for layer in (pair.theirs, pair.ours):
        layer.explain = True
        layer._edge_mask = mask
        layer._loop_mask = edges.index[0] != edges.index[1]
    out = pair.ours(x, ours)
    assert pair.ours.path_taken == "explaining"
    assert_near("explained", out, pair.theirs(x, theirs))
    assert not torch.allclose(out, plain, atol=1e-2)
    pair.ours.explain = False
    assert torch.equal(pair.ours(x, ours), plain)
    assert pair.ours.path_taken == "native"


@pytest.mark.parametrize("first", ["PyG's", "ours"])
def test_explaining_whichever_class_was_made_first(first: str, run_python: Callable[..., str]) -> None:
    """PyG generates code once a class; a process of its own for each order."""
    order = "(pyg, frontgi_pyg.nn)" if first == "PyG's" else "(frontgi_pyg.nn, pyg)"
    program = f"""
import torch, torch_geometric.nn as pyg, frontgi_pyg.nn
index, x = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.randn(3, 4)
for module in {order}:
    layer = module.SAGEConv(4, 2)
    layer.explain, layer._edge_mask = True, torch.full((3,), -100.0)
    layer.root_weight = False
    assert torch.allclose(layer(x, index), layer.lin_l.bias.expand(3, 2))
"""
    run_python(program)


# Message passing hooks ----------------------------------------------------------------------------


HOOKS: dict[str, Callable[..., Any]] = {
    "register_propagate_forward_pre_hook": lambda *_: None,
    "register_propagate_forward_hook": lambda _layer, _inputs, out: 2 * out,
    "register_message_forward_pre_hook": lambda _layer, inputs: (
        {k: 2 * t if k.endswith("_j") else t for k, t in inputs[0].items()},
    ),
    "register_message_forward_hook": lambda _layer, _inputs, out: 2 * out,
    "register_aggregate_forward_pre_hook": lambda _layer, inputs: inputs,
    "register_aggregate_forward_hook": lambda _layer, _inputs, out: 2 * out,
}


@layers
@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("kind", ["edge_index", "Graph of edge_index"])
def test_message_passing_hooks(name: str, hook: str, kind: str) -> None:
    pair, x = default_twins(name, 16, 8), features(60, 16)
    theirs, ours, _ = adjacency(kind, random_edges(60), None)
    calls = []

    def called(*args: Any) -> Any:
        calls.append(hook)
        return HOOKS[hook](*args)

    handles = [getattr(layer, hook)(called) for layer in (pair.theirs, pair.ours)]
    expected, number = pair.theirs(x, theirs), len(calls)
    assert number > 0
    assert_near("hooked", pair.ours(x, ours), expected)
    assert len(calls) == 2 * number
    assert pair.ours.path_taken == "message passing hooks"
    for handle in handles:
        handle.remove()
    assert_near("unhooked", pair.ours(x, ours), pair.theirs(x, theirs))
    assert pair.ours.path_taken == "native"


@layers
@pytest.mark.parametrize("kind", ["SparseTensor", "csr", "Graph of csr", "Graph of SparseTensor"])
def test_hooks_of_fused_message_passing(name: str, kind: str) -> None:
    """A Graph made of a sparse adjacency goes back to one, and so to PyG's fused path."""
    pair, x = default_twins(name, 16, 8), features(60, 16)
    theirs, ours, _ = adjacency(kind, random_edges(60), None)
    calls = []
    for layer in (pair.theirs, pair.ours):
        layer.register_message_and_aggregate_forward_hook(lambda _layer, _inputs, out: calls.append(1) or 3 * out)
    expected, number = pair.theirs(x, theirs), len(calls)
    assert_near("hooked", pair.ours(x, ours), expected)
    assert len(calls) == 2 * number
    assert number > 0 or name == "LEConv"  # PyG's has nothing fused
    assert pair.ours.path_taken == "message passing hooks"


# TorchScript and ONNX -----------------------------------------------------------------------------


@layers
def test_trace(name: str) -> None:
    pair, edges, x = default_twins(name, 16, 8), random_edges(60), features(60, 16)
    traced = torch.jit.trace(pair.ours, (x, edges.index), check_trace=False)
    assert pair.ours.path_taken == "TorchScript or ONNX"
    assert_near("traced", traced(x, edges.index), pair.theirs(x, edges.index))


@layers
def test_script(name: str) -> None:
    pair, edges, x = default_twins(name, 16, 8), random_edges(60), features(60, 16)
    scripted = torch.jit.script(pair.ours)
    assert torch.equal(scripted(x, edges.index), torch.jit.script(pair.theirs)(x, edges.index))
    for theirs, ours in zip(scripted.parameters(), pair.ours.parameters(), strict=True):
        assert theirs.data_ptr() == ours.data_ptr()
    if name in ("SAGEConv", "GINConv"):  # TorchScript cannot load what PyG writes of the others
        buffer = io.BytesIO()
        torch.jit.save(scripted, buffer)
        buffer.seek(0)
        assert torch.equal(torch.jit.load(buffer)(x, edges.index), scripted(x, edges.index))
    assert type(pair.ours) is getattr(frontgi_pyg.nn, name)
    assert_near("afterwards", pair.ours(x, edges.index), pair.theirs(x, edges.index))


def test_script_where_pygs_class_was_never_made(run_python: Callable[..., str]) -> None:
    program = """
import torch, frontgi_pyg.nn
index, x = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.randn(3, 4)
for name in ("GCNConv", "SAGEConv", "SGConv"):
    layer = getattr(frontgi_pyg.nn, name)(4, 2)
    assert torch.allclose(torch.jit.script(layer)(x, index), layer(x, index), atol=1e-5)
"""
    run_python(program)


@pytest.mark.parametrize("model", [pyg.GCN, pyg.GraphSAGE, pyg.GIN])
def test_script_and_trace_of_a_model(model: Any) -> None:
    torch.manual_seed(0)
    theirs = model(16, 24, num_layers=2, out_channels=7).eval()
    fast, edges, x = accelerate(theirs), random_edges(60), features(60, 16)
    expected = theirs(x, edges.index)
    for recorded in (torch.jit.trace(fast, (x, edges.index), check_trace=False), torch.jit.script(fast)):
        assert_near("recorded", recorded(x, edges.index), expected)
        assert [conv.detail for conv in report(recorded).convs] == ["left: TorchScript"] * 2


def test_onnx_is_recorded_from_pygs_path(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = default_twins("SAGEConv", 16, 8)
    x, index = features(60, 16), random_edges(60).index
    assert pair.ours.fallback_reason(x, index) is None
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)  # it is torch.export that ONNX records
    assert pair.ours.fallback_reason(x, index) == "TorchScript or ONNX"
    assert_near("out", pair.ours(x, index), pair.theirs(x, index))


@pytest.mark.skipif(importlib.util.find_spec("onnx") is None, reason="onnx is not installed")
@layers
def test_onnx(name: str) -> None:
    pair, edges, x = default_twins(name, 16, 8), random_edges(60), features(60, 16)
    found = []
    for layer in (pair.theirs, pair.ours):
        buffer = io.BytesIO()
        torch.onnx.export(layer, (x, edges.index), buffer, dynamo=False, opset_version=18)
        found.append(len(buffer.getvalue()))
    assert found[0] == found[1]


# Subclasses ---------------------------------------------------------------------------------------


class Doubled(frontgi_pyg.nn.GCNConv):
    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
        return 2 * super().message(x_j, edge_weight)


class DoubledUpdate(frontgi_pyg.nn.SAGEConv):
    def update(self, inputs: Tensor) -> Tensor:
        return 2 * inputs


class DoubledAggregate(frontgi_pyg.nn.SAGEConv):
    def aggregate(self, inputs: Tensor, index: Tensor, dim_size: Optional[int] = None) -> Tensor:  # noqa: UP045
        return 2 * super().aggregate(inputs, index, dim_size=dim_size)


class GrandChild(DoubledUpdate):
    pass


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        (Doubled, "message"),
        (DoubledUpdate, "update"),
        (DoubledAggregate, "aggregate"),
        (GrandChild, "update"),
    ],
)
def test_overridden_methods_are_called(kind: Any, method: str) -> None:
    edges, x = random_edges(60), features(60, 16)
    for given_adjacency in (edges.index, Graph.from_edge_index(edges.index, 60)):
        layer = kind(16, 8, bias=False, **({} if kind is Doubled else {"root_weight": False}))
        plain = kind.__mro__[2 if kind is GrandChild else 1](16, 8, bias=False)
        if kind is not Doubled:
            plain = frontgi_pyg.nn.SAGEConv(16, 8, bias=False, root_weight=False)
        plain.load_state_dict(layer.state_dict())
        out = layer(x, given_adjacency)
        assert layer.path_taken == f"{method}() is overridden"
        assert report(layer).convs[0].status == "pyg"
        assert_near("out", out, 2 * plain(x, given_adjacency))


def test_a_subclass_that_overrides_nothing_stays_native() -> None:
    class Child(frontgi_pyg.nn.GCNConv):
        pass

    Child(16, 8)  # from here on PyG's generated propagate() stands on the class

    class GrandChildOfNothing(Child):
        def extra(self) -> int:
            return 1

    for kind in (Child, GrandChildOfNothing):
        layer = kind(16, 8)
        layer(features(60, 16), random_edges(60).index)
        assert layer.path_taken == "native"


def test_a_subclass_with_a_forward_of_its_own() -> None:
    class Residual(frontgi_pyg.nn.SAGEConv):
        def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
            return x + super().forward(x, edge_index, size)

    layer = Residual(16, 16)
    plain = pyg.SAGEConv(16, 16)
    plain.load_state_dict(layer.state_dict())
    x, edges = features(60, 16), random_edges(60)
    assert_near("out", layer(x, edges.index), x + plain(x, edges.index))
    assert layer.path_taken == "native"


# Transforms and forward-mode differentiation ------------------------------------------------------


TRANSFORMS: dict[str, Callable[[Any, Tensor], Any]] = {
    "vmap": lambda f, x: torch.func.vmap(f)(torch.stack([x, x.cos()])),
    "jvp": lambda f, x: torch.cat(torch.func.jvp(f, (x,), (x.cos(),))),
    "grad": lambda f, x: torch.func.grad(lambda t: f(t).square().sum())(x),
    "jacrev": lambda f, x: torch.func.jacrev(lambda t: f(t).sum(0))(x),
    "jacfwd": lambda f, x: torch.func.jacfwd(lambda s: f(s * x))(torch.tensor(0.5)),
    "vmap of grad": lambda f, x: torch.func.vmap(torch.func.grad(lambda t: f(t).square().sum()))(
        torch.stack([x, x.cos()])
    ),
}


@layers
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("kind", ["edge_index", "Graph of edge_index"])
def test_functional_transforms(name: str, transform: str, kind: str) -> None:
    pair, x = default_twins(name, 16, 8), features(60, 16)
    theirs, ours, _ = adjacency(kind, random_edges(60), None)
    expected = TRANSFORMS[transform](lambda t: pair.theirs(t, theirs), x)
    out = TRANSFORMS[transform](lambda t: pair.ours(t, ours), x)
    assert pair.ours.path_taken == "functional transforms"
    assert_near(transform, out, expected)
    assert out.abs().max() > 0


@layers
def test_forward_mode(name: str) -> None:
    pair, edges, x = default_twins(name, 16, 8), random_edges(60), features(60, 16)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, x.cos())
        tangents = [forward_ad.unpack_dual(layer(dual, edges.index)).tangent for layer in (pair.theirs, pair.ours)]
    assert pair.ours.path_taken == "functional transforms"
    assert_near("tangent", tangents[1], tangents[0])


@layers
def test_functional_call_is_native(name: str) -> None:
    pair, edges, x = default_twins(name, 16, 8), random_edges(60), features(60, 16)
    state = {key: 2 * value for key, value in pair.ours.named_parameters()}
    theirs, ours = (torch.func.functional_call(layer, state, (x, edges.index)) for layer in (pair.theirs, pair.ours))
    assert_near("out", ours, theirs)
    assert pair.ours.path_taken == "native"


@layers
def test_gradient_of_a_gradient(name: str) -> None:
    pair, edges = default_twins(name, 16, 8), random_edges(60)
    found = []
    for layer in (pair.theirs.double(), pair.ours.double()):
        x = features(60, 16, torch.float64).requires_grad_()
        first = torch.autograd.grad(layer(x, edges.index).pow(3).sum(), x, create_graph=True)[0]
        found.append(torch.autograd.grad(first.square().sum(), [x, *layer.parameters()], allow_unused=True))
    assert pair.ours.path_taken == "native"
    for theirs, ours in zip(*found, strict=True):
        assert theirs is ours is None or torch.allclose(ours, theirs, rtol=1e-9, atol=1e-9)


# Devices, dtypes, autocast ------------------------------------------------------------------------


@layers
@pytest.mark.parametrize("where", ["all", "features", "edges"])
def test_meta_device(name: str, where: str) -> None:
    pair, edges, x = default_twins(name, 16, 8), random_edges(60), features(60, 16)
    pair = Twins(pair.theirs.to("meta"), pair.ours.to("meta"))
    x = x.to("meta") if where != "edges" else x
    index = edges.index.to("meta") if where != "features" else edges.index
    try:
        expected = pair.theirs(x, index)
    except Exception as error:
        with pytest.raises(type(error)):
            pair.ours(x, index)
    else:
        out = pair.ours(x, index)
        assert out.shape == expected.shape
        assert out.device == expected.device
    assert "meta" in pair.ours.path_taken or "another device" in pair.ours.path_taken or "CPU" in pair.ours.path_taken


@layers
@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64, torch.float8_e4m3fn, torch.bool])
def test_features_of_other_dtypes(name: str, dtype: torch.dtype) -> None:
    x = (features(60, 16) * 4).to(dtype)
    pair = default_twins(name, 16, 8)
    if dtype == torch.complex64:
        pair = pair.to(dtype)
        for layer in (pair.theirs, pair.ours):
            layer.register_forward_hook(lambda _layer, _inputs, out: torch.view_as_real(out))
    assert_same_outcome(pair, x, random_edges(60).index)
    assert str(dtype) in pair.ours.path_taken


@layers
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["edge_index", "SparseTensor", "Graph of edge_index", "Graph of SparseTensor"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("backward", [True, False])
def test_autocast(name: str, half: torch.dtype, kind: str, bias: bool, backward: bool) -> None:
    """The same dtypes as PyG, and results as near to full precision."""
    kwargs: dict[str, Any] = {} if name in ("GINConv", *OF_ONE_WIDTH) or bias else {"bias": False}
    check_autocast(default_twins(name, 16, 8, **kwargs), half, kind, backward)


@pytest.mark.parametrize("kwargs", [{"project": True}, {"normalize": True}, {"aggr": "max"}], ids=str)
def test_autocast_of_sage(kwargs: dict[str, Any]) -> None:
    check_autocast(default_twins("SAGEConv", 16, 8, **kwargs), torch.bfloat16, "edge_index", "aggr" not in kwargs)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["edge_index", "Graph of edge_index", "SparseTensor"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kwargs", [{"normalize": False}, {"cached": True}, {"improved": True}], ids=str)
def test_autocast_of_gcn(bias: bool, kind: str, weighted: bool, kwargs: dict[str, Any]) -> None:
    pair = default_twins("GCNConv", 16, 8, bias=bias, **kwargs)
    check_autocast(pair, torch.bfloat16, kind, True, weighted)


def check_autocast(pair: Twins, half: torch.dtype, kind: str, backward: bool, weighted: bool = False) -> None:
    edges, x = random_edges(60, weighted=weighted), features(60, 16)
    theirs, ours, beside = adjacency(kind, edges, edges.weight)
    beside_args = () if beside is None else (beside,)
    found = []
    for layer, given_adjacency, context in (
        (copy.deepcopy(pair.theirs), theirs, contextlib.nullcontext()),
        (pair.theirs, theirs, torch.autocast("cpu", dtype=half)),
        (pair.ours, ours, torch.autocast("cpu", dtype=half)),
    ):
        leaf = x.clone().requires_grad_(backward)
        with context, torch.set_grad_enabled(backward):
            out = layer(leaf, given_adjacency, *beside_args)
        results = {"out": out.detach()}
        if backward:
            out.float().backward(features(*out.shape, seed=3))
            results |= {"x": leaf.grad, **{name: p.grad for name, p in layer.named_parameters()}}
        found.append(results)
    assert pair.ours.path_taken == "native"
    reference, theirs, ours = found
    for name in reference:
        assert ours[name].dtype == theirs[name].dtype, name
        norm = reference[name].abs().max()
        allowed = max(2 * (theirs[name].float() - reference[name]).abs().max(), 4 * torch.finfo(half).eps * norm)
        assert (ours[name].float() - reference[name]).abs().max() <= allowed, name
