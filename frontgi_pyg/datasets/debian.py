# SPDX-License-Identifier: MIT
"""Debian 12's packages and what they depend on: a real power-law graph that ships with the code.

Idea: a graph for examples and tests that needs no download. One node in Debian's sections (its 58
classes) is told by its name and by its neighbours: libraries, fonts, Perl modules and games carry
their kind in both.

Layout: ``debian-bookworm-deps.npz`` holds CSR (``indptr, indices``; row: package, column: what it
depends on), ``y`` and, as bytes with a newline between two, ``names`` and ``sections``.

Source: the ``Packages`` lists of bookworm, its updates and security, main, amd64 (Debian).
Feature hashing: Weinberger et al., ICML 2009; FNV-1a: Fowler, Noll and Vo, 1991.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch_geometric.data import Data

from .archives import load_arrays, read_npz

_FILE = Path(__file__).with_name("debian-bookworm-deps.npz")
_GRAM_LENGTHS = (3, 4, 5)
_NEWLINE = ord("\n")
# Packages whose features are counted at once; the counts of 2048 x 1024 fill 16 MiB.
_ROWS_AT_ONCE = 2048


def debian_packages(num_features: int = 1024, seed: int = 0) -> Data:
    """Returns the packages of Debian 12 and their dependencies.

    Args:
        num_features: Width of ``x``.
        seed: Of the split.

    Returns:
        A graph of 63,681 nodes and 341,510 edges with

        - ``edge_index``, ``[2, 341510]``: package → what it depends on. Messages flow that way, so
          ``libc6`` receives from 21,841 packages and 1,868 packages touch no edge;
        - ``x``, ``[63681, num_features]``, ``float32``: counts of the hashed character 3- to
          5-grams of the package's name, each row of length one. They are the same on every
          machine, in every process;
        - ``y``, ``[63681]``, ``int64``: the section, of 58;
        - ``train_mask``, ``val_mask``, ``test_mask``: 60, 20 and 20 % of each section;
        - ``names`` and ``sections``: lists of strings, by node and by class.

    Example:
        >>> data = debian_packages(num_features=16)
        >>> data.names[data.edge_index[1].bincount().argmax()]
        'libc6'
    """
    graph = read_npz(_FILE)
    assert graph.y is not None
    texts = load_arrays(_FILE, {"names", "sections"})
    data = Data(
        x=torch.from_numpy(_name_features(texts["names"], graph.num_nodes, num_features)),
        edge_index=graph.edge_index,
        y=graph.y,
    )
    train, val, test = _stratified_split(graph.y.numpy(), seed)
    data.train_mask, data.val_mask, data.test_mask = train, val, test
    data.names = texts["names"].tobytes().decode().split()
    data.sections = texts["sections"].tobytes().decode().split()
    return data


def _name_features(lines: npt.NDArray[np.uint8], num_lines: int, num_features: int) -> npt.NDArray[np.float32]:
    """Hashed n-grams of each line, ``[num_lines, num_features]``, rows of length one.

    A newline counts as the character before and after a name, so that a gram can say that a name
    begins or ends with it.
    """
    edge = np.array([_NEWLINE], np.uint8)
    text = np.concatenate([edge, lines, edge])
    breaks = np.cumsum(text == _NEWLINE)  # up to and including each character
    keys = []
    for length in _GRAM_LENGTHS:
        count = text.size - length + 1
        hashes = np.full(count, 2166136261, np.uint32)
        for i in range(length):
            hashes = (hashes ^ text[i : i + count]) * np.uint32(16777619)
        hashes ^= hashes >> np.uint32(16)  # the low bits alone mix badly
        first, last = breaks[:count], breaks[length - 2 : length - 2 + count]
        within = first == last  # no newline but at the ends
        line = first[within] - 1
        keys.append(line * num_features + hashes[within] % num_features)
    key = np.sort(np.concatenate(keys))
    x = np.empty((num_lines, num_features), np.float32)
    for low in range(0, num_lines, _ROWS_AT_ONCE):
        block = x[low : low + _ROWS_AT_ONCE]
        begin, end = np.searchsorted(key, [low * num_features, low * num_features + block.size])
        counts = np.bincount(key[begin:end] - low * num_features, minlength=block.size)
        block[:] = counts.reshape(block.shape)
        block /= np.maximum(np.linalg.norm(block, axis=1, keepdims=True), 1)
    return x


def _stratified_split(labels: npt.NDArray[np.int64], seed: int) -> list[torch.Tensor]:
    """Masks of 60, 20 and 20 % of each class."""
    shuffled = np.random.default_rng(seed).permutation(labels.size)
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    sizes = np.bincount(labels)
    starts = np.cumsum(sizes) - sizes
    place = np.empty(labels.size)
    place[by_class] = np.arange(labels.size) + 0.5 - starts[labels[by_class]]
    place /= sizes[labels]
    bounds = (0.0, 0.6, 0.8, 1.0)
    return [torch.from_numpy((place >= low) & (place < high)) for low, high in pairwise(bounds)]
