// SPDX-License-Identifier: MIT
// How fast a machine is, as the planner needs it: seconds for what cost.h counts.
#pragma once

namespace frontgi {

// What one worker does in a second, and one domain's path to memory. These are for machines that are only described:
// a worker's were fitted to times on a server core of 2017 (Zen 1), the paths to memory are those of data sheets, and
// packing costs what gathering from memory does. Which schedule is the cheapest depends on the ratios alone; with those
// of a core of 2022 the planner agreed less often with the cache model (bench/cache_model.py). For the machine that it
// runs on, Python passes what `frontgi calibrate` found.
struct Rates {
  double gather_seconds = 0;           // an edge in one slice, beside its bytes
  double worker_llc_bytes = 27e9;      // gathered out of the last-level cache
  double worker_memory_bytes = 6.8e9;  // gathered from memory, with prefetch
  double domain_memory_bytes = 28e9;   // by all workers of a chiplet: a sixteenth of twelve channels
  double shared_memory_bytes = 3.5e9;  // a worker's share of a socket's memory, where a domain is more than a chiplet
  double row_seconds = 27e-9;          // a row in one slice: accumulators begun and written
  double pack_row_seconds = 27e-9;     // a source row in one slice
  double pack_bytes = 6.8e9;           // of slices, read where they lie and packed
  double region_seconds = 5e-6;        // all workers waking, and waiting for the last
  double llc_share = 1;                // of a cache: where others use it too, there is less for us
};

}  // namespace frontgi
