// SPDX-License-Identifier: MIT
// The choice of an instruction set.
#include <doctest/doctest.h>

#include <algorithm>
#include <stdexcept>

#include "../hw/isa.h"

namespace frontgi::test {
namespace {

#if defined(__aarch64__)
constexpr const char* kNarrowest = "neon";
#else
constexpr const char* kNarrowest = "baseline";
#endif

TEST_CASE("isa: the narrowest is everywhere, each that is there can be forced, others are refused with the list") {
  const std::string chosen = current_isa();
  const std::vector<std::string> all = available_isas();
  REQUIRE(!all.empty());
  CHECK(all.front() == kNarrowest);
  std::string list;
  for (const std::string& name : all) {
    force_isa(name);
    CHECK(current_isa() == name);
    list += (list.empty() ? "" : ", ") + name;
  }
  force_isa(chosen);
  CHECK_THROWS_WITH_AS(force_isa("sse9"), ("isa: this machine has " + list + " (got 'sse9')").c_str(),
                       std::invalid_argument);
  CHECK(current_isa() == chosen);
}

}  // namespace
}  // namespace frontgi::test
