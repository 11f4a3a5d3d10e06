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

// What one worker does in a second, and one domain's path to memory. A worker's rates and a row are fitted to the times
// of bench/planner.py (fit_rates.py) on a server core of 2017 (Zen 1, two workers, 8 MiB), held-out cases apart, of
// schedules that come near the fastest; the paths to memory are those of data sheets, and the wait of a region is small
// enough not to show. Which schedule is the cheapest depends on the ratios alone. A cost for each edge, beside its
// bytes, was fitted to 0; rates of their own for what is packed, written or waits made the fit no better.
struct Rates {
  double worker_llc_bytes = 27e9;      // gathered out of the last-level cache
  double worker_memory_bytes = 6.8e9;  // gathered from memory, with prefetch
  double domain_memory_bytes = 28e9;   // by all workers of a chiplet: a sixteenth of twelve channels
  double shared_memory_bytes = 3.5e9;  // a worker's share of a socket's memory, where a domain is more than a chiplet
  double row_seconds = 27e-9;          // a row in one slice: accumulators begun and written, or features packed
  double region_seconds = 5e-6;        // all workers waking, and waiting for the last
};

struct Traffic {
  double memory_bytes = 0;  // that do not come out of a last-level cache, or go to memory
  double llc_bytes = 0;     // gathered out of one, or packed into it
  double row_visits = 0;    // rows begun, or packed; one that goes on in another block counts four more there
  double regions = 0;
};

// Of all domains together. `footprint` may be empty: then sources are taken to be drawn evenly.
Traffic estimate_traffic(const AggregateShape& shape, const Schedule& schedule, const Machine& machine,
                         const Footprint& footprint);

double seconds_for(const Traffic& traffic, const Schedule& schedule, const Machine& machine, const Rates& rates = {});

// Share of a domain's cache that a packed slice may take: measured best on 8 and 32 MiB.
constexpr double kSliceShareOfLlc = 0.55;
// What a cache is worth to gathered rows and what streams by between two uses: its misses are taken to be the mean of
// those of two smaller ones. Times of small caches are fitted best by the one share, counts of the cache model by the
// other; and misses of real sets grow less abruptly than a list's where a slice just fits.
constexpr double kGatheringSharesOfLlc[] = {0.62, 0.9};

}  // namespace frontgi
