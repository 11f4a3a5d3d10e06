# SPDX-License-Identifier: MIT
"""The readers: real files against their counts, small files by hand, broken files by message."""

import gzip
import io
import json
import os
import pickle
import re
import struct
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.io import read_planetoid_data

from frontgi_pyg.datasets import EdgeList, edge_list, load

REAL = {
    "planetoid-cora": ("planetoid/ind.cora.graph", {}),
    "planetoid-citeseer": ("planetoid/ind.citeseer.graph", {}),
    "planetoid-pubmed": ("planetoid/ind.pubmed.graph", {}),
    "shchur-cora": ("shchur/cora.npz", {}),
    "musae-facebook": ("musae/facebook_edges.csv", {}),
    "musae-squirrel": ("musae/squirrel_edges.csv", {}),
    "musae-git": ("musae/git_edges.csv", {}),
    "email-Enron": ("snap/email-Enron.txt", {}),
    "wiki-Vote-compacted": ("snap/wiki-Vote.txt", {"compact": True}),
    "wing": ("metis/wing.graph", {}),
    "blogcatalog": ("blogcatalog/blogcatalog.mat", {}),
    "debian-bookworm-deps": ("debian-bookworm-deps.npz", {}),
}


def statistics(graph: EdgeList) -> dict[str, float]:
    """The counts of expected.json."""
    n = graph.num_nodes
    entries = graph.edge_index.t().numpy()
    pairs = np.unique(entries, axis=0)
    simple = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)
    degree = np.bincount(simple.ravel(), minlength=n)
    return {
        "nodes": n,
        "edge_entries_in_file": len(entries),
        "distinct_directed_pairs": len(pairs),
        "self_loops": int((pairs[:, 0] == pairs[:, 1]).sum()),
        "undirected_simple_edges": len(simple),
        "avg_degree_undirected": round(2 * len(simple) / n, 4),
        "max_degree_undirected": degree.max(),
        "isolated_nodes": int((degree == 0).sum()),
        "max_in_degree": np.bincount(pairs[:, 1]).max(),
        "max_out_degree": np.bincount(pairs[:, 0]).max(),
    }


@pytest.mark.parametrize("name", REAL)
def test_real_file(shared: Path, name: str) -> None:
    file, options = REAL[name]
    folder = shared / "data" / "graphs"
    want = json.loads((folder / "expected.json").read_text())[name]
    graph = load(folder / file, **options)
    got = statistics(graph)
    assert got == {key: want[key] for key in got}
    assert graph.edge_index.dtype == torch.int64
    assert graph.edge_index.is_contiguous()
    assert graph.edge_weight is None

    width = want.get("feature_dim") or want.get("feature_ids_max_plus_1")
    if width and graph.x is not None:
        assert graph.x.dtype == torch.float32
        assert graph.x.shape == (graph.num_nodes, width)
        assert graph.x.is_sparse == (graph.x.numel() > edge_list.DENSE_ENTRIES_MAX)
    else:
        assert not width
        assert graph.x is None
    if "feature_nnz" in want:
        assert graph.x is not None
        assert (graph.x.to_sparse().values() == 1).sum() == want["feature_nnz"]
    if "multilabel_nnz" in want:
        assert graph.y is not None
        assert graph.y.shape == (graph.num_nodes, want["classes"])
        assert graph.y.sum() == want["multilabel_nnz"]
    elif want.get("classes"):
        assert graph.y is not None
        assert graph.y.dtype == torch.int64
        assert graph.y.max() + 1 == want["classes"]
        assert ((graph.y < 0).sum() > 0) == (name == "planetoid-citeseer")


@pytest.mark.parametrize("name", ["cora", "citeseer"])
def test_planetoid_agrees_with_pyg(shared: Path, name: str) -> None:
    folder = shared / "data" / "graphs" / "planetoid"
    graph = load(folder / f"ind.{name}.graph")
    theirs = read_planetoid_data(str(folder), name)
    assert graph.x is not None
    assert graph.y is not None
    assert torch.equal(graph.x, theirs.x)
    assert torch.equal(graph.y.clamp(min=0), theirs.y)


def test_wiki_vote_without_compaction(shared: Path) -> None:
    graph = load(shared / "data" / "graphs" / "snap" / "wiki-Vote.txt")
    assert graph.num_nodes == 8298
    assert graph.edge_index[:, 0].tolist() == [30, 1412]


def test_text_is_read_fast(tmp_path: Path) -> None:
    path = tmp_path / "big.txt"
    path.write_text("".join(f"{i}\t{(i * 7919) % 99991}\n" for i in range(370_000)))
    begin = time.process_time()
    assert load(path, header=False).edge_index.shape == (2, 370_000)
    assert time.process_time() - begin < 1


# ---- small files --------------------------------------------------------------------------------


