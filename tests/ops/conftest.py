# SPDX-License-Identifier: MIT
"""What the tests of the ops share."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor


@pytest.fixture(scope="package")
def far_rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tensor]:
    """``[9, 48]`` whose last row lies 2^31 elements into a file that is nearly all hole."""
    path = tmp_path_factory.mktemp("far") / "features"
    stride = 1 << 28
    memory = torch.from_file(str(path), shared=True, size=8 * stride + 64, dtype=torch.float32)
    rows = memory.as_strided((9, 48), (stride, 1), 5)
    rows.copy_(torch.randn(9, 48, generator=torch.Generator().manual_seed(0)))
    yield rows
    path.unlink()
