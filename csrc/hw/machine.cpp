// SPDX-License-Identifier: MIT
#include "machine.h"

#include <algorithm>

#if defined(__linux__)
#include <sched.h>
#endif

namespace frontgi {

int64_t Machine::smallest_llc_bytes() const { return *std::min_element(llc_bytes.begin(), llc_bytes.end()); }

int64_t Machine::home_domain(int64_t worker, int64_t workers) const {
  if (domains() == 1) return 0;
#if defined(__linux__)
  if (!stated) {
    const int cpu = sched_getcpu();
    if (cpu >= 0 && cpu < static_cast<int>(domain_of_cpu.size()) && domain_of_cpu[cpu] >= 0) return domain_of_cpu[cpu];
  }
#endif
  return worker * domains() / std::max<int64_t>(workers, 1);
}

}  // namespace frontgi