def save(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def edges(graph: EdgeList) -> list[list[int]]:
    return graph.edge_index.t().tolist()


@pytest.mark.parametrize(
    ("content", "options", "num_nodes", "want"),
    [
        ("0 1\n", {}, 2, [[0, 1]]),
        ("2\t0\r\n2\t0\r\n\r\n  \n", {}, 3, [[2, 0], [2, 0]]),
        ("# a\n# b\n7 3\n3 5\n", {}, 8, [[7, 3], [3, 5]]),
        ("# a\n7 3\n3 5", {"compact": True}, 3, [[2, 0], [0, 1]]),
        ("5 2\n0 1\n1 0\n", {}, 5, [[0, 1], [1, 0]]),
        ("5 2\n0 1\n1 0\n", {"header": False}, 6, [[5, 2], [0, 1], [1, 0]]),
        ("# as it is\n5 2\n0 1\n1 0\n", {"header": True}, 5, [[0, 1], [1, 0]]),
        ("5 0\n", {"header": True}, 5, []),
        ("# Nodes: 0 Edges: 0\n", {}, 0, []),
        ("# Nodes: 2 Edges: 9\n0 1\n", {"header": False}, 2, [[0, 1]]),
        ("\ufeff0 1\n1 2 # why\n", {}, 3, [[0, 1], [1, 2]]),
        ("3000000000000000000 1\n", {"compact": True}, 2, [[1, 0]]),
    ],
)
def test_snap(tmp_path: Path, content: str, options: dict, num_nodes: int, want: list) -> None:
    graph = load(save(tmp_path, "a.txt", content), **options)
    assert (graph.num_nodes, edges(graph)) == (num_nodes, want)
    assert graph.edge_index.shape == (2, len(want))


@pytest.mark.parametrize(
    ("content", "num_nodes", "want", "weights"),
    [
        ("% sym unweighted\n% 2 3 3\n1 2\n2 3\n", 3, [[0, 1], [1, 2]], None),
        ("% asym positive\n1 2 1\n4 4 2.5 1700000000\n".replace("2 1", "2 1 0"), 4, 0, [1, 2.5]),
        ("% asym positive\n% 5 4 4\n1 2 2\n3 1 3\n", 4, [[0, 1], [2, 0]], [2, 3]),
        ("% bip unweighted\n% 2 2 3\n1 1\n2 3\n", 5, [[0, 2], [1, 4]], None),
        ("% bip unweighted\n1  1 \n2\t3\n", 5, [[0, 2], [1, 4]], None),
        ("% sym unweighted\n", 0, [], None),
        ("% sym unweighted\n% 0 7 7\n", 7, [], None),
    ],
)
def test_konect(tmp_path: Path, content: str, num_nodes: int, want: list, weights: list) -> None:
    graph = load(save(tmp_path, "out.some-net", content))
    assert graph.num_nodes == num_nodes
    assert edges(graph) == (want if want != 0 else [[0, 1], [3, 3]])
    assert (graph.edge_weight is None) == (weights is None)
    if graph.edge_weight is not None:
        assert graph.edge_weight.dtype == torch.float32
        assert graph.edge_weight.tolist() == weights


@pytest.mark.parametrize(
    ("content", "num_nodes", "want", "weights"),
    [
        ("3 2\n2\n1 3\n2\n", 3, [[0, 1], [1, 0], [1, 2], [2, 1]], None),
        ("% c\n3 1\n2\n%d\n1\n\n\n\n", 3, [[0, 1], [1, 0]], None),
        ("3 1\r\n2\r\n1\r\n", 3, [[0, 1], [1, 0]], None),
        ("2 1 1\n2 5\n1 5\n", 2, [[0, 1], [1, 0]], [5, 5]),
        ("2 1 11 2\n8 9 2 5\n8 9 1 5\n", 2, [[0, 1], [1, 0]], [5, 5]),
        ("2 1 100\n7 2\n7 1\n", 2, [[0, 1], [1, 0]], None),
        ("2 2 0\n1 2\n1\n", 2, [[0, 0], [0, 1], [1, 0]], None),
        ("2 0\n\n\n", 2, [], None),
        ("0 0\n", 0, [], None),
    ],
)
def test_metis(tmp_path: Path, content: str, num_nodes: int, want: list, weights: list) -> None:
    graph = load(save(tmp_path, "a.graph", content))
    assert (graph.num_nodes, edges(graph)) == (num_nodes, want)
    assert (graph.edge_weight is None) == (weights is None)
    if graph.edge_weight is not None:
        assert graph.edge_weight.tolist() == weights


def test_musae(tmp_path: Path) -> None:
    path = save(tmp_path, "net_edges.csv", "id_1,id_2\n0,2\n2,0\n")
    assert load(path).num_nodes == 3
    save(tmp_path, "net_features.json", '{"3": [1, 1, 4], "0": []}')
    save(tmp_path, "net_target.csv", 'id,name,kind\n1,"a, ""b""",x\n0,ü,x\n2,c,w\n3,d,x\n')
    graph = load(path)
    assert edges(graph) == [[0, 2], [2, 0]]
    assert graph.x is not None
    assert graph.x.tolist() == [[0] * 5, [0] * 5, [0] * 5, [0, 1, 0, 0, 1]]
    assert graph.y is not None
    assert graph.y.tolist() == [1, 1, 0, 1]
    save(tmp_path, "net_target.csv", "id,target\n0,7\n1,-3\n2,70\n3,0\n")
    graph = load(path)
    assert graph.y is not None
    assert graph.y.tolist() == [7, -3, 70, 0]
    assert load(save(tmp_path, "b.csv", "id1,id2\n")).edge_index.shape == (2, 0)


def test_wide_features_stay_sparse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path, "net_edges.csv", "id_1,id_2\n0,1\n")
    save(tmp_path, "net_features.json", '{"1": [6, 2]}')
    dense = load(path).x
    monkeypatch.setattr(edge_list, "DENSE_ENTRIES_MAX", 13)
    sparse = load(path).x
    assert dense is not None
    assert sparse is not None
    assert sparse.is_coalesced()
    assert torch.equal(sparse.to_dense(), dense)


