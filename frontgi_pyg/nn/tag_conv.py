# SPDX-License-Identifier: MIT
"""Topology adaptive graph convolution (Du et al., 2017) on our kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import TAGConv as _PyGTAGConv

from frontgi_pyg.graph import Graph
from frontgi_pyg.nn.linear import is_fusable
from frontgi_pyg.nn.native import aggregate_nodes, materialize, pyg_adjacency
from frontgi_pyg.nn.normalized import NormalizedConv, Terms, aggregate_beside
from frontgi_pyg.ops.conv import conv
from frontgi_pyg.ops.linear import linear
from frontgi_pyg.plan import order_for


class TAGConv(NormalizedConv, _PyGTAGConv):  # type: ignore[misc]
    r""":class:`torch_geometric.nn.TAGConv`, its hops gathered at the narrower of both widths.

    .. math::
        \mathbf{X}^{\prime} = \sum_{k=0}^K \left( \mathbf{D}^{-1/2} \mathbf{A}
        \mathbf{D}^{-1/2} \right)^k \mathbf{X} \mathbf{W}_{k}

    Multiplied first, the sum is nested as in Horner's method:
    :math:`\mathbf{X} \mathbf{W}_0 + \mathbf{A} (\mathbf{X} \mathbf{W}_1 + \mathbf{A} ( \ldots ))`.

    Arguments, parameters and results are PyG's. ``edge_index`` may also be a :class:`frontgi_pyg.Graph`.
    """

    pyg_class = _PyGTAGConv

    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Runs the layer on ``[num_nodes, in_channels]`` (static graphs: ``[batch, num_nodes, in_channels]``)."""
        reason = self.normalized_reason(x, edge_index, edge_weight, self.normalize)
        self.took(reason or "native")
        if reason is not None:
            edge_index, edge_weight = pyg_adjacency(edge_index, edge_weight, self.flow)
            # propagate_type: (x: Tensor, edge_weight: OptTensor)
            return super().forward(x, edge_index, edge_weight)  # type: ignore[no-any-return]

        graph, terms = self.normalized_graph(x, edge_index, edge_weight, normalize=self.normalize)
        for lin in self.lins:
            materialize(lin, x)
        fused = (
            x.dim() == 2
            and not torch.is_autocast_enabled("cpu")
            and all(is_fusable(lin, x) and lin.bias is None for lin in self.lins)
        )
        if not fused:
            out = self.lins[0](x)
            for lin in self.lins[1:]:
                x = aggregate_nodes(graph, x, "sum", schedule=self.schedule, **terms)
                out = out + lin(x)
            return out if self.bias is None else out + self.bias  # type: ignore[no-any-return]
        weights = [lin.weight for lin in self.lins]
        if len(weights) == 1:
            return linear(x, weights[0], self.bias)
        if order_for(x.size(1), weights[0].size(0)) == "multiply_first":
            return self._multiplied_first(graph, x, weights, terms)
        return self._aggregated_first(graph, x, weights, terms)

    def _multiplied_first(self, graph: Graph, x: Tensor, weights: list[Tensor], terms: Terms) -> Tensor:
        out = linear(x, weights[-1])
        for hop in reversed(range(len(weights) - 1)):
            bias = self.bias if hop == 0 else None
            own = linear(x, weights[hop])
            out = aggregate_beside(graph, out, own, 1.0, terms, bias=bias, schedule=self.schedule)
        return out

    def _aggregated_first(self, graph: Graph, x: Tensor, weights: list[Tensor], terms: Terms) -> Tensor:
        before: Tensor | None = None
        for weight in weights[:-2]:
            product = linear(x, weight)
            before = product if before is None else before.add_(product)
            x = aggregate_nodes(graph, x, "sum", schedule=self.schedule, **terms)
        last: dict[str, Any] = {"x_root": x, "root_weight": weights[-2], "schedule": self.schedule}
        out = conv(graph, x, weights[-1], self.bias, "sum", **last, **terms)
        return out if before is None else out.add_(before)
