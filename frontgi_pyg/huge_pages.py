# SPDX-License-Identifier: MIT
"""Features in huge pages, for those who want them there: no op moves what it is given."""

from __future__ import annotations

import torch
from torch import Tensor

from frontgi_pyg.library import fake_kernel

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def to_huge_pages(x: Tensor) -> Tensor:
    """Returns a contiguous copy of ``x`` in memory that the system is asked to map by huge pages (2 MiB).

    Rows gathered from all over a large matrix each need an address translated; with pages of 4 KiB the processor's
    table of them holds a few megabytes' worth. Outputs of our ops of 8 MB and more lie in such memory already. Where
    the system has no huge pages, or for less than 8 MB, it is an ordinary copy.

    Args:
        x: ``[..., features]``, float32, float64, bfloat16 or float16, on the CPU. Gradients pass through.

    Raises:
        TypeError: If ``x`` is not a tensor.
        ValueError: If it is of another dtype, layout or device.

    Example:
        >>> import torch
        >>> from frontgi_pyg import to_huge_pages
        >>> to_huge_pages(torch.ones(3, 2)).sum().item()
        6.0
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"to_huge_pages: 'x' must be a tensor (got {type(x).__name__})")
    if x.dtype not in _DTYPES or x.layout != torch.strided or not x.is_cpu:
        raise ValueError(
            f"to_huge_pages: 'x' must be a dense float tensor on the CPU (got {x.dtype}, {x.layout}, {x.device})"
        )
    columns = x.size(-1) if x.dim() else 1
    rows = x.numel() // columns if columns else 0
    out: Tensor = torch.ops.frontgi.empty_in_huge_pages(x.detach(), rows, columns)
    return out.view(x.shape).copy_(x)


@fake_kernel("empty_in_huge_pages")
def _empty_in_huge_pages(like: Tensor, rows: int, columns: int) -> Tensor:
    return like.new_empty(rows, columns)
