# SPDX-License-Identifier: MIT
"""The Planetoid graphs: pickles of Python 2, read without running them.

Idea: a pickle is a program that names what it wants to call. The unpickler here knows the few
names that these files need and maps those of NumPy and SciPy to stand-ins which only keep what
they are given; the arrays are then rebuilt from raw bytes. Any other name is refused.

Layout: ``ind.NAME.graph`` is ``{node: [neighbours]}``; ``allx`` and ``ally`` are the features and
one-hot labels of the first nodes, ``tx`` and ``ty`` those of the nodes in ``test.index``, in that
order. Ids that are in neither (15 of CiteSeer's) have no features and no label.

Source: Yang, Cohen, Salakhutdinov, "Revisiting Semi-Supervised Learning with Graph Embeddings",
ICML 2016.
"""

from __future__ import annotations

import pickle
import re
from collections import defaultdict
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .edge_list import (
    AnyArray,
    EdgeList,
    Ints,
    broken,
    csr_entries,
    edge_tensor,
    feature_tensor,
)
from .text import Rows


class _Dtype:
    """Stands for ``numpy.dtype``: plain numbers only."""

    def __init__(self, code: str, *_: object) -> None:
        if not re.fullmatch(r"b1|[iu][1248]|f[248]", code):
            raise pickle.UnpicklingError(f"an array of numbers expected, got dtype {code!r}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype = self.dtype.newbyteorder(">" if state[1] == ">" else "<")


class _Array:
    """Stands for ``numpy.ndarray``."""

    array: AnyArray

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, by_columns, raw = state
        raw = raw.encode("latin1") if isinstance(raw, str) else raw
        flat = np.frombuffer(raw, dtype.dtype)
        self.array = flat.reshape(shape, order="F" if by_columns else "C")


class _Csr:
    """Stands for ``scipy.sparse.csr_matrix``: its attributes are what the file says."""


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _encode(text: str, _: str = "latin1") -> bytes:
    return text.encode("latin1")


_STAND_INS = {
    "collections.defaultdict": defaultdict,
    "__builtin__.list": list,
    "builtins.list": list,
    "numpy.dtype": _Dtype,
    "numpy.ndarray": _Array,
    "numpy.core.multiarray._reconstruct": _reconstruct,
    "numpy._core.multiarray._reconstruct": _reconstruct,
    "scipy.sparse.csr.csr_matrix": _Csr,
    "scipy.sparse._csr.csr_matrix": _Csr,
    "_codecs.encode": _encode,  # how Python 3 writes bytes for Python 2
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _STAND_INS[f"{module}.{name}"]
        except KeyError:
            raise pickle.UnpicklingError(f"refused to load {module}.{name}") from None


def _unpickle(path: Path) -> Any:
    with open(path, "rb") as file:
        try:
            return _Unpickler(file, encoding="latin1").load()
        except Exception as error:  # a broken pickle may raise anything
            raise broken(path, "pickle", "arrays, or a dict of lists", error) from error


def read_planetoid(path: str | PathLike[str]) -> EdgeList:
    """Reads a Planetoid graph and, where its parts stand beside it, features and labels.

    Args:
        path: ``ind.NAME.graph``. Features and labels are read if any of ``allx``, ``ally``,
            ``tx``, ``ty`` and ``test.index`` is there, and then all must be.

    Returns:
        The lists' entries in their order, duplicates kept; ``y`` is ``-1`` for a node without a
        label (PyG says 0 there).

    Raises:
        ValueError: A pickle is broken or names anything but plain arrays, CSR matrices,
            dicts and lists; a part is missing; or parts disagree.
    """
    path = Path(path)
    graph = _unpickle(path)
    if not isinstance(graph, dict) or not all(isinstance(ids, list) for ids in graph.values()):
        raise broken(path, "pickle", "a dict of lists", type(graph).__name__)
    for node, ids in graph.items():
        if not all(type(i) is int and 0 <= i < 2**31 for i in (node, *ids)):
            raise broken(path, f"key {node!r}", "node ids, integers from 0", repr(ids)[:80])
    sources = np.repeat(np.array([*graph], np.int64), [*map(len, graph.values())])
    targets = np.array([*chain.from_iterable(graph.values())], np.int64)
    num_nodes = max(max(graph, default=-1), int(targets.max(initial=-1))) + 1
    edge_index = edge_tensor(np.stack([sources, targets], axis=1))

    base = path.name.removesuffix("graph")
    parts = {p: path.with_name(base + p) for p in ("allx", "ally", "tx", "ty", "test.index")}
    missing = [part.name for part in parts.values() if not part.exists()]
    if len(missing) == len(parts):
        return EdgeList(edge_index, num_nodes)
    if missing:
        raise broken(path, "folder", f"{missing[0]} beside it", "no such file")

    test = Rows(parts["test.index"])
    test_index: Ints = test.read((1,))
    test.check_ids(test_index, 0, num_nodes - 1)
    test_nodes = test_index[:, 0]
    allx, x_values, num_first, width = _features(parts["allx"])
    tx, tx_values, num_test, _ = _features(parts["tx"], width)
    if num_first > num_nodes:
        raise broken(parts["allx"], "shape", f"{num_nodes} rows at most", num_first)
    if num_test != len(test_nodes):
        raise broken(parts["tx"], "shape", f"{len(test_nodes)} rows, as test.index", num_test)
    rows = np.concatenate([allx[:, 0], test_nodes[tx[:, 0]]])
    columns = np.concatenate([allx[:, 1], tx[:, 1]])
    values = np.concatenate([x_values, tx_values])
    y = np.full(num_nodes, -1)
    y[:num_first] = _labels(parts["ally"], num_first)
    y[test_nodes] = _labels(parts["ty"], num_test)
    x = feature_tensor(rows, columns, values, (num_nodes, width))
    return EdgeList(edge_index, num_nodes, x, torch.from_numpy(y))


def _features(path: Path, width: int | None = None) -> tuple[Ints, AnyArray, int, int]:
    """Entries ``[num_entries, 2]``, values, rows and columns of a pickled CSR matrix."""
    part = _unpickle(path)
    state = vars(part) if isinstance(part, _Csr) else {}
    names = ("indptr", "indices", "data")
    arrays = [getattr(state.get(name), "array", None) for name in names]
    indptr, indices, data = arrays
    if indptr is None or indices is None or data is None:
        raise broken(path, "pickle", "a CSR matrix", type(part).__name__.strip("_"))
    shape = state.get("_shape", state.get("shape"))
    want = f"({indptr.size - 1}, {'columns' if width is None else width})"
    match shape:
        case (int(rows), int(columns)) if rows == indptr.size - 1 and width in (None, columns):
            entries = csr_entries(path, names, (indptr, indices, data), columns)
            return entries, data, rows, columns
    raise broken(path, "shape", want, shape)


def _labels(path: Path, num_rows: int) -> Ints:
    """The class of each row of a pickled one-hot matrix; -1 where the row is empty."""
    one_hot = getattr(_unpickle(path), "array", None)
    if one_hot is None or one_hot.ndim != 2 or len(one_hot) != num_rows or not one_hot.shape[1]:
        got = "another object" if one_hot is None else list(one_hot.shape)
        raise broken(path, "pickle", f"an array of {num_rows} rows", got)
    labels: Ints = np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)
    return labels
