# SPDX-License-Identifier: MIT
"""The linear layers, and dense networks run through them, against torch's and PyG's own."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.nn import Linear as TheirPyGLinear

from frontgi_pyg.nn import Linear, PyGLinear
from frontgi_pyg.nn.linear import is_plain_linear, run_dense

from .compare import LEVELS, assert_accurate, assert_near, features

pytestmark = pytest.mark.usefixtures("one_thread")

PAIRS = {"torch": (nn.Linear, Linear), "PyG": (TheirPyGLinear, PyGLinear)}
flavours = pytest.mark.parametrize("flavour", PAIRS)


def layers(flavour: str, *sizes: int, **kwargs: Any) -> tuple[nn.Module, nn.Module]:
    theirs, ours = (kind(*sizes, **kwargs) for kind in PAIRS[flavour])
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


@flavours
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(33, 17), (1, 17), (0, 17), (2, 3, 17), (17,), (4, 0, 17)], ids=str)
def test_against_theirs(flavour: str, bias: bool, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    theirs, ours = layers(flavour, 17, 9, bias=bias)
    reference = copy.deepcopy(theirs.to(dtype)).double()
    ours = ours.to(dtype)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    cotangent = torch.randn(*shape[:-1], 9, generator=torch.Generator().manual_seed(1)).bfloat16()
    found = []
    for layer, cast in ((theirs, dtype), (ours, dtype), (reference, torch.float64)):
        leaf = x.to(cast, copy=True).requires_grad_()
        out = layer(leaf)
        out.backward(cotangent.to(cast))
        found.append({"out": out.detach(), "x": leaf.grad, **{n: p.grad for n, p in layer.named_parameters()}})
    for name in found[0]:
        assert_accurate(name, found[1][name], found[0][name], found[2][name], LEVELS + 33**0.5)


@flavours
def test_strides(flavour: str) -> None:
    theirs, ours = layers(flavour, 16, 9)
    for x in (features(16, 40).t(), features(40, 32)[:, ::2], features(40, 1).expand(40, 16), features(80, 16)[::2]):
        assert_near("out", ours(x), theirs(x))


@flavours
def test_autocast(flavour: str) -> None:
    theirs, ours = layers(flavour, 16, 9)
    x = features(40, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_near("out", ours(x), theirs(x))


@flavours
def test_what_the_kernel_does_not_take_goes_to_torch(flavour: str) -> None:
    theirs, ours = layers(flavour, 16, 9)
    sparse = features(40, 16).relu().to_sparse()
    assert_near("sparse", ours(sparse), theirs(sparse))
    meta = copy.deepcopy(ours).to("meta")(torch.empty(40, 16, device="meta"))
    assert meta.shape == (40, 9)
    assert meta.device.type == "meta"
    with pytest.raises(RuntimeError):
        ours(features(40, 16).double())
    with pytest.raises(RuntimeError):
        ours(features(40, 15).squeeze(0)[0])


@flavours
def test_functional_transforms(flavour: str) -> None:
    theirs, ours = layers(flavour, 16, 9)
    x = torch.stack([features(5, 16, seed=s) for s in range(3)])
    assert_near("vmap", torch.func.vmap(ours)(x), torch.func.vmap(theirs)(x))
    for mine, other in zip(
        torch.func.jvp(ours, (x,), (x.cos(),)), torch.func.jvp(theirs, (x,), (x.cos(),)), strict=True
    ):
        assert_near("jvp", mine, other)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x.cos())
        tangents = [torch.autograd.forward_ad.unpack_dual(layer(dual)).tangent for layer in (ours, theirs)]
        assert_near("forward mode", *tangents)


@flavours
def test_script_and_trace(flavour: str) -> None:
    theirs, ours = layers(flavour, 16, 9)
    x = features(40, 16)
    assert torch.equal(torch.jit.script(ours)(x), theirs(x))
    assert torch.equal(torch.jit.trace(ours, (x,))(x), theirs(x))


def test_lazy_width() -> None:
    theirs, ours = TheirPyGLinear(-1, 9), PyGLinear(-1, 9)
    x = features(40, 16)
    found = []
    for layer in (theirs, ours):
        torch.manual_seed(0)
        found.append(layer(x))
    assert_near("out", found[1], found[0])
    assert ours.weight.shape == (9, 16)


@flavours
def test_repr(flavour: str) -> None:
    theirs, ours = layers(flavour, 16, 9)
    assert repr(ours).removeprefix("PyG") == repr(theirs)


# Networks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "network",
    [
        nn.Sequential(),
        nn.Sequential(nn.Linear(16, 9)),
        nn.Sequential(nn.Linear(16, 9), nn.ReLU()),
        nn.Sequential(nn.ReLU(), nn.Linear(16, 9)),
        nn.Sequential(nn.Linear(16, 9), nn.ReLU(), nn.ReLU(), nn.Linear(9, 4)),
        nn.Sequential(nn.Linear(16, 9), nn.BatchNorm1d(9), nn.Tanh(), nn.Linear(9, 4), nn.ReLU()),
        nn.Sequential(nn.Linear(16, 9), nn.ReLU6(), nn.Linear(9, 4)),
    ],
    ids=["empty", "linear", "fused", "ReLU first", "two ReLU", "norm", "ReLU6"],
)
def test_run_dense(network: nn.Sequential) -> None:
    x = features(40, 16)
    network.eval()  # in training, the gradient of a bias before a norm is nothing but rounding
    found = []
    for run in (network, lambda t: run_dense(list(network), t)):
        network.zero_grad()
        leaf = x.clone().requires_grad_()
        out = run(leaf)
        (out * features(40, out.size(1), seed=4)).sum().backward()
        found.append([out, leaf.grad, *(p.grad.clone() for p in network.parameters())])
    for theirs, ours in zip(*found, strict=True):
        assert_near("network", ours, theirs)


def test_plain_linears() -> None:
    class Scaled(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(input)

    assert is_plain_linear(nn.Linear(2, 2))
    assert is_plain_linear(TheirPyGLinear(2, 2))
    assert is_plain_linear(Linear(2, 2))
    assert is_plain_linear(PyGLinear(2, 2))
    assert not is_plain_linear(Scaled(2, 2))
    assert not is_plain_linear(TheirPyGLinear(-1, 2))
    assert not is_plain_linear(nn.LazyLinear(2))
    assert not is_plain_linear(nn.ReLU())
    assert not is_plain_linear(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)))
    for register in ("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"):
        layer = nn.Linear(2, 2)
        getattr(layer, register)(lambda *_: None)
        assert not is_plain_linear(layer)
