// SPDX-License-Identifier: MIT
// Update: row-blocked GEMM over one or two (features, weight) pairs, alone or fused behind Aggregate.
#pragma once

#include "../hw/machine.h"
#include "../kernels/kernels.h"
#include "executor.h"

namespace frontgi {

// A[rows, k] with weight [n, k], both of any stride, in the update's dtype.
struct Operand {
  const void* a = nullptr;
  int64_t row_stride = 0;
  int64_t column_stride = 1;
  int64_t k = 0;
  const void* weight = nullptr;
  int64_t weight_n_stride = 0;
  int64_t weight_k_stride = 1;
};

// out = act(sum over operands of A W^T + bias). With `aggregate`, the first operand's A is the aggregation it
// describes (its out is ignored), made tile by tile in a buffer of the worker's own and never written out.
struct UpdateArgs {
  DType dtype = DType::f32;
  int64_t rows = 0;
  int64_t n = 0;
  Operand operands[2];
  int64_t operand_count = 1;
  const void* bias = nullptr;  // optional [n]
  bool relu = false;
  bool stream = false;
  void* out = nullptr;
  int64_t out_stride = 0;
  const AggregateArgs* aggregate = nullptr;
};

void run_update(const UpdateArgs& args, const Machine& machine, Executor& executor);

// Rows that are packed and multiplied at a time, of `width` elements: from the shape alone. Few rows are cut smaller.
int64_t tile_rows(int64_t width, bool is_double);

// out [n, k] = g^T x for g [rows, n], x [rows, k]: the gradient of a weight. Rows are summed in chunks fixed by the
// shape, so the bits do not depend on the workers. out is contiguous, in the accumulator type of `dtype`.
struct WeightGradArgs {
  DType dtype = DType::f32;
  int64_t rows = 0, n = 0, k = 0;
  const void* g = nullptr;
  int64_t g_stride = 0;
  const void* x = nullptr;
  int64_t x_stride = 0;
  void* out = nullptr;
};
void run_weight_grad(const WeightGradArgs& args, Executor& executor);

// out [n] = sum over the rows of g [rows, n]: the gradient of a bias, summed in the same fixed chunks. float, or
// double if `wide`.
void run_column_sum(bool wide, const void* g, int64_t g_stride, int64_t rows, int64_t n, void* out, Executor& executor);

}  // namespace frontgi
