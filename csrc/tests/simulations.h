// SPDX-License-Identifier: MIT
// Aggregations and schedules that the cache model's tests share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../cachesim/simulate.h"
#include "graphs.h"

namespace frontgi::test {

using namespace frontgi::cachesim;

inline SimulationArgs args_of(const Graph& graph, int64_t width, const Schedule& schedule,
                              std::vector<int64_t> llc_bytes) {
  SimulationArgs args;
  args.rowptr = graph.rowptr.data();
  args.col = graph.narrow_col.data();
  args.shape = {graph.rows, graph.columns, graph.edges(), width, 4};
  args.schedule = schedule;
  args.llc_bytes = std::move(llc_bytes);
  return args;
}

inline Schedule schedule_of(ScheduleKind kind, int64_t workers, int64_t domains, int64_t slots, int64_t slice_width = 0,
                            int64_t block_columns = 0) {
  Schedule schedule;
  schedule.kind = kind;
  schedule.workers = workers;
  schedule.domains = domains;
  schedule.slots = slots;
  schedule.slice_width = slice_width;
  schedule.block_columns = block_columns;
  return schedule;
}

inline DomainCounts sum(const Counts& counts) {
  DomainCounts all;
  for (const DomainCounts& domain : counts.domains) {
    for (size_t level = 0; level < kLevels; ++level) {
      all.levels[level].hits += domain.levels[level].hits;
      all.levels[level].misses += domain.levels[level].misses;
      all.levels[level].filled += domain.levels[level].filled;
    }
  }
  return all;
}

struct NamedSchedule {
  std::string name;
  Schedule schedule;
};

// Four domains of two workers.
inline std::vector<NamedSchedule> schedules(int64_t rows, int64_t columns) {
  return {{"serial", Schedule{}},
          {"hierarchical", schedule_of(ScheduleKind::hierarchical, 8, 4, 128)},
          {"node-parallel", schedule_of(ScheduleKind::node_parallel, 8, 1, std::max<int64_t>(1, rows / 8))},
          {"slices", schedule_of(ScheduleKind::mixed, 8, 4, 32, 16)},
          {"uneven slices", schedule_of(ScheduleKind::mixed, 8, 4, 32, 24)},
          {"blocks", schedule_of(ScheduleKind::mixed, 8, 4, 32, 32, std::max<int64_t>(1, columns / 3))},
          {"more workers than rows", schedule_of(ScheduleKind::hierarchical, 64, 4, rows)}};
}

inline double llc_misses(const Counts& counts) { return static_cast<double>(sum(counts).levels[kLlc].misses); }

inline SimulationArgs scaled_down(const Graph& graph, int64_t width, const Schedule& schedule, int64_t domains,
                                  int64_t llc_bytes) {
  SimulationArgs args = args_of(graph, width, schedule, std::vector<int64_t>(static_cast<size_t>(domains), llc_bytes));
  args.l1 = {2 << 10, 8, false};
  args.l2 = {16 << 10, 8, false};
  return args;
}

}  // namespace frontgi::test
