# SPDX-License-Identifier: MIT
"""The ops: each a docstring, a fake kernel and an autograd formula around one kernel of the compiled library."""

from frontgi_pyg.ops.aggregate import aggregate
from frontgi_pyg.ops.attention import attend
from frontgi_pyg.ops.conv import conv
from frontgi_pyg.ops.linear import linear

__all__ = ["aggregate", "attend", "conv", "linear"]
