// SPDX-License-Identifier: MIT
// What an aggregation under a schedule costs: bytes by level from a closed form, and seconds from bytes.
//
// Idea: the schedules do the same additions; they differ in where a gathered row comes from, in how often indices are
// read and rows visited, and in what is copied. Rows found in a domain's cache follow from the graph's footprint
// (graph/footprint.h). The cache model (csrc/cachesim) counts the same bytes line by line; tests hold the two together.
#pragma once

#include <cstdint>

#include "../graph/footprint.h"
#include "../hw/machine.h"
#include "schedule.h"

namespace frontgi {

// What one worker does in a second, and one domain's path to memory. Those of a server core; the order of the
// schedules depends on their ratios alone.
struct Rates {
  double worker_llc_bytes = 40e9;     // gathered out of the last-level cache, with prefetch
  double worker_memory_bytes = 16e9;  // gathered from memory, with prefetch
  double domain_memory_bytes = 32e9;  // all of a domain's workers together
  double visit_seconds = 1.5e-9;      // an edge, in one slice: its index read, the loop around it
  double row_seconds = 8e-9;          // a row, in one slice and block: accumulators begun and written
  double region_seconds = 5e-6;       // all workers waking, and waiting for the last
};

struct Traffic {
  double memory_bytes = 0;  // that do not come out of a last-level cache, or go to memory
  double llc_bytes = 0;     // gathered out of one
  double edge_visits = 0, row_visits = 0, regions = 0;
};

// Of all domains together. `footprint` may be empty: then sources are taken to be drawn evenly.
Traffic estimate_traffic(const AggregateShape& shape, const Schedule& schedule, const Machine& machine,
                         const Footprint& footprint);

double seconds_for(const Traffic& traffic, const Schedule& schedule, const Machine& machine, const Rates& rates = {});

// Share of a domain's cache that holds what is gathered, beside indices and output lines in flight.
constexpr double kGatheredShareOfLlc = 0.8;
// The same for a packed slice, which must not lose a line: measured best on 8 and 32 MiB.
constexpr double kSliceShareOfLlc = 0.55;

}  // namespace frontgi
