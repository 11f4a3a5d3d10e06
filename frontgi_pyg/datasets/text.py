# SPDX-License-Identifier: MIT
"""Graphs in text: SNAP, KONECT, Matrix Market and METIS.

Idea: NumPy reads the numbers at full speed. Only when it fails, or when a value is refused, is
the file walked again line by line, to name the line.

Sources: SNAP (Leskovec and Krevl, 2014), KONECT (Kunegis, WWW 2013; its handbook, "Data format"),
Matrix Market (Boisvert et al., NISTIR 5935), METIS (Karypis and Kumar; manual of version 5,
section 4.1).
"""

from __future__ import annotations

import gzip
import re
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TextIO

import numpy as np

from .edge_list import (
    AnyArray,
    EdgeList,
    Ints,
    broken,
    edge_tensor,
    weight_tensor,
)


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Opens a text file, gzipped or not; bytes that are no UTF-8 show up as bad tokens."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", errors="replace") as file:
            yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise broken(path, "compressed stream", "a whole gzip file", error) from error


@dataclass(frozen=True)
class Rows:
    """The lines of a text file that are neither blank nor comment, read as rows of numbers."""

    path: Path
    comment: str | None = None
    delimiter: str | None = None
    skip: int = 0  # lines at the top that are no rows

    def lines(self) -> Iterator[tuple[int, str]]:
        """Line number (from 1) and text of each row."""
        with open_text(self.path) as file:
            for number, line in enumerate(file, 1):
                text = (line.split(self.comment, 1)[0] if self.comment else line).strip()
                if number > self.skip and text:
                    yield number, text

    def comments(self) -> list[str]:
        """The comments above the first row, without their sign."""
        assert self.comment is not None
        found = []
        with open_text(self.path) as file:
            for line in filter(None, map(str.strip, file)):
                if not line.startswith(self.comment):
                    break
                found.append(line.lstrip(self.comment).strip())
        return found

    def read(self, columns: Sequence[int], dtype: type = np.int64) -> AnyArray:
        """All rows, ``[num_rows, width]``, the width one of ``columns``."""
        try:
            with open_text(self.path) as file, warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # no rows: the caller decides
                table: AnyArray = np.loadtxt(
                    file,
                    dtype=dtype,
                    comments=self.comment,
                    delimiter=self.delimiter,
                    skiprows=self.skip,
                    ndmin=2,
                )
        except ValueError as error:
            raise self._first_bad_line(columns, dtype, str(error)) from error
        if not table.size:
            return np.empty((0, min(columns)), dtype)
        if table.shape[1] not in columns:
            raise self._first_bad_line(columns, dtype, f"{table.shape[1]} columns")
        return table

    def broken(self, row: int, expected: str) -> ValueError:
        """The error for a row that is not as expected."""
        number, text = next(line for i, line in enumerate(self.lines()) if i == row)
        return broken(self.path, f"line {number}", expected, repr(text[:80]))

    def check_ids(self, ids: Ints, low: int, high: int | None, first_row: int = 0) -> None:
        """Refuses ids, ``[num_rows, 2]``, outside ``low … high``."""
        bad = (ids < low).any(axis=1)
        if high is not None:
            bad |= (ids > high).any(axis=1)
        if bad.any():
            bound = f"node ids from {low}" + ("" if high is None else f" to {high}")
            raise self.broken(int(bad.argmax()) + first_row, bound)

    def _first_bad_line(self, columns: Sequence[int], dtype: type, reason: str) -> ValueError:
        kind = "64-bit integers" if dtype is np.int64 else "numbers"
        for row, (_, text) in enumerate(self.lines()):
            tokens = [token.strip() for token in text.split(self.delimiter)]
            if row == 0 and len(tokens) in columns:
                columns = (len(tokens),)
            if len(tokens) not in columns or not all(_is_number(t, dtype) for t in tokens):
                return self.broken(row, f"{' or '.join(map(str, columns))} {kind}")
        return broken(self.path, "rows", f"{columns[0]} {kind} in each", reason)


