// SPDX-License-Identifier: MIT
// The last-level-cache domains (chiplets) of the machine, as the schedules need them.
//
// Set once by Python from `Topology.detect()`; until then, one domain of unknown size.
#pragma once

#include <cstdint>
#include <vector>

namespace frontgi {

struct Machine {
  std::vector<int32_t> domain_of_cpu;    // by CPU id; -1 where no domain is known
  std::vector<int64_t> llc_bytes = {0};  // by domain; 0 is unknown
  bool stated = false;  // the user stated it: CPU ids need not exist here, workers are dealt to domains evenly

  int64_t domains() const { return static_cast<int64_t>(llc_bytes.size()); }

  // The smallest known cache of a domain, 0 if any is unknown.
  int64_t smallest_llc_bytes() const;

  // The domain a worker starts with: where it runs now.
  int64_t home_domain(int64_t worker, int64_t workers) const;

  // The queue it starts with, of `queues` over all domains: neighbouring domains share one where there are fewer.
  int64_t home_queue(int64_t worker, int64_t workers, int64_t queues) const {
    return home_domain(worker, workers) * queues / domains();
  }
};

}  // namespace frontgi
