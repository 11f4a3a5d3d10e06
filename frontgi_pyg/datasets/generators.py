# SPDX-License-Identifier: MIT
"""Seeded graphs of four shapes: Kronecker, uniform, power law, molecules.

Idea: one graph per arguments, seed and version of NumPy, however many threads there are; drawn
block by block, so that the memory needed beyond the result stays small.

Layout: edges are sorted by target, then source (CSR order), unless a function says otherwise.
Ids carry no meaning but in :func:`molecules`: hubs are spread at random.

Invariant: no id is out of range, and, where a function promises distinct edges, none is there
twice.

Sources: Graph500 benchmark specification 2.0, section 3 (Kronecker; Leskovec et al., JMLR 2010);
Chung and Lu, Annals of Combinatorics 2002 (expected degrees); FrontGI (arXiv 2610.34911), table 2,
for the shapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch

from .edge_list import EdgeList, Ints

# Edges drawn at once: 1 MiB of int64, which stays in a private cache.
_BLOCK = 1 << 17
# Times that duplicates are drawn anew before the rest is chosen from what is left.
_ATTEMPTS = 16

_GRAMMAR = (
    "'kronecker:SCALE[xEDGE_FACTOR]', 'uniform:NODESxDEGREE', "
    "'powerlaw:NODESxEDGES:EXPONENT[:MAX_DEGREE]' or 'molecules:NODES[xEDGES]'"
)


def _rng(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(seed))


def _require(condition: bool, function: str, requirement: str, got: object) -> None:
    if not condition:
        raise ValueError(f"{function}: {requirement} (got {got})")


# ---- Kronecker -----------------------------------------------------------------------------------


def kronecker(
    scale: int,
    edge_factor: int = 16,
    a: float = 0.57,
    b: float = 0.19,
    c: float = 0.19,
    seed: int = 0,
    *,
    symmetric: bool = True,
    keep_duplicates: bool = False,
    keep_isolated: bool = False,
) -> EdgeList:
    """Draws a Graph500 Kronecker graph.

    Each of ``edge_factor * 2**scale`` edges falls, ``scale`` times over, into one quadrant of the
    adjacency matrix, with probabilities ``a, b, c, 1 - a - b - c``; then the ids are permuted. By
    default, as in Graph500's own kernels, the graph is undirected, and duplicates, self-loops and
    isolated nodes are removed. ``kronecker(19)`` is the paper's S19: 335,494 nodes and 15,482,231
    edges are expected, theirs has 335,319 and 15,459,349.

    Args:
        scale: Binary logarithm of the number of nodes drawn, 1 to 31.
        edge_factor: Edges drawn per node.
        a: Probability of the quadrant where both ends are in the lower half.
        b: Of that where only the target is in the upper half.
        c: Of that where only the source is.
        seed: The same seed gives the same graph.
        symmetric: Add the reverse of every edge.
        keep_duplicates: Keep duplicates and self-loops; edges are then not sorted, but stand as
            drawn, all reversed ones (those of loops, too) after all others.
        keep_isolated: Keep nodes without edges; otherwise the others move up, in order.

    Returns:
        ``edge_index``, ``[2, num_edges]``, ``int64``, and ``num_nodes``.
    """
    _require(1 <= scale <= 31, "kronecker", "'scale' must be from 1 to 31", scale)
    _require(edge_factor >= 0, "kronecker", "'edge_factor' must not be negative", edge_factor)
    fair = min(a, b, c) >= 0 and a + b + c <= 1
    _require(fair, "kronecker", "'a', 'b', 'c' must be probabilities, their sum 1 at most", (a, b, c))
    rng, drawn, num_names = _rng(seed), edge_factor << scale, 1 << scale
    names = rng.permutation(num_names)
    touched = np.zeros(num_names, bool)
    keys = np.empty(drawn << symmetric, np.int64)  # target * num_names + source
    for low in range(0, drawn, _BLOCK):
        high = min(low + _BLOCK, drawn)
        sources, targets = names[_quadrants(rng, scale, high - low, (a, b, c))]
        loop = sources == targets if not keep_duplicates else np.zeros(high - low, bool)
        touched[sources[~loop]] = touched[targets[~loop]] = True
        keys[low:high] = np.where(loop, -1, (targets << scale) | sources)
        if symmetric:
            keys[drawn + low : drawn + high] = np.where(loop, -1, (sources << scale) | targets)
    if not keep_duplicates:
        keys.sort()
        keys = keys[_is_first(keys) & (keys >= 0)]
    if keep_isolated:
        touched[:] = True
    ids = np.cumsum(touched) - 1
    edge_index = np.empty((2, keys.size), np.int64)
    for low in range(0, keys.size, _BLOCK):
        block = keys[low : low + _BLOCK]
        edge_index[0, low : low + _BLOCK] = ids[block & (num_names - 1)]
        edge_index[1, low : low + _BLOCK] = ids[block >> scale]
    return EdgeList(torch.from_numpy(edge_index), int(touched.sum()))


def _quadrants(
    rng: np.random.Generator, scale: int, count: int, odds: tuple[float, float, float]
) -> npt.NDArray[np.int32]:
    """Sources and targets, ``[2, count]``, before ids are permuted."""
    a, ab, abc = np.cumsum(odds, dtype=np.float32)
    ends = np.zeros((2, count), np.int32)
    for _ in range(scale):
        u = rng.random(count, np.float32)
        below = u >= ab
        right = (u >= a) ^ below ^ (u >= abc)
        ends += ends
        ends[0] += below
        ends[1] += right
    return ends


def _is_first(keys: Ints) -> npt.NDArray[np.bool_]:
    """Whether each of sorted keys is the first of its value."""
    first = np.ones(keys.size, bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return first


# ---- given degrees, distinct sources -------------------------------------------------------------


def uniform(num_nodes: int, degree: int, seed: int = 0) -> EdgeList:
    """Gives every node ``degree`` distinct sources, all sets of sources alike.

    A node may be its own source, as probably as any other.

    Args:
        num_nodes: Number of nodes.
        degree: In-degree of every node, ``num_nodes`` at most; out-degrees are binomial.
        seed: The same seed gives the same graph.

    Returns:
        ``edge_index``, ``[2, num_nodes * degree]``, ``int64``, and ``num_nodes``.
    """
    _require(num_nodes >= 0, "uniform", "'num_nodes' must not be negative", num_nodes)
    _require(0 <= degree <= num_nodes, "uniform", f"'degree' must be 0 to {num_nodes}", degree)
    rng = _rng(seed)
    degrees = np.full(num_nodes, degree)
    return _fill_rows(rng, degrees, lambda count: rng.integers(0, num_nodes, count))


def power_law(
    num_nodes: int,
    num_edges: int,
    exponent: float,
    max_degree: int | None = None,
    seed: int = 0,
) -> EdgeList:
    r"""Draws a directed graph whose degrees follow a power law, :math:`p(k) \sim k^{-\alpha}`.

    In-degrees are set, not drawn: the :math:`i`-th largest is proportional to
    :math:`(i + s)^{-1 / (\alpha - 1)}`, with :math:`s` such that the largest is ``max_degree`` and
    the sum ``num_edges``, and at least 1 if there are edges enough. Sources are drawn in
    proportion to the same degrees (Chung-Lu), distinct for each target: out-degrees follow the
    same law, blurred, and the largest ones fall short by what distinctness takes. A node may be
    its own source.

    Args:
        num_nodes: Number of nodes.
        num_edges: Number of edges, exactly.
        exponent: :math:`\alpha > 1`.
        max_degree: The largest in-degree, exactly, ``num_nodes`` at most; by default what the law
            gives with :math:`s = 0`.
        seed: The same seed gives the same graph.

    Returns:
        ``edge_index``, ``[2, num_edges]``, ``int64``, and ``num_nodes``.
    """
    name = "power_law"
    _require(num_nodes >= 0, name, "'num_nodes' must not be negative", num_nodes)
    _require(exponent > 1, name, "'exponent' must be above 1", exponent)
    top = num_nodes if max_degree is None else max_degree
    _require(0 <= top <= num_nodes, name, f"'max_degree' must be 0 to {num_nodes}", max_degree)
    want = f"'num_edges' must be 0 to {top * num_nodes}, num_nodes x max_degree"
    _require(0 <= num_edges <= top * num_nodes, name, want, num_edges)
    law = _power_law_degrees(num_nodes, num_edges, exponent, max_degree)
    rng = _rng(seed)
    degrees = rng.permutation(law)
    ends = np.repeat(np.arange(num_nodes, dtype=np.int32), degrees)
    return _fill_rows(rng, degrees, lambda count: ends[rng.integers(0, num_edges, count)])


def _power_law_degrees(n: int, num_edges: int, exponent: float, max_degree: int | None) -> Ints:
    """Degrees in falling order, of a given sum."""
    if not num_edges:
        return np.zeros(n, np.int64)
    least = int(num_edges >= n)
    rest = num_edges - least * n
    rank = np.arange(1.0, n + 1)
    # The sum over ranks, from about 2000 of them: trapezia, exact where no rank is left out.
    knots = np.unique(np.geomspace(1, n, 2000).astype(np.int64)).astype(np.float64)

    def curve(ranks: npt.NDArray[np.float64], shift: float) -> npt.NDArray[np.float64]:
        return ((ranks - 1 + shift) / shift) ** (-1 / (exponent - 1))

    def total(shift: float) -> float:
        at = curve(knots, shift)
        return float(((at[1:] + at[:-1]) * np.diff(knots)).sum() + at[0] + at[-1]) / 2

    top = min(rest / total(1.0), n - least) if max_degree is None else max_degree - least
    _require(top <= rest, "power_law", f"'max_degree' must be {rest + least} at most", max_degree)
    low, high = -900.0, 80.0  # binary logarithm of s + 1
    for _ in range(64):
        middle = (low + high) / 2
        low, high = (middle, high) if top * total(2**middle) < rest else (low, middle)
    law = top * curve(rank, 2**high)
    law[1:] = np.minimum(law[1:] * ((rest - law[0]) / max(law[1:].sum(), 1e-300)), law[0])
    # Rounding the running sum keeps the total, and spreads degrees below one evenly.
    degrees = np.diff(np.floor(np.cumsum(law) + 0.5), prepend=0).astype(np.int64) + least
    short = num_edges - int(degrees.sum())
    while short:
        open_rows = np.flatnonzero(degrees < int(top) + least)[:short]
        degrees[open_rows] += 1
        short -= len(open_rows)
    return degrees


def _fill_rows(rng: np.random.Generator, degrees: Ints, draw: Callable[[int], npt.NDArray[np.integer]]) -> EdgeList:
    """Gives each target its number of distinct sources, by block of targets."""
    num_nodes = degrees.size
    ends = np.concatenate([[0], np.cumsum(degrees)])
    edge_index = np.empty((2, int(ends[-1])), np.int64)
    cuts = np.searchsorted(ends, np.arange(0, ends[-1], _BLOCK))
    for low, high in pairwise(np.unique([*cuts, num_nodes]).tolist()):
        targets = np.repeat(np.arange(low, high), degrees[low:high])
        keys = _distinct_keys(rng, targets, num_nodes, draw)
        edge_index[0, ends[low] : ends[high]] = keys - targets * num_nodes
        edge_index[1, ends[low] : ends[high]] = targets
    return EdgeList(torch.from_numpy(edge_index), num_nodes)


def _distinct_keys(
    rng: np.random.Generator,
    targets: Ints,
    num_nodes: int,
    draw: Callable[[int], npt.NDArray[np.integer]],
) -> Ints:
    """Sorted keys ``target * num_nodes + source``, all different, one for each of ``targets``.

    Sources that a target has already are drawn again. That favours no source beyond what ``draw``
    does, as keeping the first and skipping repeats in one long sequence would.
    """
    found, need = targets[:0], targets
    for _ in range(_ATTEMPTS):
        keys = np.sort(need * num_nodes + draw(need.size))
        keys = np.sort(np.concatenate([found, keys]), kind="stable")  # merges two sorted runs
        first = _is_first(keys)
        found, need = keys[first], keys[~first] // num_nodes
        if not need.size:
            return found
    rest = [found]
    for target, missing in zip(*np.unique(need, return_counts=True), strict=True):
        begin = target * num_nodes
        taken = found[np.searchsorted(found, begin) : np.searchsorted(found, begin + num_nodes)]
        free = np.delete(np.arange(num_nodes), taken - begin)
        rest.append(begin + rng.choice(free, missing, replace=False))
    return np.sort(np.concatenate(rest))


# ---- molecules -----------------------------------------------------------------------------------


def molecules(num_nodes: int, num_edges: int | None = None, seed: int = 0) -> EdgeList:
    """Draws many small components, shaped like the molecules of MolHIV and Tox21.

    A component has 8 to 43 nodes with consecutive ids: a chain with short branches, closed here
    and there to a ring of its six last nodes. No node has more than 6 neighbours. Every
    undirected edge stands in both directions; there are no loops and no duplicates.

    Args:
        num_nodes: Number of nodes, 2 at least.
        num_edges: Directed edges, an even number; it sets how many rings there are and can vary
            from about 1.93 to 2.2 per node. By default 2.1535 per node, as in MolHIV (table 2),
            or as near as the components allow.
        seed: The same seed gives the same graph.

    Returns:
        ``edge_index``, ``[2, num_edges]``, ``int64``, and ``num_nodes``.
    """
    _require(num_nodes >= 2, "molecules", "'num_nodes' must be 2 at least", num_nodes)
    rng = _rng(seed)
    starts = np.cumsum(rng.integers(8, 44, num_nodes // 8 + 1))
    starts = np.concatenate([[0], starts[starts <= num_nodes - 8]])  # the last takes what is left
    place = np.arange(num_nodes) - np.repeat(starts, np.diff(starts, append=num_nodes))
    children = np.flatnonzero(place)
    offsets = np.repeat([1, 2, 3], [15, 4, 1])[rng.integers(0, 20, children.size)]
    parents = children - np.minimum(offsets, place[children])

    sites = np.flatnonzero(place % 6 == 5)  # the last of six, each six apart from the others
    rings_max, trees = sites.size, children.size
    if num_edges is None:
        rings = min(max(round(num_nodes * 2.1535 / 2) - trees, 0), rings_max)
    else:
        rings = num_edges // 2 - trees
        want = f"'num_edges' must be even, {2 * trees} to {2 * (trees + rings_max)}"
        good = num_edges % 2 == 0 and 0 <= rings <= rings_max
        _require(good, "molecules", f"{want} for these nodes and seed", num_edges)
    closing = rng.choice(sites, rings, replace=False)
    upper = np.concatenate([children, closing])
    lower = np.concatenate([parents, closing - 5])
    keys = np.sort(np.concatenate([upper * num_nodes + lower, lower * num_nodes + upper]))
    edge_index = np.stack([keys % num_nodes, keys // num_nodes])
    return EdgeList(torch.from_numpy(edge_index), num_nodes)


# ---- by name -------------------------------------------------------------------------------------

_SHAPES: tuple[tuple[str, Callable[..., EdgeList]], ...] = (
    (r"kronecker:(?P<scale>\d+)(x(?P<edge_factor>\d+))?", kronecker),
    (r"uniform:(?P<num_nodes>\d+)x(?P<degree>\d+)", uniform),
    (
        r"powerlaw:(?P<num_nodes>\d+)x(?P<num_edges>\d+):(?P<exponent>\d+(\.\d+)?)"
        r"(:(?P<max_degree>\d+))?",
        power_law,
    ),
    (r"molecules:(?P<num_nodes>\d+)(x(?P<num_edges>\d+))?", molecules),
)


def generate(spec: str, seed: int = 0) -> EdgeList:
    """Draws the graph that a short text describes.

    Args:
        spec: ``kronecker:SCALE[xEDGE_FACTOR]``, ``uniform:NODESxDEGREE``,
            ``powerlaw:NODESxEDGES:EXPONENT[:MAX_DEGREE]`` or ``molecules:NODES[xEDGES]``.
        seed: The same seed gives the same graph.

    Raises:
        ValueError: The text is none of these, or a number in it is out of range.

    Example:
        >>> generate("uniform:10x3").edge_index.shape
        torch.Size([2, 30])
    """
    for pattern, generator in _SHAPES:
        if match := re.fullmatch(pattern, spec, re.ASCII):
            given = {name: text for name, text in match.groupdict().items() if text is not None}
            numbers = {k: float(v) if k == "exponent" else int(v) for k, v in given.items()}
            return generator(**numbers, seed=seed)
    raise ValueError(f"generate: 'spec' must be {_GRAMMAR} (got {spec!r})")
