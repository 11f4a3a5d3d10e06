# SPDX-License-Identifier: MIT
"""GraphSAGE (Hamilton et al., 2017; FrontGI, eq. 4) on our kernels."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import SAGEConv as _PyGSAGEConv

from frontgi_pyg.nn.linear import apply_linear, is_fusable, is_plain_linear
from frontgi_pyg.nn.native import NativeConv, aggregate_nodes, materialize, pyg_adjacency
from frontgi_pyg.nn.neighbours import neighbour_graph, reduction
from frontgi_pyg.ops.conv import conv


class SAGEConv(NativeConv, _PyGSAGEConv):  # type: ignore[misc]
    r""":class:`torch_geometric.nn.SAGEConv`, neighbours and root multiplied in one pass.

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{W}_1 \mathbf{x}_i
        + \mathbf{W}_2 \cdot \mathrm{mean}_{j \in \mathcal{N}(i)} \mathbf{x}_j

    Arguments, parameters and results are PyG's. ``edge_index`` may also be a :class:`frontgi_pyg.Graph`.
    """

    pyg_class = _PyGSAGEConv

    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        """Runs the layer on ``[num_nodes, in_channels]``, or on a pair of features for bipartite graphs."""
        reason = self.fallback_reason(x, edge_index)
        if reason is None and self.flow == "target_to_source" and not isinstance(x, Tensor):
            reason = "a pair of features with target_to_source"
        self.took(reason or "native")
        if reason is not None:
            edge_index, _ = pyg_adjacency(edge_index, None, self.flow)
            # propagate_type: (x: OptPairTensor)
            return super().forward(x, edge_index, size)  # type: ignore[no-any-return]

        x_l, x_r = (x, x) if isinstance(x, Tensor) else x
        graph = neighbour_graph(edge_index, x_l, x_r, size, self.flow)
        reduce = reduction(self.aggr)
        if self.project and hasattr(self, "lin"):
            x_l = (
                self.lin(x_l).relu()
                if not is_plain_linear(self.lin)
                else apply_linear(x_l, self.lin.weight, self.lin.bias, "relu")
            )
        with_root = self.root_weight and x_r is not None
        lin_l: Any = self.lin_l
        lin_r: Any = self.lin_r if with_root else None
        materialize(lin_l, x_l)
        if lin_r is not None:
            materialize(lin_r, x_r)
        one_pass = (
            x_l.dim() == 2
            and not torch.is_autocast_enabled("cpu")
            and is_fusable(lin_l, x_l)
            and (lin_r is None or (lin_r.bias is None and is_fusable(lin_r, x_l)))
        )
        if one_pass:
            out = conv(
                graph,
                x_l,
                lin_l.weight,
                lin_l.bias,
                reduce,
                x_root=x_r if with_root else None,
                root_weight=lin_r.weight if with_root else None,
                schedule=self.schedule,
            )
        else:
            out = lin_l(aggregate_nodes(graph, x_l, reduce, schedule=self.schedule))
            if with_root:
                out = out + lin_r(x_r)
        return F.normalize(out, p=2.0, dim=-1) if self.normalize else out
