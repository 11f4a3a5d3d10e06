// SPDX-License-Identifier: MIT
// Row-blocked Update (FrontGI, algorithm 5, section 3.3) and the fused layer (section 3).
//
// Idea: every worker multiplies its own tiles of rows by the whole weight, packed once for all; a tile is
// aggregated or copied, packed in the worker's L2 cache and used at once. Rows are dealt in slots of equal work.
#include "update.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <vector>

#include "../graph/row_slots.h"
#include "../hw/isa.h"
#include "aggregate.h"
#include "scratch.h"
#include "work_queue.h"

namespace frontgi {
namespace {

constexpr int64_t kPackedTileBytes = 384 << 10;  // of a 1 MiB L2, beside a panel of the weight
constexpr int64_t kTileRowsMax = 512;
constexpr int64_t kSlotsPerWorker = 16;
constexpr int64_t kFlopsPerWorker = 1 << 20;  // below, a second worker costs more than it brings
constexpr int64_t kPanelsPerWorker = 4;       // the same: 20 rows by a 256 x 256 weight took twice as long on two
constexpr int64_t kFlopsPerElement = 16;      // what one core computes while it packs or writes an element
constexpr int64_t kFlopsPerGatheredByte = 8;  // what one core computes while it gathers a byte

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

const GemmKernels& gemm_for(const KernelTable& table, DType dtype) {
  return dtype == DType::f64 ? table.gemm_f64 : table.gemm_f32;
}

const void* element(const void* p, DType dtype, int64_t index) {
  return static_cast<const char*>(p) + index * element_bytes(dtype);
}
void* element(void* p, DType dtype, int64_t index) { return static_cast<char*>(p) + index * element_bytes(dtype); }

// Everything about an update that is decided before its workers start.
struct UpdatePlan {
  int64_t workers, slots, tile_rows, k_total;
  int64_t edge_cost = 0, row_cost = 1;
};

struct PackedWeights {
  AlignedBuffer memory;
  bool finite;
};

template <class Value, class Bits>
bool all_finite(const Value* values, int64_t count, Bits exponent) {
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) finite &= (std::bit_cast<Bits>(values[i]) & exponent) != exponent;
  return finite;
}
// Of values in the accumulator type of `dtype`.
bool all_finite(DType dtype, const void* values, int64_t count) {
  return dtype == DType::f64 ? all_finite(static_cast<const double*>(values), count, uint64_t{0x7ff} << 52)
                             : all_finite(static_cast<const float*>(values), count, uint32_t{0xff} << 23);
}

UpdatePlan plan_update(const UpdateArgs& args, const GemmKernels& gemm, int64_t max_workers) {
  UpdatePlan plan{};
  for (int64_t i = 0; i < args.operand_count; ++i) plan.k_total += args.operands[i].k;
  const int64_t row_flops =
      std::max<int64_t>(1, 2 * plan.k_total * args.n + kFlopsPerElement * (plan.k_total + args.n));
  int64_t edges = 0;
  if (args.aggregate) {
    edges = args.aggregate->rowptr[args.rows];
    // Costs in flops: an edge gathers a row of k elements.
    plan.edge_cost = args.operands[0].k * element_bytes(args.dtype) * kFlopsPerGatheredByte;
    plan.row_cost = row_flops;
  }
  // Few rows are not worth sharing out for their product, whatever the weight; for their edges they may be.
  const int64_t multiplying =
      std::min(args.rows * row_flops / kFlopsPerWorker, args.rows / (kPanelsPerWorker * gemm.panel_rows));
  const int64_t gathering = edges * plan.edge_cost / kFlopsPerWorker;
  plan.workers = std::clamp<int64_t>(multiplying + gathering, 1, max_workers);

  plan.tile_rows = tile_rows(plan.k_total, args.dtype == DType::f64);
  const int64_t slot_rows = std::clamp(ceil_div(args.rows, plan.workers * 4), gemm.panel_rows, plan.tile_rows);
  plan.slots =
      plan.workers == 1 ? 1 : std::clamp<int64_t>(args.rows / slot_rows, plan.workers, plan.workers * kSlotsPerWorker);
  return plan;
}

PackedWeights pack_weights(const UpdateArgs& args, const UpdatePlan& plan, const GemmKernels& gemm,
                           Executor& executor) {
  const int64_t element_size = accumulator_bytes(args.dtype);
  PackedWeights packed{AlignedBuffer(static_cast<size_t>(gemm.packed_b_size(args.n, plan.k_total) * element_size)),
                       true};
  std::atomic<bool> finite{true};
  const int64_t panels = ceil_div(args.n, gemm.panel_columns);
  const int64_t workers = std::clamp<int64_t>(args.n * plan.k_total / (64 << 10), 1, plan.workers);
  executor.run(workers, [&](int64_t worker) {
    const int64_t begin = panels * worker / workers, end = panels * (worker + 1) / workers;
    int64_t k_begin = 0;
    for (int64_t i = 0; i < args.operand_count; ++i) {
      const Operand& operand = args.operands[i];
      if (operand.k == 0) continue;  // may be null: nothing may be added to it
      gemm.pack_b(args.dtype, operand.weight, operand.weight_n_stride, operand.weight_k_stride, args.n, k_begin,
                  operand.k, plan.k_total, begin, end, packed.memory.get());
      k_begin += operand.k;
    }
    const int64_t panel = plan.k_total * gemm.panel_columns;
    const char* own = static_cast<const char*>(packed.memory.get()) + begin * panel * element_size;
    if (args.aggregate && !all_finite(args.dtype, own, (end - begin) * panel)) {
      finite.store(false, std::memory_order_relaxed);
    }
  });
  packed.finite = finite.load(std::memory_order_relaxed);
  return packed;
}

// Hub rows, aggregated beforehand by all workers together, a stretch of features each: left to one worker's tile, a
// hub would keep the others waiting at the end.
struct Hubs {
  std::vector<int64_t> rows;  // ascending
  AlignedBuffer features;     // [rows.size(), k]
};

Hubs aggregate_hubs(const UpdateArgs& args, const UpdatePlan& plan, const KernelTable& table, const RowSlots& slots,
                    Executor& executor) {
  Hubs hubs;
  if (!args.aggregate || plan.workers == 1) return hubs;
  const int64_t* rowptr = args.aggregate->rowptr;
  for (int64_t row = 0; row < args.rows; ++row) {
    if (slots.is_hub(row) && rowptr[row] < rowptr[row + 1]) hubs.rows.push_back(row);
  }
  if (hubs.rows.empty()) return hubs;
  const int64_t k = args.operands[0].k;
  const int64_t line = 64 / element_bytes(args.dtype);
  const int64_t parts = ceil_div(k, line);
  hubs.features.reserve(static_cast<size_t>(static_cast<int64_t>(hubs.rows.size()) * k * element_bytes(args.dtype)));
  // Parts of four lines: long enough to gather whole pages' lines together, short enough to share out.
  const int64_t part_lines = std::min<int64_t>(4, parts);
  const int64_t parts_a_hub = ceil_div(parts, part_lines);
  WorkQueues queue = WorkQueues::even(static_cast<int64_t>(hubs.rows.size()) * parts_a_hub, 1);
  executor.run(plan.workers, [&](int64_t) {
    queue.drain(0, [&](int64_t, int64_t item) {
      const int64_t hub = item / parts_a_hub;
      const int64_t begin = item % parts_a_hub * part_lines * line;
      const int64_t end = std::min(k, begin + part_lines * line);
      AggregateArgs part = feature_range(*args.aggregate, begin, end);
      part.out = element(hubs.features.get(), args.dtype, hub * k + begin);
      part.out_stride = k;
      const int64_t row = hubs.rows[static_cast<size_t>(hub)];
      table.aggregate(part, row, row + 1);
    });
  });
  return hubs;
}

// Rows that are multiplied together: [begin, begin + count), or those listed, ascending.
struct TileRows {
  int64_t begin = 0, count = 0;
  const int64_t* listed = nullptr;

