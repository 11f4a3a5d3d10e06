# SPDX-License-Identifier: MIT
"""Graphs to run on: readers for the formats people have, seeded generators, and one real graph."""

from .debian import debian_packages
from .edge_list import EdgeList
from .files import (
    load,
    read_konect,
    read_matlab,
    read_matrix_market,
    read_metis,
    read_musae,
    read_npz,
    read_planetoid,
    read_snap,
)
from .generators import generate, kronecker, molecules, power_law, uniform
from .twins import PAPER_GRAPHS, PaperGraph, twin

__all__ = [
    "PAPER_GRAPHS",
    "EdgeList",
    "PaperGraph",
    "debian_packages",
    "generate",
    "kronecker",
    "load",
    "molecules",
    "power_law",
    "read_konect",
    "read_matlab",
    "read_matrix_market",
    "read_metis",
    "read_musae",
    "read_npz",
    "read_planetoid",
    "read_snap",
    "twin",
    "uniform",
]
