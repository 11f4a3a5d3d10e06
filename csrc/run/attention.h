// SPDX-License-Identifier: MIT
// Attention and its gradients, whole: rows dealt to workers by edges, hubs shared out by heads, then by channels.
#pragma once

#include "../hw/machine.h"
#include "../kernels/kernels.h"
#include "executor.h"

namespace frontgi {

// `scratch` and `range` of the arguments are set here. The same bits for any workers.
void run_attention(const AttentionArgs& args, int64_t rows, const Machine& machine, Executor& executor);

// REQUIRES: args.forward as its forward pass had it, alpha written.
void run_attention_grad_rows(const AttentionGradArgs& args, int64_t rows, const Machine& machine, Executor& executor);

// `rows` of the transposed adjacency.
void run_attention_grad_columns(const AttentionColumnArgs& args, int64_t rows, const Machine& machine,
                                Executor& executor);

}  // namespace frontgi
