# SPDX-License-Identifier: MIT
"""Layers: subclasses of PyG's own, with the same constructors, parameters and results."""

from frontgi_pyg.nn.accelerate import accelerate, report
from frontgi_pyg.nn.appnp import APPNP
from frontgi_pyg.nn.cluster_gcn_conv import ClusterGCNConv
from frontgi_pyg.nn.gat_conv import GATConv
from frontgi_pyg.nn.gatv2_conv import GATv2Conv
from frontgi_pyg.nn.gcn2_conv import GCN2Conv
from frontgi_pyg.nn.gcn_conv import GCNConv
from frontgi_pyg.nn.gin_conv import GINConv
from frontgi_pyg.nn.graph_conv import GraphConv
from frontgi_pyg.nn.inference import layerwise_inference
from frontgi_pyg.nn.le_conv import LEConv
from frontgi_pyg.nn.lg_conv import LGConv
from frontgi_pyg.nn.linear import Linear, PyGLinear
from frontgi_pyg.nn.rgcn_conv import FastRGCNConv, RGCNConv
from frontgi_pyg.nn.sage_conv import SAGEConv
from frontgi_pyg.nn.sg_conv import SGConv
from frontgi_pyg.nn.ssg_conv import SSGConv
from frontgi_pyg.nn.tag_conv import TAGConv

__all__ = [
    "APPNP",
    "ClusterGCNConv",
    "FastRGCNConv",
    "GATConv",
    "GATv2Conv",
    "GCN2Conv",
    "GCNConv",
    "GINConv",
    "GraphConv",
    "LEConv",
    "LGConv",
    "Linear",
    "PyGLinear",
    "RGCNConv",
    "SAGEConv",
    "SGConv",
    "SSGConv",
    "TAGConv",
    "accelerate",
    "layerwise_inference",
    "report",
]