@pytest.mark.parametrize(
    ("content", "num_nodes", "want", "weights"),
    [
        ("pattern general\n% c\n\n3 3 2\n3 1\n3 1\n", 3, [[2, 0], [2, 0]], None),
        ("PATTERN Symmetric\n2 2 2\n2 1\n2 2\n", 2, [[1, 0], [1, 1], [0, 1]], None),
        ("real symmetric\n2 2 2\n1 1 .5\n2 1 3e0\n", 2, [[0, 0], [1, 0], [0, 1]], [0.5, 3, 3]),
        ("real skew-symmetric\n2 2 1\n2 1 3\n", 2, [[1, 0], [0, 1]], [3, -3]),
        ("integer general\r\n2 2 1\r\n2 1 1\r\n", 2, [[1, 0]], None),
        ("integer general\n2 2 0\n", 2, [], None),
    ],
)
def test_matrix_market(tmp_path: Path, content: str, num_nodes: int, want: list, weights: list) -> None:
    path = save(tmp_path, "a.mtx", f"%%MatrixMarket matrix coordinate {content}")
    graph = load(path)
    assert (graph.num_nodes, edges(graph)) == (num_nodes, want)
    assert (graph.edge_weight is None) == (weights is None)
    if graph.edge_weight is not None:
        assert graph.edge_weight.tolist() == weights
    theirs = pytest.importorskip("scipy.io").mmread(path)
    ours = np.zeros((num_nodes, num_nodes))
    np.add.at(ours, tuple(graph.edge_index.numpy()), 1 if weights is None else weights)
    assert (theirs.toarray() == ours).all()


def test_npz_of_scipy(tmp_path: Path) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.csr_matrix(np.array([[0, 2.5], [1, 0]]))
    sparse.save_npz(tmp_path / "a.npz", matrix)
    graph = load(tmp_path / "a.npz")
    assert (graph.num_nodes, edges(graph)) == (2, [[0, 1], [1, 0]])
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [2.5, 1]
    sparse.save_npz(tmp_path / "b.npz", matrix.tocsc())
    with pytest.raises(ValueError, match=r"b\.npz: key 'format': expected 'csr', got 'csc'"):
        load(tmp_path / "b.npz")


def test_gzip(tmp_path: Path) -> None:
    whole = gzip.compress(b"0 1\n" * 999)
    assert load(save(tmp_path, "a.txt.gz", whole)).edge_index.shape == (2, 999)
    with pytest.raises(ValueError, match=r"b\.txt\.gz: compressed stream: expected a whole"):
        load(save(tmp_path, "b.txt.gz", whole[:-9]))
    with pytest.raises(ValueError, match=r"c\.txt\.gz: compressed stream"):
        load(save(tmp_path, "c.txt.gz", "0 1\n"))


def test_edge_list_makes_data(tmp_path: Path) -> None:
    data = Data(**vars(load(save(tmp_path, "a.el", "0 1\n# x\n1 2\n"))))
    assert data.num_nodes == 3
    assert data.num_edges == 2


def test_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected one of konect, .*, snap, got None"):
        load(tmp_path / "graph.xlsx")
    with pytest.raises(ValueError, match="got 'xlsx'"):
        load(tmp_path / "graph.xlsx", "xlsx")  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "graph.xlsx", "snap")


@pytest.mark.parametrize("name", ["out.a", "ind.a.graph", "a.graph", "a.csv", "a.mtx", "a.mat", "a.npz", "a.txt"])
def test_missing_and_empty_files(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / name)
    with pytest.raises(ValueError, match=re.escape(name) + ": .*expected .*, got "):
        load(save(tmp_path, name, b""))


