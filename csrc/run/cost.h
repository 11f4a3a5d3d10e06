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
#include "rates.h"
#include "schedule.h"

namespace frontgi {

struct Traffic {
  double memory_bytes = 0;  // that do not come out of a last-level cache, or go to memory
  double llc_bytes = 0;     // gathered out of one, or packed into it
  double gathers = 0;       // edges, once for each slice
  double row_visits = 0;    // rows begun; one that goes on in another block counts four more there
  double packed_rows = 0;   // source rows, once for each slice
  double packed_bytes = 0;  // of those that come from memory, the ones that are packed
  double regions = 0;
};

// Of all domains together. `footprint` may be empty: then sources are taken to be drawn evenly.
Traffic estimate_traffic(const AggregateShape& shape, const Schedule& schedule, const Machine& machine,
                         const Footprint& footprint, double llc_share = 1);

double seconds_for(const Traffic& traffic, const Schedule& schedule, const Machine& machine, const Rates& rates = {});

// Share of a domain's cache that a packed slice may take: measured best on 8 and 32 MiB.
constexpr double kSliceShareOfLlc = 0.55;
// What a cache is worth to gathered rows and what streams by between two uses: its misses are taken to be the mean of
// those of two sizes. Misses of real sets grow less abruptly than a list's where a slice just fits.
constexpr double kGatheringSharesOfLlc[] = {0.62, 0.9};

}  // namespace frontgi
