# SPDX-License-Identifier: MIT
"""The only reader of environment variables."""

from __future__ import annotations

import os


def topology_override() -> str | None:
    """Returns the text of ``FRONTGI_TOPOLOGY``, or :obj:`None` if it is unset."""
    return os.environ.get("FRONTGI_TOPOLOGY") or None


def isa_override() -> str | None:
    """Returns the text of ``FRONTGI_ISA``, or :obj:`None` if it is unset."""
    return os.environ.get("FRONTGI_ISA") or None


def calibration_override() -> str | None:
    """Returns the text of ``FRONTGI_CALIBRATION``, or :obj:`None` if it is unset."""
    return os.environ.get("FRONTGI_CALIBRATION") or None