# ---- broken files -------------------------------------------------------------------------------

MTX = "%%MatrixMarket matrix coordinate pattern general\n"
BROKEN_TEXT = [
    ("a.txt", "0 1\n1\n", "line 2: expected 2 64-bit integers, got '1'"),
    ("a.txt", "0 1\r\n\r\n1 2 3\r\n", "line 3: expected 2 64-bit integers, got '1 2 3'"),
    ("a.txt", "0 1 2\n1 2 3\n", "line 1: expected 2 64-bit integers, got '0 1 2'"),
    ("a.txt", "# x\n0 1\n1 x\n", "line 3: expected 2 64-bit integers, got '1 x'"),
    ("a.txt", "0 1\n1 2.5\n", "line 2: expected 2 64-bit integers"),
    ("a.txt", "0 1\n1 99999999999999999999\n", "line 2: expected 2 64-bit integers"),
    ("a.txt", "0 1\n1 9999999999999999999\n", "line 2: expected 2 64-bit integers"),
    ("a.txt", "0 1\n1 1_0\n", "line 2: expected 2 64-bit integers"),
    ("a.txt", "0 1\n1 \uff12\n", "line 2: expected 2 64-bit integers"),
    ("a.txt", "0 1\n\n-1 2\n", "line 3: expected node ids from 0, got '-1 2'"),
    ("a.txt", b"0 1\n\xff\xfe 2\n", "line 2: expected 2 64-bit integers"),
    ("a.txt", "", "line 1: expected an edge 'source target', got an empty file"),
    ("a.txt", "9 5\n0 1\n", "line 1: expected a header '2 1' (header=False: it is an edge)"),
    ("a.txt", "2 2\n0 1\n1 2\n", "line 1: expected a header '3 2'"),
    ("a.txt", "# Nodes: 3 Edges: 7\n0 1\n", "rows: expected 7 edges as claimed"),
    ("out.a", "1 2\n", "line 1: expected '% sym', '% asym' or '% bip', got no comment"),
    ("out.a", "% tree\n1 2\n", "line 1: expected '% sym', '% asym' or '% bip', got 'tree'"),
    ("out.a", "% sym\n% many\n1 2\n", "line 2: expected '% edges [left right]', got 'many'"),
    ("out.a", "% sym\n% 3 2 2\n1 2\n", "line 2: expected 1 edges, as there are rows, got 3"),
    ("out.a", "% sym\n0 1\n", "line 2: expected node ids from 1 to 1, got '0 1'"),
    ("out.a", "% sym\n% 1 2 2\n1 3\n", "line 3: expected node ids from 1 to 2, got '1 3'"),
    ("out.a", "% bip\n% 1 1 2\n2 1\n", "line 3: expected node ids from 1 to 1, got '2 1'"),
    ("out.a", "% sym\n1 2 1\n1 2\n", "line 3: expected 3 numbers, got '1 2'"),
    ("out.a", "% sym\n1 2 1\n1 2 a\n", "line 3: expected 3 numbers, got '1 2 a'"),
    ("out.a", "% sym\n1 2 1\n1 2 1x\n", "line 3: expected 3 numbers, got '1 2 1x'"),
    ("out.a", "% sym\n1 nan 1\n", "line 2: expected integers as node ids, got '1 nan 1'"),
    ("out.a", "% sym\n1 2.5 1\n", "line 2: expected integers as node ids, got '1 2.5 1'"),
    ("out.a", "% sym\n1 2 3 4 5\n", "line 2: expected 2 or 3 or 4 numbers"),
    ("a.graph", "", "line 1: expected a header"),
    ("a.graph", "x y\n", "line 1: expected a header 'nodes edges [fmt [ncon]]', got 'x y'"),
    ("a.graph", "%\n2\n", "line 2: expected a header"),
    ("a.graph", "2 1 7\n2\n1\n", "line 1: expected a header"),
    ("a.graph", "2 1\n2\n1\n1\n", "line 4: expected no line after those of 2 nodes, got '1'"),
    ("a.graph", "4 1\n2\n1\n", "end of file: expected a line for each of 4 nodes, got 2"),
    ("a.graph", "2 1\n2\n3\n", "line 3: expected neighbours from 1 to 2, got 3"),
    ("a.graph", "%\n2 1\n2\n%\n0\n", "line 5: expected neighbours from 1 to 2, got 0"),
    ("a.graph", "2 1\n2\nx\n", "line 3: expected integers, got 'x'"),
    ("a.graph", "2 5\n2\n1\n", "line 1: expected 1 edges, half of the neighbours below, got 5"),
    ("a.graph", "2 1\n2\n\n", "line 1: expected 0.5 edges"),
    ("a.graph", "2 1 1\n2 1\n1\n", "line 3: expected 0 numbers, then neighbours with weights"),
    ("a.graph", "2 1 10\n9 2\n\n", "line 3: expected 1 numbers, then neighbours, got ''"),
    ("a.csv", "0,1\n", "line 1: expected a header 'id_1,id_2', got '0,1'"),
    ("a.csv", "id_1,id_2\n0,1\n0,1,2\n", "line 3: expected 2 64-bit integers, got '0,1,2'"),
    ("a.csv", "id_1,id_2\n0;1\n", "line 2: expected 2 64-bit integers, got '0;1'"),
    ("a.csv", "id_1,id_2\n0,-1\n", "line 2: expected node ids from 0, got '0,-1'"),
    ("a.mtx", "hello\n", "line 1: expected '%%MatrixMarket matrix coordinate', real"),
    ("a.mtx", MTX.replace("pattern", "complex") + "1 1 1\n1 1 0 1\n", "line 1: expected '%%Mat"),
    ("a.mtx", "%%MatrixMarket matrix array real general\n1 1\n1\n", "line 1: expected '%%Matrix"),
    ("a.mtx", MTX, "line 2: expected a size 'nodes nodes entries' of a square matrix, got ''"),
    ("a.mtx", MTX + "%\n2 3 1\n1 1\n", "line 3: expected a size 'nodes nodes entries'"),
    ("a.mtx", MTX + "2 2 -1\n1 1\n", "line 2: expected a size 'nodes nodes entries'"),
    ("a.mtx", MTX + "2 2 1\n\n3 1\n", "line 4: expected node ids from 1 to 2, got '3 1'"),
    ("a.mtx", MTX + "2 2 1\n1 1 1\n", "line 3: expected 2 64-bit integers, got '1 1 1'"),
    ("a.mtx", MTX + "2 2 2\n1 1\n", "line 2: expected 1 entries, as follow, got 2"),
    ("a.mtx", MTX + "2 2 99999999999\n", "line 2: expected 0 entries, as follow, got 99999999999"),
    ("a.mtx", MTX.replace("pattern", "real") + "2 2 1\n1 1\n", "line 3: expected 3 numbers"),
    ("a.mtx", MTX.replace("pattern", "real") + "2 2 1\n1 .5 1\n", "line 3: expected integers as"),
    ("a.mat", "hello", "header: expected a MATLAB file of version 5, got b'hello'"),
    ("a.npz", "hello", "archive: expected an .npz, got "),
    ("a.npz", b"PK\x03\x04 and no more", "archive: expected an .npz, got "),
]


