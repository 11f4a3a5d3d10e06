// SPDX-License-Identifier: MIT
// A walk and, where it gathers columns in blocks, where each row's edges cross from block to block.
#pragma once

#include <optional>

#include "column_blocks.h"
#include "walk.h"

namespace frontgi {

struct BlockedWalk {
  // Where rows are not made of stretches, one a block (ColumnBlocks::usable), all columns are one block after all.
  BlockedWalk(const AggregateArgs& adjacency, const AggregateShape& shape, const Schedule& given, int64_t workers,
              Executor& executor)
      : schedule(given) {
    walk.emplace(adjacency.rowptr, shape, schedule);
    if (walk->blocks() == 1) return;
    blocks.emplace(adjacency, shape.rows, schedule.block_columns, walk->blocks(), workers, executor);
    if (blocks->usable()) return;
    blocks.reset();
    schedule.block_columns = 0;
    walk.emplace(adjacency.rowptr, shape, schedule);
  }

  Schedule schedule;
  std::optional<AggregateWalk> walk;   // always there once made
  std::optional<ColumnBlocks> blocks;  // none where all columns are one
};

}  // namespace frontgi
