# SPDX-License-Identifier: MIT
"""GCN (Kipf and Welling, 2017; FrontGI, eq. 3) on our kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv as _PyGGCNConv
from torch_geometric.typing import SparseTensor

from frontgi_pyg.graph import Graph
from frontgi_pyg.nn.linear import apply_linear, is_plain_linear
from frontgi_pyg.nn.native import (
    NativeConv,
    aggregate_nodes,
    is_sparse,
    materialize,
    pyg_adjacency,
    to_graph,
)
from frontgi_pyg.nn.normalized import Terms, normalized, pyg_normalized, weight_reason
from frontgi_pyg.ops.conv import conv


class GCNConv(NativeConv, _PyGGCNConv):  # type: ignore[misc]
    r""":class:`torch_geometric.nn.GCNConv`, aggregated and updated in one pass.

    .. math::
        \mathbf{X}^{\prime} = \mathbf{\hat{D}}^{-1/2} \mathbf{\hat{A}}
        \mathbf{\hat{D}}^{-1/2} \mathbf{X} \mathbf{\Theta}

    Arguments, parameters and results are PyG's. ``edge_index`` may also be a :class:`frontgi_pyg.Graph`.
    """

    pyg_class = _PyGGCNConv
    _cached_edge_index: Any
    _cached_adj_t: Any

    def unsupported(self) -> str | None:
        """Returns why this layer, as configured, always takes PyG's path; :obj:`None` if it does not."""
        if self.aggr not in ("add", "sum"):
            return f"no kernel for a normalised aggr={self.aggr}"
        return super().unsupported()

    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Runs the layer on ``[num_nodes, in_channels]`` (static graphs: ``[batch, num_nodes, in_channels]``)."""
        product = None
        if isinstance(x, Tensor) and x.layout != torch.strided:
            product = self.lin(x)  # sparse features, dense from here on
        features = x if product is None else product
        reason = self._reason(features, edge_index, edge_weight)
        self.took(reason or "native")
        if reason is not None:
            edge_index, edge_weight = pyg_adjacency(edge_index, edge_weight, self.flow)
            # propagate_type: (x: Tensor, edge_weight: OptTensor)
            return super().forward(x, edge_index, edge_weight)  # type: ignore[no-any-return]

        graph, terms = self._adjacency(features, edge_index, edge_weight)
        if product is None:
            lin: Any = self.lin
            materialize(lin, x)
            plain = is_plain_linear(lin) and lin.bias is None and lin.weight.dtype == x.dtype
            if plain and x.dim() == 2 and not torch.is_autocast_enabled("cpu"):
                return conv(graph, x, lin.weight, self.bias, "sum", schedule=self.schedule, **terms)
            product = apply_linear(x, lin.weight, None) if plain else lin(x)
        if graph.origin != "sparse_tensor" and (terms or graph.edge_weight is not None):
            product = product.to(x.dtype)  # under autocast the product is half, and PyG's messages are float again
        out = aggregate_nodes(graph, product, "sum", schedule=self.schedule, **terms)
        return out if self.bias is None else out + self.bias

    def _reason(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None) -> str | None:
        if isinstance(x, (tuple, list)):
            return "a pair of features"  # PyG says why not
        reason = self.fallback_reason(x, edge_index) or weight_reason(x, edge_index, edge_weight)
        if reason is None and self.normalize and getattr(edge_index, "layout", None) == torch.sparse_csc:
            return "normalising a CSC adjacency"  # PyG says why not
        return reason

    def _adjacency(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None) -> tuple[Graph, Terms]:
        num_nodes = x.size(-2)
        options = {
            "add_self_loops": self.add_self_loops,
            "improved": self.improved,
            "flow": self.flow,
        }
        if not self.normalize:
            graph = to_graph(edge_index, num_nodes, self.flow)
            own = is_sparse(edge_index) or edge_weight is None
            return graph, {} if own else {"edge_weight": edge_weight}
        if not self.cached:
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
