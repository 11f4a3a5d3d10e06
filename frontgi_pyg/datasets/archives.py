# SPDX-License-Identifier: MIT
"""Graphs in NumPy archives.

Idea: entry ``(i, j)`` of the adjacency matrix is the edge ``i → j``, in the order in which the
archive stores its entries. Archives are opened without pickles.

Source: Shchur et al., "Pitfalls of Graph Neural Network Evaluation" (2018), for ``adj_*`` and
``attr_*``.
"""

from __future__ import annotations

from collections.abc import Set
from os import PathLike
from pathlib import Path

import numpy as np

from .edge_list import (
    AnyArray,
    EdgeList,
    Ints,
    broken,
    csr_entries,
    edge_tensor,
    feature_tensor,
    label_tensor,
    weight_tensor,
)


def load_arrays(path: Path, keys: Set[str]) -> dict[str, AnyArray]:
    """The arrays of an ``.npz`` that are called so; a missing one is left out."""
    arrays = {}
    with open(path, "rb") as file:
        try:
            archive = np.load(file, allow_pickle=False)
        except Exception as error:  # zipfile lets through whatever it stumbles on
            raise broken(path, "archive", "an .npz", error) from error
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise broken(path, "archive", "an .npz", "a single array")
        for key in filter(keys.__contains__, archive.files):
            try:
                arrays[key] = archive[key]
            except Exception as error:
                raise broken(path, f"key {key!r}", "a plain array", error) from error
    return arrays


def read_npz(path: str | PathLike[str]) -> EdgeList:
    """Reads a CSR matrix from a NumPy archive.

    Two styles of keys: ``indptr, indices``, optionally ``data, shape, x, y`` (SciPy's ``save_npz``
    is one of these); and ``adj_indptr, adj_indices``, optionally ``adj_data, adj_shape``,
    ``attr_*`` for sparse features, and ``labels``.

    Args:
        path: The ``.npz``.

    Raises:
        ValueError: A key is missing, holds objects, breaks CSR or disagrees with another.
    """
    path = Path(path)
    parts = ("indptr", "indices", "data", "shape")
    keys = {*parts, *(f"{p}_{n}" for p in ("adj", "attr") for n in parts)}
    arrays = load_arrays(path, keys | {"format", "x", "y", "labels"})
    layout = str(arrays.get("format", np.array("csr")).astype(str))
    if layout != "csr":
        raise broken(path, "key 'format'", "'csr'", repr(layout))
    prefix = "adj_" if {"adj_indptr", "adj_indices"} & arrays.keys() else ""
    edges, weights, (num_nodes, num_columns) = _csr(path, arrays, prefix)
    if num_nodes != num_columns:
        got = f"{num_nodes} x {num_columns}"
        raise broken(path, f"key {prefix + 'shape'!r}", "a square matrix", got)

    x = y = None
    if "attr_indptr" in arrays:
        entries, values, shape = _csr(path, arrays, "attr_")
        if shape[0] != num_nodes:
            raise broken(path, "key 'attr_indptr'", f"{num_nodes} rows", shape[0])
        x = feature_tensor(entries[:, 0], entries[:, 1], values, shape)
    elif "x" in arrays:
        if arrays["x"].ndim != 2:
            raise broken(path, "key 'x'", "2 dimensions", arrays["x"].ndim)
        x = label_tensor(path, "key 'x'", arrays["x"], num_nodes).float()
    for key in ("y", "labels"):
        if key in arrays:
            y = label_tensor(path, f"key {key!r}", arrays[key], num_nodes)
    return EdgeList(edge_tensor(edges), num_nodes, x, y, weight_tensor(weights))


def _csr(path: Path, arrays: dict[str, AnyArray], prefix: str) -> tuple[Ints, AnyArray, tuple[int, int]]:
    """Entries ``[num_entries, 2]``, values and shape of the CSR matrix under some keys."""
    names = (f"{prefix}indptr", f"{prefix}indices", f"{prefix}data")
    for name in names[:2]:
        if name not in arrays:
            raise broken(path, f"key {name!r}", "an array", "none of that name")
    indptr, indices = arrays[names[0]], arrays[names[1]]
    data = arrays.get(names[2], np.ones(indices.shape, np.float32))
    rows = indptr.size - 1
    columns = int(indices.max(initial=-1)) + 1 if prefix == "attr_" else rows
    shape = arrays.get(f"{prefix}shape", np.array([rows, columns])).tolist()
    if not isinstance(shape, list) or len(shape) != 2 or shape[0] != rows:
        raise broken(path, f"key {prefix + 'shape'!r}", f"[{rows}, columns]", shape)
    return csr_entries(path, names, (indptr, indices, data), shape[1]), data, (rows, shape[1])