@pytest.mark.parametrize(("name", "content", "message"), BROKEN_TEXT)
def test_broken_text(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    path = save(tmp_path, name, content)
    with pytest.raises(ValueError, match=re.escape(f"{path}: {message}")):
        load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 1\n0 1\n", "line 2: expected node ids from 0 to 0, got '0 1'"),
        ("3 2\n0 1\n", "first row: expected 'num_nodes 1' (rows below), got [3, 2]"),
        ("# none\n", "first row: expected 'num_nodes 0' (rows below), got no row"),
        ("3 1\n0 3\n", "line 2: expected node ids from 0 to 2, got '0 3'"),
    ],
)
def test_broken_snap_header(tmp_path: Path, content: str, message: str) -> None:
    path = save(tmp_path, "a.txt", content)
    with pytest.raises(ValueError, match=re.escape(f"{path}: {message}")):
        load(path, header=True)


CSR = {"indptr": np.array([0, 1, 2]), "indices": np.array([1, 0])}
SHCHUR = {f"adj_{key}": value for key, value in CSR.items()}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"indptr": CSR["indptr"]}, "key 'indices': expected an array, got none of that name"),
        ({"adj_indices": CSR["indices"]}, "key 'adj_indptr': expected an array"),
        ({**CSR, "indptr": np.array([0, 2, 1, 2])}, "key 'indptr': expected values that never"),
        ({**CSR, "indptr": np.array([0, 1, 3])}, "key 'indptr': expected values from 0 to 2"),
        ({**CSR, "indptr": np.array([], int)}, "key 'indptr': expected values from 0 to 2"),
        ({**CSR, "indices": np.array([1, 2])}, "key 'indices': expected values from 0 to 1"),
        ({**CSR, "indices": np.array([-1, 0])}, "key 'indices': expected values from 0 to 1"),
        ({**CSR, "indices": np.array([0.5, 0])}, "key 'indices': expected one dimension"),
        ({**CSR, "indices": np.array([[1], [0]])}, "key 'indices': expected one dimension"),
        ({**CSR, "data": np.ones(3)}, "key 'data': expected 2 values, got 3"),
        ({**CSR, "data": np.array(["a", "b"])}, "key 'data': expected one dimension of real"),
        ({**CSR, "shape": np.array([2, 3])}, "key 'shape': expected a square matrix, got 2 x 3"),
        ({**CSR, "shape": np.array([3, 3])}, "key 'shape': expected [2, columns], got [3, 3]"),
        ({**CSR, "shape": np.array(2)}, "key 'shape': expected [2, columns], got 2"),
        ({**CSR, "y": np.zeros(3)}, "key 'y': expected numbers, a row for each of 2 nodes"),
        ({**CSR, "x": np.array([["a"], ["b"]])}, "key 'x': expected numbers, a row for each of 2"),
        ({**CSR, "x": np.ones(2)}, "key 'x': expected 2 dimensions, got 1"),
        ({**CSR, "y": np.array([{}, 1])}, "key 'y': expected a plain array, got Object arrays"),
        ({**SHCHUR, "labels": np.zeros(1, int)}, "key 'labels': expected numbers, a row for"),
        ({**SHCHUR, "attr_indptr": np.array([0, 0])}, "key 'attr_indices': expected an array"),
        (
            {**SHCHUR, "attr_indptr": np.array([0, 1]), "attr_indices": np.array([0])},
            "key 'attr_indptr': expected 2 rows, got 1",
        ),
    ],
)
def test_broken_npz(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=re.escape(f"{path}: {message}")):
        load(path)


