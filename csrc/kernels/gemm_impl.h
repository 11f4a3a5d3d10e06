// SPDX-License-Identifier: MIT
// The row-blocked GEMM of the Update phase (FrontGI, algorithm 5 and section 3.3), for one instruction set.
//
// Idea: the micro-kernel keeps kPanelRows x 2 vectors of C in registers over the whole of k; a panel of B streams
// from the L2 cache, the packed tile of A stays there. C is written once, with bias and activation. Products are summed
// in blocks of kBlock, and the blocks' sums in order: one chain over all of k has twice the rounding error at k = 1024.
// Bits do not depend on how rows are cut into tiles.
// Layout: B as panels [n / kPanelColumns][k][kPanelColumns], zero-padded; A as panels
// [rows / kPanelRows][k / kBlock][kPanelRows][kBlockStride].
#pragma once

namespace frontgi::FRONTGI_ISA {

#if FRONTGI_VECTOR_BYTES == 64
constexpr int kPanelRows = 14;  // 28 accumulators, two vectors of B, one of A, of 32 registers
#elif FRONTGI_VECTOR_BYTES == 32
constexpr int kPanelRows = 6;  // 12, 2 and 1 of 16
#elif defined(__aarch64__)
constexpr int kPanelRows = 10;  // 20, 2 and up to 10 of 32, loaded ahead: with 12 rows GCC keeps some in memory
#else
constexpr int kPanelRows = 4;  // 8, 2 and 1 of 16, and one for the product
#endif
constexpr int kPanelVectors = 2;
constexpr int64_t kBlock = 256;
constexpr int64_t kBlockStride = kBlock + 16;  // so that rows start in different cache sets
// Rows this narrow are multiplied where they lie: packing them took a fifth of the time. Not where a panel has more
// rows than there are registers for their addresses: x86-64 has 16, AArch64 31.
constexpr int64_t kUnpacked = FRONTGI_VECTOR_BYTES == 64 ? 0 : 64;

template <class A>
constexpr int64_t kPanelColumns = kPanelVectors * kLanes<A>;

FRONTGI_INLINE int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
FRONTGI_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

FRONTGI_INLINE int64_t a_panel_size(int64_t k) { return ceil_div(k, kBlock) * kPanelRows * kBlockStride; }
int64_t packed_a_size(int64_t rows, int64_t k) { return ceil_div(rows, kPanelRows) * a_panel_size(k); }
template <class A>
int64_t packed_b_size(int64_t n, int64_t k) {
  return ceil_div(n, kPanelColumns<A>) * k * kPanelColumns<A>;
}

template <class T>
FRONTGI_INLINE void widen_run(const T* from, int64_t count, Accumulator<T>* to) {
  using A = Accumulator<T>;
  int64_t i = 0;
  for (; i + kLanes<A> <= count; i += kLanes<A>) store(to + i, load(from + i));
  if (i < count) store_first(to + i, load_first(from + i, int(count - i)), int(count - i));
}

template <class T>
void pack_a_typed(const void* a, int64_t row_stride, int64_t column_stride, int64_t rows, const int64_t* listed,
                  int64_t k_begin, int64_t k_size, int64_t k_total, void* packed) {
  using A = Accumulator<T>;
  A* panel = static_cast<A*>(packed);
  for (int64_t first = 0; first < rows; first += kPanelRows, panel += a_panel_size(k_total)) {
    for (int64_t i = 0; i < kPanelRows; ++i) {
      const int64_t row = first + i;
      const T* from = row < rows ? static_cast<const T*>(a) + (listed ? listed[row] : row) * row_stride : nullptr;
      for (int64_t k = 0; k < k_size;) {
        const uint64_t at = uint64_t(k_begin + k);
        const int64_t run = smaller(k_size - k, kBlock - int64_t(at % kBlock));
        A* to = panel + (at / kBlock) * (kPanelRows * kBlockStride) + i * kBlockStride + at % kBlock;
        if (!from) {
          for (int64_t c = 0; c < run; ++c) to[c] = 0;
        } else if (column_stride == 1) {
          widen_run(from + k, run, to);
        } else {
          for (int64_t c = 0; c < run; ++c) to[c] = widen(from[(k + c) * column_stride]);
        }
        k += run;
      }
    }
  }
}

template <class T>
void pack_b_typed(const void* b, int64_t n_stride, int64_t k_stride, int64_t n, int64_t k_begin, int64_t k_size,
                  int64_t k_total, int64_t panel_begin, int64_t panel_end, void* packed) {
  using A = Accumulator<T>;
  constexpr int64_t columns = kPanelColumns<A>;
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    const int64_t first = panel * columns;
    const int64_t valid = smaller(columns, n - first);
    const T* from = static_cast<const T*>(b) + first * n_stride;
    A* to = static_cast<A*>(packed) + (panel * k_total + k_begin) * columns;
    for (int64_t k = 0; k < k_size; ++k, to += columns) {
      if (n_stride == 1 && valid == columns) {
        widen_run(from + k * k_stride, columns, to);
        continue;
      }
      for (int64_t c = 0; c < columns; ++c) to[c] = c < valid ? A(widen(from[c * n_stride + k * k_stride])) : A(0);
    }
  }
}

