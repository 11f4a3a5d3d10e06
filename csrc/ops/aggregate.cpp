// SPDX-License-Identifier: MIT
// frontgi::aggregate, frontgi::edge_dot, frontgi::extremum_grad.
#include "aggregate.h"

#include <algorithm>

#include "../run/aggregate.h"

namespace frontgi {

Reduce reduce_named(const std::string& name, const char* op) {
  if (name == "sum" || name == "add") return Reduce::sum;
  if (name == "mean") return Reduce::mean;
  if (name == "min") return Reduce::min;
  if (name == "max") return Reduce::max;
  require(false, op, "'reduce' must be 'sum', 'mean', 'min' or 'max' (got '", name, "')");
  return Reduce::sum;
}

AggregateArgs aggregate_args(const AggregateTensors& t, const CsrTensors& csr, const Tensor& x, const char* op,
                             std::vector<Tensor>& keep) {
  AggregateArgs args;
  args.dtype = dtype_of(x, op, "x");
  args.reduce = reduce_named(t.reduce, op);
  args.wide_index = csr.wide_index;
  args.skip_loops = t.skip_loops;
  args.rowptr = csr.rowptr_data;
  args.col = csr.col_data;
  const ScalarType scale_type = accumulator_type(args.dtype);
  args.edge_weight = vector_data(t.edge_weight, scale_type, csr.edges, op, "edge_weight", keep);
  args.row_scale = vector_data(t.row_scale, scale_type, csr.rows, op, "row_scale", keep);
  args.col_scale = vector_data(t.col_scale, scale_type, csr.columns, op, "col_scale", keep);
  require(x.size(0) == csr.columns, op, "'x' must have one row for each of the ", csr.columns, " sources (got ", x,
          ")");
  require(!t.skip_loops || args.reduce == Reduce::sum, op, "'skip_loops' goes with reduce='sum' alone (got '", t.reduce,
          "')");
  args.x = x.const_data_ptr();
  args.x_stride = x.stride(0);
  args.width = x.size(1);
  args.prefetch = wants_prefetch(csr.columns * args.width * element_bytes(args.dtype));
  if (t.self_scale.has_value()) {
    const bool one = t.self_scale->dim() == 1 && t.self_scale->size(0) == 1;
    args.self_scale = vector_data(t.self_scale, scale_type, one ? 1 : csr.rows, op, "self_scale", keep);
    args.self_step = one ? 0 : 1;
  }
  return args;
}

void set_self(AggregateArgs& args, const OptionalTensor& x_self, const Tensor& x, int64_t rows, const char* op,
              std::vector<Tensor>& keep) {
  if (!args.self_scale && !x_self.has_value()) return;
  if (x_self.has_value()) {
    require_cpu(*x_self, 2, op, "x_self");
    keep.push_back(with_unit_columns(*x_self));
  } else {
    keep.push_back(x);
  }
  const Tensor& self = keep.back();
  require(self.scalar_type() == x.scalar_type(), op, "'x_self' must have the dtype of 'x' (got ", self, ")");
  require(self.size(0) == rows && self.size(1) == x.size(1), op, "the self term must be [", rows, ", ", x.size(1),
          "] (got ", self, ")");
  args.x_self = self.const_data_ptr();
  args.x_self_stride = self.stride(0);
}

namespace {

void require_kind(int64_t kind, const char* op) {
  require(kind >= 0 && kind <= static_cast<int64_t>(ScheduleKind::node_parallel), op,
          "a schedule's kind is 0, 1, 2 or 3 (got ", kind, ")");
}

}  // namespace

Schedule schedule_for(const std::vector<int64_t>& asked, const AggregateShape& shape, int64_t max_workers,
                      const Machine& on, const std::vector<double>& footprint, const Rates& rates) {
  if (asked.empty()) return plan_aggregate(shape, on, max_workers, footprint, rates);
  require(asked.size() == 4 || asked.size() == 5, "plan",
          "a schedule is [kind, workers, slice_width, block_columns] (got ", asked.size(), " numbers)");
  require_kind(asked[0], "plan");
  require(asked[1] <= kWorkersMax, "plan", "there may be at most ", kWorkersMax, " workers (got ", asked[1], ")");
  return forced_schedule({static_cast<ScheduleKind>(asked[0]), asked[1], asked[2], asked[3]}, shape, on, max_workers);
}

std::vector<int64_t> numbers_of(const Schedule& s) {
  return {static_cast<int64_t>(s.kind), s.workers, s.domains, s.slice_width, s.block_columns, s.slots};
}

Schedule schedule_of(const std::vector<int64_t>& numbers, const char* op) {
  require(numbers.size() == 6, op, "a schedule is 6 numbers (got ", numbers.size(), ")");
  require_kind(numbers[0], op);
  const Schedule schedule{
      static_cast<ScheduleKind>(numbers[0]), numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]};
  require(schedule.workers <= kWorkersMax && schedule.domains <= kWorkersMax, op, "there may be at most ", kWorkersMax,
          " workers and domains (got ", schedule.workers, " and ", schedule.domains, ")");
  return schedule;
}

AggregateShape shape_of(const AggregateArgs& args, const CsrTensors& csr) {
  return AggregateShape{csr.rows, csr.columns, csr.edges, args.width, element_bytes(args.dtype)};
}

