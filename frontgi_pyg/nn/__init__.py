# SPDX-License-Identifier: MIT
"""Layers: subclasses of PyG's own, with the same constructors, parameters and results."""

from frontgi_pyg.nn.accelerate import accelerate, report
from frontgi_pyg.nn.gcn_conv import GCNConv
from frontgi_pyg.nn.gin_conv import GINConv
from frontgi_pyg.nn.linear import Linear, PyGLinear
from frontgi_pyg.nn.sage_conv import SAGEConv
from frontgi_pyg.nn.sg_conv import SGConv

__all__ = [
    "GCNConv",
    "GINConv",
    "Linear",
    "PyGLinear",
    "SAGEConv",
    "SGConv",
    "accelerate",
    "report",
]
