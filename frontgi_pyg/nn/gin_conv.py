# SPDX-License-Identifier: MIT
"""GIN (Xu et al., 2019; FrontGI, eq. 5) on our kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GINConv as _PyGGINConv

from frontgi_pyg.memory import in_transform
from frontgi_pyg.nn.linear import is_plain, is_plain_linear, relu_follows, run_dense
from frontgi_pyg.nn.native import NativeConv, aggregate_nodes, pyg_adjacency
from frontgi_pyg.nn.neighbours import neighbour_graph, reduction
from frontgi_pyg.ops.conv import conv


class GINConv(NativeConv, _PyGGINConv):  # type: ignore[misc]
    r""":class:`torch_geometric.nn.GINConv`, :math:`(1 + \epsilon) \mathbf{x}_i` and the first linear layer fused in.

    .. math::
        \mathbf{X}^{\prime} = h_{\mathbf{\Theta}} \left(
        \left( \mathbf{A} + (1 + \epsilon) \cdot \mathbf{I} \right) \cdot \mathbf{X} \right)

    Arguments, parameters and results are PyG's. ``edge_index`` may also be a :class:`frontgi_pyg.Graph`.
    """

    pyg_class = _PyGGINConv
    _scale: tuple[tuple[float, torch.dtype], Tensor] | None = None

    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        """Runs the layer on ``[num_nodes, in_channels]``, or on a pair of features for bipartite graphs."""
        reason = self.fallback_reason(x, edge_index) or self._root_reason(x)
        self.took(reason or "native")
        if reason is not None:
            edge_index, _ = pyg_adjacency(edge_index, None, self.flow)
            # propagate_type: (x: OptPairTensor)
            return super().forward(x, edge_index, size)  # type: ignore[no-any-return]

        x_l, x_r = (x, x) if isinstance(x, Tensor) else x
        graph = neighbour_graph(edge_index, x_l, x_r, size, self.flow)
        reduce = reduction(self.aggr)
        terms: dict[str, Any] = {"schedule": self.schedule}
        if x_r is not None:
            terms["self_scale"] = self._self_scale()
            if x_r is not x_l:
                terms["x_self"] = x_r
        layers = self._layers()
        one_pass = x_l.dim() == 2 and not torch.is_autocast_enabled("cpu")
        first: Any = layers[0] if layers else None
        if layers and one_pass and is_plain_linear(first) and (weight := first.weight).dtype == x_l.dtype:
            fused = relu_follows(layers, 0)
            out = conv(graph, x_l, weight, first.bias, reduce, activation="relu" if fused else None, **terms)
            return run_dense(layers[2 if fused else 1 :], out)
        out = aggregate_nodes(graph, x_l, reduce, **terms)
        return self.nn(out) if layers is None else run_dense(layers, out)

    def _root_reason(self, x: Any) -> str | None:
        if isinstance(x, Tensor):
            x = (x, x)
        elif self.flow == "target_to_source":
            return "a pair of features with target_to_source"
        x_l, x_r = x
        if x_r is None:
            return None
        eps_dtype = self.eps.dtype
        if eps_dtype != x_l.dtype and torch.promote_types(eps_dtype, x_l.dtype) != x_l.dtype:
            return f"eps in {eps_dtype} on features in {x_l.dtype}"
        return "targets of another width than the sources" if x_r.size(-1) != x_l.size(-1) else None

    def _self_scale(self) -> Tensor:
        """Returns 1 + eps, made again only if eps is another number: on small graphs the addition shows."""
        eps = self.eps
        if eps.requires_grad or torch.compiler.is_compiling() or in_transform() or type(eps) is not Tensor:
            return 1 + eps  # type: ignore[no-any-return]
        value = eps.item()
        if self._scale is None or self._scale[0] != (value, eps.dtype):
            with torch.inference_mode(False):  # it may be saved for a backward pass later
                self._scale = (value, eps.dtype), 1 + eps
        return self._scale[1]

    def _layers(self) -> list[torch.nn.Module] | None:
        """Returns the layers of ``nn`` if it does no more than call them in turn."""
        nn = self.nn
        if type(nn) is torch.nn.Sequential and is_plain(nn):
            return list(nn._modules.values())
        return [nn] if isinstance(nn, torch.nn.Module) and is_plain_linear(nn) else None
