// SPDX-License-Identifier: MIT
// Which instruction set the kernels run with: the widest that processor and operating system support, or a forced one.
//
// Thread safety: `kernels()` may be called from any thread; `force_isa` is meant for start-up and tests, between calls.
#pragma once

#include <string>
#include <vector>

#include "../kernels/kernels.h"

namespace frontgi {

// Names of the tables this machine can run, narrowest first: "baseline", "avx2", "avx512"; on AArch64 "neon" alone.
std::vector<std::string> available_isas();

// The name of the table in use.
std::string current_isa();

// Uses the named table from now on. Throws std::invalid_argument, listing what is there, for any other name.
void force_isa(const std::string& name);

const KernelTable& kernels();

}  // namespace frontgi