def _is_number(token: str, dtype: type) -> bool:
    """Whether NumPy reads it, which knows neither underscores nor other scripts' digits."""
    try:
        value = int(token) if dtype is np.int64 else float(token)
    except ValueError:
        return False
    return token.isascii() and "_" not in token and (dtype is not np.int64 or -(2**63) <= value < 2**63)


def read_snap(path: str | PathLike[str], *, compact: bool = False, header: bool | None = None) -> EdgeList:
    """Reads an edge list as SNAP writes it: ``#`` comments, then ``source target`` per line.

    Args:
        path: The file, possibly gzipped.
        compact: Renumber the nodes that occur, in ascending order of their ids, from 0. Without
            it ids stay, and an id that no line names is an isolated node.
        header: Whether the first row is ``num_nodes num_edges``. ``None`` takes it for that if no
            comment stands above it, its second number is the number of rows that follow (one at
            least) and their ids are below its first; a count ``Edges: m`` in the comments must be
            right. ``False`` believes neither.

    Raises:
        ValueError: A line is not two ids, an id is out of range, a count is wrong, or the first
            row looks like a header that disagrees with the rest.
    """
    rows = Rows(Path(path), "#")
    edges: Ints = rows.read((2,))
    rows.check_ids(edges, 0, None)
    comments = rows.comments()
    if not comments and not len(edges):
        raise broken(rows.path, "line 1", "an edge 'source target'", "an empty file")
    if header is None and len(edges) > 1 and not comments:
        header = _has_size_header(rows, edges)
    if header:
        count = len(edges) - 1
        if count < 0 or edges[0, 1] != count:
            got = edges[0].tolist() if len(edges) else "no row"
            raise broken(rows.path, "first row", f"'num_nodes {max(count, 0)}' (rows below)", got)
        num_nodes, edges = int(edges[0, 0]), edges[1:]
        rows.check_ids(edges, 0, num_nodes - 1, first_row=1)
    else:
        num_nodes = int(edges.max(initial=-1)) + 1
        claim = re.search(r"\bEdges:\s*(\d+)", "\n".join(comments))
        if claim and header is None and int(claim[1]) != len(edges):
            want = f"{claim[1]} edges as claimed (header=False ignores it)"
            raise broken(rows.path, "rows", want, len(edges))
    if compact:
        ids, flat = np.unique(edges, return_inverse=True)
        edges, num_nodes = flat.reshape(edges.shape), len(ids)
    return EdgeList(edge_tensor(edges), num_nodes)


def _has_size_header(rows: Rows, edges: Ints) -> bool:
    """Whether row 0 is ``num_nodes num_edges``; an error if that is likely, but wrong."""
    (n, m), top, count = edges[0].tolist(), int(edges[1:].max()), len(edges) - 1
    if m == count and n > top:
        return True
    if (m == count and n == top) or min(n, m) > top:
        raise rows.broken(0, f"a header '{top + 1} {count}' (header=False: it is an edge)")
    return False


