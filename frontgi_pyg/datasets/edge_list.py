# SPDX-License-Identifier: MIT
"""What every reader and generator returns, and what the readers share to build it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Ints = npt.NDArray[np.int64]
AnyArray = npt.NDArray[Any]

# Features with more entries than this (128 MiB of float32) stay sparse.
DENSE_ENTRIES_MAX = 1 << 25


@dataclass(frozen=True)
class EdgeList:
    """A graph as a file or a generator gives it.

    ``torch_geometric.data.Data(**vars(edge_list))`` makes a PyG graph of it.

    Attributes:
        edge_index: Sources and targets, ``[2, num_edges]``, ``int64``.
        num_nodes: Number of nodes; every id is below it.
        x: Node features, ``[num_nodes, num_features]``, ``float32``; dense, or a coalesced
            sparse COO tensor if dense ones would take more than 128 MiB.
        y: Labels, ``[num_nodes]``, ``int64`` (``-1``: none), or ``float32`` for real targets;
            ``[num_nodes, num_classes]``, ``float32`` of zeros and ones, if a node may have several.
        edge_weight: ``[num_edges]``, ``float32``; ``None`` if all weights are one.
    """

    edge_index: Tensor
    num_nodes: int
    x: Tensor | None = None
    y: Tensor | None = None
    edge_weight: Tensor | None = None


def broken(path: Path, where: str, expected: str, got: object) -> ValueError:
    """The error for a file that breaks its format."""
    return ValueError(f"{path}: {where}: expected {expected}, got {got}")


def edge_tensor(edges: AnyArray) -> Tensor:
    """Edges ``[num_edges, 2]`` of any integer type → ``edge_index``."""
    return torch.from_numpy(np.ascontiguousarray(edges.T, dtype=np.int64))


def weight_tensor(values: AnyArray) -> Tensor | None:
    """Edge weights; formats that must store a number store ones for an unweighted graph."""
    return None if (values == 1).all() else torch.from_numpy(values.astype(np.float32))


def label_tensor(path: Path, where: str, labels: AnyArray, num_nodes: int) -> Tensor:
    """Labels, one row a node: classes as ``int64``, all else as ``float32``."""
    if labels.ndim not in (1, 2) or len(labels) != num_nodes or labels.dtype.kind not in "buif":
        got = f"{labels.dtype} {list(labels.shape)}"
        raise broken(path, where, f"numbers, a row for each of {num_nodes} nodes", got)
    whole = labels.dtype.kind != "f" and labels.ndim == 1
    return torch.from_numpy(labels.astype(np.int64 if whole else np.float32))


def feature_tensor(rows: Ints, columns: Ints, values: AnyArray, shape: tuple[int, int]) -> Tensor:
    """Triples, duplicates summed → dense or sparse features, whichever the size asks for."""
    index = torch.from_numpy(np.stack([rows, columns]))
    entries = torch.from_numpy(values.astype(np.float32))
    if shape[0] * shape[1] <= DENSE_ENTRIES_MAX:
        return torch.zeros(shape).index_put_(tuple(index), entries, accumulate=True)
    return torch.sparse_coo_tensor(index, entries, shape, check_invariants=True).coalesce()


def csr_entries(
    path: Path,
    names: tuple[str, str, str],
    arrays: tuple[AnyArray, AnyArray, AnyArray],
    num_columns: int,
) -> Ints:
    """Checks a CSR matrix and lists its entries.

    Args:
        path: The file, for the error.
        names: What ``indptr``, ``indices`` and ``data`` are called there.
        arrays: ``indptr``, ``[num_rows + 1]``, and ``indices``, ``[num_entries]``, of any integers;
            ``data``, ``[num_entries]``, of any real numbers.
        num_columns: The bound of ``indices``.

    Returns:
        Row and column of each entry, ``[num_entries, 2]``.
    """
    indptr, indices, data = arrays
    for name, array, kinds in zip(names, arrays, ("iu", "iu", "buif"), strict=True):
        if array.ndim != 1 or array.dtype.kind not in kinds:
            got = f"{array.dtype} {list(array.shape)}"
            raise broken(path, f"key {name!r}", "one dimension of real numbers, ids integers", got)
    if data.size != indices.size:
        raise broken(path, f"key {names[2]!r}", f"{indices.size} values", data.size)
    if not indptr.size or indptr[0] != 0 or indptr[-1] != indices.size:
        got = f"{indptr[0]} … {indptr[-1]}" if indptr.size else "no value"
        raise broken(path, f"key {names[0]!r}", f"values from 0 to {indices.size}", got)
    starts: Ints = indptr.astype(np.int64)
    lengths = starts[1:] - starts[:-1]
    if (lengths < 0).any():
        row = int((lengths < 0).argmax())
        got = f"{indptr[row]}, {indptr[row + 1]} at {row}"
        raise broken(path, f"key {names[0]!r}", "values that never fall", got)
    outside = (indices < 0) | (indices >= num_columns)
    if outside.any():
        entry = int(outside.argmax())
        bound = f"values from 0 to {num_columns - 1}"
        raise broken(path, f"key {names[1]!r}", bound, f"{indices[entry]} at {entry}")
    return np.stack([np.repeat(np.arange(lengths.size), lengths), indices], axis=1)
