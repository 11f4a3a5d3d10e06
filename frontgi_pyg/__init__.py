# SPDX-License-Identifier: MIT
r"""Chiplet-aware full-graph GNN inference on CPUs, inside PyTorch Geometric."""

from frontgi_pyg import nn, ops
from frontgi_pyg.graph import DegreeStats, Graph
from frontgi_pyg.huge_pages import to_huge_pages
from frontgi_pyg.library import available_isas, current_isa, empty_cache, set_output_pool_limit
from frontgi_pyg.nn.accelerate import accelerate, report
from frontgi_pyg.pinning import pinned
from frontgi_pyg.plan import AskedSchedule, Cost, Numerics, Plan, Schedule, forced_schedule, plan
from frontgi_pyg.topology import CacheDomain, Topology

__version__ = "0.1.0"

__all__ = [
    "AskedSchedule",
    "CacheDomain",
    "Cost",
    "DegreeStats",
    "Graph",
    "Numerics",
    "Plan",
    "Schedule",
    "Topology",
    "accelerate",
    "available_isas",
    "current_isa",
    "empty_cache",
    "forced_schedule",
    "nn",
    "ops",
    "pinned",
    "plan",
    "report",
    "set_output_pool_limit",
    "to_huge_pages",
]
