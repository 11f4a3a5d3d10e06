// SPDX-License-Identifier: MIT
// The cache model's two sides: everything is handled once and in order, on a thread of its own or on the caller's.
#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "../cachesim/pipeline.h"
#include "simulations.h"

namespace frontgi::test {
namespace {

using Numbers = cachesim::Pipeline<int, std::function<void(int&)>>;

std::vector<int> handled(int count, bool threaded, int slow_to_pass, int slow_to_handle) {
  const auto nap = [](int i, int every) {
    if (every > 0 && i % every == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  };
  std::vector<int> found;
  Numbers numbers(
      [&](int& number) {
        nap(number, slow_to_handle);
        found.push_back(number);
      },
      threaded);
  for (int i = 0; i < count; ++i) {
    nap(i, slow_to_pass);
    numbers.next() = -1;  // taken back: only what is passed counts
    numbers.next() = i;
    numbers.pass();
  }
  numbers.finish();
  return found;
}

TEST_CASE("pipeline: everything is handled once, in order, whoever is slow") {
  for (const bool threaded : {false, true}) {
    for (const int count : {0, 1, 3, 4, 5, 31, 32, 33, 1000}) {
      for (const auto& [slow_to_pass, slow_to_handle] : std::vector<std::pair<int, int>>{{0, 0}, {7, 0}, {0, 7}}) {
        CAPTURE(threaded);
        CAPTURE(count);
        std::vector<int> expected;
        for (int i = 0; i < count; ++i) expected.push_back(i);
        CHECK(handled(count, threaded, slow_to_pass, slow_to_handle) == expected);
      }
    }
  }
}

TEST_CASE("pipeline: what handling throws is thrown by the caller, and nothing is handled after it") {
  for (const bool threaded : {false, true}) {
    std::vector<int> found;
    const auto run = [&] {
      Numbers numbers(
          [&](int& number) {
            if (number == 5) throw std::runtime_error("five");
            found.push_back(number);
          },
          threaded);
      for (int i = 0; i < 100; ++i) {
        numbers.next() = i;
        numbers.pass();
      }
      numbers.finish();
    };
    CHECK_THROWS_WITH_AS(run(), "five", std::runtime_error);
    CHECK(found == std::vector<int>{0, 1, 2, 3, 4});
  }
}

TEST_CASE("pipeline: given up, it still ends") {
  std::vector<int> found;
  {
    Numbers numbers([&](int& number) { found.push_back(number); }, true);
    for (int i = 0; i < 6; ++i) {
      numbers.next() = i;
      numbers.pass();
    }
  }
  CHECK(found == std::vector<int>{0, 1, 2, 3, 4, 5});
}

// For the thread sanitizer: small, in slices and by rows, whose L2 is asked by different sides.
TEST_CASE("pipeline: the cache model's two sides") {
  Random random(94);
  const Graph graph = random_graph("random", 500, 500, 6000, random);
  for (const NamedSchedule& named : schedules(500, 500)) {
    SimulationArgs args = scaled_down(graph, 64, named.schedule, 4, 64 << 10);
    CAPTURE(named.name);
    const Counts two = simulate(args);
    args.threaded = false;
    const Counts one = simulate(args);
    for (size_t d = 0; d < one.domains.size(); ++d) {
      for (size_t level = 0; level < kLevels; ++level) {
        CHECK(two.domains[d].levels[level].hits == one.domains[d].levels[level].hits);
        CHECK(two.domains[d].levels[level].misses == one.domains[d].levels[level].misses);
        CHECK(two.domains[d].levels[level].filled == one.domains[d].levels[level].filled);
      }
    }
  }
}

}  // namespace
}  // namespace frontgi::test