  int64_t first() const { return listed ? listed[0] : begin; }
  int64_t end() const { return listed ? listed[count - 1] + 1 : begin + count; }
  int64_t position(int64_t row) const {
    return listed ? std::lower_bound(listed, listed + count, row) - listed : row - begin;
  }
};

// Aggregates rows into `tile` [rows.count, k] at a row stride, hubs copied from where they lie. Rows that are not
// listed have no edges.
void aggregate_tile(const UpdateArgs& args, const KernelTable& table, const Hubs& hubs, const TileRows& rows,
                    void* tile, int64_t stride) {
  const int64_t k = args.operands[0].k, end = rows.end();
  AggregateArgs part = *args.aggregate;
  part.out_stride = stride;
  part.stream = false;
  part.pass_empty = rows.listed != nullptr;
  auto hub = std::lower_bound(hubs.rows.begin(), hubs.rows.end(), rows.first());
  for (int64_t row = rows.first(); row < end;) {
    const int64_t stop = hub != hubs.rows.end() && *hub < end ? *hub : end;
    part.out = element(tile, args.dtype, rows.position(row) * stride);
    if (row < stop) table.aggregate(part, row, stop);
    row = stop;
    if (stop < end) {
      std::memcpy(element(tile, args.dtype, rows.position(stop) * stride),
                  element(hubs.features.get(), args.dtype, (hub - hubs.rows.begin()) * k),
                  static_cast<size_t>(k * element_bytes(args.dtype)));
      ++row;
      ++hub;
    }
  }
}

// One call of run_update, as its workers see it.
struct Update {
  const UpdateArgs& args;
  const UpdatePlan& plan;
  const KernelTable& table;
  const GemmKernels& gemm;
  const void* weights;
  const Hubs& hubs;

