// SPDX-License-Identifier: MIT
// The kernels' text for one instruction set: an isa_*.cpp file names the set and includes this.
//
// Nothing from the standard library that has inline code may be included here: the linker keeps one copy of an
// inline function for the whole program, and it might keep the one compiled for AVX-512.
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12's own AVX-512 header reads an "undefined" register on purpose and is warned about it once inlined. For
// AArch64 it does not see that the loop over a row's chains runs at least once.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "kernels.h"

#ifdef FRONTGI_TARGET
#ifdef __clang__
#define FRONTGI_PRAGMA(text) _Pragma(#text)
#define FRONTGI_PUSH_TARGET(isa) FRONTGI_PRAGMA(clang attribute push(__attribute__((target(isa))), apply_to = function))
FRONTGI_PUSH_TARGET(FRONTGI_TARGET)
#else
#pragma GCC push_options
#define FRONTGI_PRAGMA(text) _Pragma(#text)
#define FRONTGI_PUSH_TARGET(isa) FRONTGI_PRAGMA(GCC target(isa))
FRONTGI_PUSH_TARGET(FRONTGI_TARGET)
#endif
#endif

#define FRONTGI_INLINE inline __attribute__((always_inline))

#include "vector_impl.h"

#include "aggregate_impl.h"
#include "edge_dot_impl.h"
#include "exp_impl.h"

#include "attention_impl.h"
#include "gemm_impl.h"

namespace frontgi::FRONTGI_ISA {

const KernelTable table = {
    aggregate_rows,        edge_dot_rows,          attend_rows, attend_grad_rows, attend_grad_columns,
    gemm_kernels<float>(), gemm_kernels<double>(),
};

}  // namespace frontgi::FRONTGI_ISA

#ifdef FRONTGI_TARGET
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
