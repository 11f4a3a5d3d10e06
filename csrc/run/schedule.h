// SPDX-License-Identifier: MIT
// The planner: how an aggregation is dealt to domains and workers. Plain integers; changes no bit of a result.
//
//   serial         one worker, rows in order
//   hierarchical   rows cut by edges over the domains, then dealt in slots inside each (FrontGI, algorithm 4)
//   mixed          features cut into slices, a slice of all source rows packed into a buffer that fits its domain's
//                  cache, slices dealt to domains, rows in slots inside each (FrontGI, algorithm 3, section 3.2.1);
//                  where not even one line of all rows fits, a block of source rows at a time
//   node_parallel  rows in small chunks (of equal edges) to whichever worker is free, whatever its domain: much as PyG
//                  and DGL do it
#pragma once

#include <cstdint>
#include <vector>

#include "../hw/machine.h"
#include "rates.h"

namespace frontgi {

enum class ScheduleKind : int32_t { serial, hierarchical, mixed, node_parallel };

struct Schedule {
  ScheduleKind kind = ScheduleKind::serial;
  int64_t workers = 1;
  int64_t domains = 1;
  int64_t slice_width = 0;    // features in a slice; mixed only
  int64_t block_columns = 0;  // source rows packed at a time, 0 for all; mixed only
  int64_t slots = 1;          // row slots in a domain's queue (mixed) or in all
};

// What the planner looks at. Sizes in elements, width in features.
struct AggregateShape {
  int64_t rows = 0;     // destinations
  int64_t columns = 0;  // sources
  int64_t edges = 0;
  int64_t width = 0;
  int64_t element_bytes = 4;
  bool fused = false;  // rows are multiplied as they are aggregated, and written only if the schedule is mixed
};

// With a footprint (graph/footprint.h), the cheapest schedule by the costs of cost.h; without one, or where a cache's
// size is unknown, by the average degree.
Schedule plan_aggregate(const AggregateShape& shape, const Machine& machine, int64_t max_workers,
                        const std::vector<double>& footprint = {}, const Rates& rates = {});

// A schedule as asked for; what is left at 0 is filled in by the planner's own rules.
struct AskedSchedule {
  ScheduleKind kind = ScheduleKind::serial;
  int64_t workers = 0;
  int64_t slice_width = 0;    // mixed only
  int64_t block_columns = 0;  // mixed only; 0 for all source rows
};

// Throws std::invalid_argument if it cannot run.
Schedule forced_schedule(const AskedSchedule& asked, const AggregateShape& shape, const Machine& machine,
                         int64_t max_workers);

// Workers worth waking for `bytes` of traffic.
int64_t workers_for_bytes(int64_t bytes, int64_t max_workers);

}  // namespace frontgi