def read_konect(path: str | PathLike[str]) -> EdgeList:
    """Reads a KONECT network, ``out.*``.

    The first line is ``% sym|asym|bip weights``, the second may be ``% edges [left right]``; rows
    are ``source target [weight [time]]``, ids from 1. In a bipartite network the ids of the right
    side follow those of the left. Undirected edges stand once; times are dropped.

    Args:
        path: The file, possibly gzipped.

    Raises:
        ValueError: The header is missing, a row is not 2 to 4 numbers, an id is out of range, or
            the counts disagree (edges may count rows, or the sum of integer weights).
    """
    rows = Rows(Path(path), "%")
    comments = rows.comments()
    kind = (comments or [""])[0].split(" ")[0]
    if kind not in ("sym", "asym", "bip"):
        got = repr(comments[0]) if comments else "no comment"
        raise broken(rows.path, "line 1", "'% sym', '% asym' or '% bip'", got)
    sizes = comments[1].split() if len(comments) > 1 else []
    if not all(size.isdecimal() for size in sizes) or len(sizes) == 2 or len(sizes) > 3:
        raise broken(rows.path, "line 2", "'% edges [left right]'", repr(comments[1]))

    plain = len(next(rows.lines(), (0, ""))[1].split()) == 2
    table = rows.read((2, 3, 4), np.int64 if plain else np.float64)
    ids = _whole_ids(rows, table)
    weights = table[:, 2] if table.shape[1] > 2 else np.ones(len(table))
    if sizes and int(sizes[0]) not in (len(table), int(weights.sum())):
        raise broken(rows.path, "line 2", f"{len(table)} edges, as there are rows", sizes[0])

    left, right = map(int, sizes[1:]) if len(sizes) > 1 else ids.max(axis=0, initial=0).tolist()
    if kind != "bip":
        left = right = max(left, right)
    rows.check_ids(ids[:, :1], 1, left)
    rows.check_ids(ids[:, 1:], 1, right)
    ids -= 1
    if kind == "bip":
        ids[:, 1] += left
    num_nodes = left + right if kind == "bip" else left
    return EdgeList(edge_tensor(ids), num_nodes, edge_weight=weight_tensor(weights))


def _whole_ids(rows: Rows, table: AnyArray) -> Ints:
    """The first two columns of a table that may have been read as real numbers."""
    with np.errstate(invalid="ignore"):
        ids: Ints = table[:, :2].astype(np.int64)
    fractional = (ids != table[:, :2]).any(axis=1)
    if fractional.any():
        raise rows.broken(int(fractional.argmax()), "integers as node ids")
    return ids


def read_matrix_market(path: str | PathLike[str]) -> EdgeList:
    """Reads a square sparse matrix in Matrix Market's coordinate form.

    Entry ``(i, j)`` is the edge ``i → j``. Of a symmetric matrix the file holds one triangle: the
    other follows it, in the same order and without the diagonal.

    Args:
        path: The ``.mtx``, possibly gzipped.

    Raises:
        ValueError: The file is broken, not square, complex, or lists every entry (``array``).
    """
    rows = Rows(Path(path), "%")
    with open_text(rows.path) as file:
        banner = file.readline().strip()
    kind = re.fullmatch(
        r"%%MatrixMarket +matrix +coordinate +(real|integer|pattern) +"
        r"(general|symmetric|skew-symmetric)",
        banner,
        re.IGNORECASE,
    )
    if not kind:
        want = "'%%MatrixMarket matrix coordinate', real, integer or pattern"
        raise broken(rows.path, "line 1", want, repr(banner[:80]))
    number, sizes = next(rows.lines(), (2, ""))
    counts = [int(t) for t in sizes.split()] if re.fullmatch(r"(\d+\s+){2}\d+", sizes) else []
    if not counts or counts[0] != counts[1]:
        want = "a size 'nodes nodes entries' of a square matrix"
        raise broken(rows.path, f"line {number}", want, repr(sizes[:80]))

    rows = Rows(rows.path, "%", skip=number)
    pattern = kind[1].lower() == "pattern"
    table = rows.read((2,)) if pattern else rows.read((3,), np.float64)
    if len(table) != counts[2]:
        raise broken(rows.path, f"line {number}", f"{len(table)} entries, as follow", counts[2])
    ids = _whole_ids(rows, table)
    weights = np.ones(len(table)) if pattern else table[:, 2]
    rows.check_ids(ids, 1, counts[0])
    if kind[2].lower() != "general":
        mirrored = ids[:, 0] != ids[:, 1]
        sign = -1 if kind[2].lower() == "skew-symmetric" else 1
        weights = np.concatenate([weights, sign * weights[mirrored]])
        ids = np.concatenate([ids, ids[mirrored, ::-1]])
    return EdgeList(edge_tensor(ids - 1), counts[0], edge_weight=weight_tensor(weights))


