// SPDX-License-Identifier: MIT
// Aggregate's schedules (FrontGI, algorithms 3 and 4), as walk.h lays them out, around one kernel.
#include "aggregate.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "../graph/row_slots.h"
#include "../hw/isa.h"
#include "blocked_walk.h"
#include "scratch.h"
#include "work_queue.h"

namespace frontgi {
namespace {

constexpr int64_t kLineBytes = 64;

const void* advance(const void* p, int64_t bytes) { return p ? static_cast<const char*>(p) + bytes : nullptr; }
void* advance(void* p, int64_t bytes) { return static_cast<char*>(p) + bytes; }

// Copies features of source rows, row after row, into one buffer: read in place, at a stride of a whole row, a slice
// falls on a fraction of the cache's sets and was measured slower than no slices.
void pack_rows(const AggregateArgs& args, const AggregateTask& task, void* to) {
  const int64_t element = element_bytes(args.dtype);
  const int64_t bytes = (task.feature_end - task.feature_begin) * element;
  const char* from = static_cast<const char*>(args.x) + task.feature_begin * element;
  for (int64_t row = task.row_begin; row < task.row_end; ++row) {
    std::memcpy(advance(to, (row - task.row_begin) * bytes), from + row * args.x_stride * element,
                static_cast<size_t>(bytes));
  }
}

// What a queue's slice is gathered from and, with blocks of columns, what its rows have come to. One a domain.
struct SliceBuffers {
  AlignedBuffer packed, state, sums;
};

// One call of run_aggregate, as its workers see it.
struct Aggregation {
  const AggregateArgs& args;
  const AggregateWalk& walk;
  const ColumnBlocks* blocks;  // null where all columns are one
  const KernelTable& table;
  std::vector<SliceBuffers>& buffers;

  // Rows may wait for their next block in the output itself, unless it is narrower or holds the self term.
  bool waits_in_output() const {
    return element_bytes(args.dtype) == accumulator_bytes(args.dtype) && args.x_self != args.out;
  }

  void reserve(int64_t region, int64_t rows) const {
    for (int64_t q = 0; q < static_cast<int64_t>(walk.queues(region).size()); ++q) {
      SliceBuffers& own = buffers[static_cast<size_t>(q)];
      const int64_t width = walk.slice_end(region, q) - walk.slice_begin(region, q);
      const int64_t columns = walk.block_end(region) - walk.block_begin(region);
      own.packed.reserve(static_cast<size_t>(columns * width * element_bytes(args.dtype)));
      if (!blocks) continue;
      const int64_t state_bytes = width * accumulator_bytes(args.dtype);
      if (!waits_in_output()) own.state.reserve(static_cast<size_t>(rows * state_bytes));
      own.sums.reserve(blocks->long_rows().size() * static_cast<size_t>(state_bytes));
    }
  }

  void run(const AggregateTask& task, int64_t region, int64_t queue) const {
    if (!walk.packed()) return aggregate_rows(feature_range(args, task.feature_begin, task.feature_end), task);
    SliceBuffers& own = buffers[static_cast<size_t>(queue)];
    const int64_t begin = walk.slice_begin(region, queue), width = walk.slice_end(region, queue) - begin;
    const int64_t first_column = walk.block_begin(region);
    if (task.packs) {
      const int64_t offset = (task.row_begin - first_column) * width * element_bytes(args.dtype);
      return pack_rows(args, task, advance(own.packed.get(), offset));
    }
    AggregateArgs part = feature_range(args, begin, walk.slice_end(region, queue));
    part.x = own.packed.get();
    part.x_stride = width;
    if (blocks) {
      ColumnBlock& block = part.block;
      block.first_column = first_column;
      block.begin = blocks->begin(walk.block(region));
      block.end = blocks->end(walk.block(region));
      block.state = waits_in_output() ? part.out : own.state.get();
      block.state_stride = waits_in_output() ? args.out_stride : width;
      block.sums = own.sums.get();
      block.sums_stride = width;
      block.long_rows = blocks->long_rows().data();
      block.long_count = static_cast<int64_t>(blocks->long_rows().size());
      part.stream = false;  // partly written lines, and not by one task
      part.blocked = true;
    }
    aggregate_rows(feature_range(part, task.feature_begin - begin, task.feature_end - begin), task);
  }

  void aggregate_rows(AggregateArgs part, const AggregateTask& task) const {
    part.out = advance(part.out, task.row_begin * args.out_stride * element_bytes(args.dtype));
    table.aggregate(part, task.row_begin, task.row_end);
  }
};

// ---- the gradient of min and max: plain loops, each worker its own features, then its own rows -------------------

template <class T, class Index>
struct Extremum {
  const AggregateArgs& args;
  const T* grad_out;

  T weight(int64_t e) const { return args.edge_weight ? static_cast<const T*>(args.edge_weight)[e] : T(1); }
  int64_t source(int64_t e) const { return static_cast<int64_t>(static_cast<const Index*>(args.col)[e]); }
  T x(int64_t j, int64_t f) const { return static_cast<const T*>(args.x)[j * args.x_stride + f]; }

