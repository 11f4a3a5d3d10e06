// SPDX-License-Identifier: MIT
// The kernels with 128-bit vectors: SSE2 on x86-64, NEON on AArch64.
#define FRONTGI_ISA baseline
#define FRONTGI_VECTOR_BYTES 16
#include "kernels_impl.h"
