// SPDX-License-Identifier: MIT
// The kernels: one thread's share of each hot loop, compiled once for every instruction set.
//
// A kernel knows neither torch nor threads nor schedules. It is given raw pointers, row strides in elements and
// a range of rows; the caller (csrc/run) has validated everything and owns all memory. Nothing is allocated here.
//
// Invariant: an output element is a function of its own row alone, summed over the row's edges in CSR order (for the
// GEMM over k, in fixed blocks) by one chain of operations. How rows and columns are cut into calls therefore changes
// no bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "types.h"

namespace frontgi {

// Edges in one chain of additions; a longer row adds up the chains' sums, in order. A hub of 20,000 edges summed in one
// chain was measured 2.4 times less accurate than PyG's.
constexpr int64_t kEdgesSummed = 256;

// A stretch of columns, where they are not gathered all at once: a row takes up where the block before left it, so that
// its additions are the same, in the same order. REQUIRES: columns ascending within a row.
struct ColumnBlock {
  const uint32_t* begin = nullptr;  // [rows] a row's edges before the block; null in the first
  const uint32_t* end = nullptr;    // [rows] those up to its end; null in the last
  int64_t first_column = 0;         // whose row `x` points to
  // Accumulators of rows that wait for their next block: the chain begun, and the sum of those done. The first may be
  // the output itself, if that has the accumulators' type and x_self does not alias it.
  void* state = nullptr;  // [rows, width]
  int64_t state_stride = 0;
  void* sums = nullptr;  // [long_count, width]
  int64_t sums_stride = 0;
  const int64_t* long_rows = nullptr;  // rows of kEdgesSummed edges or more, ascending
  int64_t long_count = 0;
};

// out[i] = act( row_scale[i] * reduce_{e in row i} edge_weight[e] * col_scale[col[e]] * x[col[e]]
//               + self_scale[i] * x_self[i] + bias )                                  (FrontGI, eq. 3-7, section 3.4)
//
// Every pointer marked "optional" may be null, and then stands for ones (scales, weights) or for an absent term
// (x_self, bias). `reduce` mean divides by the number of edges; rows without any give 0 before the self
// term. Scales and weights are in the accumulator type of `dtype`; x, x_self, bias and out are in `dtype`.
// x_self may alias out: an element is read before it is written.
struct AggregateArgs {
  DType dtype = DType::f32;
  Reduce reduce = Reduce::sum;
  bool wide_index = false;          // col holds int64_t, else int32_t
  bool skip_loops = false;          // edges with col == row take no part (REQUIRES: reduce sum)
  bool pass_empty = false;          // rows without edges are passed over: out holds the others alone, one after another
  bool relu = false;                // applied last
  bool prefetch = true;             // x is larger than an L2 cache
  bool stream = false;              // write around the cache: out will not be read soon
  const int64_t* rowptr = nullptr;  // [rows + 1]
  const void* col = nullptr;        // [edges], ascending within a row
  const void* edge_weight = nullptr;  // optional [edges]
  const void* row_scale = nullptr;    // optional [rows]
  const void* col_scale = nullptr;    // optional [columns of the adjacency]
  const void* x = nullptr;            // source rows, `width` elements each
  int64_t x_stride = 0;
  const void* self_scale = nullptr;  // optional [rows] (self_step 1) or one value (self_step 0)
  int64_t self_step = 0;
  const void* x_self = nullptr;  // optional [rows, width]
  int64_t x_self_stride = 0;
  const void* bias = nullptr;  // optional [width]
  void* out = nullptr;         // the element (row_begin, 0) of the output
  int64_t out_stride = 0;
  int64_t width = 0;
  bool blocked = false;  // only the columns of `block` (REQUIRES: not pass_empty)
  ColumnBlock block;
};

// out[e] = row_scale[i] * col_scale[j] * <a[i], b[j]> for the edges e = (i, j) of a range of rows: the gradient of
// an edge weight. a and b are in `dtype`, out in its accumulator type.
struct EdgeDotArgs {
  DType dtype = DType::f32;
  bool wide_index = false;
  const int64_t* rowptr = nullptr;
  const void* col = nullptr;
  const void* row_scale = nullptr;  // optional
  const void* col_scale = nullptr;  // optional
  const void* a = nullptr;
  int64_t a_stride = 0;
  const void* b = nullptr;
  int64_t b_stride = 0;
  void* out = nullptr;  // [edges]
  int64_t width = 0;
};

// Edges whose weights are made, and whose sources are summed in one chain, before the next: a source row that a score
// was computed from is still in a cache when it is summed.
constexpr int64_t kEdgesAttended = 64;

// Heads, and channels of each of them: what one call works on of every row. The values that a head has once a row or
// an edge are written with its channel 0.
struct HeadRange {
  int64_t head_begin = 0, head_end = 0;
  int64_t channel_begin = 0, channel_end = 0;
};

// Attention over the rows of a CSR adjacency, `heads` of them, each on its own `channels` of a source row:
//
//   out[i, h] = sum_{e in row i} alpha[e, h] x[col[e], h] + bias[h],   alpha[e, h] = softmax over row i of score[e, h]
//   score[e, h] = leaky(src_score[col[e], h] + dst_score[i, h] + edge_score[e, h])        GAT (Velickovic et al., 2018)
//   score[e, h] = <att[h], leaky(x[col[e], h] + x_dst[i, h])>                            GATv2 (Brody et al., 2022)
//
// where leaky(z) is z above 0 and slope * z elsewhere. With `loops`, edges with col == row take no part, and row i has
// one more edge, from source i, if there is such a source. Values of edges are [edges + loops, heads]: the edges in CSR
// order, then one loop a row. x, x_dst, bias and out are in `dtype`, everything else in its accumulator type.
// Rows without edges give the bias. `att` and `x_dst` are given for GATv2, `src_score` for GAT.
struct AttentionArgs {
  DType dtype = DType::f32;
  bool wide_index = false;
  bool loops = false;
  bool prefetch = true;             // x is larger than an L2 cache
  const int64_t* rowptr = nullptr;  // [rows + 1]
  const void* col = nullptr;        // [edges]
  int64_t edges = 0, columns = 0;
  int64_t heads = 0, channels = 0;
  double slope = 0;
  const void* x = nullptr;  // [columns, heads * channels]
  int64_t x_stride = 0;
  const void* src_score = nullptr;  // [columns, heads]
  int64_t src_score_stride = 0;
  const void* dst_score = nullptr;  // optional [rows, heads]
  int64_t dst_score_stride = 0;
  const void* edge_score = nullptr;  // optional [edges, heads]
  const void* loop_score = nullptr;  // optional [loops, heads]
  const void* x_dst = nullptr;       // [rows, heads * channels]
  int64_t x_dst_stride = 0;
  const void* att = nullptr;   // [heads * channels]
  const void* bias = nullptr;  // optional [heads * channels]
  void* out = nullptr;         // [rows, heads * channels], contiguous
  void* alpha = nullptr;       // optional [edges + loops, heads]: written, 0 for edges that take no part
  void* scratch = nullptr;     // the worker's own, [heads * channels] accumulators
  HeadRange range;
};

// The gradient by rows: of every score (REQUIRES: `alpha` as the forward pass wrote it), and what a row gets.
struct AttentionGradArgs {
  AttentionArgs forward;
  const void* grad = nullptr;  // [rows, heads * channels] in `dtype`
  int64_t grad_stride = 0;
  const void* grad_alpha = nullptr;  // optional [edges + loops, heads]
  void* grad_score = nullptr;  // [edges + loops, heads]: of the score before leaky (GAT) or after <att, .> (GATv2)
  void* grad_dst = nullptr;    // GAT: [rows, heads], the row's sum of grad_score
  void* slopes = nullptr;      // GATv2: [rows, heads * channels], sum_e grad_score[e] leaky'(x[col[e]] + x_dst[i])
};

// The gradient by columns: the same sums over the transposed adjacency, each edge's values at `position`.
struct AttentionColumnArgs {
  AttentionArgs transposed;        // x: grad; x_dst: the sources' own features (GATv2); out: the gradient to x,
                                   // sum_e alpha[e] grad[row of e]
  const void* position = nullptr;  // [edges], of the type of `col`
  const void* grad_score = nullptr;
  void* grad_src = nullptr;       // GAT: [columns, heads]
  const void* x_other = nullptr;  // GATv2: [rows, heads * channels], the destinations' features
  int64_t x_other_stride = 0;
  void* slopes = nullptr;  // GATv2: as above, for each source
};

// The pieces of a row-blocked GEMM, C[m, n] = act(sum_k A[m, k] B[n, k] + bias[n]), in the manner of BLIS
// (van Zee and van de Geijn, 2015), but with the whole of k in one micro-kernel call: C is written once, and a row of C
// depends on its own row of A alone, at any height. B is packed once into panels [n / panel][k][panel]; a worker packs
// a tile of A into panels of `tile_rows` rows, each cut in blocks of `k_block` columns at a fixed row stride, so that
// rows 4 KiB apart do not fall into one cache set.
struct GemmShape {
  int64_t k = 0;
  int64_t n = 0;
  int64_t k_passed = 0;  // leading rows of the packed B that are passed over, a multiple of k_block
  int64_t a_stride = 0;  // if not 0, A is not packed but lies row after row at this stride
};

struct GemmKernels {
  int64_t panel_rows;     // rows of A that one micro-kernel call covers
  int64_t panel_columns;  // columns of C in a panel of B
  int64_t k_block;        // products that are summed in one chain
  int64_t row_stride;     // of a packed A of up to k_block columns, which is row after row at this stride
  int64_t unpacked_k;     // up to so many columns A need not be packed: whole panels of rows, in the accumulator type
  // Elements (of the accumulator type) that a packed A of `rows` rows, a packed B of n columns, takes.
  int64_t (*packed_a_size)(int64_t rows, int64_t k);
  int64_t (*packed_b_size)(int64_t n, int64_t k);
  // A[rows, k_size] at columns [k_begin, k_begin + k_size) of a packed tile of `k_total` columns; with `listed`, these
  // rows of A.
  void (*pack_a)(DType dtype, const void* a, int64_t row_stride, int64_t column_stride, int64_t rows,
                 const int64_t* listed, int64_t k_begin, int64_t k_size, int64_t k_total, void* packed);
  // Panels [panel_begin, panel_end) of B[n, k] at rows [k_begin, k_begin + k_size) of k_total.
  void (*pack_b)(DType dtype, const void* b, int64_t n_stride, int64_t k_stride, int64_t n, int64_t k_begin,
                 int64_t k_size, int64_t k_total, int64_t panel_begin, int64_t panel_end, void* packed);
  // C (+)= packed_a * packed_b, in `dtype`. With `accumulate`, C is in the accumulator type and is added to, and
  // bias and relu are ignored. bias (optional) is in `dtype`. With `listed`, the results are these rows of C.
  void (*multiply)(DType dtype, const void* packed_a, int64_t rows, const int64_t* listed, const void* packed_b,
                   GemmShape shape, const void* bias, bool relu, bool accumulate, bool stream, void* c,
                   int64_t c_stride);
};

struct KernelTable {
  void (*aggregate)(const AggregateArgs& args, int64_t row_begin, int64_t row_end);
  void (*edge_dot)(const EdgeDotArgs& args, int64_t row_begin, int64_t row_end);
  void (*attend)(const AttentionArgs& args, int64_t row_begin, int64_t row_end);
  // REQUIRES of the range: whole heads.
  void (*attend_grad_rows)(const AttentionGradArgs& args, int64_t row_begin, int64_t row_end);
  void (*attend_grad_columns)(const AttentionColumnArgs& args, int64_t row_begin, int64_t row_end);
  GemmKernels gemm_f32;  // f32, bf16 and f16: packed as float
  GemmKernels gemm_f64;
};

#if defined(__aarch64__)
namespace neon {
extern const KernelTable table;
}
#else
namespace baseline {
extern const KernelTable table;
}
#endif
#if defined(__x86_64__)
namespace avx2 {
extern const KernelTable table;
}
namespace avx512 {
extern const KernelTable table;
}
#endif

}  // namespace frontgi
