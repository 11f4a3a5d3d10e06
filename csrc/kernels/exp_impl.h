// SPDX-License-Identifier: MIT
// exp of numbers up to 0, as a softmax needs it: within one unit in the last place, 0 below the smallest normal number.
//
// x = n ln 2 + r with |r| <= ln 2 / 2, ln 2 in two parts so that n times the first is exact (Cody and Waite, 1980);
// exp(r) by Taylor's polynomial, whose remainder is below a tenth of a rounding; 2^n put into the exponent.
#pragma once

namespace frontgi::FRONTGI_ISA {

template <class A>
struct ExpOf;
template <>
struct ExpOf<float> {
  typedef uint32_t Bits __attribute__((vector_size(FRONTGI_VECTOR_BYTES)));
  static constexpr int degree = 7, mantissa_bits = 23, bias = 127;
  static constexpr float least = -87.0f;
  static constexpr float to_integer = 0x1.8p23f;  // added, it leaves the nearest integer in the lowest bits
  static constexpr float ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
};
template <>
struct ExpOf<double> {
  typedef uint64_t Bits __attribute__((vector_size(FRONTGI_VECTOR_BYTES)));
  static constexpr int degree = 13, mantissa_bits = 52, bias = 1023;
  static constexpr double least = -708.0;
  static constexpr double to_integer = 0x1.8p52;
  static constexpr double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
};

// REQUIRES: x <= 0, or NaN, which stays.
template <class A>
FRONTGI_INLINE Vector<A> exp_up_to_0(Vector<A> x) {
  using Of = ExpOf<A>;
  using Bits = typename Of::Bits;
  constexpr A inverse_factorial[] = {
      1.0,        1.0,         1.0 / 2,      1.0 / 6,       1.0 / 24,       1.0 / 120,       1.0 / 720,
      1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0};
  const Vector<A> shifted = x * A(1.44269504088896340736) + Of::to_integer;
  const Vector<A> n = shifted - Of::to_integer;
  const Vector<A> r = x - n * Of::ln2_high - n * Of::ln2_low;
  Vector<A> sum = broadcast<A>(inverse_factorial[Of::degree]);
  for (int k = Of::degree - 1; k >= 0; --k) sum = sum * r + inverse_factorial[k];
  const Vector<A> power = (Vector<A>)(((Bits)shifted + Of::bias) << Of::mantissa_bits);
  return (x < Of::least) ? Vector<A>{} : sum * power;
}

// All of `count` values; up to a vector behind them is written, too.
template <class A>
FRONTGI_INLINE void exp_all_up_to_0(A* values, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes<A>) store(values + i, exp_up_to_0<A>(load(values + i)));
}

}  // namespace frontgi::FRONTGI_ISA
