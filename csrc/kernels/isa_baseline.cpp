// SPDX-License-Identifier: MIT
// The kernels with 128-bit vectors: SSE2 on x86-64. AArch64 has NEON everywhere and needs no other baseline.
#if !defined(__aarch64__)
#define FRONTGI_ISA baseline
#define FRONTGI_VECTOR_BYTES 16
#include "kernels_impl.h"
#endif
