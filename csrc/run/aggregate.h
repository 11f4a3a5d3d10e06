// SPDX-License-Identifier: MIT
// Aggregate, whole: a schedule's loops around the kernel.
#pragma once

#include "../hw/machine.h"
#include "../kernels/kernels.h"
#include "executor.h"
#include "schedule.h"

namespace frontgi {

// args.out is row 0 of the output; `columns` is the number of source rows. The same bits for every schedule.
void run_aggregate(const AggregateArgs& args, int64_t rows, int64_t columns, const Schedule& schedule,
                   const Machine& machine, Executor& executor);

// The part [begin, end) of the features, as arguments of its own.
AggregateArgs feature_range(const AggregateArgs& args, int64_t begin, int64_t end);

void run_edge_dot(const EdgeDotArgs& args, int64_t rows, int64_t edges, Executor& executor);

// Gradients of a min or max over x[col] * edge_weight (ones if null), by the rule that the first edge of a row that
// reached the result takes all of its gradient. grad_x [columns, width] must hold zeros; grad_weight [edges] is written
// if not null. Scales, self term, bias and relu of `args` must be unset; args.out and grad_out are whole and
// contiguous.
void run_extremum_grad(const AggregateArgs& args, int64_t rows, const void* grad_out, void* grad_x, void* grad_weight,
                       Executor& executor);

}  // namespace frontgi