  // With `aggregated` false, the first operand's rows are known to be zeros.
  void tile(const TileRows& rows, bool aggregated) const {
    if (rows.count == 0) return;
    static constexpr double kZeros[256] = {};  // at least a block, whatever the dtype
    const int64_t passed = aggregated ? 0 : args.operands[0].k / gemm.k_block * gemm.k_block;
    const int64_t k_total = plan.k_total - passed;
    void* packed = thread_packed().reserve(
        static_cast<size_t>(gemm.packed_a_size(rows.count, k_total) * accumulator_bytes(args.dtype)));
    int64_t k_begin = 0;
    for (int64_t i = 0; i < args.operand_count; ++i) {
      const Operand& operand = args.operands[i];
      const int64_t k = i == 0 ? operand.k - passed : operand.k;
      if (k == 0) continue;
      if (i == 0 && !aggregated) {
        gemm.pack_a(args.dtype, kZeros, 0, 1, rows.count, nullptr, k_begin, k, k_total, packed);
      } else if (i == 0 && args.aggregate) {
        if (k_total <= gemm.k_block && element_bytes(args.dtype) == accumulator_bytes(args.dtype)) {
          aggregate_tile(args, table, hubs, rows, packed, gemm.row_stride);  // where it would be packed
        } else {
          void* tile = thread_tile().reserve(static_cast<size_t>(rows.count * k * element_bytes(args.dtype)));
          aggregate_tile(args, table, hubs, rows, tile, k);
          gemm.pack_a(args.dtype, tile, k, 1, rows.count, nullptr, k_begin, k, k_total, packed);
        }
      } else {
        const void* a = element(operand.a, args.dtype, rows.begin * operand.row_stride);
        gemm.pack_a(args.dtype, a, operand.row_stride, operand.column_stride, rows.count, rows.listed, k_begin, k,
                    k_total, packed);
      }
      k_begin += k;
    }
    gemm.multiply(args.dtype, packed, rows.count, rows.listed, weights, GemmShape{plan.k_total, args.n, passed},
                  args.bias, args.relu, false, args.stream, element(args.out, args.dtype, rows.begin * args.out_stride),
                  args.out_stride);
  }

  // act(bias), what a row of zeros gives.
  void fill(const TileRows& rows) const {
    AggregateArgs empty;
    empty.dtype = args.dtype;
    empty.rowptr = args.aggregate->rowptr;
    empty.wide_index = args.aggregate->wide_index;
    empty.bias = args.bias;
    empty.relu = args.relu;
    empty.stream = args.stream;
    empty.width = args.n;
    empty.out_stride = args.out_stride;
    for (int64_t i = 0; i < rows.count;) {
      int64_t run = 1;
      while (i + run < rows.count && rows.listed[i + run] == rows.listed[i] + run) ++run;
      empty.out = element(args.out, args.dtype, rows.listed[i] * args.out_stride);
      table.aggregate(empty, rows.listed[i], rows.listed[i] + run);
      i += run;
    }
  }

