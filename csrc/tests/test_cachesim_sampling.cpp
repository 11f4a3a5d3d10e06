// SPDX-License-Identifier: MIT
// The cache model's samples: what a part says of the whole.
#include <doctest/doctest.h>

#include <cmath>

#include "simulations.h"

namespace frontgi::test {
namespace {

TEST_CASE("simulate: a sample agrees with the whole within its error") {
  Random random(6);
  const Graph graph = power_law_graph("power law", 4000, 6000, false, random);
  for (const NamedSchedule& named :
       std::vector<NamedSchedule>{{"hierarchical", schedule_of(ScheduleKind::hierarchical, 16, 8, 256)},
                                  {"node-parallel", schedule_of(ScheduleKind::node_parallel, 16, 1, 1000)},
                                  {"slices", schedule_of(ScheduleKind::mixed, 16, 8, 32, 16)}}) {
    SimulationArgs args = scaled_down(graph, 16 * 8 * 8, named.schedule, 8, 256 << 10);
    const Counts whole = simulate(args);
    CHECK(whole.error == 0);
    for (const int64_t domains : {0, 2, 4}) {
      for (const int64_t rounds : {0, 3}) {
        if (domains == 0 && (rounds == 0 || named.schedule.kind != ScheduleKind::mixed)) continue;
        args.domains_simulated = domains;
        args.rounds_simulated = rounds;
        const Counts sample = simulate(args);
        CAPTURE(named.name);
        CAPTURE(domains);
        CAPTURE(rounds);
        CAPTURE(sample.error);
        CHECK(sample.sampled < 0.7);
        CHECK(sample.error > 0);
        CHECK(sample.error < 0.1);
        const double off = llc_misses(sample) / llc_misses(whole) - 1;
        CAPTURE(off);
        CHECK(std::fabs(off) < 3 * sample.error);
      }
    }
  }
}

TEST_CASE("simulate: one unit alone tells its error from its course") {
  Random random(7);
  const Graph graph = random_graph("uniform", 4000, 4000, 100'000, random);
  SimulationArgs args = scaled_down(graph, 64, schedule_of(ScheduleKind::hierarchical, 8, 4, 128), 4, 256 << 10);
  args.domains_simulated = 1;
  const Counts sample = simulate(args);
  CHECK(sample.sampled == doctest::Approx(0.25).epsilon(0.01));
  CHECK(sample.error > 0);
  CHECK(sample.error < 0.05);
  CHECK(sample.domains[1].accesses() == 0);
}

TEST_CASE("simulate: as much is simulated as is asked for") {
  Random random(8);
  const Graph graph = random_graph("uniform", 4000, 4000, 100'000, random);
  for (const NamedSchedule& named : schedules(4000, 4000)) {
    SimulationArgs args = scaled_down(graph, 16 * 4 * 8, named.schedule, 4, 256 << 10);
    const double whole = static_cast<double>(sum(simulate(args)).accesses());
    args.max_accesses = static_cast<int64_t>(0.6 * whole);
    const Counts sample = simulate(args);
    CAPTURE(named.name);
    if (named.schedule.workers == 1) {
      CHECK(sample.sampled == 1);  // it is all one
    } else {
      const double simulated = sample.sampled * whole / static_cast<double>(args.max_accesses);
      CHECK(simulated > 0.7);
      CHECK(simulated < 1.3);
    }
    CHECK(static_cast<double>(sum(sample).accesses()) == doctest::Approx(whole).epsilon(0.02));
  }
}

// Runs shares of an aggregation and compares them with the whole.
void check_shares(SimulationArgs args, const std::vector<double>& shares, double bias) {
  args.max_accesses = 0;
  const Counts whole = simulate(args);
  const double accesses = static_cast<double>(sum(whole).accesses());
  for (const double share : shares) {
    args.max_accesses = static_cast<int64_t>(share * accesses);
    const Counts sample = simulate(args);
    CAPTURE(share);
    CAPTURE(sample.error);
    CHECK(sample.sampled > 0.6 * share);
    CHECK(sample.sampled < 1.5 * share);
    CHECK(static_cast<double>(sum(sample).accesses()) == doctest::Approx(accesses).epsilon(0.1));
    CHECK(sample.error > 0);
    CHECK(sample.error < 0.15);
    const double off = llc_misses(sample) / llc_misses(whole) - 1;
    CAPTURE(off);
    CHECK(std::fabs(off) < 3 * sample.error + bias);
  }
}

TEST_CASE("simulate: by rows, windows of slots agree with the whole within their error") {
  Random random(10);
  const Graph uniform = random_graph("uniform", 6000, 6000, 240'000, random);
  const Graph skewed = power_law_graph("power law", 6000, 12'000, false, random);
  const std::vector<NamedSchedule> by_rows{
      {"one domain", schedule_of(ScheduleKind::hierarchical, 8, 1, 256)},
      {"one domain, a shared queue", schedule_of(ScheduleKind::node_parallel, 8, 1, 750)},
      {"more domains than are simulated", schedule_of(ScheduleKind::hierarchical, 16, 8, 256)},
      {"a queue shared by domains", schedule_of(ScheduleKind::node_parallel, 16, 1, 750)}};
  for (const Graph* graph : {&uniform, &skewed}) {
    for (const NamedSchedule& named : by_rows) {
      CAPTURE(graph->name);
      CAPTURE(named.name);
      const int64_t domains = named.schedule.workers == 16 ? 8 : 1;
      check_shares(scaled_down(*graph, 256, named.schedule, domains, 256 << 10), {0.2, 0.5}, 0.01);
    }
  }
}

TEST_CASE("simulate: of slices, windows of slots agree with the whole within their error") {
  Random random(11);
  const Graph uniform = random_graph("uniform", 12'000, 12'000, 1'000'000, random);
  const Graph skewed = power_law_graph("power law", 12'000, 500'000, false, random);
  const std::vector<NamedSchedule> sliced{
      {"slices that fit", schedule_of(ScheduleKind::mixed, 8, 4, 64, 4)},
      {"slices that do not", schedule_of(ScheduleKind::mixed, 8, 4, 64, 16)},
      {"blocks", schedule_of(ScheduleKind::mixed, 8, 4, 64, 16, 4000)},
      {"one domain", schedule_of(ScheduleKind::mixed, 8, 1, 128, 16)},
      {"one domain, blocks", schedule_of(ScheduleKind::mixed, 8, 1, 128, 32, 2000)}};
  for (const Graph* graph : {&uniform, &skewed}) {
    for (const NamedSchedule& named : sliced) {
      CAPTURE(graph->name);
      CAPTURE(named.name);
      const SimulationArgs args = scaled_down(*graph, 128, named.schedule, named.schedule.domains, 256 << 10);
      check_shares(args, {0.05, 0.15}, graph == &uniform ? 0.01 : 0.05);  // few windows, of very different rows
    }
  }
}

}  // namespace
}  // namespace frontgi::test
