// SPDX-License-Identifier: MIT
// An aggregation on one thread, without torch, for Cachegrind to watch; or what the cache model says of it.
//
//   frontgi_driver [--model] KIND ROWS DEGREE WIDTH SLICE_WIDTH BLOCK_COLUMNS LL_BYTES PASSES
//
// Sums features of float32 over a seeded random graph, PASSES times, with the baseline's kernels. With --model, prints
// the lines that the model misses in a last-level cache of LL_BYTES, 16 ways, behind a first level of 32 KiB, 8 ways,
// in the last of the passes: what PASSES of the program have more than PASSES - 1.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "../cachesim/simulate.h"
#include "../hw/isa.h"
#include "../run/aggregate.h"
#include "graphs.h"

namespace {

using namespace frontgi;
using namespace frontgi::test;

struct Case {
  std::string kind;
  int64_t rows, degree, width, slice_width, block_columns, ll_bytes, passes;
};

Schedule schedule_of(const Case& c) {
  Schedule schedule;
  schedule.kind = c.kind == "mixed" ? ScheduleKind::mixed : ScheduleKind::serial;
  schedule.slice_width = c.slice_width;
  schedule.block_columns = c.block_columns;
  return schedule;
}

// Memory that begins a page, as a large output's does, and was not touched.
std::unique_ptr<float, void (*)(void*)> features(int64_t count) {
  const size_t bytes = (static_cast<size_t>(count) * sizeof(float) + 4095) / 4096 * 4096;
  return {static_cast<float*>(std::aligned_alloc(4096, bytes)), std::free};
}

void run(const Case& c, const Graph& graph) {
  const auto x = features(c.rows * c.width), out = features(c.rows * c.width);
  for (int64_t i = 0; i < c.rows * c.width; ++i) x.get()[i] = static_cast<float>(i % 7);
  AggregateArgs args;
  args.rowptr = graph.rowptr.data();
  args.col = graph.narrow_col.data();
  args.x = x.get();
  args.x_stride = args.out_stride = args.width = c.width;
  args.out = out.get();
  SerialExecutor executor;
  for (int64_t pass = 0; pass < c.passes; ++pass) {
    run_aggregate(args, c.rows, c.rows, schedule_of(c), Machine{}, executor);
  }
  double sum = 0;
  for (int64_t i = 0; i < c.rows * c.width; ++i) sum += static_cast<double>(out.get()[i]);
  std::printf("%.17g\n", sum);
}

void model(const Case& c, const Graph& graph) {
  cachesim::SimulationArgs args;
  args.rowptr = graph.rowptr.data();
  args.col = graph.narrow_col.data();
  args.shape = {c.rows, c.rows, graph.edges(), c.width, 4};
  args.schedule = schedule_of(c);
  args.llc_bytes = {c.ll_bytes};
  args.l1 = {32 << 10, 8, false};
  args.l2 = {0, 1, false};
  args.llc_hashed = false;
  args.vector_bytes = 16;
  args.warm_passes = c.passes - 1;
  const cachesim::Counts counts = cachesim::simulate(args);
  std::printf("%lld\n", static_cast<long long>(counts.domains[0].levels[cachesim::kLlc].misses));
}

}  // namespace

int main(int argc, char** argv) {
  const bool modelled = argc > 1 && std::strcmp(argv[1], "--model") == 0;
  char** at = argv + 1 + modelled;
  if (argv + argc - at != 8) {
    std::fprintf(stderr, "usage: %s [--model] KIND ROWS DEGREE WIDTH SLICE_WIDTH BLOCK_COLUMNS LL_BYTES PASSES\n",
                 argv[0]);
    return 2;
  }
  const auto number = [&](int i) { return std::strtoll(at[i], nullptr, 10); };
  const Case c{at[0], number(1), number(2), number(3), number(4), number(5), number(6), number(7)};
  force_isa("baseline");
  Random random(1);
  const Graph graph = random_graph("random", c.rows, c.rows, c.rows * c.degree, random);
  modelled ? model(c, graph) : run(c, graph);
  return 0;
}
