# SPDX-License-Identifier: MIT
"""GCN (Kipf and Welling, 2017; FrontGI, eq. 3) on our kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv as _PyGGCNConv

from frontgi_pyg.nn.linear import apply_linear, is_plain_linear
from frontgi_pyg.nn.native import aggregate_nodes, materialize, pyg_adjacency
from frontgi_pyg.nn.normalized import NormalizedConv
from frontgi_pyg.ops.conv import conv


class GCNConv(NormalizedConv, _PyGGCNConv):  # type: ignore[misc]
    r""":class:`torch_geometric.nn.GCNConv`, aggregated and updated in one pass.

    .. math::
        \mathbf{X}^{\prime} = \mathbf{\hat{D}}^{-1/2} \mathbf{\hat{A}}
        \mathbf{\hat{D}}^{-1/2} \mathbf{X} \mathbf{\Theta}

    Arguments, parameters and results are PyG's. ``edge_index`` may also be a :class:`frontgi_pyg.Graph`.
    """

    pyg_class = _PyGGCNConv

    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Runs the layer on ``[num_nodes, in_channels]`` (static graphs: ``[batch, num_nodes, in_channels]``)."""
        product = None
        if isinstance(x, Tensor) and x.layout != torch.strided:
            product = self.lin(x)  # sparse features, dense from here on
        features = x if product is None else product
        reason = self.normalized_reason(features, edge_index, edge_weight, self.normalize)
        self.took(reason or "native")
        if reason is not None:
            edge_index, edge_weight = pyg_adjacency(edge_index, edge_weight, self.flow)
            # propagate_type: (x: Tensor, edge_weight: OptTensor)
            return super().forward(x, edge_index, edge_weight)  # type: ignore[no-any-return]

        graph, terms = self.normalized_graph(
            features,
            edge_index,
            edge_weight,
            normalize=self.normalize,
            add_self_loops=self.add_self_loops,
            improved=self.improved,
            cached=self.cached,
        )
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
