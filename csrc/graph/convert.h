// SPDX-License-Identifier: MIT
// Graph conversions: COO to CSR (stable, columns sorted within rows), validity of a CSR, degree normalisation.
#pragma once

#include <cstdint>

#include "../run/executor.h"

namespace frontgi {

// Sorts m edges by (row, col), edges with equal ends in their given order.
//
// row, col: [m], int64. Writes rowptr [num_rows + 1], sorted_col [m] and perm [m], the given position of each sorted
// edge; Index is int32_t or int64_t and must hold num_cols and m. O(m) and parallel, plus the sorting of each row.
// Throws std::out_of_range, naming the bound, before anything is written if an index is outside [0, num).
template <class Index>
void coo_to_csr(const int64_t* row, const int64_t* col, int64_t m, int64_t num_rows, int64_t num_cols, int64_t* rowptr,
                Index* sorted_col, Index* perm, Executor& executor);

// Throws std::invalid_argument unless rowptr [rows + 1] starts at 0, never falls and ends at m, and
// std::out_of_range unless every col is inside [0, num_cols). `op` opens the message.
template <class Index>
void check_csr(const char* op, const int64_t* rowptr, int64_t rows, const Index* col, int64_t m, int64_t num_cols,
               Executor& executor);

// What becomes of self-loops in the degree normalisation (PyG treats each adjacency type in its own way).
enum class Loops : int32_t {
  none,     // none is added: existing ones are ordinary edges
  add,      // one of weight `fill` is added to every node, beside existing ones (torch.sparse)
  replace,  // existing ones are replaced by one of weight `fill` (torch_sparse.SparseTensor)
  remain,   // existing ones keep their weight (the last, if several), `fill` elsewhere (edge_index)
};

// inv_sqrt[i] = d_i^(-1/2), 0 where d_i = 0; self_scale[i] = inv_sqrt[i]^2 * loop weight (0 with Loops::none), where
// d_i sums the edge weights of row i (ones if null) and its loop. With `replace` and `remain`, edges with
// col == row are to be skipped by the aggregation.
template <class Value, class Index>
void gcn_norm(const int64_t* rowptr, int64_t rows, const Index* col, const Value* edge_weight, Value fill, Loops loops,
              Value* inv_sqrt, Value* self_scale, Executor& executor);

}  // namespace frontgi
