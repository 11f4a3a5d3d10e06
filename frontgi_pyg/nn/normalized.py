# SPDX-License-Identifier: MIT
r"""The symmetric normalisation of GCN, SGC and their kin, :math:`\hat{D}^{-1/2} \hat{A} \hat{D}^{-1/2}`, folded in.

No edge list with self-loops is built: the loop is the aggregation's own self term and the degrees are its scales
(FrontGI, section 3.4). Where PyG's normalised edges themselves are asked for (``cached``, gradients to edge weights),
they are computed by PyG, ``[num_edges]`` values, and aggregated as edge weights.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.typing import SparseTensor

from frontgi_pyg.graph import Graph
from frontgi_pyg.nn.native import (
    LOOPS,
    NativeConv,
    aggregate_nodes,
    is_sparse,
    pyg_adjacency,
    to_graph,
    weight_reason,
)
from frontgi_pyg.ops.aggregate import accumulator_dtype

Terms = dict[str, Any]


class NormalizedConv(NativeConv):
    """A layer that sums over the normalised adjacency, or over the adjacency as given."""

    _cached_edge_index: Any
    _cached_adj_t: Any

    def unsupported(self) -> str | None:
        """Returns why this layer, as configured, always takes PyG's path; :obj:`None` if it does not."""
        if self.aggr not in ("add", "sum"):
            return f"no kernel for a normalised aggr={self.aggr}"
        return super().unsupported()

    def normalized_reason(
        self, x: Any, edge_index: Any, edge_weight: Tensor | None, normalize: bool = True
    ) -> str | None:
        """Returns why a call on these inputs takes PyG's path; :obj:`None` if our kernels serve it."""
        if isinstance(x, (tuple, list)):
            return "a pair of features"  # PyG says why not
        reason = self.fallback_reason(x, edge_index) or weight_reason(x, edge_index, edge_weight)
        if reason is None and normalize and getattr(edge_index, "layout", None) == torch.sparse_csc:
            return "normalising a CSC adjacency"  # PyG says why not
        return reason

    def normalized_graph(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None,
        *,
        normalize: bool = True,
        add_self_loops: bool = False,
        improved: bool = False,
        cached: bool = False,
    ) -> tuple[Graph, Terms]:
        """Returns the graph and the terms of :func:`frontgi_pyg.ops.aggregate` that make it the one to sum over."""
        num_nodes = x.size(-2)
        if not normalize:
            graph = to_graph(edge_index, num_nodes, self.flow)
            own = is_sparse(edge_index) or edge_weight is None
            return graph, {} if own else {"edge_weight": edge_weight}
        options = {"add_self_loops": add_self_loops, "improved": improved, "flow": self.flow}
        if not cached:
            return normalized(edge_index, edge_weight, num_nodes, x.dtype, **options)
        # PyG's caches, under PyG's names: what they hold is what PyG's own path would put there.
        if isinstance(edge_index, SparseTensor):
            if self._cached_adj_t is None:
                self._cached_adj_t, _ = pyg_normalized(edge_index, None, num_nodes, x.dtype, **options)
            return to_graph(self._cached_adj_t, num_nodes, self.flow), {}
        if self._cached_edge_index is None:
            self._cached_edge_index = pyg_normalized(edge_index, edge_weight, num_nodes, x.dtype, **options)
        edges, weight = self._cached_edge_index
        return to_graph(edges, num_nodes, self.flow), {} if weight is None else {"edge_weight": weight}


def normalized(
    adjacency: Any,
    edge_weight: Tensor | None,
    num_nodes: int,
    dtype: torch.dtype,
    *,
    improved: bool,
    add_self_loops: bool,
    flow: str,
) -> tuple[Graph, Terms]:
    """Returns the graph and the terms of :func:`frontgi_pyg.ops.aggregate` that make it the normalised one."""
    if isinstance(adjacency, Graph) and edge_weight is None:
        edge_weight = adjacency.edge_weight
    if edge_weight is not None and not is_sparse(adjacency) and edge_weight.requires_grad:
        edges, weight = pyg_normalized(
            adjacency,
            edge_weight,
            num_nodes,
            dtype,
            improved=improved,
            add_self_loops=add_self_loops,
            flow=flow,
        )
        return to_graph(edges, num_nodes, flow), {"edge_weight": weight}
    graph = to_graph(adjacency, num_nodes, flow)
    if is_sparse(adjacency):
        edge_weight = None  # PyG reads a sparse adjacency's own values
    loops = LOOPS[graph.origin] if add_self_loops else "none"
    if graph.origin == "edge_index" and edge_weight is None:
        improved = False  # PyG drops the fill value where there are no weights to fill
    fill = 2.0 if improved else 1.0
    inv_sqrt, self_scale = graph.gcn_norm(edge_weight, loops, fill, accumulator_dtype(dtype))
    terms: Terms = {
        "row_scale": inv_sqrt,
        "col_scale": inv_sqrt,
        "skip_loops": loops in ("replace", "remain"),
    }
    if edge_weight is not None:
        terms["edge_weight"] = edge_weight
    if loops != "none":
        terms["self_scale"] = self_scale
    return graph, terms


def pyg_normalized(
    adjacency: Any,
    edge_weight: Tensor | None,
    num_nodes: int,
    dtype: torch.dtype,
    *,
    improved: bool,
    add_self_loops: bool,
    flow: str,
) -> tuple[Any, Tensor | None]:
    """Returns PyG's own normalised adjacency and edge weights, differentiable to ``edge_weight``."""
    edges, weight = pyg_adjacency(adjacency, edge_weight, flow)
    if isinstance(edges, SparseTensor):
        return gcn_norm(edges, weight, num_nodes, improved, add_self_loops, flow, dtype), None
    pair: tuple[Any, Tensor | None] = gcn_norm(edges, weight, num_nodes, improved, add_self_loops, flow, dtype)
    return pair


def scaled(terms: Terms, factor: float, graph: Graph, dtype: torch.dtype) -> Terms:
    """Returns the terms of ``factor`` times the aggregation that ``terms`` are those of."""
    found = dict(terms)
    row_scale, self_scale = terms.get("row_scale"), terms.get("self_scale")
    if row_scale is None:
        found["row_scale"] = torch.full((graph.num_dst_nodes,), factor, dtype=accumulator_dtype(dtype))
    else:
        found["row_scale"] = factor * row_scale
    if self_scale is not None:
        found["self_scale"] = factor * self_scale
    return found


def aggregate_beside(graph: Graph, x: Tensor, residual: Tensor, alpha: float, terms: Terms, **options: Any) -> Tensor:
    """Returns the aggregation of ``x`` under ``terms``, plus ``alpha * residual``."""
    if "self_scale" in terms:  # which is the loops', and there is one self term
        return aggregate_nodes(graph, x, "sum", **terms, **options).add_(residual, alpha=alpha)
    own = {"self_scale": torch.full((1,), alpha, dtype=accumulator_dtype(x.dtype)), "x_self": residual}
    return aggregate_nodes(graph, x, "sum", **terms, **own, **options)
