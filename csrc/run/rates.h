// SPDX-License-Identifier: MIT
// How fast a machine is, as the planner needs it: seconds for what cost.h counts.
#pragma once

namespace frontgi {

// What one worker does in a second, and one domain's path to memory. These are what `frontgi calibrate` found on a
// server core of 2022 (Zen 4; bench/results, where the planner was timed with them); the paths to memory are those of
// data sheets. Which schedule is the cheapest depends on the ratios alone.
struct Rates {
  double gather_seconds = 0;            // an edge in one slice, beside its bytes
  double worker_llc_bytes = 130e9;      // gathered out of the last-level cache
  double worker_memory_bytes = 16.5e9;  // gathered from memory, with prefetch
  double domain_memory_bytes = 28e9;    // by all workers of a chiplet: a sixteenth of twelve channels
  double shared_memory_bytes = 3.5e9;   // a worker's share of a socket's memory, where a domain is more than a chiplet
  double row_seconds = 9e-9;            // a row in one slice: accumulators begun and written
  double pack_row_seconds = 42e-9;      // a source row in one slice: a page away from the next, where rows are wide
  double pack_bytes = 4.3e9;            // of slices, read where they lie and packed
  double region_seconds = 5e-6;         // all workers waking, and waiting for the last
  double llc_share = 1;                 // of a cache: where others use it too, there is less for us
};

}  // namespace frontgi