  // The first edge of the row that reached the result, -1 if the row has none.
  int64_t winner(int64_t row, int64_t f) const {
    const T result = static_cast<const T*>(args.out)[row * args.width + f];
    for (int64_t e = args.rowptr[row]; e < args.rowptr[row + 1]; ++e) {
      const T value = x(source(e), f) * weight(e);
      if (value == result || (value != value && result != result)) return e;
    }
    return -1;
  }
};

template <class T, class Index>
void extremum_grad(const AggregateArgs& args, int64_t rows, const void* grad_out, void* grad_x, void* grad_weight,
                   Executor& executor) {
  const Extremum<T, Index> extremum{args, static_cast<const T*>(grad_out)};
  const int64_t line = kLineBytes / static_cast<int64_t>(sizeof(T));
  const int64_t workers = std::clamp<int64_t>(args.width / line, 1, executor.max_workers());
  executor.run(workers, [&](int64_t worker) {
    const int64_t begin = args.width / line * worker / workers * line;
    const int64_t end = worker + 1 == workers ? args.width : args.width / line * (worker + 1) / workers * line;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t f = begin; f < end; ++f) {
        const int64_t e = extremum.winner(row, f);
        if (e < 0) continue;
        const T grad = extremum.grad_out[row * args.width + f];
        static_cast<T*>(grad_x)[extremum.source(e) * args.width + f] += grad * extremum.weight(e);
      }
    }
  });
  if (!grad_weight) return;
  const RowSlots slots(args.rowptr, rows, 1, 1, executor.max_workers());
  executor.run(executor.max_workers(), [&](int64_t worker) {
    T* to = static_cast<T*>(grad_weight);
    const int64_t last = slots.first_row(worker + 1);
    for (int64_t row = slots.first_row(worker); row < last; ++row) {
      for (int64_t e = args.rowptr[row]; e < args.rowptr[row + 1]; ++e) to[e] = T(0);
      for (int64_t f = 0; f < args.width; ++f) {
        const int64_t e = extremum.winner(row, f);
        if (e >= 0) to[e] += extremum.grad_out[row * args.width + f] * extremum.x(extremum.source(e), f);
      }
    }
  });
}

}  // namespace

AggregateArgs feature_range(const AggregateArgs& args, int64_t begin, int64_t end) {
  const int64_t bytes = begin * element_bytes(args.dtype);
  AggregateArgs part = args;
  part.x = advance(args.x, bytes);
  part.x_self = advance(args.x_self, bytes);
  part.bias = advance(args.bias, bytes);
  part.out = advance(args.out, bytes);
  if (args.blocked) {
    part.block.state = advance(args.block.state, begin * accumulator_bytes(args.dtype));
    part.block.sums = advance(args.block.sums, begin * accumulator_bytes(args.dtype));
  }
  part.width = end - begin;
  return part;
}

void run_aggregate(const AggregateArgs& args, int64_t rows, int64_t columns, const Schedule& given,
                   const Machine& machine, Executor& executor) {
  if (rows == 0 || args.width == 0) return;
  const AggregateShape shape{rows, columns, args.rowptr[rows] - args.rowptr[0], args.width, element_bytes(args.dtype)};
  const BlockedWalk blocked(args, shape, given, given.workers, executor);
  const AggregateWalk& walk = *blocked.walk;
  const Schedule& schedule = blocked.schedule;
  std::vector<SliceBuffers> buffers(walk.packed() ? static_cast<size_t>(schedule.domains) : 0);
  const Aggregation aggregation{args, walk, blocked.blocks ? &*blocked.blocks : nullptr, kernels(), buffers};
  for (int64_t region = 0; region < walk.regions(); ++region) {
    if (walk.packs(region)) aggregation.reserve(region, rows);
    const std::vector<WorkQueues::Range> ranges = walk.queues(region);
    WorkQueues queues(ranges);
    executor.run(schedule.workers, [&](int64_t worker) {
      const int64_t home = machine.home_queue(worker, schedule.workers, static_cast<int64_t>(ranges.size()));
      queues.drain(home, [&](int64_t queue, int64_t slot) {
        walk.tasks(region, queue, slot, [&](const AggregateTask& task) { aggregation.run(task, region, queue); });
      });
    });
  }
}

void run_edge_dot(const EdgeDotArgs& given, int64_t rows, int64_t edges, Executor& executor) {
  const KernelTable& table = kernels();
  EdgeDotArgs args = given;
  if (args.width == 0) args.a_stride = args.b_stride = 0;  // a and b may be null: nothing may be added to them
  const int64_t bytes = edges * args.width * element_bytes(args.dtype);
  const int64_t workers = workers_for_bytes(bytes, executor.max_workers());
  const RowSlots slots(args.rowptr, rows, 1, 1, workers * 16);
  WorkQueues queues = WorkQueues::even(slots.slots(), 1);
  executor.run(workers, [&](int64_t) {
    queues.drain(
        0, [&](int64_t, int64_t slot) { table.edge_dot(args, slots.first_row(slot), slots.first_row(slot + 1)); });
  });
}

void run_extremum_grad(const AggregateArgs& args, int64_t rows, const void* grad_out, void* grad_x, void* grad_weight,
                       Executor& executor) {
  if (args.dtype == DType::f64) {
    (args.wide_index ? extremum_grad<double, int64_t> : extremum_grad<double, int32_t>)(args, rows, grad_out, grad_x,
                                                                                        grad_weight, executor);
  } else {
    (args.wide_index ? extremum_grad<float, int64_t> : extremum_grad<float, int32_t>)(args, rows, grad_out, grad_x,
                                                                                      grad_weight, executor);
  }
}

}  // namespace frontgi
