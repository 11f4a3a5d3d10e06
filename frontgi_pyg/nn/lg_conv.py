# SPDX-License-Identifier: MIT
"""The convolution of LightGCN (He et al., 2020) on our kernels."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch_geometric.nn import LGConv as _PyGLGConv

from frontgi_pyg.nn.native import aggregate_nodes, pyg_adjacency
from frontgi_pyg.nn.normalized import NormalizedConv


class LGConv(NormalizedConv, _PyGLGConv):  # type: ignore[misc]
    r""":class:`torch_geometric.nn.LGConv` as one aggregation.

    .. math::
        \mathbf{x}^{\prime}_i = \sum_{j \in \mathcal{N}(i)}
        \frac{e_{j,i}}{\sqrt{\deg(i)\deg(j)}} \mathbf{x}_j

    Arguments and results are PyG's. ``edge_index`` may also be a :class:`frontgi_pyg.Graph`.
    """

    pyg_class = _PyGLGConv

    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Runs the layer on ``[num_nodes, channels]`` (static graphs: ``[batch, num_nodes, channels]``)."""
        reason = self.normalized_reason(x, edge_index, edge_weight, self.normalize)
        self.took(reason or "native")
        if reason is not None:
            edge_index, edge_weight = pyg_adjacency(edge_index, edge_weight, self.flow)
            # propagate_type: (x: Tensor, edge_weight: OptTensor)
            return super().forward(x, edge_index, edge_weight)  # type: ignore[no-any-return]

        graph, terms = self.normalized_graph(x, edge_index, edge_weight, normalize=self.normalize)
        return aggregate_nodes(graph, x, "sum", schedule=self.schedule, **terms)