def test_truncated_npz(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", **CSR)
    content = (tmp_path / "a.npz").read_bytes()
    flipped = bytearray(content)
    flipped[60:70] = b"x" * 10
    for broken in (content[:-30], bytes(flipped)):
        with pytest.raises(ValueError, match=r"a\.npz: (archive|key 'indptr'): expected"):
            load(save(tmp_path, "a.npz", broken))
    np.save(tmp_path / "b.npy", np.ones(2))
    (tmp_path / "b.npy").rename(tmp_path / "b.npz")
    with pytest.raises(ValueError, match=r"b\.npz: archive: expected an \.npz, got a single array"):
        load(tmp_path / "b.npz")


def test_matlab(tmp_path: Path) -> None:
    scipy_io = pytest.importorskip("scipy.io")
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.csc_matrix(np.array([[0, 2.0], [3, 0]]))
    path = tmp_path / "a.mat"
    for compressed in (True, False):
        scipy_io.savemat(path, {"name": "x", "A": matrix}, do_compression=compressed)
        graph = load(path, adjacency="A")
        assert (edges(graph), graph.y) == ([[1, 0], [0, 1]], None)
        assert graph.edge_weight is not None
        assert graph.edge_weight.tolist() == [3, 2]
    content = path.read_bytes()
    for variables, message in [
        ({"A": matrix}, "key 'network': expected a sparse matrix, got none of that name"),
        ({"network": np.ones((2, 2))}, "key 'network': expected a real sparse matrix, got class 6"),
        ({"network": matrix[:1]}, "key 'network': expected a square matrix, got 1 x 2"),
        ({"network": matrix, "group": matrix[:1]}, "key 'group': expected 2 rows, got 1"),
        ({"network": matrix, "group": np.ones(2)}, "key 'group': expected a real sparse"),
    ]:
        scipy_io.savemat(path, variables)
        with pytest.raises(ValueError, match=re.escape(f"{path}: {message}")):
            load(path)
    with pytest.raises(ValueError, match=r"a\.mat: content: expected whole elements, got \d+ bytes of"):
        load(save(tmp_path, "a.mat", content[:-20]), adjacency="A")


@pytest.mark.parametrize("order", ["<", ">"])
def test_matlab_byte_by_byte(tmp_path: Path, order: str) -> None:
    def element(kind: int, form: str, *values: int) -> bytes:
        data = struct.pack(order + form, *values)
        return struct.pack(order + "II", kind, len(data)) + data.ljust(-len(data) % 8 + len(data))

    body = element(6, "II", 5, 2) + element(5, "ii", 2, 2)  # sparse, two by two
    body += struct.pack(order + "I", 1 << 16 | 1) + b"G\0\0\0"  # its name, in a short element
    body += element(5, "ii", 1, 0) + element(5, "iii", 0, 1, 1) + element(2, "BB", 1, 9)
    content = b"MATLAB 5.0".ljust(124) + struct.pack(order + "H", 256)
    content += b"IM" if order == "<" else b"MI"
    content += struct.pack(order + "II", 14, len(body)) + body
    graph = load(save(tmp_path, "a.mat", content), adjacency="G")
    assert (graph.num_nodes, edges(graph)) == (2, [[1, 0]])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("features.json", '{"0": [1],\n "1": [2', "line 2: expected JSON, got "),
        ("features.json", "[1]", "top level: expected an object {node: [feature ids]}, got list"),
        ("features.json", '{"0": [1], "x": [1]}', "key 'x': expected a node id and a list"),
        ("features.json", '{"0": [1, -2]}', "key '0': expected a node id and a list"),
        ("features.json", '{"0": [1, "a"]}', "key '0': expected a node id and a list"),
        ("features.json", '{"0": 1}', "key '0': expected a node id and a list"),
        ("target.csv", "id,kind\n0,a\n1\n", "line 3: expected 2 columns and a new node id"),
        ("target.csv", "id,kind\n0,a\n0,b\n", "line 3: expected 2 columns and a new node id"),
        ("target.csv", "id,kind\nx,a\n", "line 2: expected 2 columns and a new node id"),
        ("target.csv", "id,kind\n0,a\n2,b\n", "first column: expected every id below 2, got no 1"),
        ("target.csv", "id,kind\n0,a\n", "labels: expected numbers, a row for each of 2 nodes"),
    ],
)
def test_broken_musae(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = save(tmp_path, "net_edges.csv", "id_1,id_2\n0,1\n")
    side = save(tmp_path, f"net_{name}", content)
    with pytest.raises(ValueError, match=re.escape(f"{side}: {message}")):
        load(path)


# ---- Planetoid ----------------------------------------------------------------------------------


def save_planetoid(folder: Path, **changed: object) -> Path:
    sparse = pytest.importorskip("scipy.sparse")
    parts: dict[str, object] = {
        "graph": defaultdict(list, {0: [1, 1], 1: [0], 2: [], 3: [0]}),
        "allx": sparse.csr_matrix(np.array([[1.0, 0], [0, 2]])),
        "ally": np.array([[1, 0], [0, 1]], np.int32),
        "tx": sparse.csr_matrix(np.array([[3.0, 4]])),
        "ty": np.array([[0, 1]], np.int32),
    }
    for part, content in (parts | changed).items():
        if content is not None:
            save(folder, f"ind.a.{part}", pickle.dumps(content, protocol=2))
    if changed.get("index", "3\n") is not None:
        save(folder, "ind.a.test.index", str(changed.get("index", "3\n")))
    return folder / "ind.a.graph"


def test_planetoid_of_python_3(tmp_path: Path) -> None:
    graph = load(save_planetoid(tmp_path))
    assert edges(graph) == [[0, 1], [0, 1], [1, 0], [3, 0]]
    assert graph.x is not None
    assert graph.x.tolist() == [[1, 0], [0, 2], [0, 0], [3, 4]]
    assert graph.y is not None
    assert graph.y.tolist() == [0, 1, -1, 1]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"graph": [1, 2]}, "graph: pickle: expected a dict of lists, got list"),
        ({"graph": {0: [-1]}}, "graph: key 0: expected node ids, integers from 0, got [-1]"),
        ({"graph": {0: ["a"]}}, "graph: key 0: expected node ids"),
        ({"graph": {"a": [0]}}, "graph: key 'a': expected node ids"),
        ({"allx": None}, "graph: folder: expected ind.a.allx beside it, got no such file"),
        ({"index": "4\n"}, "test.index: line 1: expected node ids from 0 to 3, got '4'"),
        ({"index": "3\nx\n"}, "test.index: line 2: expected 1 64-bit integers, got 'x'"),
        ({"index": "3\n2\n"}, "tx: shape: expected 2 rows, as test.index, got 1"),
        ({"tx": np.ones((1, 2))}, "tx: pickle: expected a CSR matrix, got Array"),
        ({"ty": np.ones((2, 2))}, "ty: pickle: expected an array of 1 rows, got [2, 2]"),
        ({"ally": [1]}, "ally: pickle: expected an array of 2 rows, got another object"),
        ({"ally": np.array([[{}]])}, "ally: pickle: expected arrays, or a dict of lists"),
        ({"graph": {0: [0]}, "index": "0\n"}, "allx: shape: expected 1 rows at most, got 2"),
    ],
)
def test_broken_planetoid(tmp_path: Path, changed: dict[str, object], message: str) -> None:
    path = save_planetoid(tmp_path, **changed)
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path}{os.sep}ind.a.{message}")):
        load(path)


