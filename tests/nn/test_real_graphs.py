# SPDX-License-Identifier: MIT
"""Each layer against PyG's, outputs and all gradients, on real graphs as their files hold them."""

from pathlib import Path

import pytest
import torch

from frontgi_pyg.datasets import load

from .compare import MESSAGE_PASSING, Edges, compare, default_twins, features

GRAPHS = {
    "planetoid-cora": "planetoid/ind.cora.graph",
    "planetoid-citeseer": "planetoid/ind.citeseer.graph",
    "planetoid-pubmed": "planetoid/ind.pubmed.graph",
    "shchur-cora": "shchur/cora.npz",
    "musae-facebook": "musae/facebook_edges.csv",
    "musae-squirrel": "musae/squirrel_edges.csv",
    "musae-git": "musae/git_edges.csv",
    "email-Enron": "snap/email-Enron.txt",
    "wiki-Vote": "snap/wiki-Vote.txt",
    "wing": "metis/wing.graph",
    "blogcatalog": "blogcatalog/blogcatalog.mat",
    "debian-bookworm-deps": "debian-bookworm-deps.npz",
}
IN_WIDTH, OUT_WIDTH = 24, 8  # PyG makes a tensor of [num_edges, IN_WIDTH]


@pytest.fixture(scope="module", params=GRAPHS)
def graph(request: pytest.FixtureRequest, shared: Path) -> tuple[torch.Tensor, Edges]:
    """The first of the file's own features, or random ones; its edges as they are."""
    found = load(shared / "data" / "graphs" / GRAPHS[request.param])
    num_nodes = found.num_nodes
    if found.x is None:
        x = features(num_nodes, IN_WIDTH)
    else:
        first = found.x.index_select(1, torch.arange(min(IN_WIDTH, found.x.size(1))))
        x = first.to_dense() if first.is_sparse else first
    return x.contiguous(), Edges(found.edge_index, num_nodes, num_nodes)


@pytest.mark.parametrize("name", MESSAGE_PASSING)
@pytest.mark.parametrize(
    ("dtype", "kind"), [(torch.float64, "edge_index"), (torch.float32, "Graph of SparseTensor")], ids=["fp64", "fp32"]
)
def test_layer(graph: tuple[torch.Tensor, Edges], name: str, dtype: torch.dtype, kind: str) -> None:
    x, edges = graph
    pair = default_twins(name, x.size(1), OUT_WIDTH).to(dtype)
    compare(pair, x.to(dtype), edges, kind=kind, hops=2 if name == "SGConv" else 1)
