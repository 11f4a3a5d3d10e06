# SPDX-License-Identifier: MIT
"""The convolution of Cluster-GCN (Chiang et al., 2019) on our kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import ClusterGCNConv as _PyGClusterGCNConv

from frontgi_pyg.graph import Graph
from frontgi_pyg.nn.linear import is_fusable
from frontgi_pyg.nn.native import NativeConv, aggregate_nodes, materialize, pyg_adjacency, to_graph
from frontgi_pyg.ops.aggregate import aggregate
from frontgi_pyg.ops.conv import conv


class ClusterGCNConv(NativeConv, _PyGClusterGCNConv):  # type: ignore[misc]
    r""":class:`torch_geometric.nn.ClusterGCNConv`, neighbours and root multiplied in one pass.

    .. math::
        \mathbf{X}^{\prime} = \left( \mathbf{\hat{A}} + \lambda \cdot
        \textrm{diag}(\mathbf{\hat{A}}) \right) \mathbf{X} \mathbf{W}_1 + \mathbf{X} \mathbf{W}_2,
        \quad \mathbf{\hat{A}} = {(\mathbf{D} + \mathbf{I})}^{-1}(\mathbf{A} + \mathbf{I})

    Arguments, parameters and results are PyG's. ``edge_index`` may also be a :class:`frontgi_pyg.Graph`.
    """

    pyg_class = _PyGClusterGCNConv

    def unsupported(self) -> str | None:
        """Returns why this layer, as configured, always takes PyG's path; :obj:`None` if it does not."""
        if self.aggr not in ("add", "sum"):
            return f"no kernel for a normalised aggr={self.aggr}"
        if not self.add_self_loops:
            return "add_self_loops=False"  # PyG asks for one loop at each node then
        return super().unsupported()

    def forward(self, x: Any, edge_index: Any) -> Tensor:
        """Runs the layer on ``[num_nodes, in_channels]`` (static graphs: ``[batch, num_nodes, in_channels]``)."""
        reason = "a pair of features" if isinstance(x, (tuple, list)) else self.fallback_reason(x, edge_index)
        layout = getattr(edge_index, "layout", torch.strided)
        if layout != torch.strided or (isinstance(edge_index, Graph) and edge_index.origin == "torch_sparse"):
            reason = reason or "a torch.sparse adjacency"  # of which PyG first adds up what is doubled
        self.took(reason or "native")
        if reason is not None:
            edge_index, _ = pyg_adjacency(edge_index, None, self.flow)
            # propagate_type: (x: Tensor, edge_weight: OptTensor)
            return super().forward(x, edge_index)  # type: ignore[no-any-return]

        given = to_graph(edge_index, x.size(-2), self.flow)
        graph = given if given.edge_weight is None else given.weighted(None)
        # PyG divides by the sum of a SparseTensor's values, but adds up its neighbours without them.
        inverse = _inverse_degree(given if given.origin == "sparse_tensor" else graph, self.flow)
        terms: dict[str, Any] = {
            "row_scale" if self.flow == "source_to_target" else "col_scale": inverse,
            "self_scale": inverse + self.diag_lambda * inverse,
            "skip_loops": True,
            "schedule": self.schedule,
        }
        lin_out: Any = self.lin_out
        lin_root: Any = self.lin_root
        materialize(lin_out, x)
        materialize(lin_root, x)
        fused = (
            x.dim() == 2
            and not torch.is_autocast_enabled("cpu")
            and is_fusable(lin_out, x)
            and is_fusable(lin_root, x)
            and lin_root.bias is None
        )
        if fused:
            return conv(graph, x, lin_out.weight, lin_out.bias, x_root=x, root_weight=lin_root.weight, **terms)
        out: Tensor = lin_out(aggregate_nodes(graph, x, "sum", **terms)) + lin_root(x)
        return out


def _inverse_degree(graph: Graph, flow: str) -> Tensor:
    """Returns one over the degree of each node with its own loops replaced by one, ``[num_nodes]``.

    PyG counts edges by their second end, whichever way messages go, and in float32, whatever the features are in.
    """

    def build() -> Tensor:
        weight = graph.edge_weight
        ones = torch.ones(graph.num_src_nodes, 1, dtype=torch.float32 if weight is None else weight.dtype)
        counted = graph if flow == "source_to_target" else graph.t()
        degree = aggregate(counted, ones, skip_loops=True, self_scale=ones[:1, 0], x_self=ones)
        return 1 / degree.squeeze(1).clamp_(min=1)

    return graph.once(("inverse degree", flow), build) if graph.edge_weight is None else build()
