// SPDX-License-Identifier: MIT
// Every op's schema, on one screen. Sizes are SymInt so that a compiled graph serves every size.
//
// `trusted` says that rowptr and col were checked when their Graph was made; without it they are checked at each call.
// `schedule` is empty (the planner chooses) or [kind, workers, slice_width, block_columns] and, if planned in
// Python, 1. A shape is [rows, columns, edges, width, element_bytes, fused]. rowptr_t, col_t and perm_t are the
// transposed adjacency and the position in it of each edge: only the backward pass reads them, and makes them if
// absent.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string>
#include <tuple>
#include <vector>

#include "ops/boundary.h"

namespace frontgi {

Tensor aggregate(const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&, const OptionalTensor&,
                 const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                 const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, int64_t, const std::string&, bool,
                 bool, bool, const std::vector<int64_t>&);
Tensor edge_dot(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&,
                const OptionalTensor&, bool);
std::tuple<Tensor, Tensor> extremum_grad(const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&,
                                         const Tensor&, const Tensor&, bool);
Tensor linear(const Tensor&, const Tensor&, const OptionalTensor&, bool);
Tensor conv(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&, const OptionalTensor&,
            const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
            const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
            const OptionalTensor&, int64_t, const std::string&, bool, bool, bool, bool, const std::vector<int64_t>&);
std::tuple<Tensor, Tensor> attend(const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&,
                                  const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                                  const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                                  const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, int64_t, int64_t,
                                  double, bool, bool, bool);
std::tuple<Tensor, Tensor, Tensor> attend_grad_rows(const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&,
                                                    const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                                                    const OptionalTensor&, const Tensor&, const Tensor&,
                                                    const OptionalTensor&, int64_t, double, bool, bool);
std::tuple<Tensor, Tensor, Tensor> attend_grad_columns(const Tensor&, const Tensor&, const Tensor&,
                                                       const OptionalTensor&, const OptionalTensor&, const Tensor&,
                                                       const Tensor&, const Tensor&, int64_t, double, bool, bool);
Tensor weight_grad(const Tensor&, const Tensor&);
Tensor column_sum(const Tensor&);
std::tuple<Tensor, Tensor, Tensor> coo_to_csr_op(const Tensor&, const Tensor&, int64_t, int64_t);
void check_csr_op(const Tensor&, const Tensor&, int64_t);
std::tuple<Tensor, Tensor> gcn_norm_op(const Tensor&, const Tensor&, const OptionalTensor&, double, const std::string&,
                                       bool, bool);
bool pool_is_lost_op();
void set_output_pool_limit_op(int64_t);
void empty_cache_op();
Tensor empty_in_huge_pages_op(const Tensor&, int64_t, int64_t);
std::string isa_op();
void force_isa_op(const std::string&);
void set_machine_op(const std::vector<int64_t>&, const std::vector<int64_t>&, bool);
Tensor footprint_op(const Tensor&, int64_t);
Tensor plan_aggregate_op(const Tensor&, const std::vector<int64_t>&, int64_t, const std::vector<int64_t>&,
                         const std::vector<double>&, const std::vector<int64_t>&, const std::vector<double>&);
Tensor estimate_cost_op(const Tensor&, const std::vector<int64_t>&, int64_t, const std::vector<int64_t>&,
                        const std::vector<double>&, const std::vector<int64_t>&, const std::vector<double>&,
                        const std::vector<double>&);
Tensor slot_rows_op(const Tensor&, int64_t);
int64_t tile_rows_op(int64_t, int64_t);
std::tuple<Tensor, double, double> simulate_op(const Tensor&, const Tensor&, int64_t, int64_t, int64_t,
                                               const std::vector<int64_t>&, const std::vector<int64_t>&,
                                               const std::vector<int64_t>&, const std::vector<int64_t>&);

}  // namespace frontgi

