# SPDX-License-Identifier: MIT
"""What the tests share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real graphs and machine descriptions; ``FRONTGI_SHARED`` says where it lies."""
    default = Path(__file__).resolve().parents[2] / "shared"
    path = Path(os.environ.get("FRONTGI_SHARED", default))
    if not path.is_dir():
        pytest.skip(f"no shared data at {path} (set FRONTGI_SHARED)")
    return path