def read_metis(path: str | PathLike[str]) -> EdgeList:
    """Reads a METIS (Chaco) graph: a header ``nodes edges [fmt [ncon]]``, then a line per node.

    A node's line holds its neighbours, from 1; each undirected edge stands in both ends' lines,
    so ``num_edges`` is twice the header's. Vertex sizes and weights are dropped.

    Args:
        path: The file; lines that begin with ``%`` are comments.

    Raises:
        ValueError: The header is broken, a token is no integer, a neighbour is out of range, or
            the counts disagree.
    """
    path = Path(path)
    with open_text(path) as file:
        lines = [(i, s) for i, s in enumerate(file, 1) if not s.lstrip().startswith("%")]
    number, head = lines[0] if lines else (1, "")
    sizes = head.split()
    if not re.fullmatch(r"\d+ \d+( [01]{1,3}( \d+)?)?", " ".join(sizes)):
        want = "a header 'nodes edges [fmt [ncon]]'"
        raise broken(path, f"line {number}", want, repr(head.strip()[:80]))
    num_nodes, num_edges = int(sizes[0]), int(sizes[1])
    body, rest = lines[1 : num_nodes + 1], lines[num_nodes + 1 :]
    for number, text in rest:
        if text.strip():
            want = f"no line after those of {num_nodes} nodes"
            raise broken(path, f"line {number}", want, repr(text.strip()[:80]))

    # A node's line: [size] [weight x ncon] (neighbour [edge weight])*
    sized, weighted, edge_weighted = (digit == "1" for digit in "".join(sizes[2:3]).zfill(3))
    prefix = sized + weighted * int("".join(sizes[3:4]) or 1)
    stride = 1 + edge_weighted
    # A last line that is empty may also lack its newline.
    if len(body) < num_nodes - (prefix == 0):
        raise broken(path, "end of file", f"a line for each of {num_nodes} nodes", len(body))
    counts = np.array([len(text.split()) for _, text in body], np.int64)
    odd = (counts < prefix) | ((counts - prefix) % stride != 0)
    if odd.any():
        number, text = body[int(odd.argmax())]
        want = f"{prefix} numbers, then neighbours{' with weights' if edge_weighted else ''}"
        raise broken(path, f"line {number}", want, repr(text.strip()[:80]))

    values = _integers(path, body, int(counts.sum()))
    place = np.arange(values.size) - np.repeat(np.cumsum(counts) - counts + prefix, counts)
    at = np.flatnonzero((place >= 0) & (place % stride == 0))
    edges = np.stack([np.repeat(np.arange(len(body)), counts)[at], values[at] - 1], axis=1)
    outside = (edges[:, 1] < 0) | (edges[:, 1] >= num_nodes)
    if outside.any():
        node, neighbour = edges[int(outside.argmax())].tolist()
        want = f"neighbours from 1 to {num_nodes}"
        raise broken(path, f"line {body[node][0]}", want, neighbour + 1)
    loops = int((edges[:, 0] == edges[:, 1]).sum())  # written once or twice
    if 2 * num_edges not in (len(edges), len(edges) + loops):
        want = f"{len(edges) / 2:g} edges, half of the neighbours below"
        raise broken(path, f"line {lines[0][0]}", want, num_edges)
    weights = values[at + 1] if edge_weighted else np.ones(len(edges))
    return EdgeList(edge_tensor(edges), num_nodes, edge_weight=weight_tensor(weights))


def _integers(path: Path, lines: Sequence[tuple[int, str]], count: int) -> Ints:
    """All integers in numbered lines of which each may hold any number of them."""
    if not count:  # of blanks alone, NumPy makes a zero
        return np.empty(0, np.int64)
    try:
        values: Ints = np.fromstring(" ".join(text for _, text in lines), np.int64, sep=" ")
        if values.size == count:
            return values
    except ValueError:
        pass  # named below
    for number, text in lines:
        for token in text.split():
            if not re.fullmatch(r"[+-]?\d+", token):
                raise broken(path, f"line {number}", "integers", repr(token[:80]))
    raise broken(path, "rows", f"{count} integers", "fewer")
