// SPDX-License-Identifier: MIT
// frontgi::attend and the two halves of its gradient.
#include "../run/attention.h"

#include <algorithm>

#include "../graph/convert.h"
#include "aggregate.h"

namespace frontgi {
namespace {

// The data of a [rows, columns] tensor in `type` with its row stride, unit columns; nullptr if absent.
struct Rows {
  const void* data = nullptr;
  int64_t stride = 0;
};
Rows rows_of(const OptionalTensor& t, ScalarType type, int64_t rows, int64_t columns, const char* op, const char* name,
             std::vector<Tensor>& keep, bool contiguous = false) {
  if (!t.has_value()) return {};
  require_cpu(*t, 2, op, name);
  require(t->scalar_type() == type && t->size(0) == rows && t->size(1) == columns, op, "'", name, "' must be [", rows,
          ", ", columns, "] in the dtype of sums or features (got ", *t, ")");
  keep.push_back(contiguous && !t->is_contiguous() ? torch::stable::contiguous(*t) : with_unit_columns(*t));
  return {keep.back().const_data_ptr(), keep.back().stride(0)};
}

struct Scores {
  const OptionalTensor &src, &dst, &edge, &loop, &x_dst;
};

int64_t loops_of(const CsrTensors& csr, bool loops) { return loops ? std::min(csr.rows, csr.columns) : 0; }

// Everything but att, bias, out and alpha.
AttentionArgs attention_args(const CsrTensors& csr, const Tensor& x, const Scores& scores, int64_t heads, double slope,
                             bool loops, const char* op, std::vector<Tensor>& keep) {
  AttentionArgs args;
  args.dtype = dtype_of(x, op, "x");
  const ScalarType type = x.scalar_type(), sums = accumulator_type(args.dtype);
  require(heads >= 1 && x.size(1) % heads == 0, op, "'x' must have a multiple of ", heads, " columns (got ", x, ")");
  require(x.size(0) == csr.columns, op, "'x' must have one row for each of the ", csr.columns, " sources (got ", x,
          ")");
  require(scores.src.has_value() != scores.x_dst.has_value(), op, "either 'src_score' or 'x_dst' must be given");
  require(scores.src.has_value() || !(scores.dst.has_value() || scores.edge.has_value() || scores.loop.has_value()), op,
          "'dst_score', 'edge_score' and 'loop_score' go with 'src_score'");
  args.wide_index = csr.wide_index;
  args.loops = loops;
  args.rowptr = csr.rowptr_data;
  args.col = csr.col_data;
  args.edges = csr.edges;
  args.columns = csr.columns;
  args.heads = heads;
  args.channels = x.size(1) / heads;
  args.slope = slope;
  args.x = x.const_data_ptr();
  args.x_stride = x.stride(0);
  args.prefetch = wants_prefetch(csr.columns * x.size(1) * element_bytes(args.dtype));
  const Rows src = rows_of(scores.src, sums, csr.columns, heads, op, "src_score", keep);
  const Rows dst = rows_of(scores.dst, sums, csr.rows, heads, op, "dst_score", keep);
  const Rows x_dst = rows_of(scores.x_dst, type, csr.rows, x.size(1), op, "x_dst", keep);
  args.src_score = src.data;
  args.src_score_stride = src.stride;
  args.dst_score = dst.data;
  args.dst_score_stride = dst.stride;
  args.edge_score = rows_of(scores.edge, sums, csr.edges, heads, op, "edge_score", keep, true).data;
  args.loop_score = rows_of(scores.loop, sums, loops_of(csr, loops), heads, op, "loop_score", keep, true).data;
  args.x_dst = x_dst.data;
  args.x_dst_stride = x_dst.stride;
  return args;
}

// The values of edges and loops that a pass before has written.
const void* edge_values(const Tensor& t, const AttentionArgs& args, int64_t loops, const char* op, const char* name,
                        std::vector<Tensor>& keep) {
  return rows_of(t, accumulator_type(args.dtype), args.edges + loops, args.heads, op, name, keep, true).data;
}

void check_positions(const Tensor& perm, const CsrTensors& csr, const char* op) {
  const int64_t one_row[] = {0, csr.edges};
  const void* data = perm.const_data_ptr();
  TorchExecutor executor;
  if (csr.wide_index) {
    check_csr(op, one_row, 1, static_cast<const int64_t*>(data), csr.edges, csr.edges, executor);
  } else {
    check_csr(op, one_row, 1, static_cast<const int32_t*>(data), csr.edges, csr.edges, executor);
  }
}

}  // namespace

std::tuple<Tensor, Tensor> attend(const Tensor& rowptr, const Tensor& col, const Tensor& x,
                                  const OptionalTensor& src_score, const OptionalTensor& dst_score,
                                  const OptionalTensor& edge_score, const OptionalTensor& loop_score,
                                  const OptionalTensor& x_dst, const OptionalTensor& att, const OptionalTensor& bias,
                                  const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, int64_t num_cols,
                                  int64_t heads, double slope, bool loops, bool with_alpha, bool trusted) {
  constexpr const char* op = "attend";
  require_cpu(x, 2, op, "x");
  const CsrTensors csr = csr_tensors(rowptr, col, num_cols, trusted, op);
  const Tensor sources = with_unit_columns(x);
  std::vector<Tensor> keep;
  AttentionArgs args = attention_args(csr, sources, {src_score, dst_score, edge_score, loop_score, x_dst}, heads, slope,
                                      loops, op, keep);
  require(att.has_value() == x_dst.has_value(), op, "'att' and 'x_dst' go together");
  const ScalarType sums = accumulator_type(args.dtype);
  args.att = vector_data(att, sums, x.size(1), op, "att", keep);
  args.bias = vector_data(bias, x.scalar_type(), x.size(1), op, "bias", keep);
  Tensor out = new_matrix(sources, csr.rows, x.size(1), x.scalar_type());
  Tensor alpha = new_matrix(sources, with_alpha ? csr.edges + loops_of(csr, loops) : 0, heads, sums);
  args.out = out.mutable_data_ptr();
  args.alpha = with_alpha ? alpha.mutable_data_ptr() : nullptr;
  TorchExecutor executor;
  run_attention(args, csr.rows, machine(), executor);
  return {out, alpha};
}

std::tuple<Tensor, Tensor, Tensor> attend_grad_rows(const Tensor& rowptr, const Tensor& col, const Tensor& x,
                                                    const OptionalTensor& src_score, const OptionalTensor& dst_score,
                                                    const OptionalTensor& edge_score, const OptionalTensor& loop_score,
                                                    const OptionalTensor& x_dst, const Tensor& alpha,
                                                    const Tensor& grad, const OptionalTensor& grad_alpha, int64_t heads,
                                                    double slope, bool loops, bool trusted) {
  constexpr const char* op = "attend_grad_rows";
  require_cpu(x, 2, op, "x");
  const CsrTensors csr = csr_tensors(rowptr, col, x.size(0), trusted, op);
  const Tensor sources = with_unit_columns(x);
  std::vector<Tensor> keep;
  AttentionGradArgs args;
  args.forward = attention_args(csr, sources, {src_score, dst_score, edge_score, loop_score, x_dst}, heads, slope,
                                loops, op, keep);
  const int64_t loop_count = loops_of(csr, loops);
  const ScalarType sums = accumulator_type(args.forward.dtype);
  args.forward.alpha = const_cast<void*>(edge_values(alpha, args.forward, loop_count, op, "alpha", keep));  // read only
  const Rows of_out = rows_of(grad, x.scalar_type(), csr.rows, x.size(1), op, "grad", keep);
  args.grad = of_out.data;
  args.grad_stride = of_out.stride;
  if (grad_alpha.has_value()) {
    args.grad_alpha = edge_values(*grad_alpha, args.forward, loop_count, op, "grad_alpha", keep);
  }
  Tensor grad_score = new_matrix(sources, csr.edges + loop_count, heads, sums);
  Tensor grad_dst = new_matrix(sources, src_score.has_value() ? csr.rows : 0, heads, sums);
  Tensor slopes = new_matrix(sources, x_dst.has_value() ? csr.rows : 0, x.size(1), sums);
  args.grad_score = grad_score.mutable_data_ptr();
  if (src_score.has_value()) args.grad_dst = grad_dst.mutable_data_ptr();
  if (x_dst.has_value()) args.slopes = slopes.mutable_data_ptr();
  TorchExecutor executor;
  run_attention_grad_rows(args, csr.rows, machine(), executor);
  return {grad_score, grad_dst, slopes};
}

std::tuple<Tensor, Tensor, Tensor> attend_grad_columns(const Tensor& rowptr_t, const Tensor& col_t,
                                                       const Tensor& perm_t, const OptionalTensor& x,
                                                       const OptionalTensor& x_dst, const Tensor& alpha,
                                                       const Tensor& grad_score, const Tensor& grad, int64_t heads,
                                                       double slope, bool loops, bool trusted) {
  constexpr const char* op = "attend_grad_columns";
  require_cpu(grad, 2, op, "grad");
  require(x.has_value() == x_dst.has_value(), op, "'x' and 'x_dst' go together");
  const CsrTensors csr = csr_tensors(rowptr_t, col_t, grad.size(0), trusted, op);
  require_cpu(perm_t, 1, op, "perm_t");
  require(perm_t.scalar_type() == col_t.scalar_type() && perm_t.size(0) == csr.edges, op,
          "'perm_t' must be like 'col_t' (got ", perm_t, ")");
  const Tensor rows = with_unit_columns(grad);
  std::vector<Tensor> keep{perm_t.is_contiguous() ? perm_t : torch::stable::contiguous(perm_t)};
  if (!trusted) check_positions(keep.back(), csr, op);
  AttentionColumnArgs args;
  args.position = keep.back().const_data_ptr();
  AttentionArgs& transposed = args.transposed;
  transposed.dtype = dtype_of(rows, op, "grad");
  require(heads >= 1 && rows.size(1) % heads == 0, op, "'grad' must have a multiple of ", heads, " columns (got ", rows,
          ")");
  const ScalarType type = rows.scalar_type(), sums = accumulator_type(transposed.dtype);
  transposed.wide_index = csr.wide_index;
  transposed.loops = loops;
  transposed.rowptr = csr.rowptr_data;
  transposed.col = csr.col_data;
  transposed.edges = csr.edges;
  transposed.columns = csr.columns;
  transposed.heads = heads;
  transposed.channels = rows.size(1) / heads;
  transposed.slope = slope;
  transposed.x = rows.const_data_ptr();
  transposed.x_stride = rows.stride(0);
  transposed.prefetch = wants_prefetch(csr.columns * rows.size(1) * element_bytes(transposed.dtype));
  const int64_t loop_count = loops_of(csr, loops);
  transposed.alpha = const_cast<void*>(edge_values(alpha, transposed, loop_count, op, "alpha", keep));  // read only
  args.grad_score = edge_values(grad_score, transposed, loop_count, op, "grad_score", keep);
  const Rows own = rows_of(x, type, csr.rows, rows.size(1), op, "x", keep);
  const Rows other = rows_of(x_dst, type, csr.columns, rows.size(1), op, "x_dst", keep);
  transposed.x_dst = own.data;
  transposed.x_dst_stride = own.stride;
  args.x_other = other.data;
  args.x_other_stride = other.stride;
  Tensor grad_x = new_matrix(rows, csr.rows, rows.size(1), type);
  Tensor grad_src = new_matrix(rows, x.has_value() ? 0 : csr.rows, heads, sums);
  Tensor slopes = new_matrix(rows, x.has_value() ? csr.rows : 0, rows.size(1), sums);
  transposed.out = grad_x.mutable_data_ptr();
  if (x.has_value()) {
    args.slopes = slopes.mutable_data_ptr();
  } else {
    args.grad_src = grad_src.mutable_data_ptr();
  }
  TorchExecutor executor;
  run_attention_grad_columns(args, csr.rows, machine(), executor);
  return {grad_x, grad_src, slopes};
}

}  // namespace frontgi
