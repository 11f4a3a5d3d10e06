# SPDX-License-Identifier: MIT
"""Read graphs from the files that people have: the formats, and :func:`load`, which guesses.

Idea: one reader per format. Each returns an :class:`EdgeList` that holds what the file holds:
every edge, as often, in the order and in the direction written. Nothing is symmetrised,
deduplicated or sorted; node ids become 0-based.

Failure: a file that breaks its format raises a :class:`ValueError` with the path, the line (text)
or the key (containers), what was expected and what was got; one that is not there raises
:class:`FileNotFoundError`. Nothing in a file is ever executed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

from .archives import read_npz
from .edge_list import EdgeList
from .matlab import read_matlab
from .musae import read_musae
from .planetoid import read_planetoid
from .text import read_konect, read_matrix_market, read_metis, read_snap

__all__ = [
    "EdgeList",
    "Format",
    "load",
    "read_konect",
    "read_matlab",
    "read_matrix_market",
    "read_metis",
    "read_musae",
    "read_npz",
    "read_planetoid",
    "read_snap",
]

Format = Literal["konect", "matlab", "matrix_market", "metis", "musae", "npz", "planetoid", "snap"]

# What a file of each format is called, most particular first.
_NAMES: dict[str, Format] = {
    r"out\..+": "konect",
    r"ind\..+\.graph": "planetoid",
    r".+\.(graph|metis)(\.gz)?": "metis",
    r".+\.csv(\.gz)?": "musae",
    r".+\.mtx(\.gz)?": "matrix_market",
    r".+\.mat": "matlab",
    r".+\.npz": "npz",
    r".+\.(txt|tsv|el|edges|edgelist)(\.gz)?": "snap",
}

_READERS: dict[Format, Callable[..., EdgeList]] = {
    "konect": read_konect,
    "matlab": read_matlab,
    "matrix_market": read_matrix_market,
    "metis": read_metis,
    "musae": read_musae,
    "npz": read_npz,
    "planetoid": read_planetoid,
    "snap": read_snap,
}


def load(path: str | PathLike[str], format: Format | None = None, **options: Any) -> EdgeList:
    """Reads a graph, by the reader of its format.

    Args:
        path: The file.
        format: Its format; if ``None``, its name tells: ``out.*`` (KONECT), ``ind.*.graph``
            (Planetoid), ``*.graph`` or ``*.metis``, ``*.csv`` (MUSAE), ``*.mtx``, ``*.mat``,
            ``*.npz``, and ``*.txt``, ``*.tsv``, ``*.el``, ``*.edges`` or ``*.edgelist`` (SNAP).
        options: For the reader, as ``compact`` for :func:`read_snap`.

    Raises:
        ValueError: No format is known by that name, or the file is broken.
    """
    if format is None:
        name = Path(path).name
        format = next((f for names, f in _NAMES.items() if re.fullmatch(names, name)), None)
    if format not in _READERS:
        known = ", ".join(get_args(Format))
        raise ValueError(f"{path}: format: expected one of {known}, got {format!r}")
    return _READERS[format](path, **options)
