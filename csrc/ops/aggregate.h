// SPDX-License-Identifier: MIT
// What the ops that aggregate share: their tensors, checked and turned into a kernel's arguments.
#pragma once

#include <string>
#include <vector>

#include "../run/schedule.h"
#include "boundary.h"

namespace frontgi {

struct AggregateTensors {
  OptionalTensor edge_weight, row_scale, col_scale, self_scale;
  std::string reduce;
  bool skip_loops;
};

// Arguments for aggregating `x` (2-D, unit column stride) over `csr`; self term, bias and output are left unset.
// Tensors whose data is pointed to are kept alive in `keep`.
AggregateArgs aggregate_args(const AggregateTensors& tensors, const CsrTensors& csr, const Tensor& x, const char* op,
                             std::vector<Tensor>& keep);

// The self term: `x_self`, or `x` itself where only a self scale is given.
void set_self(AggregateArgs& args, const OptionalTensor& x_self, const Tensor& x, int64_t rows, const char* op,
              std::vector<Tensor>& keep);

// The planner's choice, or the schedule asked for as [kind, workers, slice_width, block_columns] (see AskedSchedule); a
// fifth number says that it was planned in Python, for this very adjacency.
Schedule schedule_for(const std::vector<int64_t>& asked, const AggregateShape& shape, int64_t max_workers,
                      const Machine& on = machine(), const std::vector<double>& footprint = {},
                      const Rates& rates = {});
// A whole schedule as Python's Schedule.numbers() has it: [kind, workers, domains, slice_width, block_columns, slots].
std::vector<int64_t> numbers_of(const Schedule& schedule);
Schedule schedule_of(const std::vector<int64_t>& numbers, const char* op);
constexpr int64_t kWorkersMax = 1 << 16;
AggregateShape shape_of(const AggregateArgs& args, const CsrTensors& csr);

// Rows of features that lie in an L2 cache need no prefetching, which took a quarter of the time of gathering narrow
// ones.
inline bool wants_prefetch(int64_t bytes) { return bytes > (1 << 20); }

// Outputs this large leave the cache before anyone reads them.
inline bool streams(int64_t bytes) { return bytes > (16 << 20); }

}  // namespace frontgi
