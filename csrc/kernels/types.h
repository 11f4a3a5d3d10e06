// SPDX-License-Identifier: MIT
// Scalar types as the kernels see them: storage types and the type each accumulates in.
//
// bf16 and fp16 are stored as 16 raw bits and always accumulate in float; float in float; double in double.
#pragma once

#include <cstdint>

namespace frontgi {

enum class DType : int32_t { f32, f64, bf16, f16 };
enum class Reduce : int32_t { sum, mean, min, max };

struct Bf16 {
  uint16_t bits;
};
struct Half {
  uint16_t bits;
};

template <class T>
struct AccumulatorOf {
  using type = float;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};
template <class T>
using Accumulator = typename AccumulatorOf<T>::type;

constexpr int64_t element_bytes(DType dtype) { return dtype == DType::f64 ? 8 : dtype == DType::f32 ? 4 : 2; }
constexpr int64_t accumulator_bytes(DType dtype) { return dtype == DType::f64 ? 8 : 4; }

}  // namespace frontgi
