# SPDX-License-Identifier: MIT
"""Our layer beside PyG's: the same weights, the same inputs, outputs and all gradients, and how far apart they may be.

The rule: against PyG's layer in float64, our largest error is at most twice PyG's own, or C * epsilon * depth times the
largest value. In float64 the two differ by at most 1e-12 of the largest value. Depth counts roundings: one for each
level of a layer, and the square root of the longest sum's terms, as which its roundings grow.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch_geometric.nn
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric import EdgeIndex

import frontgi_pyg.nn
from frontgi_pyg import Graph

C = 2
NEAR = 8  # the square root of the longest sum on a graph of 60 nodes
LEVELS = 4  # aggregate and update, forward and backward; every further hop adds two
# Called on features and an adjacency alone. GCN2Conv and the relational ones take more: see their own tests.
NORMALIZED = ("GCNConv", "SGConv", "APPNP", "TAGConv", "SSGConv", "LGConv")  # sum over PyG's normalised adjacency
BIPARTITE = ("SAGEConv", "GINConv", "GraphConv", "LEConv")  # take a pair of features
MESSAGE_PASSING = (*NORMALIZED, *BIPARTITE, "ClusterGCNConv")
WEIGHTED = (*NORMALIZED, "GraphConv", "LEConv")  # take edge weights beside an edge_index
OF_ONE_WIDTH = ("APPNP", "LGConv")  # without a weight matrix
HOPS = {"SGConv": 2, "APPNP": 3, "TAGConv": 3, "SSGConv": 2}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "SGConv": {"K": 2},
    "APPNP": {"K": 3, "alpha": 0.2},
    "SSGConv": {"K": 2, "alpha": 0.2},
    "ClusterGCNConv": {"diag_lambda": 0.5},
}
ATTENTION = ("GATConv", "GATv2Conv")


# Layers -------------------------------------------------------------------------------------------


@dataclass
class Twins:
    """PyG's layer and ours, on equal weights."""

    theirs: torch.nn.Module
    ours: torch.nn.Module

    def to(self, dtype: torch.dtype) -> Twins:
        return Twins(self.theirs.to(dtype), self.ours.to(dtype))


