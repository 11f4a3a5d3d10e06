// SPDX-License-Identifier: MIT
// Huge pages for large fresh memory: fewer faults when it is first written, fewer TLB misses when it is gathered from.
#pragma once

#include <cstddef>

namespace frontgi {

constexpr size_t kHugePageBytes = size_t{2} << 20;

// Tells the system that fresh memory will be used whole. A hint: where the system refuses it, nothing changes.
void advise_huge_pages(void* data, size_t bytes);

}  // namespace frontgi
