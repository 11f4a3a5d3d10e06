// SPDX-License-Identifier: MIT
// frontgi::coo_to_csr, frontgi::check_csr, frontgi::gcn_norm.
#include "../graph/convert.h"

#include <limits>

#include "../hw/huge_pages.h"
#include "boundary.h"

namespace frontgi {
namespace {

Loops loops_named(const std::string& name) {
  if (name == "none") return Loops::none;
  if (name == "add") return Loops::add;
  if (name == "replace") return Loops::replace;
  if (name == "remain") return Loops::remain;
  require(false, "gcn_norm", "'loops' must be 'none', 'add', 'replace' or 'remain' (got '", name, "')");
  return Loops::none;
}

Tensor int64_vector(const Tensor& t, const char* op, const char* name) {
  require_cpu(t, 1, op, name);
  require(t.scalar_type() == ScalarType::Long, op, "'", name, "' must be int64 (got ", t, ")");
  return t.is_contiguous() ? t : torch::stable::contiguous(t);
}

Tensor new_vector(const Tensor& like, int64_t size, ScalarType type) {
  const int64_t sizes[] = {size};
  Tensor fresh = torch::stable::new_empty(like, {sizes, 1}, type);
  advise_huge_pages(fresh.mutable_data_ptr(), static_cast<size_t>(size) * fresh.element_size());
  return fresh;
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> coo_to_csr_op(const Tensor& row, const Tensor& col, int64_t num_rows,
                                                 int64_t num_cols) {
  constexpr const char* op = "coo_to_csr";
  const Tensor rows = int64_vector(row, op, "row"), cols = int64_vector(col, op, "col");
  const int64_t m = rows.size(0);
  require(cols.size(0) == m, op, "'row' and 'col' must have the same length (got ", m, " and ", cols.size(0), ")");
  require(num_rows >= 0 && num_cols >= 0, op, "'num_rows' and 'num_cols' must not be negative (got ", num_rows, " and ",
          num_cols, ")");
  constexpr int64_t limit = std::numeric_limits<int32_t>::max();
  const bool narrow = num_cols <= limit && m <= limit && num_rows <= limit;
  const ScalarType type = narrow ? ScalarType::Int : ScalarType::Long;
  Tensor rowptr = new_vector(rows, num_rows + 1, ScalarType::Long);
  Tensor sorted_col = new_vector(rows, m, type), perm = new_vector(rows, m, type);
  const int64_t* from_row = static_cast<const int64_t*>(rows.const_data_ptr());
  const int64_t* from_col = static_cast<const int64_t*>(cols.const_data_ptr());
  int64_t* to_rowptr = static_cast<int64_t*>(rowptr.mutable_data_ptr());
  TorchExecutor executor;
  if (narrow) {
    coo_to_csr(from_row, from_col, m, num_rows, num_cols, to_rowptr,
               static_cast<int32_t*>(sorted_col.mutable_data_ptr()), static_cast<int32_t*>(perm.mutable_data_ptr()),
               executor);
  } else {
    coo_to_csr(from_row, from_col, m, num_rows, num_cols, to_rowptr,
               static_cast<int64_t*>(sorted_col.mutable_data_ptr()), static_cast<int64_t*>(perm.mutable_data_ptr()),
               executor);
  }
  return {rowptr, sorted_col, perm};
}

void check_csr_op(const Tensor& rowptr, const Tensor& col, int64_t num_cols) {
  csr_tensors(rowptr, col, num_cols, false, "Graph");
}

std::tuple<Tensor, Tensor> gcn_norm_op(const Tensor& rowptr, const Tensor& col, const OptionalTensor& edge_weight,
                                       double fill, const std::string& loops, bool wide, bool trusted) {
  constexpr const char* op = "gcn_norm";
  require_cpu(rowptr, 1, op, "rowptr");
  const Loops treated = loops_named(loops);
  const CsrTensors csr = csr_tensors(rowptr, col, rowptr.size(0) - 1, trusted, op);
  const ScalarType type = wide ? ScalarType::Double : ScalarType::Float;
  std::vector<Tensor> keep;
  const void* weight = vector_data(edge_weight, type, csr.edges, op, "edge_weight", keep);
  Tensor inv_sqrt = new_vector(csr.rowptr, csr.rows, type), self_scale = new_vector(csr.rowptr, csr.rows, type);
  TorchExecutor executor;
  const auto run = [&](auto value, auto index) {
    using Value = decltype(value);
    using Index = decltype(index);
    gcn_norm<Value, Index>(csr.rowptr_data, csr.rows, static_cast<const Index*>(csr.col_data),
                           static_cast<const Value*>(weight), static_cast<Value>(fill), treated,
                           static_cast<Value*>(inv_sqrt.mutable_data_ptr()),
                           static_cast<Value*>(self_scale.mutable_data_ptr()), executor);
  };
  if (wide) {
    csr.wide_index ? run(double{}, int64_t{}) : run(double{}, int32_t{});
  } else {
    csr.wide_index ? run(float{}, int64_t{}) : run(float{}, int32_t{});
  }
  return {inv_sqrt, self_scale};
}

}  // namespace frontgi
