# SPDX-License-Identifier: MIT
"""The shipped graph: its counts, its features, its split."""

import doctest
import json
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from frontgi_pyg.datasets import debian, debian_packages


@pytest.fixture(scope="module")
def data() -> Data:
    return debian_packages()


def test_counts(data: Data) -> None:
    assert data.num_nodes == 63_681
    assert data.edge_index.shape == (2, 341_510)
    assert data.edge_index.dtype == torch.int64
    assert data.x.shape == (63_681, 1024)
    assert data.x.dtype == torch.float32
    assert data.y.dtype == torch.int64
    assert len(data.names) == len(set(data.names)) == 63_681
    assert len(data.sections) == 58
    assert torch.equal(data.y.unique(), torch.arange(58))
    assert data.validate()
    assert data.edge_index[1].bincount().max() == 21_841


def test_is_the_shared_graph(shared: Path) -> None:
    original = shared / "data" / "graphs" / "debian-bookworm-deps.npz"
    assert debian._FILE.read_bytes() == original.read_bytes()
    want = json.loads((original.parent / "expected.json").read_text())["debian-bookworm-deps"]
    assert debian_packages(8).num_nodes == want["nodes"]


def test_edges_point_at_dependencies(data: Data) -> None:
    edges = {(data.names[s], data.names[t]) for s, t in data.edge_index[:, ::50].t().tolist()}
    assert edges
    libc = data.names.index("libc6")
    assert (data.edge_index[1] == libc).sum() == 21_841
    assert data.sections[data.y[libc]] == "libs"
    assert data.sections[data.y[data.names.index("python3-numpy")]] == "python"
    numpy = data.edge_index[0] == data.names.index("python3-numpy")
    assert "libc6" in {data.names[t] for t in data.edge_index[1, numpy].tolist()}


def slow_features(name: str, width: int) -> np.ndarray:
    """The features of a name, gram by gram."""
    row = np.zeros(width)
    text = f"\n{name}\n".encode()
    for length in (3, 4, 5):
        for begin in range(len(text) - length + 1):
            value = 2166136261
            for character in text[begin : begin + length]:
                value = (value ^ character) * 16777619 % 2**32
            row[(value ^ value >> 16) % width] += 1
    return row / max(np.linalg.norm(row), 1)


def test_features(data: Data) -> None:
    norms = torch.linalg.vector_norm(data.x, dim=1)
    torch.testing.assert_close(norms, torch.ones_like(norms))
    for node in [0, 1, 4096, 30_000, 63_680, data.names.index("r-base"), data.names.index("m4")]:
        want = slow_features(data.names[node], 1024)
        np.testing.assert_allclose(data.x[node].numpy(), want, rtol=1e-6)


def test_features_are_the_same_everywhere(data: Data) -> None:
    """Counts are small integers: their squares, sums and roots have one answer in float32."""
    assert zlib.crc32(data.x.numpy().tobytes()) == 3462455819
    assert torch.equal(debian_packages(seed=5).x, data.x)


def test_split(data: Data) -> None:
    masks = torch.stack([data.train_mask, data.val_mask, data.test_mask])
    assert masks.dtype == torch.bool
    assert (masks.sum(0) == 1).all()
    for section in range(58):
        of_section = masks[:, data.y == section].sum(1)
        want = torch.tensor([0.6, 0.2, 0.2]) * of_section.sum()
        assert (of_section - want).abs().max() <= 1
    assert torch.equal(debian_packages(8).train_mask, data.train_mask)
    assert not torch.equal(debian_packages(8, seed=1).train_mask, data.train_mask)


def test_names_tell_the_section(data: Data) -> None:
    """The features carry the label: the nearest mean is right far more often than the commonest."""
    x, y = data.x[data.train_mask], data.y[data.train_mask]
    means = torch.zeros(58, 1024).index_add_(0, y, x) / y.bincount().unsqueeze(1)
    nearest = (data.x[data.val_mask] @ torch.nn.functional.normalize(means).t()).argmax(1)
    right = (nearest == data.y[data.val_mask]).float().mean()
    commonest = (data.y[data.val_mask] == y.bincount().argmax()).float().mean()
    assert right > 4 * commonest


def test_examples() -> None:
    assert doctest.testmod(debian).failed == 0
