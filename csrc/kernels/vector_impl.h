// SPDX-License-Identifier: MIT
// Vectors of accumulators, and how each storage type is read into one and written from one.
//
// Compiler vector types of FRONTGI_VECTOR_BYTES bytes; intrinsics only where the compiler's own code is poor
// (masked tails, half conversion, streaming stores, fused multiply-add).
#pragma once

namespace frontgi::FRONTGI_ISA {

template <class A>
struct VectorOf {
  typedef A type __attribute__((vector_size(FRONTGI_VECTOR_BYTES)));
  static constexpr int lanes = FRONTGI_VECTOR_BYTES / int(sizeof(A));
};
template <class A>
using Vector = typename VectorOf<A>::type;
template <class A>
constexpr int kLanes = VectorOf<A>::lanes;

#if FRONTGI_VECTOR_BYTES == 64 || defined(__aarch64__)
constexpr int kRegisters = 32;
#else
constexpr int kRegisters = 16;
#endif

typedef uint16_t Bits16 __attribute__((vector_size(FRONTGI_VECTOR_BYTES / 2)));
typedef uint32_t Bits32 __attribute__((vector_size(FRONTGI_VECTOR_BYTES)));

template <class V>
FRONTGI_INLINE V load_bytes(const void* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof(V));
  return v;
}
template <class V>
FRONTGI_INLINE void store_bytes(void* p, V v) {
  __builtin_memcpy(p, &v, sizeof(V));
}

template <class A>
FRONTGI_INLINE Vector<A> broadcast(A a) {
  return a - Vector<A>{};  // a - 0 keeps every value, the sign of zero included
}

// ---- bf16 and fp16, one value ------------------------------------------------------------------------------------

FRONTGI_INLINE float float_from_bits(uint32_t bits) {
  float f;
  __builtin_memcpy(&f, &bits, 4);
  return f;
}
FRONTGI_INLINE uint32_t bits_from_float(float f) {
  uint32_t bits;
  __builtin_memcpy(&bits, &f, 4);
  return bits;
}

