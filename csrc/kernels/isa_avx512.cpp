// SPDX-License-Identifier: MIT
// The kernels with 512-bit vectors: AVX-512 F, BW, DQ and VL.
#if defined(__x86_64__)
#define FRONTGI_ISA avx512
#define FRONTGI_VECTOR_BYTES 64
#define FRONTGI_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"
#include "kernels_impl.h"
#endif
