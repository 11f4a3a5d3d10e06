// SPDX-License-Identifier: MIT
// The cache model: what an aggregation under a schedule asks of every level of a machine's caches.
//
//   walk (run/walk.h) → accesses.h: a worker's tasks as accesses to lines → hierarchy.h: its caches → counts
//
// The workers' side, up to L1 or L2, and the shared one run on a thread each (pipeline.h), in order, so that the counts
// are those of one thread. Regions follow one another. Inside a region workers take turns, a quantum of accesses each,
// and pull their slots from the queues as the schedule's own loop does, so that whoever falls behind takes fewer.
// Nothing is random.
//
// Large aggregations are sampled (sampling.h): rounds, domains and windows of the slots are left out, and counts scaled
// up by the work. Under sampling no domain helps another, and a remote hit in a domain left out counts as memory's.
//
// Source: FrontGI (arXiv 2610.34911), section 4, counts last-level misses by hardware counters; the sampling is
// stratified, of clusters, with a ratio estimator (Cochran, Sampling Techniques, 1977, chapters 5, 6 and 9).
#pragma once

#include <cstdint>
#include <vector>

#include "../hw/machine.h"
#include "../run/schedule.h"
#include "hierarchy.h"

namespace frontgi::cachesim {

struct SimulationArgs {
  const int64_t* rowptr = nullptr;  // [rows + 1]
  const void* col = nullptr;        // [edges]
  bool wide_index = false;          // col holds int64_t, else int32_t
  AggregateShape shape;             // features of 8 bytes are summed in 8, others in 4
  Schedule schedule;
  std::vector<int64_t> llc_bytes;  // by domain
  CacheShape l1{32 << 10, 8, false}, l2{1 << 20, 8, false};
  int64_t llc_ways = 16;
  bool llc_hashed = true;
  bool remote = true;         // an LLC's miss may be served by another domain's
  bool stream = false;        // the output is written around the caches
  int64_t vector_bytes = 64;  // of the kernel
  int64_t warm_passes = 0;    // run before the one that counts

  bool threaded = true;  // whether a second thread may be started; counts are the same

  int64_t domains_simulated = 0;  // 0: all
  int64_t rounds_simulated = 0;   // of a mixed schedule; 0: all, else two at least
  int64_t max_accesses = 0;       // where both are 0: choose them so that about so many are simulated; 0: no bound
};

struct Counts {
  std::vector<DomainCounts> domains;  // scaled: their sum estimates the whole; nothing of domains left out
  double sampled = 1;                 // the share of the work that was simulated
  double error = 0;                   // relative standard error of the LLC's misses in all; infinite if unknown
};

// Throws std::invalid_argument if a size is out of range. rowptr and col are trusted.
Counts simulate(const SimulationArgs& args);

}  // namespace frontgi::cachesim