  // Rows [begin, end), those without edges apart: nothing is multiplied by their zeros.
  void rows_by_edges(int64_t begin, int64_t end) const {
    const int64_t* rowptr = args.aggregate->rowptr;
    std::vector<int64_t> with, without;
    const auto flush_with = [&] {
      if (with.empty()) return;
      const int64_t first = with.front(), count = static_cast<int64_t>(with.size());
      const bool gapless = with.back() - first + 1 == count;
      tile(gapless ? TileRows{first, count} : TileRows{0, count, with.data()}, true);
      with.clear();
    };
    const auto flush_without = [&] {
      const TileRows rows{0, static_cast<int64_t>(without.size()), without.data()};
      if (args.operand_count == 1) {
        fill(rows);
      } else {
        tile(rows, false);
      }
      without.clear();
    };
    for (int64_t row = begin; row < end; ++row) {
      const bool empty = rowptr[row] == rowptr[row + 1];
      (empty ? without : with).push_back(row);
      if (static_cast<int64_t>(with.size()) == plan.tile_rows) flush_with();
      if (static_cast<int64_t>(without.size()) == plan.tile_rows) flush_without();
    }
    flush_with();
    flush_without();
  }

  void rows(int64_t begin, int64_t end) const {
    begin = unpacked_rows(begin, end);
    for (int64_t row = begin; row < end; row += plan.tile_rows) tile({row, std::min(end - row, plan.tile_rows)}, true);
  }

  // Multiplies whole panels where they lie, if they may; returns the first row that is left.
  int64_t unpacked_rows(int64_t begin, int64_t end) const {
    const Operand& operand = args.operands[0];
    const bool may = args.operand_count == 1 && !args.aggregate && operand.column_stride == 1 && operand.k > 0 &&
                     operand.k <= gemm.unpacked_k && element_bytes(args.dtype) == accumulator_bytes(args.dtype);
    if (!may || operand.row_stride == 0) return begin;
    const int64_t last = begin + (end - begin) / gemm.panel_rows * gemm.panel_rows;
    for (; begin < last; begin += plan.tile_rows) {
      gemm.multiply(args.dtype, element(operand.a, args.dtype, begin * operand.row_stride),
                    std::min(last - begin, plan.tile_rows), nullptr, weights,
                    GemmShape{plan.k_total, args.n, 0, operand.row_stride}, args.bias, args.relu, false, args.stream,
                    element(args.out, args.dtype, begin * args.out_stride), args.out_stride);
    }
    return last;
  }
};

// Rows are summed over in this many at a time, and the chunks' sums in order: fixed by the shape.
constexpr int64_t kChunkRows = 8192;
constexpr int64_t kChunksMax = 16;
constexpr int64_t kGradBlockRows = 256;  // of a chunk, packed and multiplied at a time

int64_t chunk_count(int64_t rows) { return std::clamp<int64_t>(ceil_div(rows, kChunkRows), 1, kChunksMax); }

// Adds the chunks' sums, in order, into the first.
template <class A>
void add_chunks(A* sums, int64_t chunks, int64_t size, Executor& executor) {
  const int64_t workers = workers_for_bytes(chunks * size * static_cast<int64_t>(sizeof(A)), executor.max_workers());
  executor.run(workers, [&](int64_t worker) {
    for (int64_t chunk = 1; chunk < chunks; ++chunk) {
      for (int64_t i = size * worker / workers; i < size * (worker + 1) / workers; ++i)
        sums[i] += sums[chunk * size + i];
    }
  });
}

}  // namespace

int64_t tile_rows(int64_t width, bool is_double) {
  const int64_t panel = gemm_for(kernels(), is_double ? DType::f64 : DType::f32).panel_rows;
  const int64_t row_bytes = std::max<int64_t>(1, width * (is_double ? 8 : 4));
  return std::clamp<int64_t>(kPackedTileBytes / row_bytes, panel, kTileRowsMax) / panel * panel;
}

void run_update(const UpdateArgs& args, const Machine& machine, Executor& executor) {
  if (args.rows == 0 || args.n == 0) return;
  const KernelTable& table = kernels();
  const GemmKernels& gemm = gemm_for(table, args.dtype);
  const UpdatePlan plan = plan_update(args, gemm, executor.max_workers());
  const PackedWeights weights = pack_weights(args, plan, gemm, executor);
  const RowSlots slots(args.aggregate ? args.aggregate->rowptr : nullptr, args.rows, plan.edge_cost, plan.row_cost,
                       plan.slots);
  const Hubs hubs = aggregate_hubs(args, plan, table, slots, executor);
  const Update update{args, plan, table, gemm, weights.memory.get(), hubs};
  // A zero times a weight or a scale that is infinite or NaN is NaN: then every row must be multiplied.
  const AggregateArgs* aggregate = args.aggregate;
  const bool empty_rows_are_zeros = aggregate && !aggregate->x_self && weights.finite &&
                                    (!aggregate->row_scale || all_finite(args.dtype, aggregate->row_scale, args.rows));
  const int64_t domains = std::min(machine.domains(), plan.workers);
  WorkQueues queues = WorkQueues::even(plan.slots, domains);
  const auto first_row = [&](int64_t slot) {  // in whole panels, so that none is multiplied half empty
    return std::min(args.rows, ceil_div(slots.first_row(slot), gemm.panel_rows) * gemm.panel_rows);
  };
  executor.run(plan.workers, [&](int64_t worker) {
    queues.drain(machine.home_queue(worker, plan.workers, domains), [&](int64_t, int64_t slot) {
      const int64_t begin = first_row(slot), end = first_row(slot + 1);
      if (empty_rows_are_zeros) {
        update.rows_by_edges(begin, end);
      } else {
        update.rows(begin, end);
      }
    });
  });
}

