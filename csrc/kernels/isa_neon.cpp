// SPDX-License-Identifier: MIT
// The kernels with 128-bit vectors and fused multiply-add: NEON, which every AArch64 processor has.
#if defined(__aarch64__)
#define FRONTGI_ISA neon
#define FRONTGI_VECTOR_BYTES 16
#include "kernels_impl.h"
#endif
