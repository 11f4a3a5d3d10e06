# SPDX-License-Identifier: MIT
"""Graphs in MATLAB files of version 5 (MATLAB 5 to 7.2).

Idea: entry ``(i, j)`` of a sparse matrix is the edge ``i → j``. SciPy also reads these files, but
its compiled reader trusts them: some damaged ones end the process.

Layout: a header of 128 bytes that ends with version and byte order; then elements. An element is
a type and a size, 4 bytes each, and data padded to 8 bytes; up to 4 bytes of data share one word
with their tag. A matrix is an element of elements: flags, shape, name; and, if sparse, ``ir`` (row
of each entry), ``jc`` (where each column begins) and ``pr`` (values). Elements may be deflated.

Source: MathWorks, "MAT-File Format", chapter 1.
"""

from __future__ import annotations

import struct
import zlib
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from .edge_list import AnyArray, EdgeList, Ints, broken, csr_entries, edge_tensor, weight_tensor

_HEADER_BYTES = 128
_MATRIX, _COMPRESSED = 14, 15
_SPARSE_CLASS = 5
_ORDERS = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}  # version and mark → byte order
_NUMBERS = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}


class _Element(NamedTuple):
    kind: int
    order: str
    data: bytes

    def numbers(self) -> AnyArray:
        dtype = np.dtype(self.order + _NUMBERS[self.kind])
        return np.frombuffer(self.data, dtype, len(self.data) // dtype.itemsize).astype(dtype.newbyteorder("="))


def read_matlab(path: str | PathLike[str], *, adjacency: str = "network", labels: str = "group") -> EdgeList:
    """Reads a sparse adjacency matrix from a MATLAB file.

    Args:
        path: The ``.mat``; version 7.3 is HDF5 and is not read.
        adjacency: The variable that holds the matrix. MATLAB stores it by columns, so the edges
            come sorted by target.
        labels: The variable that holds a sparse ``[num_nodes, num_classes]`` matrix of
            memberships, any number in a row; it may be missing.

    Raises:
        ValueError: The file is broken, or a variable is missing or has another shape.
    """
    path = Path(path)
    variables = _variables(path)
    edges, weights, (rows, columns) = _sparse(path, adjacency, variables.get(adjacency))
    if rows != columns:
        raise broken(path, f"key {adjacency!r}", "a square matrix", f"{rows} x {columns}")
    y = None
    if labels in variables:
        members, _, shape = _sparse(path, labels, variables[labels])
        if shape[0] != rows:
            raise broken(path, f"key {labels!r}", f"{rows} rows", shape[0])
        y = torch.zeros(shape)
        y[tuple(edge_tensor(members))] = 1
    return EdgeList(edge_tensor(edges), rows, y=y, edge_weight=weight_tensor(weights))


def _variables(path: Path) -> dict[str, list[_Element]]:
    """The parts of each matrix in the file, by its name."""
    content = path.read_bytes()
    order = _ORDERS.get(content[124:_HEADER_BYTES])
    if order is None:
        raise broken(path, "header", "a MATLAB file of version 5", repr(content[:19]))
    variables = {}
    try:
        for element in _elements(content[_HEADER_BYTES:], order):
            if element.kind == _COMPRESSED:
                element = _elements(zlib.decompress(element.data), order)[0]
            if element.kind == _MATRIX:
                parts = _elements(element.data, order)
                variables[parts[2].data.decode("latin1")] = parts
    except (EOFError, IndexError, zlib.error) as error:
        raise broken(path, "content", "whole elements", error) from error
    return variables


def _elements(content: bytes, order: str) -> list[_Element]:
    elements = []
    at = 0
    while at < len(content):
        if len(content) - at < 8:
            raise EOFError(f"{len(content) - at} bytes where a tag of 8 should be")
        kind, size = struct.unpack_from(f"{order}II", content, at)
        begin = at + 8
        if kind >> 16:  # size and kind share a word, data the next
            kind, size, begin = kind & 0xFFFF, kind >> 16, at + 4
        if begin + size > len(content):
            raise EOFError(f"{len(content) - begin} bytes of {size}")
        elements.append(_Element(kind, order, content[begin : begin + size]))
        at = max(at + 8, begin + size)
        if kind != _COMPRESSED:
            at += -at % 8
    return elements


def _sparse(path: Path, key: str, parts: list[_Element] | None) -> tuple[Ints, AnyArray, tuple[int, int]]:
    """Entries ``[num_entries, 2]``, by column, values and shape of a sparse matrix."""
    if parts is None:
        raise broken(path, f"key {key!r}", "a sparse matrix", "none of that name")
    try:
        flags, shape = parts[0].numbers(), parts[1].numbers()
        if flags[0] & 255 != _SPARSE_CLASS or shape.size != 2 or len(parts) != 6:
            raise broken(path, f"key {key!r}", "a real sparse matrix", f"class {flags[0] & 255}")
        row, starts, values = (part.numbers() for part in parts[3:])
    except (IndexError, KeyError, TypeError) as error:
        raise broken(path, f"key {key!r}", "arrays of numbers", repr(error)) from error
    rows, columns = map(int, shape)
    if starts.size != columns + 1:
        raise broken(path, f"key {key!r}", f"{columns + 1} column starts", starts.size)
    used = int(starts[-1])  # there may be room for more
    names = (f"{key}.jc", f"{key}.ir", f"{key}.pr")
    entries = csr_entries(path, names, (starts, row[:used], values[:used]), rows)
    return entries[:, ::-1], values[:used], (rows, columns)