struct TileOfC {
  int64_t rows, columns;  // valid ones
  const void* bias;       // at the tile's first column
  bool relu, accumulate, stream;
  void* c;
  int64_t stride;
  const int64_t* listed;  // optional: the rows of c
  int64_t a_stride;       // of rows of A that are not packed, else 0
};

template <class T, class Stored, int NV>
FRONTGI_INLINE void finish_tile(const TileOfC& tile, const Vector<Accumulator<T>> (&acc)[kPanelRows][NV]) {
  using A = Accumulator<T>;
  using V = Vector<A>;
  constexpr int L = kLanes<A>;
  const T* bias = static_cast<const T*>(tile.bias);
  if (tile.rows == kPanelRows && !tile.accumulate && !tile.listed) {  // the rule: no branch depends on the row
    V added[NV];
    int left[NV];
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) {
      left[v] = int(smaller(L, tile.columns - v * L));
      added[v] = !bias ? V{} : left[v] == L ? V(load(bias + v * L)) : V(load_first(bias + v * L, left[v]));
    }
    Stored* c = static_cast<Stored*>(tile.c);
#pragma GCC unroll 32
    for (int i = 0; i < kPanelRows; ++i, c += tile.stride) {
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v) {
        V value = acc[i][v] + added[v];
        if (tile.relu) value = (value < V{}) ? V{} : value;
        if (left[v] < L) {
          store_first(c + v * L, value, left[v]);
        } else if (tile.stream) {
          store_stream(c + v * L, value);
        } else {
          store(c + v * L, value);
        }
      }
    }
    return;
  }
  for (int i = 0; i < kPanelRows; ++i) {
    if (i >= tile.rows) break;
    Stored* c = static_cast<Stored*>(tile.c) + (tile.listed ? tile.listed[i] : i) * tile.stride;
    for (int v = 0; v < NV; ++v) {
      const int64_t left = tile.columns - v * L;
      if (left <= 0) break;
      V value = acc[i][v];
      const bool whole = left >= L;
      // No bias adds zeros, as in the unrolled path: the sign of a zero must not depend on the path.
      if (tile.accumulate) {
        value = value + (whole ? load(c + v * L) : load_first(c + v * L, int(left)));
      } else {
        // No bias adds zeros, as in the unrolled path: the sign of a zero must not depend on the path.
        value = value + (!bias ? V{} : whole ? V(load(bias + v * L)) : V(load_first(bias + v * L, int(left))));
        if (tile.relu) value = (value < V{}) ? V{} : value;
      }
      if (!whole) {
        store_first(c + v * L, value, int(left));
      } else if (tile.stream) {
        store_stream(c + v * L, value);
      } else {
        store(c + v * L, value);
      }
    }
  }
}

// sum (+)= a block of A's columns times the same rows of B. The accumulators are local, so that they live in registers;
// `sum` is memory, touched once a block.
template <class A, int NV>
FRONTGI_INLINE void multiply_block(const A* row, int64_t stride, const A* b, int64_t k_size, bool first,
                                   Vector<A> (&sum)[kPanelRows][NV]) {
  using V = Vector<A>;
  constexpr int L = kLanes<A>;
  V acc[kPanelRows][NV];
#pragma GCC unroll 32
  for (int i = 0; i < kPanelRows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) acc[i][v] = V{};
  }
  for (int64_t k = 0; k < k_size; ++k, ++row, b += kPanelColumns<A>) {
    V column[NV];
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) column[v] = load(b + v * L);
#pragma GCC unroll 32
    for (int i = 0; i < kPanelRows; ++i) {
      const V value = broadcast<A>(row[i * stride]);
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v) acc[i][v] = multiply_add<A>(value, column[v], acc[i][v]);
    }
  }
#pragma GCC unroll 32
  for (int i = 0; i < kPanelRows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) sum[i][v] = first ? acc[i][v] : sum[i][v] + acc[i][v];
  }
}