def twins(name: str, *args: Any, **kwargs: Any) -> Twins:
    """The layer called ``name``, of PyG and of ours; biases and epsilons are random too."""
    torch.manual_seed(0)
    theirs = getattr(torch_geometric.nn, name)(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    ours = getattr(frontgi_pyg.nn, name)(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    for parameter in theirs.parameters():
        if not isinstance(parameter, torch.nn.parameter.UninitializedParameter) and parameter.dim() == 1:
            torch.nn.init.normal_(parameter)
    ours.load_state_dict(theirs.state_dict())
    return Twins(theirs, ours)


def network(in_width: int, out_width: int, hidden: int = 12) -> torch.nn.Sequential:
    """What a GIN usually holds."""
    linear = torch.nn.Linear
    return torch.nn.Sequential(linear(in_width, hidden), torch.nn.ReLU(), linear(hidden, out_width))


def default_twins(name: str, in_width: int, out_width: int, **kwargs: Any) -> Twins:
    """The layer with the arguments that most people give it."""
    kwargs = ARGUMENTS.get(name, {}) | kwargs
    if name == "GINConv":
        return twins(name, network(in_width, out_width), **kwargs)
    return twins(name, **kwargs) if name in OF_ONE_WIDTH else twins(name, in_width, out_width, **kwargs)


def width_of(name: str, in_width: int, out_width: int) -> int:
    """The width of the output of ``default_twins(name, in_width, out_width)``."""
    return in_width if name in OF_ONE_WIDTH else out_width


def kinds_of(name: str) -> tuple[str, ...]:
    """The kinds of adjacency that PyG's layer takes, in float64 too."""
    refused = {
        "ClusterGCNConv": ("csr", "csc", "coo", "coalesced coo"),
        "LEConv": ("csc", "coo"),
        "GraphConv": ("EdgeIndex by col",),
    }.get(name, ("csc",) if name in NORMALIZED else ())
    return tuple(kind for kind in KINDS if kind.removeprefix("Graph of ") not in refused)


# Graphs -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Edges:
    """Edges from ``num_src`` sources to ``num_dst`` targets, to be handed over in any way that PyG takes."""

    index: Tensor
    num_src: int
    num_dst: int
    weight: Tensor | None = None

    @staticmethod
    def of(pairs: list[tuple[int, int]], num_nodes: int, weight: list[float] | None = None) -> Edges:
        index = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t().contiguous()
        return Edges(index, num_nodes, num_nodes, None if weight is None else torch.tensor(weight))


def random_edges(
    num_src: int, num_dst: int | None = None, *, degree: int = 5, weighted: bool = False, seed: int = 0
) -> Edges:
    """A bit of everything: loops, doubled loops, doubled edges, a hub, isolated nodes inside and at the end."""
    generator = torch.Generator().manual_seed(seed)
    square = num_dst is None
    num_dst = num_src if num_dst is None else num_dst

    def draw(high: int, number: int) -> Tensor:
        return torch.randint(0, max(1, high - 3), (number,), generator=generator)

    number = degree * num_dst
    index = torch.stack([draw(num_src, number), draw(num_dst, number)])
    hub = torch.stack([draw(num_src, num_dst), torch.full((num_dst,), 1)])
    index = torch.cat([index, hub, index[:, : number // 8]], dim=1)
    if square:
        loops = torch.tensor([0, 2, 2, 3])
        index = torch.cat([index, torch.stack([loops, loops])], dim=1)
    index = index[:, (index[1] != 5) & (index[0] != 6)]
    index = index[:, torch.randperm(index.size(1), generator=generator)]
    weight = torch.rand(index.size(1), generator=generator) + 0.1 if weighted else None
    return Edges(index, num_src, num_dst, weight)


def distinct(edges: Edges) -> Edges:
    """The same edges, each once: torch cannot differentiate a CSR matrix with doubled entries."""
    index = torch.unique(edges.index, dim=1).contiguous()
    weight = None if edges.weight is None else edges.weight[: index.size(1)]
    return Edges(index, edges.num_src, edges.num_dst, weight)


@st.composite
def small_edges(draw: st.DrawFn, bipartite: bool = False, weighted: bool | None = None) -> Edges:
    """Anything from no node at all to a dense multigraph."""
    num_src = draw(st.integers(0, 12))
    num_dst = draw(st.integers(0, 12)) if bipartite else num_src
    pairs = st.tuples(st.integers(0, max(0, num_src - 1)), st.integers(0, max(0, num_dst - 1)))
    listed = draw(st.lists(pairs, max_size=60)) if num_src and num_dst else []
    index = torch.tensor(listed, dtype=torch.int64).reshape(-1, 2).t().contiguous()
    has_weight = draw(st.booleans()) if weighted is None else weighted
    weight = None
    if has_weight:
        positive = st.floats(0.125, 4, width=32)
        weight = torch.tensor(draw(st.lists(positive, min_size=len(listed), max_size=len(listed))))
    return Edges(index, num_src, num_dst, weight)


# Adjacencies --------------------------------------------------------------------------------------


def _edge_index(edges: Edges, weight: Tensor | None, dtype: torch.dtype) -> tuple[Any, Tensor | None]:
    return edges.index, weight


def _edge_index_type(order: str | None) -> Callable[..., tuple[Any, Tensor | None]]:
    def build(edges: Edges, weight: Tensor | None, dtype: torch.dtype) -> tuple[Any, Tensor | None]:
        index = EdgeIndex(edges.index.clone(), sparse_size=(edges.num_src, edges.num_dst))
        if order is None:
            return index, weight
        ordered, perm = index.sort_by(order, stable=True)
        return ordered, weight if weight is None or perm is None else weight[perm]

    return build


def _compressed(edges: Edges, weight: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Row pointers, columns and values of the transposed adjacency, duplicates kept."""
    source, target = edges.index
    order = (target * max(1, edges.num_src) + source).argsort(stable=True)
    rowptr = torch.zeros(edges.num_dst + 1, dtype=torch.int64)
    rowptr[1:] = target.bincount(minlength=edges.num_dst).cumsum(0)
    value = torch.ones(source.numel(), dtype=dtype) if weight is None else weight[order]
    return rowptr, source[order], value


def _sparse_tensor(edges: Edges, weight: Tensor | None, dtype: torch.dtype) -> tuple[Any, None]:
    torch_sparse = pytest.importorskip("torch_sparse")
    source, target = edges.index
    sizes = (edges.num_dst, edges.num_src)
    return torch_sparse.SparseTensor(row=target, col=source, value=weight, sparse_sizes=sizes), None


def _csr(edges: Edges, weight: Tensor | None, dtype: torch.dtype) -> tuple[Any, None]:
    return torch.sparse_csr_tensor(*_compressed(edges, weight, dtype), (edges.num_dst, edges.num_src)), None


def _csc(edges: Edges, weight: Tensor | None, dtype: torch.dtype) -> tuple[Any, None]:
    flipped = Edges(edges.index.flip(0), edges.num_dst, edges.num_src)
    return torch.sparse_csc_tensor(*_compressed(flipped, weight, dtype), (edges.num_dst, edges.num_src)), None


def _coo(edges: Edges, weight: Tensor | None, dtype: torch.dtype) -> tuple[Any, None]:
    value = torch.ones(edges.index.size(1), dtype=dtype) if weight is None else weight
    return torch.sparse_coo_tensor(edges.index.flip(0), value, (edges.num_dst, edges.num_src)), None


ADJACENCIES: dict[str, Callable[..., tuple[Any, Tensor | None]]] = {
    "edge_index": _edge_index,
    "EdgeIndex": _edge_index_type(None),
    "EdgeIndex by row": _edge_index_type("row"),
    "EdgeIndex by col": _edge_index_type("col"),
    "SparseTensor": _sparse_tensor,
    "csr": _csr,
    "csc": _csc,
    "coo": _coo,
    "coalesced coo": lambda *args: (_coo(*args)[0].coalesce(), None),
}
SPARSE = ("SparseTensor", "csr", "csc", "coo", "coalesced coo")
# A Graph keeps the doubled entries of a COO matrix, which PyG adds up: a mean tells them apart.
GRAPHS = tuple(f"Graph of {kind}" for kind in ADJACENCIES if kind != "coo")
KINDS = (*ADJACENCIES, *GRAPHS)


def adjacency(
    kind: str, edges: Edges, weight: Tensor | None, dtype: torch.dtype = torch.float32, flow: str = "source_to_target"
) -> tuple[Any, Any, Tensor | None]:
    """The adjacency for PyG, the one for us, and the edge weight to be given beside either."""
    theirs, beside = ADJACENCIES[kind.removeprefix("Graph of ")](edges, weight, dtype)
    if not kind.startswith("Graph of "):
        return theirs, theirs, beside
    if kind.removeprefix("Graph of ") in SPARSE:
        return theirs, Graph.from_sparse(theirs), beside
    square = edges.num_src == edges.num_dst
    num_nodes = edges.num_src if square else (edges.num_src, edges.num_dst)
    return theirs, Graph.from_edge_index(theirs, num_nodes, flow=flow), beside


# Comparison ---------------------------------------------------------------------------------------

Features = Any  # a tensor, or a pair whose second may be None


def features(num_nodes: int, width: int, dtype: torch.dtype = torch.float32, *, seed: int = 1) -> Tensor:
    return torch.randn(num_nodes, width, generator=torch.Generator().manual_seed(seed)).to(dtype)


def evaluate(
    layer: torch.nn.Module,
    call: Callable[[Any, Tensor | None], tuple[Any, dict[str, Any]]],
    x: Features,
    weight: Tensor | None,
    backward: bool,
) -> dict[str, Tensor | None]:
    """The output and every gradient, by name. ``call`` makes the arguments after ``x`` from the leaf edge weights."""
    layer.zero_grad()
    pair = isinstance(x, tuple)
    given = x if pair else (x,)
    leaves = [t if t is None or not backward else t.detach().clone().requires_grad_() for t in given]
    leaf_weight = weight
    if weight is not None and weight.requires_grad:
        leaf_weight = weight.detach().clone().requires_grad_(backward)
    args, kwargs = call(layer, leaf_weight)
    with torch.set_grad_enabled(backward):
        out = layer(tuple(leaves) if pair else leaves[0], *args, **kwargs)
    found = {"out": out.detach()}
    if not backward:
        return found
    # What the output is multiplied by is representable in every dtype: all sides differentiate the same function.
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(7)).bfloat16()
    if out.requires_grad:  # PyG's may not, where nothing is left that does
        out.backward(cotangent.to(out.dtype))
    found |= {f"x[{i}].grad": t.grad for i, t in enumerate(leaves) if t is not None}
    if leaf_weight is not None and leaf_weight.requires_grad:
        found["edge_weight.grad"] = leaf_weight.grad
    found |= {f"{name}.grad": parameter.grad for name, parameter in layer.named_parameters()}
    return {name: None if t is None else t.clone() for name, t in found.items()}


def compare(
    pair: Twins,
    x: Features,
    edges: Edges,
    *,
    kind: str = "edge_index",
    path: str = "native",
    hops: int = 1,
    backward: bool = True,
    vanishing: tuple[str, ...] = (),
    **kwargs: Any,
) -> dict[str, Tensor | None]:
    """Runs both layers and asserts equal outputs and gradients, by the path that ``path`` names; returns ours.

    A weight of ``edges`` that requires a gradient is differentiated too. ``vanishing`` names gradients that are zero by
    themselves, where large terms cancel: roundings are all that any implementation returns there.
    """
    flow = getattr(pair.ours, "flow", "source_to_target")
    reference_layer = copy.deepcopy(pair.theirs).double()
    for cache in ("_cached_x", "_cached_h"):
        if getattr(reference_layer, cache, None) is not None:
            setattr(reference_layer, cache, getattr(reference_layer, cache).double())

    def call(layer: Any, weight: Tensor | None) -> tuple[Any, dict[str, Any]]:
        dtype = _dtype(x) if layer is not reference_layer else torch.float64
        theirs, ours, beside = adjacency(kind, edges, weight, dtype, flow)
        mine = ours if layer is pair.ours else theirs
        return (mine,) if beside is None else (mine, beside), kwargs

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*Converting sparse tensor to CSR.*")
        warnings.filterwarnings("ignore", ".*Sparse CSR tensor support is in beta.*")
        warnings.filterwarnings("ignore", ".*Sparse CSC tensor support is in beta.*")
        theirs = evaluate(pair.theirs, call, x, edges.weight, backward)
        ours = evaluate(pair.ours, call, x, edges.weight, backward)
        reference = theirs
        if _dtype(x) != torch.float64:
            reference = evaluate(reference_layer, call, _double(x), _double(edges.weight), backward)
    if kind.endswith("SparseTensor") and edges.index.numel() == 0:  # here PyG loses the gradient, which is zero
        missing = {name: torch.zeros_like(t) for name, t in ours.items() if t is not None and theirs[name] is None}
        theirs, reference = theirs | missing, reference | missing
    taken = pair.ours.path_taken
    assert taken == path if path == "native" else path in taken, taken
    assert ours.keys() == theirs.keys()
    longest = max(edges.num_src, edges.num_dst, (x[0] if isinstance(x, tuple) else x).size(-1))
    for ends in edges.index:
        longest = max([longest, *ends.bincount().tolist()])
    # Roundings of a sum in chains of 256 and of the chains' sums grow like the square root of their number.
    depth = LEVELS + 2 * (hops - 1) + math.sqrt(min(longest, 256)) + math.sqrt(longest / 256)
    # Through the normalisation, the gradient of an edge weight is a difference that may vanish (a lone loop's does)
    # between terms as large as the output: their size is what roundings are measured by.
    out = reference["out"]
    size_of_terms = out.abs().max().item() if out is not None and out.numel() else 0.0
    for name in theirs:
        least_norm = size_of_terms if name in ("edge_weight.grad", *vanishing) else 0.0
        assert_accurate(name, ours[name], theirs[name], reference[name], depth, least_norm)
    return ours


def assert_accurate(
    name: str,
    ours: Tensor | None,
    theirs: Tensor | None,
    reference: Tensor | None,
    depth: float,
    least_norm: float = 0.0,
) -> None:
    """Asserts that ``ours`` is as near to the float64 ``reference`` as ``theirs``, or a few roundings away."""
    if theirs is None or ours is None or reference is None:
        assert ours is theirs, f"{name}: ours is {ours}, PyG's is {theirs}"
        return
    assert ours.dtype == theirs.dtype, f"{name}: {ours.dtype} instead of {theirs.dtype}"
    assert ours.shape == theirs.shape, f"{name}: {list(ours.shape)} instead of {list(theirs.shape)}"
    if ours.numel() == 0:
        return
    assert torch.equal(ours.isnan(), theirs.isnan()), f"{name}: NaN elsewhere than PyG's"
    epsilon, is_double = torch.finfo(ours.dtype).eps, ours.dtype == torch.float64
    ours, theirs, reference = (t.double().nan_to_num(0) for t in (ours, theirs, reference))
    norm = max(reference.abs().max().item(), least_norm)
    if is_double:
        error, allowed = (ours - theirs).abs().max().item(), 1e-12 * norm
    else:
        error = (ours - reference).abs().max().item()
        allowed = max(2 * (theirs - reference).abs().max().item(), C * epsilon * depth * norm)
    assert error <= allowed, f"{name}: off by {error:.3g}, allowed {allowed:.3g}, norm {norm:.3g}"


def assert_same_outcome(pair: Twins, *args: Any, **kwargs: Any) -> None:
    """Asserts that both layers give the same result, or raise the same type of error."""
    try:
        expected = pair.theirs(*args, **kwargs)
    except Exception as error:
        with pytest.raises(type(error)):
            pair.ours(*args, **kwargs)
    else:
        out = pair.ours(*args, **kwargs)
        assert_near("out", out, expected)


def assert_near(name: str, ours: Tensor, theirs: Tensor) -> None:
    """Asserts that two results of the same computation in the same dtype are a few roundings apart."""
    assert ours.dtype == theirs.dtype, f"{name}: {ours.dtype} instead of {theirs.dtype}"
    assert ours.shape == theirs.shape, f"{name}: {list(ours.shape)} instead of {list(theirs.shape)}"
    assert torch.equal(ours.isnan(), theirs.isnan()), f"{name}: NaN elsewhere than PyG's"
    if ours.numel() > 0:
        ours, theirs = ours.detach().nan_to_num(0), theirs.detach().nan_to_num(0)
        epsilon, norm = torch.finfo(ours.dtype).eps, theirs.double().abs().max().item()
        error = (ours.double() - theirs.double()).abs().max().item()
        assert error <= 2 * C * epsilon * (LEVELS + NEAR) * norm, f"{name}: {error:.3g} apart, norm {norm:.3g}"


def _dtype(x: Features) -> torch.dtype:
    dtype: torch.dtype = (x[0] if isinstance(x, tuple) else x).dtype
    return dtype


def _double(x: Any) -> Any:
    if isinstance(x, tuple):
        return tuple(_double(t) for t in x)
    if x is None:
        return None
    return x.detach().double().requires_grad_(x.requires_grad)
