// SPDX-License-Identifier: MIT
// The three schedules of Aggregate (FrontGI, algorithms 3 and 4) around one kernel.
#include "aggregate.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "../graph/row_slots.h"
#include "../hw/isa.h"
#include "scratch.h"
#include "work_queue.h"

namespace frontgi {
namespace {

constexpr int64_t kLineBytes = 64;

const void* advance(const void* p, int64_t bytes) { return p ? static_cast<const char*>(p) + bytes : nullptr; }
void* advance(void* p, int64_t bytes) { return static_cast<char*>(p) + bytes; }

void aggregate_rows(const KernelTable& table, AggregateArgs args, int64_t begin, int64_t end) {
  if (begin >= end) return;
  args.out = advance(args.out, begin * args.out_stride * element_bytes(args.dtype));
  table.aggregate(args, begin, end);
}

void aggregate_hub(const KernelTable& table, const AggregateArgs& args, const RowSlots::Hub& hub) {
  if (hub.row < 0) return;
  const int64_t line = kLineBytes / element_bytes(args.dtype);
  const int64_t lines = (args.width + line - 1) / line;
  const int64_t begin = std::min(args.width, lines * hub.part / hub.parts * line);
  const int64_t end = std::min(args.width, lines * (hub.part + 1) / hub.parts * line);
  if (begin < end) aggregate_rows(table, feature_range(args, begin, end), hub.row, hub.row + 1);
}

void aggregate_slot(const KernelTable& table, const AggregateArgs& args, const RowSlots& slots, int64_t slot) {
  const RowSlots::Share share = slots.share(slot);
  aggregate_hub(table, args, share.before);
  aggregate_rows(table, args, share.begin, share.end);
  aggregate_hub(table, args, share.after);
}

void run_by_rows(const AggregateArgs& args, int64_t rows, const Schedule& schedule, const Machine& machine,
                 Executor& executor) {
  const KernelTable& table = kernels();
  const RowSlots slots(args.rowptr, rows, 1, 1, schedule.slots);
  WorkQueues queues = WorkQueues::even(schedule.slots, schedule.domains);
  executor.run(schedule.workers, [&](int64_t worker) {
    queues.drain(machine.home_domain(worker, schedule.workers) % schedule.domains,
                 [&](int64_t, int64_t slot) { aggregate_slot(table, args, slots, slot); });
  });
}

// Copies features [begin, end) of all source rows, row after row, into one buffer: read in place, at a stride of a
// whole row, a slice falls on a fraction of the cache's sets and was measured slower than no slices.
struct Slice {
  int64_t begin, end;
  AlignedBuffer* buffer;
};

void pack_rows(const AggregateArgs& args, const Slice& slice, int64_t row_begin, int64_t row_end) {
  const int64_t element = element_bytes(args.dtype);
  const int64_t bytes = (slice.end - slice.begin) * element;
  const char* from = static_cast<const char*>(args.x) + slice.begin * element;
  char* to = static_cast<char*>(slice.buffer->get());
  for (int64_t row = row_begin; row < row_end; ++row) {
    std::memcpy(to + row * bytes, from + row * args.x_stride * element, static_cast<size_t>(bytes));
  }
}

void run_mixed(const AggregateArgs& args, int64_t rows, int64_t columns, const Schedule& schedule,
               const Machine& machine, Executor& executor) {
  const KernelTable& table = kernels();
  const RowSlots slots(args.rowptr, rows, 1, 1, schedule.slots);
  const int64_t pack_slots = std::max<int64_t>(1, std::min(columns, schedule.slots));
  std::vector<AlignedBuffer> buffers(static_cast<size_t>(schedule.domains));
  for (int64_t first = 0; first < args.width;) {
    // A round: the next slices, one a domain, packed and then aggregated by the domain's own workers.
    std::vector<Slice> slices;
    std::vector<WorkQueues::Range> to_pack, to_aggregate;
    for (int64_t d = 0; d < schedule.domains && first < args.width; ++d, first += schedule.slice_width) {
      const int64_t end = std::min(args.width, first + schedule.slice_width);
      AlignedBuffer& buffer = buffers[static_cast<size_t>(d)];
      buffer.reserve(static_cast<size_t>(columns * (end - first) * element_bytes(args.dtype)));
      slices.push_back({first, end, &buffer});
      to_pack.push_back({0, pack_slots});
      to_aggregate.push_back({0, schedule.slots});
    }
    const int64_t active = static_cast<int64_t>(slices.size());
    const auto home = [&](int64_t worker) { return machine.home_domain(worker, schedule.workers) % active; };

    WorkQueues packing(to_pack);
    executor.run(schedule.workers, [&](int64_t worker) {
      packing.drain(home(worker), [&](int64_t d, int64_t slot) {
        pack_rows(args, slices[static_cast<size_t>(d)], columns * slot / pack_slots, columns * (slot + 1) / pack_slots);
      });
    });
    WorkQueues aggregating(to_aggregate);
    executor.run(schedule.workers, [&](int64_t worker) {
      aggregating.drain(home(worker), [&](int64_t d, int64_t slot) {
        const Slice& slice = slices[static_cast<size_t>(d)];
        AggregateArgs part = feature_range(args, slice.begin, slice.end);
        part.x = slice.buffer->get();
        part.x_stride = slice.end - slice.begin;
        aggregate_slot(table, part, slots, slot);
      });
    });
  }
}

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
  part.width = end - begin;
  return part;
}

void run_aggregate(const AggregateArgs& args, int64_t rows, int64_t columns, const Schedule& schedule,
                   const Machine& machine, Executor& executor) {
  if (rows == 0 || args.width == 0) return;
  if (schedule.kind == ScheduleKind::mixed && columns > 0) {
    run_mixed(args, rows, columns, schedule, machine, executor);
  } else {
    run_by_rows(args, rows, schedule, machine, executor);
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
