// SPDX-License-Identifier: MIT
// The kernels with 256-bit vectors: AVX2, FMA and F16C.
#if defined(__x86_64__)
#define FRONTGI_ISA avx2
#define FRONTGI_VECTOR_BYTES 32
#define FRONTGI_TARGET "avx2,fma,f16c"
#include "kernels_impl.h"
#endif