STABLE_TORCH_LIBRARY(frontgi, m) {
  m.def(
      "aggregate(Tensor rowptr, Tensor col, Tensor x, Tensor? edge_weight, Tensor? row_scale, Tensor? col_scale, "
      "Tensor? self_scale, Tensor? x_self, Tensor? bias, Tensor? rowptr_t, Tensor? col_t, Tensor? perm_t, "
      "SymInt num_cols, str reduce, bool skip_loops, bool relu, bool trusted, int[] schedule) -> Tensor");
  m.def(
      "conv(Tensor rowptr, Tensor col, Tensor x, Tensor weight, Tensor? bias, Tensor? edge_weight, Tensor? row_scale, "
      "Tensor? col_scale, Tensor? self_scale, Tensor? x_self, Tensor? x_root, Tensor? root_weight, Tensor? rowptr_t, "
      "Tensor? col_t, Tensor? perm_t, SymInt num_cols, str reduce, bool skip_loops, bool relu, bool multiply_first, "
      "bool trusted, int[] schedule) -> Tensor");
  m.def(
      "attend(Tensor rowptr, Tensor col, Tensor x, Tensor? src_score, Tensor? dst_score, Tensor? edge_score, "
      "Tensor? loop_score, Tensor? x_dst, Tensor? att, Tensor? bias, Tensor? rowptr_t, Tensor? col_t, Tensor? perm_t, "
      "SymInt num_cols, int heads, float slope, bool loops, bool with_alpha, bool trusted) -> (Tensor, Tensor)");
  m.def(
      "attend_grad_rows(Tensor rowptr, Tensor col, Tensor x, Tensor? src_score, Tensor? dst_score, Tensor? edge_score, "
      "Tensor? loop_score, Tensor? x_dst, Tensor alpha, Tensor grad, Tensor? grad_alpha, int heads, float slope, "
      "bool loops, bool trusted) -> (Tensor, Tensor, Tensor)");
  m.def(
      "attend_grad_columns(Tensor rowptr_t, Tensor col_t, Tensor perm_t, Tensor? x, Tensor? x_dst, Tensor alpha, "
      "Tensor grad_score, Tensor grad, int heads, float slope, bool loops, bool trusted) -> (Tensor, Tensor, Tensor)");
  m.def("linear(Tensor x, Tensor weight, Tensor? bias, bool relu) -> Tensor");
  m.def("weight_grad(Tensor g, Tensor x) -> Tensor");
  m.def("column_sum(Tensor g) -> Tensor");
  m.def(
      "edge_dot(Tensor rowptr, Tensor col, Tensor a, Tensor b, Tensor? row_scale, Tensor? col_scale, bool trusted) -> "
      "Tensor");
  m.def(
      "extremum_grad(Tensor rowptr, Tensor col, Tensor x, Tensor? edge_weight, Tensor result, Tensor grad_result, "
      "bool trusted) -> (Tensor, Tensor)");
  m.def("coo_to_csr(Tensor row, Tensor col, SymInt num_rows, SymInt num_cols) -> (Tensor, Tensor, Tensor)");
  m.def("check_csr(Tensor rowptr, Tensor col, SymInt num_cols) -> ()");
  m.def(
      "gcn_norm(Tensor rowptr, Tensor col, Tensor? edge_weight, float fill, str loops, bool wide, bool trusted) -> "
      "(Tensor, Tensor)");
  m.def("pool_is_lost() -> bool");
  m.def("set_output_pool_limit(int limit_bytes) -> ()");
  m.def("empty_cache() -> ()");
  m.def("empty_in_huge_pages(Tensor like, SymInt rows, SymInt columns) -> Tensor");
  m.def("isa() -> str");
  m.def("force_isa(str name) -> ()");
  m.def("set_machine(int[] domain_of_cpu, int[] llc_bytes, bool stated) -> ()");
  m.def("footprint(Tensor col, SymInt num_cols) -> Tensor");
  m.def(
      "plan_aggregate(Tensor like, int[] shape, int max_workers, int[] llc_bytes, float[] footprint, int[] asked, "
      "float[] rates=[]) -> Tensor");
  m.def(
      "estimate_cost(Tensor like, int[] shape, int max_workers, int[] llc_bytes, float[] footprint, int[] asked, "
      "float[] counted, float[] rates=[]) -> Tensor");
  m.def("slot_rows(Tensor rowptr, int slots) -> Tensor");
  m.def("tile_rows(int width, int element_bytes) -> int");
  m.def(
      "simulate(Tensor rowptr, Tensor col, int columns, int width, int element_bytes, int[] schedule, int[] llc_bytes, "
      "int[] caches, int[] options) -> (Tensor, float, float)");
}

STABLE_TORCH_LIBRARY_IMPL(frontgi, CPU, m) {
  m.impl("aggregate", TORCH_BOX(&frontgi::aggregate));
  m.impl("conv", TORCH_BOX(&frontgi::conv));
  m.impl("attend", TORCH_BOX(&frontgi::attend));
  m.impl("attend_grad_rows", TORCH_BOX(&frontgi::attend_grad_rows));
  m.impl("attend_grad_columns", TORCH_BOX(&frontgi::attend_grad_columns));
  m.impl("linear", TORCH_BOX(&frontgi::linear));
  m.impl("weight_grad", TORCH_BOX(&frontgi::weight_grad));
  m.impl("column_sum", TORCH_BOX(&frontgi::column_sum));
  m.impl("edge_dot", TORCH_BOX(&frontgi::edge_dot));
  m.impl("extremum_grad", TORCH_BOX(&frontgi::extremum_grad));
  m.impl("coo_to_csr", TORCH_BOX(&frontgi::coo_to_csr_op));
  m.impl("check_csr", TORCH_BOX(&frontgi::check_csr_op));
  m.impl("gcn_norm", TORCH_BOX(&frontgi::gcn_norm_op));
  m.impl("empty_in_huge_pages", TORCH_BOX(&frontgi::empty_in_huge_pages_op));
  m.impl("footprint", TORCH_BOX(&frontgi::footprint_op));
  m.impl("plan_aggregate", TORCH_BOX(&frontgi::plan_aggregate_op));
  m.impl("estimate_cost", TORCH_BOX(&frontgi::estimate_cost_op));
  m.impl("slot_rows", TORCH_BOX(&frontgi::slot_rows_op));
  m.impl("simulate", TORCH_BOX(&frontgi::simulate_op));
}

STABLE_TORCH_LIBRARY_IMPL(frontgi, CompositeExplicitAutograd, m) {
  m.impl("pool_is_lost", TORCH_BOX(&frontgi::pool_is_lost_op));
  m.impl("set_output_pool_limit", TORCH_BOX(&frontgi::set_output_pool_limit_op));
  m.impl("empty_cache", TORCH_BOX(&frontgi::empty_cache_op));
  m.impl("isa", TORCH_BOX(&frontgi::isa_op));
  m.impl("force_isa", TORCH_BOX(&frontgi::force_isa_op));
  m.impl("set_machine", TORCH_BOX(&frontgi::set_machine_op));
  m.impl("tile_rows", TORCH_BOX(&frontgi::tile_rows_op));
}

// The module is a carrier for the registrations above: it holds nothing of its own.
extern "C" __attribute__((visibility("default"))) PyObject* PyInit__C(void) {
  static PyModuleDef definition = {
      PyModuleDef_HEAD_INIT, "_C", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};
  return PyModule_Create(&definition);
}