namespace {

template <class A>
void weight_grad(const WeightGradArgs& args, Executor& executor) {
  const GemmKernels& gemm = gemm_for(kernels(), args.dtype);
  const int64_t chunks = chunk_count(args.rows);
  const int64_t size = args.n * args.k;
  const int64_t panels = ceil_div(args.k, gemm.panel_columns);
  std::vector<A> sums(static_cast<size_t>(chunks * size), A(0));
  WorkQueues queue = WorkQueues::even(chunks, 1);
  executor.run(std::min(chunks, executor.max_workers()), [&](int64_t) {
    AlignedBuffer packed_g, packed_x;
    queue.drain(0, [&](int64_t, int64_t chunk) {
      const int64_t end = args.rows * (chunk + 1) / chunks;
      for (int64_t row = args.rows * chunk / chunks; row < end; row += kGradBlockRows) {
        const int64_t rows = std::min(kGradBlockRows, end - row);  // the GEMM's k
        void* g = packed_g.reserve(static_cast<size_t>(gemm.packed_a_size(args.n, rows)) * sizeof(A));
        void* x = packed_x.reserve(static_cast<size_t>(gemm.packed_b_size(args.k, rows)) * sizeof(A));
        gemm.pack_a(args.dtype, element(args.g, args.dtype, row * args.g_stride), 1, args.g_stride, args.n, nullptr, 0,
                    rows, rows, g);
        gemm.pack_b(args.dtype, element(args.x, args.dtype, row * args.x_stride), 1, args.x_stride, args.k, 0, rows,
                    rows, 0, panels, x);
        gemm.multiply(args.dtype, g, args.n, nullptr, x, GemmShape{rows, args.k}, nullptr, false, true, false,
                      sums.data() + chunk * size, args.k);
      }
    });
  });
  add_chunks(sums.data(), chunks, size, executor);
  std::copy_n(sums.data(), size, static_cast<A*>(args.out));
}

template <class A>
void column_sum(const A* g, int64_t g_stride, int64_t rows, int64_t n, A* out, Executor& executor) {
  const int64_t chunks = chunk_count(rows);
  // In double: a long column summed in float was measured up to 29 times less accurate than torch's.
  std::vector<double> sums(static_cast<size_t>(chunks * n), 0.0);
  WorkQueues queue = WorkQueues::even(chunks, 1);
  executor.run(std::min(chunks, executor.max_workers()), [&](int64_t) {
    queue.drain(0, [&](int64_t, int64_t chunk) {
      double* to = sums.data() + chunk * n;
      for (int64_t row = rows * chunk / chunks; row < rows * (chunk + 1) / chunks; ++row) {
        for (int64_t i = 0; i < n; ++i) to[i] += static_cast<double>(g[row * g_stride + i]);
      }
    });
  });
  add_chunks(sums.data(), chunks, n, executor);
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<A>(sums[static_cast<size_t>(i)]);
}

}  // namespace

void run_weight_grad(const WeightGradArgs& args, Executor& executor) {
  if (args.n == 0 || args.k == 0) return;
  args.dtype == DType::f64 ? weight_grad<double>(args, executor) : weight_grad<float>(args, executor);
}

void run_column_sum(bool wide, const void* g, int64_t g_stride, int64_t rows, int64_t n, void* out,
                    Executor& executor) {
  if (wide) {
    column_sum(static_cast<const double*>(g), g_stride, rows, n, static_cast<double*>(out), executor);
  } else {
    column_sum(static_cast<const float*>(g), g_stride, rows, n, static_cast<float*>(out), executor);
  }
}

}  // namespace frontgi
