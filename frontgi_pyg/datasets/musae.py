# SPDX-License-Identifier: MIT
"""The MUSAE networks: edges and targets in csv, features in JSON.

Idea: the csv of edges is the graph; what stands beside it is read where it is there.

Source: Rozemberczki, Allen, Sarkar, "Multi-Scale Attributed Node Embedding" (2021).
"""

from __future__ import annotations

import csv
import json
import re
from itertools import chain
from os import PathLike
from pathlib import Path

import numpy as np

from .edge_list import (
    AnyArray,
    EdgeList,
    Ints,
    broken,
    edge_tensor,
    feature_tensor,
    label_tensor,
)
from .text import Rows, open_text


def read_musae(path: str | PathLike[str]) -> EdgeList:
    """Reads a MUSAE network from ``NAME_edges.csv``.

    Beside it may stand ``NAME_features.json``, ``{node: [feature ids]}``, which become zeros and
    ones, and ``NAME_target.csv``, whose first column is the node and whose last is its label:
    integers stay, words become class ids in alphabetical order.

    Args:
        path: The csv of edges: a header line, then ``source,target``; ids from 0.

    Raises:
        ValueError: A file is broken, or names a node or a feature below 0, or the targets are
            not one for each node.
    """
    rows = Rows(Path(path), delimiter=",", skip=1)
    with open_text(rows.path) as file:
        header = file.readline().strip()
    if not re.fullmatch(r"[^,]*[^\d,][^,]*,[^,]*[^\d,][^,]*", header):
        raise broken(rows.path, "line 1", "a header 'id_1,id_2'", repr(header[:80]))
    edges: Ints = rows.read((2,))
    rows.check_ids(edges, 0, None)

    stem = rows.path.name.removesuffix("edges.csv")
    features = rows.path.with_name(f"{stem}features.json")
    targets = rows.path.with_name(f"{stem}target.csv")
    nodes, columns = _musae_features(features) if features.exists() else (edges[:0, 0],) * 2
    num_nodes = 1 + max(int(edges.max(initial=-1)), int(nodes.max(initial=-1)))
    labels = _musae_labels(targets) if targets.exists() else None
    num_nodes = num_nodes if labels is None else max(num_nodes, len(labels))
    x = None
    if features.exists():
        shape = num_nodes, int(columns.max(initial=-1)) + 1
        x = feature_tensor(nodes, columns, np.ones(len(nodes)), shape)
    y = None if labels is None else label_tensor(targets, "labels", labels, num_nodes)
    return EdgeList(edge_tensor(edges), num_nodes, x, y)


def _musae_features(path: Path) -> tuple[Ints, Ints]:
    """Node and feature of each one in ``{node: [feature ids]}``, without duplicates."""
    try:
        with open_text(path) as file:
            table = json.load(file)
    except json.JSONDecodeError as error:
        raise broken(path, f"line {error.lineno}", "JSON", error.msg) from error
    if not isinstance(table, dict):
        raise broken(path, "top level", "an object {node: [feature ids]}", type(table).__name__)
    for node, ids in table.items():
        whole = isinstance(ids, list) and all(type(i) is int and 0 <= i < 2**31 for i in ids)
        if not whole or not re.fullmatch(r"\d{1,9}", node):
            want = "a node id and a list of feature ids, from 0"
            raise broken(path, f"key {node!r}", want, repr(ids)[:80])
    distinct = [sorted(set(ids)) for ids in table.values()]
    nodes = np.repeat(np.array([*map(int, table)], np.int64), [*map(len, distinct)])
    return nodes, np.array([*chain.from_iterable(distinct)], np.int64)


def _musae_labels(path: Path) -> AnyArray:
    """The last column, by the first, which must be 0, 1, 2, … in any order."""
    labels: dict[int, str] = {}
    with open_text(path) as file:
        reader = csv.reader(file)
        try:
            width = len(next(reader, []))
            for row in filter(None, reader):
                fits = len(row) == width > 1 and re.fullmatch(r"\d{1,9}", row[0])
                if not fits or int(row[0]) in labels:
                    want = f"{width} columns and a new node id"
                    raise broken(path, f"line {reader.line_num}", want, repr(row)[:80])
                labels[int(row[0])] = row[-1]
        except csv.Error as error:
            raise broken(path, f"line {reader.line_num}", "csv", error) from error
    missing = next((node for node in range(len(labels)) if node not in labels), None)
    if missing is not None:
        raise broken(path, "first column", f"every id below {len(labels)}", f"no {missing}")
    words = np.array([labels[node] for node in range(len(labels))], str)
    if all(re.fullmatch(r"[+-]?\d{1,18}", word) for word in words):
        return words.astype(np.int64)
    return np.unique(words, return_inverse=True)[1]
