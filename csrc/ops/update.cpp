// SPDX-License-Identifier: MIT
// frontgi::linear, frontgi::conv, frontgi::weight_grad, frontgi::column_sum.
#include "../run/update.h"

#include "../run/aggregate.h"
#include "aggregate.h"

namespace frontgi {
namespace {

// One (features, weight) pair of an update, checked against each other.
Operand operand(const Tensor& a, const Tensor& weight, const char* op, const char* a_name, const char* weight_name) {
  require_cpu(weight, 2, op, weight_name);
  require(weight.scalar_type() == a.scalar_type(), op, "'", weight_name, "' must have the dtype of '", a_name,
          "' (got ", weight, " and ", a, ")");
  require(weight.size(1) == a.size(1), op, "'", weight_name, "' must be [out_width, ", a.size(1), "] for '", a_name,
          "' ", a, " (got ", weight, ")");
  Operand operand;
  operand.a = a.const_data_ptr();
  operand.row_stride = a.stride(0);
  operand.column_stride = a.size(1) <= 1 ? 1 : a.stride(1);
  operand.k = a.size(1);
  operand.weight = weight.const_data_ptr();
  operand.weight_n_stride = weight.stride(0);
  operand.weight_k_stride = weight.stride(1);
  return operand;
}

void set_output(UpdateArgs& args, const Tensor& out, DType dtype) {
  args.dtype = dtype;
  args.rows = out.size(0);
  args.n = out.size(1);
  args.out = out.mutable_data_ptr();
  args.out_stride = args.n;
  args.stream = streams(args.rows * args.n * element_bytes(dtype));
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const OptionalTensor& bias, bool relu) {
  constexpr const char* op = "linear";
  require_cpu(x, 2, op, "x");
  const DType dtype = dtype_of(x, op, "x");
  UpdateArgs args;
  args.operands[0] = operand(x, weight, op, "x", "weight");
  std::vector<Tensor> keep;
  args.bias = vector_data(bias, x.scalar_type(), weight.size(0), op, "bias", keep);
  args.relu = relu;
  Tensor out = new_matrix(x, x.size(0), weight.size(0), x.scalar_type());
  set_output(args, out, dtype);
  TorchExecutor executor;
  run_update(args, machine(), executor);
  return out;
}

Tensor conv(const Tensor& rowptr, const Tensor& col, const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
            const OptionalTensor& edge_weight, const OptionalTensor& row_scale, const OptionalTensor& col_scale,
            const OptionalTensor& self_scale, const OptionalTensor& x_self, const OptionalTensor& x_root,
            const OptionalTensor& root_weight, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
            int64_t num_cols, const std::string& reduce, bool skip_loops, bool relu, bool multiply_first, bool trusted,
            const std::vector<int64_t>& schedule) {
  constexpr const char* op = "conv";
  require_cpu(x, 2, op, "x");
  require(x_root.has_value() == root_weight.has_value(), op, "'x_root' and 'root_weight' go together");
  const CsrTensors csr = csr_tensors(rowptr, col, num_cols, trusted, op);
  const Tensor rows = with_unit_columns(x);
  const ScalarType type = rows.scalar_type();
  std::vector<Tensor> keep;
  AggregateArgs aggregate =
      aggregate_args({edge_weight, row_scale, col_scale, self_scale, reduce, skip_loops}, csr, rows, op, keep);
  const DType dtype = aggregate.dtype;
  UpdateArgs update;
  update.operands[0] = operand(rows, weight, op, "x", "weight");
  const int64_t n = weight.size(0);
  OptionalTensor root;
  if (x_root.has_value()) {
    require_cpu(*x_root, 2, op, "x_root");
    require(x_root->size(0) == csr.rows, op, "'x_root' must have ", csr.rows, " rows (got ", *x_root, ")");
    require(x_root->scalar_type() == type, op, "'x_root' must have the dtype of 'x' (got ", *x_root, ")");
    root = *x_root;
    update.operands[1] = operand(*root, *root_weight, op, "x_root", "root_weight");
    require(root_weight->size(0) == n, op, "'root_weight' must be [", n, ", ", root->size(1), "] (got ", *root_weight,
            ")");
  }
  const void* bias_data = vector_data(bias, type, n, op, "bias", keep);
  if (multiply_first) {
    require(aggregate.reduce == Reduce::sum || aggregate.reduce == Reduce::mean, op,
            "multiply_first needs a linear reduction (got '", reduce, "')");
    require(!x_self.has_value(), op, "'x_self' does not go with multiply_first");
    require(!root.has_value() || !self_scale.has_value(), op,
            "'self_scale' does not go with 'x_root' and multiply_first");
  }

  TorchExecutor executor;
  Tensor out = new_matrix(rows, csr.rows, n, type);
  set_output(update, out, dtype);

  if (multiply_first) {
    Tensor product = new_matrix(rows, csr.columns, n, type);
    UpdateArgs first;
    first.operands[0] = update.operands[0];
    set_output(first, product, dtype);
    aggregate.x = product.const_data_ptr();
    aggregate.x_stride = n;
    aggregate.width = n;
    aggregate.prefetch = wants_prefetch(csr.columns * n * element_bytes(dtype));
    if (aggregate.self_scale) set_self(aggregate, std::nullopt, product, csr.rows, op, keep);
    const Schedule how = schedule_for(schedule, shape_of(aggregate, csr), executor.max_workers());
    run_update(first, machine(), executor);

    if (root.has_value()) {  // the root term is made in the output, and the neighbours are added to it in place
      update.operands[0] = update.operands[1];
      update.stream = false;
      run_update(update, machine(), executor);
      aggregate.x_self = out.const_data_ptr();
      aggregate.x_self_stride = n;
    }
    aggregate.bias = bias_data;
    aggregate.relu = relu;
    aggregate.out = update.out;
    aggregate.out_stride = n;
    aggregate.stream = update.stream;
    run_aggregate(aggregate, csr.rows, csr.columns, how, machine(), executor);
    return out;
  }

  set_self(aggregate, x_self, rows, csr.rows, op, keep);
  update.bias = bias_data;
  update.relu = relu;
  update.operand_count = root.has_value() ? 2 : 1;
  const Schedule how = schedule_for(schedule, shape_of(aggregate, csr), executor.max_workers());
  // Slices of all rows leave no tile of whole rows to fuse: the aggregation is written out, if that is the narrow side.
  if (how.kind == ScheduleKind::mixed && aggregate.width <= n) {
    Tensor aggregated = new_matrix(rows, csr.rows, aggregate.width, type);
    aggregate.out = aggregated.mutable_data_ptr();
    aggregate.out_stride = aggregate.width;
    run_aggregate(aggregate, csr.rows, csr.columns, how, machine(), executor);
    update.operands[0].a = aggregate.out;
    update.operands[0].row_stride = aggregate.width;
    run_update(update, machine(), executor);
  } else {
    update.aggregate = &aggregate;
    run_update(update, machine(), executor);
  }
  return out;
}

Tensor weight_grad(const Tensor& g, const Tensor& x) {
  constexpr const char* op = "weight_grad";
  require_cpu(g, 2, op, "g");
  require_cpu(x, 2, op, "x");
  require(g.size(0) == x.size(0) && g.scalar_type() == x.scalar_type(), op,
          "'g' and 'x' must have the same rows and dtype (got ", g, " and ", x, ")");
  const Tensor left = with_unit_columns(g), right = with_unit_columns(x);
  WeightGradArgs args;
  args.dtype = dtype_of(left, op, "g");
  args.rows = left.size(0);
  args.n = left.size(1);
  args.k = right.size(1);
  args.g = left.const_data_ptr();
  args.g_stride = left.stride(0);
  args.x = right.const_data_ptr();
  args.x_stride = right.stride(0);
  Tensor out = new_matrix(left, args.n, args.k, accumulator_type(args.dtype));
  args.out = out.mutable_data_ptr();
  TorchExecutor executor;
  run_weight_grad(args, executor);
  return out;
}

Tensor column_sum(const Tensor& g) {
  constexpr const char* op = "column_sum";
  require_cpu(g, 2, op, "g");
  const DType dtype = dtype_of(g, op, "g");
  require(dtype == DType::f32 || dtype == DType::f64, op, "'g' must be float32 or float64 (got ", g, ")");
  const Tensor rows = with_unit_columns(g);
  const int64_t sizes[] = {rows.size(1)};
  Tensor out = torch::stable::new_empty(rows, {sizes, 1});
  TorchExecutor executor;
  run_column_sum(dtype == DType::f64, rows.const_data_ptr(), rows.stride(0), rows.size(0), rows.size(1),
                 out.mutable_data_ptr(), executor);
  return out;
}

}  // namespace frontgi
