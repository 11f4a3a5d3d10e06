// SPDX-License-Identifier: MIT
// Where each row's edges cross from one block of columns into the next.
//
// Layout: for each block but the last, the number of a row's edges up to its end, [blocks - 1][rows] of 32 bits: half
// of what offsets would take, and they are read once for every slice. Invariant: ascending over the blocks.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <vector>

#include "../graph/row_slots.h"
#include "../kernels/kernels.h"
#include "executor.h"
#include "scratch.h"

namespace frontgi {

class ColumnBlocks {
 public:
  // Blocks of `block_columns` columns, `blocks` in all; one pass over the edges.
  ColumnBlocks(const AggregateArgs& args, int64_t rows, int64_t block_columns, int64_t blocks, int64_t workers,
               Executor& executor)
      : rows_(rows), blocks_(blocks), memory_(static_cast<size_t>(rows * (blocks - 1)) * sizeof(uint32_t)) {
    std::atomic<bool> usable{true};
    const RowSlots slots(args.rowptr, rows, 1, 1, workers);
    executor.run(workers, [&](int64_t worker) {
      const int64_t begin = slots.first_row(worker), end = slots.first_row(worker + 1);
      const bool good = args.wide_index ? split<int64_t>(args, begin, end, block_columns)
                                        : split<int32_t>(args, begin, end, block_columns);
      if (!good) usable.store(false, std::memory_order_relaxed);
    });
    usable_ = usable.load(std::memory_order_relaxed);
    for (int64_t row = 0; row < rows; ++row) {
      if (args.rowptr[row + 1] - args.rowptr[row] >= kEdgesSummed) long_rows_.push_back(row);
    }
  }

  // False if a row's columns do not ascend (only then is a block a stretch of its edges) or are too many to count.
  bool usable() const { return usable_; }

  // Edges of each row before `block`, and up to its end; null where that is none, or all.
  const uint32_t* begin(int64_t block) const { return block == 0 ? nullptr : at(block - 1); }
  const uint32_t* end(int64_t block) const { return block == blocks_ - 1 ? nullptr : at(block); }

  // Rows of more than one chain of additions, ascending.
  const std::vector<int64_t>& long_rows() const { return long_rows_; }

 private:
  uint32_t* at(int64_t block) const { return static_cast<uint32_t*>(memory_.get()) + block * rows_; }

  template <class Index>
  bool split(const AggregateArgs& args, int64_t row_begin, int64_t row_end, int64_t block_columns) const {
    const Index* col = static_cast<const Index*>(args.col);
    bool good = true;
    for (int64_t row = row_begin; row < row_end; ++row) {
      const int64_t begin = args.rowptr[row], end = args.rowptr[row + 1];
      if (end - begin > std::numeric_limits<uint32_t>::max()) return false;
      int64_t block = 0, block_end = block_columns, before = 0;
      for (int64_t e = begin; e < end; ++e) {
        const int64_t column = static_cast<int64_t>(col[e]);
        good &= column >= before;
        before = column;
        for (; column >= block_end && block < blocks_ - 1; ++block, block_end += block_columns) {
          at(block)[row] = static_cast<uint32_t>(e - begin);
        }
      }
      for (; block < blocks_ - 1; ++block) at(block)[row] = static_cast<uint32_t>(end - begin);
    }
    return good;
  }

  int64_t rows_, blocks_;
  AlignedBuffer memory_;
  std::vector<int64_t> long_rows_;
  bool usable_ = true;
};

}  // namespace frontgi