template <class T, int NV>
void micro_kernel(const Accumulator<T>* a, const Accumulator<T>* b, int64_t k_total, const TileOfC& tile) {
  using A = Accumulator<T>;
  Vector<A> acc[kPanelRows][NV];
  if (tile.a_stride) {
    multiply_block<A, NV>(a, tile.a_stride, b, k_total, true, acc);
    return finish_tile<T, T, NV>(tile, acc);
  }
  multiply_block<A, NV>(a, kBlockStride, b, smaller(kBlock, k_total), true, acc);
  for (int64_t k = kBlock; k < k_total; k += kBlock) {
    a += kPanelRows * kBlockStride;
    b += kBlock * kPanelColumns<A>;
    multiply_block<A, NV>(a, kBlockStride, b, smaller(kBlock, k_total - k), false, acc);
  }
  if (tile.accumulate) {
    finish_tile<T, A, NV>(tile, acc);
  } else {
    finish_tile<T, T, NV>(tile, acc);
  }
}

template <class T>
void multiply_typed(const void* packed_a, int64_t rows, const int64_t* listed, const void* packed_b, GemmShape shape,
                    const void* bias, bool relu, bool accumulate, bool stream, void* c, int64_t c_stride) {
  using A = Accumulator<T>;
  constexpr int64_t columns = kPanelColumns<A>;
  const int64_t stored_bytes = accumulate ? int64_t(sizeof(A)) : int64_t(sizeof(T));
  stream = stream && !accumulate && can_stream(static_cast<const T*>(c), c_stride);
  const A* a = static_cast<const A*>(packed_a);
  const A* b = static_cast<const A*>(packed_b) + shape.k_passed * columns;
  const int64_t k = shape.k - shape.k_passed;
  for (int64_t column = 0; column < shape.n; column += columns, b += shape.k * columns) {
    for (int64_t row = 0; row < rows; row += kPanelRows) {
      TileOfC tile;
      tile.rows = smaller(kPanelRows, rows - row);
      tile.columns = smaller(columns, shape.n - column);
      tile.bias = bias ? static_cast<const T*>(bias) + column : nullptr;
      tile.relu = relu;
      tile.accumulate = accumulate;
      tile.stream = stream;
      tile.listed = listed ? listed + row : nullptr;
      tile.c = static_cast<char*>(c) + ((listed ? 0 : row * c_stride) + column) * stored_bytes;
      tile.stride = c_stride;
      tile.a_stride = shape.a_stride;
      const A* panel = a + (shape.a_stride ? row * shape.a_stride : (row / kPanelRows) * a_panel_size(k));
      if (tile.columns > kLanes<A>) {
        micro_kernel<T, 2>(panel, b, k, tile);
      } else {
        micro_kernel<T, 1>(panel, b, k, tile);
      }
    }
  }
  if (stream) finish_streaming();
}

void pack_a_any(DType dtype, const void* a, int64_t row_stride, int64_t column_stride, int64_t rows,
                const int64_t* listed, int64_t k_begin, int64_t k_size, int64_t k_total, void* packed) {
  using Pack = void (*)(const void*, int64_t, int64_t, int64_t, const int64_t*, int64_t, int64_t, int64_t, void*);
  constexpr Pack pack[] = {pack_a_typed<float>, pack_a_typed<double>, pack_a_typed<Bf16>, pack_a_typed<Half>};
  pack[int(dtype)](a, row_stride, column_stride, rows, listed, k_begin, k_size, k_total, packed);
}

void pack_b_any(DType dtype, const void* b, int64_t n_stride, int64_t k_stride, int64_t n, int64_t k_begin,
                int64_t k_size, int64_t k_total, int64_t panel_begin, int64_t panel_end, void* packed) {
  using Pack = void (*)(const void*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, void*);
  constexpr Pack pack[] = {pack_b_typed<float>, pack_b_typed<double>, pack_b_typed<Bf16>, pack_b_typed<Half>};
  pack[int(dtype)](b, n_stride, k_stride, n, k_begin, k_size, k_total, panel_begin, panel_end, packed);
}

void multiply_any(DType dtype, const void* packed_a, int64_t rows, const int64_t* listed, const void* packed_b,
                  GemmShape shape, const void* bias, bool relu, bool accumulate, bool stream, void* c,
                  int64_t c_stride) {
  using Multiply = void (*)(const void*, int64_t, const int64_t*, const void*, GemmShape, const void*, bool, bool, bool,
                            void*, int64_t);
  constexpr Multiply multiply[] = {multiply_typed<float>, multiply_typed<double>, multiply_typed<Bf16>,
                                   multiply_typed<Half>};
  multiply[int(dtype)](packed_a, rows, listed, packed_b, shape, bias, relu, accumulate, stream, c, c_stride);
}

template <class A>
constexpr GemmKernels gemm_kernels() {
  return GemmKernels{kPanelRows,    kPanelColumns<A>, kBlock,     kBlockStride, kUnpacked,
                     packed_a_size, packed_b_size<A>, pack_a_any, pack_b_any,   multiply_any};
}

}  // namespace frontgi::FRONTGI_ISA