def test_truncated_pickle(tmp_path: Path) -> None:
    path = save_planetoid(tmp_path)
    content = path.read_bytes()
    for size in range(len(content)):
        with pytest.raises(ValueError, match=r"ind\.a\.graph: pickle: expected"):
            load(save(tmp_path, "ind.a.graph", content[:size]))


class Call:
    """Pickles as a call."""

    def __init__(self, function: object, *args: object) -> None:
        self.call = function, args

    def __reduce__(self) -> tuple:
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("part", ["graph", "allx", "ty"])
def test_nothing_in_a_pickle_runs(tmp_path: Path, part: str, protocol: int) -> None:
    victim = tmp_path / "victim"
    path = save_planetoid(tmp_path)
    calls = [
        Call(os.mkdir, str(victim)),
        Call(eval, f"__import__('os').mkdir({str(victim)!r})"),
        Call(getattr, "", "format"),
        Call(io.open, str(victim), "w"),
        Call(np.load, str(path)),
        Call(defaultdict, os.getcwd),
    ]
    for call in calls:
        save(tmp_path, f"ind.a.{part}", pickle.dumps({0: [call]}, protocol=protocol))
        with pytest.raises(ValueError, match=rf"{part}: pickle: .* got refused to load"):
            load(path)
        assert not victim.exists()