Tensor aggregate(const Tensor& rowptr, const Tensor& col, const Tensor& x, const OptionalTensor& edge_weight,
                 const OptionalTensor& row_scale, const OptionalTensor& col_scale, const OptionalTensor& self_scale,
                 const OptionalTensor& x_self, const OptionalTensor& bias, const OptionalTensor&, const OptionalTensor&,
                 const OptionalTensor&, int64_t num_cols, const std::string& reduce, bool skip_loops, bool relu,
                 bool trusted, const std::vector<int64_t>& schedule) {
  constexpr const char* op = "aggregate";
  require_cpu(x, 2, op, "x");
  const CsrTensors csr = csr_tensors(rowptr, col, num_cols, trusted, op);
  const Tensor rows = with_unit_columns(x);
  std::vector<Tensor> keep;
  AggregateArgs args =
      aggregate_args({edge_weight, row_scale, col_scale, self_scale, reduce, skip_loops}, csr, rows, op, keep);
  set_self(args, x_self, rows, csr.rows, op, keep);
  args.bias = vector_data(bias, rows.scalar_type(), args.width, op, "bias", keep);
  args.relu = relu;

  TorchExecutor executor;
  const Schedule how = schedule_for(schedule, shape_of(args, csr), executor.max_workers());
  Tensor out = new_matrix(rows, csr.rows, args.width, rows.scalar_type());
  args.out = out.mutable_data_ptr();
  args.out_stride = args.width;
  args.stream = streams(csr.rows * args.width * element_bytes(args.dtype));
  run_aggregate(args, csr.rows, csr.columns, how, machine(), executor);
  return out;
}

Tensor edge_dot(const Tensor& rowptr, const Tensor& col, const Tensor& a, const Tensor& b,
                const OptionalTensor& row_scale, const OptionalTensor& col_scale, bool trusted) {
  constexpr const char* op = "edge_dot";
  require_cpu(a, 2, op, "a");
  require_cpu(b, 2, op, "b");
  const CsrTensors csr = csr_tensors(rowptr, col, b.size(0), trusted, op);
  require(a.size(0) == csr.rows && a.size(1) == b.size(1) && a.scalar_type() == b.scalar_type(), op, "'a' must be [",
          csr.rows, ", ", b.size(1), "] in the dtype of 'b' (got ", a, ")");
  const Tensor left = with_unit_columns(a), right = with_unit_columns(b);
  std::vector<Tensor> keep;
  EdgeDotArgs args;
  args.dtype = dtype_of(left, op, "a");
  const ScalarType type = accumulator_type(args.dtype);
  args.wide_index = csr.wide_index;
  args.rowptr = csr.rowptr_data;
  args.col = csr.col_data;
  args.row_scale = vector_data(row_scale, type, csr.rows, op, "row_scale", keep);
  args.col_scale = vector_data(col_scale, type, csr.columns, op, "col_scale", keep);
  args.a = left.const_data_ptr();
  args.a_stride = left.stride(0);
  args.b = right.const_data_ptr();
  args.b_stride = right.stride(0);
  args.width = left.size(1);
  const int64_t sizes[] = {csr.edges};
  Tensor out = torch::stable::new_empty(left, {sizes, 1}, type);
  args.out = out.mutable_data_ptr();
  TorchExecutor executor;
  run_edge_dot(args, csr.rows, csr.edges, executor);
  return out;
}

std::tuple<Tensor, Tensor> extremum_grad(const Tensor& rowptr, const Tensor& col, const Tensor& x,
                                         const OptionalTensor& edge_weight, const Tensor& result,
                                         const Tensor& grad_result, bool trusted) {
  constexpr const char* op = "extremum_grad";
  require_cpu(x, 2, op, "x");
  require_cpu(result, 2, op, "result");
  require_cpu(grad_result, 2, op, "grad_result");
  const CsrTensors csr = csr_tensors(rowptr, col, x.size(0), trusted, op);
  const Tensor rows = with_unit_columns(x);
  std::vector<Tensor> keep;
  AggregateArgs args = aggregate_args({edge_weight, {}, {}, {}, "max", false}, csr, rows, op, keep);
  require(args.dtype == DType::f32 || args.dtype == DType::f64, op, "'x' must be float32 or float64 (got ", x, ")");
  for (const Tensor* t : {&result, &grad_result}) {
    require(t->size(0) == csr.rows && t->size(1) == args.width && t->scalar_type() == rows.scalar_type(), op,
            "'result' and 'grad_result' must be [", csr.rows, ", ", args.width, "] in the dtype of 'x' (got ", *t, ")");
  }
  const Tensor whole_result = torch::stable::contiguous(result);
  const Tensor whole_grad = torch::stable::contiguous(grad_result);
  args.out = const_cast<void*>(whole_result.const_data_ptr());  // read only
  const int64_t x_sizes[] = {csr.columns, args.width};
  const int64_t weight_sizes[] = {edge_weight.has_value() ? csr.edges : 0};
  Tensor grad_x = torch::stable::new_zeros(rows, {x_sizes, 2});
  Tensor grad_weight = torch::stable::new_empty(rows, {weight_sizes, 1});
  TorchExecutor executor;
  run_extremum_grad(args, csr.rows, whole_grad.const_data_ptr(), grad_x.mutable_data_ptr(),
                    edge_weight.has_value() ? grad_weight.mutable_data_ptr() : nullptr, executor);
  return {grad_x, grad_weight};
}

}  // namespace frontgi