FRONTGI_INLINE float widen(float f) { return f; }
FRONTGI_INLINE double widen(double d) { return d; }
FRONTGI_INLINE float widen(Bf16 b) { return float_from_bits(uint32_t(b.bits) << 16); }
FRONTGI_INLINE float widen(Half h) {
  const uint32_t sign = uint32_t(h.bits & 0x8000u) << 16;
  const uint32_t exponent = (h.bits >> 10) & 0x1fu;
  const uint32_t mantissa = h.bits & 0x3ffu;
  if (exponent == 0x1f) return float_from_bits(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in float
    const float f = float(mantissa) * 0x1p-24f;
    return float_from_bits(sign | bits_from_float(f));
  }
  return float_from_bits(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

template <class T>
FRONTGI_INLINE T narrow(Accumulator<T> a);
template <>
FRONTGI_INLINE float narrow<float>(float a) {
  return a;
}
template <>
FRONTGI_INLINE double narrow<double>(double a) {
  return a;
}
template <>
FRONTGI_INLINE Bf16 narrow<Bf16>(float a) {  // to nearest, ties to even
  const uint32_t bits = bits_from_float(a);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return Bf16{uint16_t((bits >> 16) | 0x40u)};
  return Bf16{uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
template <>
FRONTGI_INLINE Half narrow<Half>(float a) {
  const uint32_t bits = bits_from_float(a);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return Half{uint16_t(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu))};
  if (magnitude >= 0x477ff000u) return Half{uint16_t(sign | 0x7c00u)};  // rounds to 65536 or more
  if (magnitude < 0x38800000u) {  // subnormal in half: let float addition round at 2^-24
    const float f = float_from_bits(magnitude) + 0.5f;
    return Half{uint16_t(sign | (bits_from_float(f) - 0x3f000000u))};
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return Half{uint16_t(sign | ((rounded - 0x38000000u) >> 13))};
}

// ---- whole vectors -------------------------------------------------------------------------------------------------

FRONTGI_INLINE Vector<float> load(const float* p) { return load_bytes<Vector<float>>(p); }
FRONTGI_INLINE Vector<double> load(const double* p) { return load_bytes<Vector<double>>(p); }
FRONTGI_INLINE Vector<float> load(const Bf16* p) {
  const Bits32 wide = __builtin_convertvector(load_bytes<Bits16>(p), Bits32) << 16;
  return (Vector<float>)wide;
}
FRONTGI_INLINE Vector<float> load(const Half* p) {
#if FRONTGI_VECTOR_BYTES == 64
  return (Vector<float>)_mm512_maskz_cvtph_ps(__mmask16(0xffff), load_bytes<__m256i>(p));
#elif FRONTGI_VECTOR_BYTES == 32
  return (Vector<float>)_mm256_cvtph_ps(load_bytes<__m128i>(p));
#elif defined(__aarch64__)
  return (Vector<float>)vcvt_f32_f16(load_bytes<float16x4_t>(p));
#else
  Vector<float> v;
  for (int i = 0; i < kLanes<float>; ++i) v[i] = widen(p[i]);
  return v;
#endif
}

FRONTGI_INLINE void store(float* p, Vector<float> v) { store_bytes(p, v); }
FRONTGI_INLINE void store(double* p, Vector<double> v) { store_bytes(p, v); }
FRONTGI_INLINE void store(Bf16* p, Vector<float> v) {
  const Bits32 bits = (Bits32)v;
  const Bits32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const Bits32 quiet = (bits >> 16) | 0x40u;
  store_bytes(p, __builtin_convertvector((v != v) ? quiet : rounded, Bits16));
}
FRONTGI_INLINE void store(Half* p, Vector<float> v) {
#if FRONTGI_VECTOR_BYTES == 64
  store_bytes(p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
#elif FRONTGI_VECTOR_BYTES == 32
  store_bytes(p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__aarch64__)
  store_bytes(p, vcvt_f16_f32((float32x4_t)v));
#else
  for (int i = 0; i < kLanes<float>; ++i) p[i] = narrow<Half>(v[i]);
#endif
}

// ---- the first n lanes: nothing beyond is read or written
// ------------------------------------------------------------

template <class T>
FRONTGI_INLINE Vector<Accumulator<T>> load_first(const T* p, int n) {
  T copy[kLanes<Accumulator<T>>] = {};
  for (int i = 0; i < n; ++i) copy[i] = p[i];
  return load(copy);
}
template <class T>
FRONTGI_INLINE void store_first(T* p, Vector<Accumulator<T>> v, int n) {
  T copy[kLanes<Accumulator<T>>];
  store(copy, v);
  for (int i = 0; i < n; ++i) p[i] = copy[i];
}
#if FRONTGI_VECTOR_BYTES == 64
template <>
FRONTGI_INLINE Vector<float> load_first<float>(const float* p, int n) {
  return (Vector<float>)_mm512_maskz_loadu_ps(__mmask16((1u << n) - 1u), p);
}
template <>
FRONTGI_INLINE Vector<double> load_first<double>(const double* p, int n) {
  return (Vector<double>)_mm512_maskz_loadu_pd(__mmask8((1u << n) - 1u), p);
}
template <>
FRONTGI_INLINE Vector<float> load_first<Bf16>(const Bf16* p, int n) {
  const __m256i bits = _mm256_maskz_loadu_epi16(__mmask16((1u << n) - 1u), p);
  return (Vector<float>)_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16);
}
template <>
FRONTGI_INLINE Vector<float> load_first<Half>(const Half* p, int n) {
  return (Vector<float>)_mm512_maskz_cvtph_ps(__mmask16(0xffff),
                                              _mm256_maskz_loadu_epi16(__mmask16((1u << n) - 1u), p));
}
template <>
FRONTGI_INLINE void store_first<float>(float* p, Vector<float> v, int n) {
  _mm512_mask_storeu_ps(p, __mmask16((1u << n) - 1u), (__m512)v);
}
#elif FRONTGI_VECTOR_BYTES == 32
FRONTGI_INLINE __m256i first_lanes_mask(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
template <>
FRONTGI_INLINE Vector<float> load_first<float>(const float* p, int n) {
  return (Vector<float>)_mm256_maskload_ps(p, first_lanes_mask(n));
}
template <>
FRONTGI_INLINE void store_first<float>(float* p, Vector<float> v, int n) {
  _mm256_maskstore_ps(p, first_lanes_mask(n), (__m256)v);
}
#elif defined(__aarch64__)
// Lane by lane into a register: a copy in memory would be read as a whole before its lanes are written.
template <>
FRONTGI_INLINE Vector<float> load_first<float>(const float* p, int n) {
  float32x4_t v = vld1q_lane_f32(p, vdupq_n_f32(0), 0);
  if (n > 1) v = vld1q_lane_f32(p + 1, v, 1);
  if (n > 2) v = vld1q_lane_f32(p + 2, v, 2);
  return (Vector<float>)v;
}
template <>
FRONTGI_INLINE Vector<double> load_first<double>(const double* p, int) {
  return (Vector<double>)vcombine_f64(vld1_f64(p), vdup_n_f64(0));
}
FRONTGI_INLINE uint16x4_t load_first_bits(const uint16_t* p, int n) {
  uint16x4_t v = vld1_lane_u16(p, vdup_n_u16(0), 0);
  if (n > 1) v = vld1_lane_u16(p + 1, v, 1);
  if (n > 2) v = vld1_lane_u16(p + 2, v, 2);
  return v;
}
template <>
FRONTGI_INLINE Vector<float> load_first<Bf16>(const Bf16* p, int n) {
  return (Vector<float>)vshlq_n_u32(vmovl_u16(load_first_bits(&p->bits, n)), 16);
}
template <>
FRONTGI_INLINE Vector<float> load_first<Half>(const Half* p, int n) {
  return (Vector<float>)vcvt_f32_f16(vreinterpret_f16_u16(load_first_bits(&p->bits, n)));
}
#endif

// ---- stores around the cache: p must be aligned to a vector
// ------------------------------------------------------------

// AArch64 keeps to plain stores: its STNP takes a pair of registers and is a hint alone.
template <class T>
FRONTGI_INLINE void store_stream(T* p, Vector<Accumulator<T>> v) {
  store(p, v);
}
#if FRONTGI_VECTOR_BYTES == 64
template <>
FRONTGI_INLINE void store_stream<float>(float* p, Vector<float> v) {
  _mm512_stream_ps(p, (__m512)v);
}
#elif FRONTGI_VECTOR_BYTES == 32
template <>
FRONTGI_INLINE void store_stream<float>(float* p, Vector<float> v) {
  _mm256_stream_ps(p, (__m256)v);
}
#endif
template <class T>
FRONTGI_INLINE bool can_stream(const T* p, int64_t stride_elements) {
  const uintptr_t stride_bytes = uintptr_t(stride_elements) * sizeof(T);
  return ((reinterpret_cast<uintptr_t>(p) | stride_bytes) & (FRONTGI_VECTOR_BYTES - 1)) == 0;
}
FRONTGI_INLINE void finish_streaming() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

// ---- a * b + c: fused where the instruction set has it (the baseline rounds twice)
// --------------------------------------

template <class A>
FRONTGI_INLINE Vector<A> multiply_add(Vector<A> a, Vector<A> b, Vector<A> c) {
  return a * b + c;
}
#if FRONTGI_VECTOR_BYTES == 64
template <>
FRONTGI_INLINE Vector<float> multiply_add<float>(Vector<float> a, Vector<float> b, Vector<float> c) {
  return (Vector<float>)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
template <>
FRONTGI_INLINE Vector<double> multiply_add<double>(Vector<double> a, Vector<double> b, Vector<double> c) {
  return (Vector<double>)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
}
#elif FRONTGI_VECTOR_BYTES == 32
template <>
FRONTGI_INLINE Vector<float> multiply_add<float>(Vector<float> a, Vector<float> b, Vector<float> c) {
  return (Vector<float>)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
template <>
FRONTGI_INLINE Vector<double> multiply_add<double>(Vector<double> a, Vector<double> b, Vector<double> c) {
  return (Vector<double>)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
}
#elif defined(__aarch64__)
template <>
FRONTGI_INLINE Vector<float> multiply_add<float>(Vector<float> a, Vector<float> b, Vector<float> c) {
  return (Vector<float>)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
template <>
FRONTGI_INLINE Vector<double> multiply_add<double>(Vector<double> a, Vector<double> b, Vector<double> c) {
  return (Vector<double>)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
}
#endif

}  // namespace frontgi::FRONTGI_ISA