def test_dotted_names_and_object_arrays_are_refused(tmp_path: Path) -> None:
    path = save_planetoid(tmp_path)
    for program in (
        b"\x80\x04\x8c\x08builtins\x8c\x0elist.__class__\x93.",
        b"\x80\x04\x8c\x0bcollections\x8c\x14defaultdict.__init__\x93.",
        pickle.dumps(np.array([[1], [2]], dtype=object), protocol=2),
        pickle.dumps(np.zeros(2, dtype=[("a", "O")]), protocol=2),
    ):
        save(tmp_path, "ind.a.ty", program)
        with pytest.raises(ValueError, match=r"ty: pickle: .* (refused|array of numbers)"):
            load(path)


# ---- any damage ----


def whole_files(folder: Path) -> list[Path]:
    """A small, correct file of each format."""
    scipy_io = pytest.importorskip("scipy.io")
    sparse = pytest.importorskip("scipy.sparse")
    scipy_io.savemat(folder / "a.mat", {"network": sparse.csc_matrix(np.eye(3))})
    np.savez(folder / "a.npz", **CSR, x=np.ones((2, 2)), y=np.array([0, 1]))
    save(folder, "net_features.json", '{"0": [1, 2], "1": [0]}')
    save(folder, "net_target.csv", "id,kind\n0,a\n1,b\n")
    return [
        save(folder, "a.txt", "# Nodes: 3 Edges: 3\n0\t1\n1\t2\n2\t2\n"),
        save(folder, "out.a", "% bip weighted\n% 3 2 2\n1 2 .5\n2 1 3\n2 2 1e2\n"),
        save(folder, "a.graph", "3 2 11 1\n7 2 5\n7 1 5 3 5\n7 2 5\n"),
        save(folder, "net_edges.csv", "id_1,id_2\n0,1\n1,1\n"),
        save(folder, "a.mtx", MTX + "2 2 2\n1 2\n2 1\n"),
        save_planetoid(folder),
        folder / "a.mat",
        folder / "a.npz",
        *(folder / f"ind.a.{part}" for part in ("allx", "ty", "test.index")),
        folder / "net_features.json",
        folder / "net_target.csv",
    ]


@pytest.mark.parametrize("which", range(13))
@pytest.mark.filterwarnings("ignore")
def test_a_damaged_file_is_read_or_refused(tmp_path: Path, which: int) -> None:
    path = whole_files(tmp_path)[which]
    graph = path
    if path.name.startswith("ind"):
        graph = tmp_path / "ind.a.graph"
    elif path.name.startswith("net"):
        graph = tmp_path / "net_edges.csv"
    whole = path.read_bytes()
    rng = np.random.default_rng(which)
    refused = 0
    for _ in range(100):
        damaged = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            damaged[rng.integers(len(whole))] = rng.choice([rng.integers(256), *b" \n019-"])
        path.write_bytes(damaged)
        try:
            got = load(graph)
        except ValueError as error:
            assert str(path) in str(error) or str(graph.parent) in str(error)  # noqa: PT017
            refused += 1
        else:
            assert got.edge_index.numel() == 0 or got.edge_index.min() >= 0
            assert got.edge_index.numel() == 0 or got.edge_index.max() < got.num_nodes
    assert refused


# ---- any edge list ------------------------------------------------------------------------------


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pairs=st.lists(st.tuples(*[st.integers(0, 40)] * 2), max_size=30),
    gap=st.sampled_from([" ", "\t", "  "]),
    end=st.sampled_from(["\n", "\r\n", "\n\n"]),
)
def test_text_formats_give_back_any_edges(tmp_path: Path, pairs: list[tuple[int, int]], gap: str, end: str) -> None:
    want = [list(pair) for pair in pairs]
    rows = [f"{s}{gap}{t}" for s, t in pairs]
    path = save(tmp_path, "a.txt", end.join(["# comment", *rows, ""]))
    assert edges(load(path)) == want
    compact = load(path, compact=True)
    ids = sorted({i for pair in pairs for i in pair})
    assert [[ids[s], ids[t]] for s, t in edges(compact)] == want
    assert compact.num_nodes == len(ids)

    rows = [f"{s + 1}{gap}{t + 1}" for s, t in pairs]
    head = ["% asym unweighted", f"% {len(pairs)} 41 41"]
    graph = load(save(tmp_path, "out.a", end.join([*head, *rows, ""])))
    assert (edges(graph), graph.num_nodes) == (want, 41)
