// SPDX-License-Identifier: MIT
// The cache model's samples: what a part says of the whole.
#include <doctest/doctest.h>

#include <cmath>

#include "simulations.h"

namespace frontgi::test {
namespace {

// A way to sample: `domains` and `rounds` of all, or so many accesses that they are a share.
struct Sample {
  NamedSchedule named;
  int64_t domains = 0, rounds = 0;
  double share = 0;
};

// Over many graphs, samples are as far from the whole as they say.
TEST_CASE("simulate: the stated error is that of samples") {
  const Schedule by_rows = schedule_of(ScheduleKind::hierarchical, 16, 8, 512);
  const Schedule shared = schedule_of(ScheduleKind::node_parallel, 16, 1, 1000);
  const Schedule slices = schedule_of(ScheduleKind::mixed, 16, 8, 128, 16);
  const Schedule blocks = schedule_of(ScheduleKind::mixed, 16, 8, 128, 16, 750);
  for (const Sample& sample : std::vector<Sample>{{{"by rows, domains", by_rows}, 4},
                                                  {{"by rows, windows", by_rows}, 0, 0, 0.3},
                                                  {{"a shared queue, domains", shared}, 4},
                                                  {{"a shared queue, windows", shared}, 0, 0, 0.3},
                                                  {{"slices, rounds", slices}, 0, 3},
                                                  {{"slices, windows", slices}, 0, 0, 0.05},
                                                  {{"blocks, windows", blocks}, 0, 0, 0.05}}) {
    double off = 0, stated = 0;
    const int64_t graphs = 8;
    for (int64_t seed = 0; seed < graphs; ++seed) {
      Random random(100 + static_cast<uint64_t>(seed));
      const Graph graph = power_law_graph("power law", 2000, 10'000, false, random);
      SimulationArgs args = scaled_down(graph, 16 * 8 * 4, sample.named.schedule, 8, 32 << 10);
      args.l2.bytes = 4 << 10;
      const Counts whole = simulate(args);
      CHECK(whole.error == 0);
      args.domains_simulated = sample.domains;
      args.rounds_simulated = sample.rounds;
      args.max_accesses = static_cast<int64_t>(sample.share * static_cast<double>(sum(whole).accesses()));
      const Counts part = simulate(args);
      CHECK(part.sampled < 0.8);
      const double relative = llc_misses(part) / llc_misses(whole) - 1;
      off += relative * relative / static_cast<double>(graphs);
      stated += part.error * part.error / static_cast<double>(graphs);
    }
    CAPTURE(sample.named.name);
    CAPTURE(std::sqrt(off));
    CAPTURE(std::sqrt(stated));
    CHECK(std::sqrt(stated) < 0.1);
    CHECK(std::sqrt(off) < 2 * std::sqrt(stated) + 0.001);
    CHECK(std::sqrt(off) > 0.25 * std::sqrt(stated) - 0.001);
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
    CHECK(sample.sampled < 1.7 * share);
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
  const Graph uniform = random_graph("uniform", 6000, 6000, 400'000, random);
  Edges edges;  // some sources in most rows
  for (int64_t e = 0; e < 400'000; ++e) edges.emplace_back(random.below(6000), random.below(1 + random.below(6000)));
  const Graph skewed = graph_of("skewed", 6000, 6000, edges);
  const std::vector<NamedSchedule> sliced{
      {"slices that fit", schedule_of(ScheduleKind::mixed, 8, 4, 64, 4)},
      {"slices that do not", schedule_of(ScheduleKind::mixed, 8, 4, 64, 16)},
      {"blocks", schedule_of(ScheduleKind::mixed, 8, 4, 64, 16, 2000)},
      {"one domain", schedule_of(ScheduleKind::mixed, 8, 1, 128, 16)},
      {"one domain, blocks", schedule_of(ScheduleKind::mixed, 8, 1, 128, 32, 1000)}};
  for (const Graph* graph : {&uniform, &skewed}) {
    for (const NamedSchedule& named : sliced) {
      CAPTURE(graph->name);
      CAPTURE(named.name);
      const SimulationArgs args = scaled_down(*graph, 128, named.schedule, named.schedule.domains, 64 << 10);
      check_shares(args, {0.1, 0.25}, 0.02);
    }
  }
}

TEST_CASE("simulate: windows wait until the workers' own caches are full") {
  Random random(12);
  const Graph graph = random_graph("uniform", 4000, 4000, 800'000, random);
  SimulationArgs args = scaled_down(graph, 64, schedule_of(ScheduleKind::mixed, 8, 2, 256, 16), 2, 128 << 10);
  args.l2 = {64 << 10, 8, false};  // four of them are twice the last level
  check_shares(args, {0.15, 0.3}, 0.03);
}

TEST_CASE("simulate: a hub whose row is one worker's is simulated whatever is asked for") {
  const int64_t nodes = 5000;
  for (const int64_t hub : {int64_t{0}, nodes / 2, nodes - 1}) {
    Edges edges;
    for (int64_t source = 0; source < nodes; ++source) edges.emplace_back(hub, source);
    const Graph graph = graph_of("star", nodes, nodes, edges);
    for (const NamedSchedule& named :
         std::vector<NamedSchedule>{{"hierarchical", schedule_of(ScheduleKind::hierarchical, 8, 4, 128)},
                                    {"node-parallel", schedule_of(ScheduleKind::node_parallel, 8, 1, 300)},
                                    {"slices", schedule_of(ScheduleKind::mixed, 8, 1, 128, 16)}}) {
      SimulationArgs args = scaled_down(graph, 64, named.schedule, named.schedule.domains, 16 << 10);
      const double accesses = static_cast<double>(sum(simulate(args)).accesses());
      for (const int64_t most : {int64_t{1}, int64_t{1000}, int64_t{20'000}}) {
        args.max_accesses = most;
        const Counts sample = simulate(args);
        CAPTURE(hub);
        CAPTURE(named.name);
        CAPTURE(most);
        CHECK(static_cast<double>(sum(sample).accesses()) == doctest::Approx(accesses).epsilon(0.2));
        for (const LevelCounts& level : sum(sample).levels) {
          CHECK(level.hits >= 0);
          CHECK(level.misses >= 0);
        }
      }
    }
  }
}

TEST_CASE("simulate: caches of different sizes do not stand for each other") {
  Random random(13);
  const Graph graph = random_graph("uniform", 4000, 4000, 400'000, random);
  SimulationArgs args = scaled_down(graph, 128, schedule_of(ScheduleKind::mixed, 8, 2, 256, 16), 2, 256 << 10);
  for (const bool small_first : {true, false}) {
    args.llc_bytes[small_first ? 0 : 1] = 64 << 10;
    args.llc_bytes[small_first ? 1 : 0] = 256 << 10;
    check_shares(args, {0.15, 0.4}, 0.02);
  }
}

TEST_CASE("simulate: of a plan for more domains than the machine has, no queue is left without workers") {
  Random random(15);
  const Graph graph = random_graph("uniform", 2000, 2000, 100'000, random);
  for (const NamedSchedule& named :
       std::vector<NamedSchedule>{{"by rows", schedule_of(ScheduleKind::hierarchical, 6, 3, 300)},
                                  {"slices", schedule_of(ScheduleKind::mixed, 6, 3, 100, 16)}}) {
    SimulationArgs args = scaled_down(graph, 240, named.schedule, 1, 32 << 10);
    args.l2.bytes = 0;
    const double accesses = static_cast<double>(sum(simulate(args)).accesses());
    args.max_accesses = static_cast<int64_t>(0.2 * accesses);
    CAPTURE(named.name);
    CHECK(static_cast<double>(sum(simulate(args)).accesses()) == doctest::Approx(accesses).epsilon(0.02));
  }
}

TEST_CASE("simulate: what a warm pass leaves is not found by the same part of the work") {
  Random random(14);
  const Graph graph = random_graph("uniform", 4000, 4000, 400'000, random);
  for (const NamedSchedule& named :
       std::vector<NamedSchedule>{{"by rows", schedule_of(ScheduleKind::hierarchical, 16, 8, 512)},
                                  {"slices", schedule_of(ScheduleKind::mixed, 16, 8, 64, 16)}}) {
    SimulationArgs args = scaled_down(graph, 256, named.schedule, 8, 128 << 10);
    args.warm_passes = 1;
    const Counts whole = simulate(args);
    args.max_accesses = sum(whole).accesses() / 100;
    const Counts sample = simulate(args);
    CAPTURE(named.name);
    CHECK(sample.sampled < 0.3);
    CHECK(llc_misses(sample) == doctest::Approx(llc_misses(whole)).epsilon(0.05));
  }
}

}  // namespace
}  // namespace frontgi::test
