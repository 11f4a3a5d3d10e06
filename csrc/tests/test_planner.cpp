// SPDX-License-Identifier: MIT
// What the planner knows: footprints against counting by hand, and the choice between schedules by their costs.
#include <doctest/doctest.h>

#include <set>
#include <stdexcept>

#include "../graph/footprint.h"
#include "../run/cost.h"
#include "graphs.h"

namespace frontgi::test {
namespace {

Machine machine_of(int64_t domains, int64_t llc_bytes) {
  Machine machine;
  machine.llc_bytes.assign(static_cast<size_t>(domains), llc_bytes);
  machine.stated = true;
  return machine;
}

// The average number of distinct columns over all windows of so many edges.
double counted_footprint(const std::vector<int64_t>& col, int64_t window) {
  const int64_t edges = static_cast<int64_t>(col.size());
  double total = 0;
  for (int64_t begin = 0; begin + window <= edges; ++begin) {
    total += static_cast<double>(std::set<int64_t>(col.begin() + begin, col.begin() + begin + window).size());
  }
  return total / static_cast<double>(edges - window + 1);
}

int64_t missed_by_lru(const std::vector<int64_t>& col, size_t capacity) {
  std::vector<int64_t> held;  // most recent last
  int64_t missed = 0;
  for (const int64_t c : col) {
    const auto at = std::find(held.begin(), held.end(), c);
    if (at != held.end()) {
      held.erase(at);
    } else {
      ++missed;
      if (held.size() == capacity) held.erase(held.begin());
    }
    held.push_back(c);
  }
  return missed;
}

TEST_CASE("footprint: windows ascend, four to an octave") {
  CHECK(footprint_window(0) == 1);
  CHECK(footprint_window(7) == 8);
  CHECK(footprint_window(8) == 10);
  CHECK(footprint_window(11) == 16);
  CHECK(footprint_window(12) == 20);
  for (int64_t i = 1; i < 200; ++i) CHECK(footprint_window(i) > footprint_window(i - 1));
}

TEST_CASE("footprint: the average over all windows, as counted") {
  Random random(90);
  for (const Graph& graph :
       {random_graph("random", 30, 20, 150, random), power_law_graph("skewed", 40, 50, false, random),
        graph_of("one edge", 1, 1, {{0, 0}}), hub_graph("hubs", 30, 25, 60, random)}) {
    for (const bool wide : {false, true}) {
      const Footprint footprint = footprint_of(graph.col_data(wide), wide, graph.edges(), graph.columns);
      for (size_t i = 0; i < footprint.size(); ++i) {
        const int64_t window = std::min(footprint_window(static_cast<int64_t>(i)), graph.edges());
        CAPTURE(graph.name);
        CAPTURE(window);
        const double found = distinct_sources(footprint, static_cast<double>(window));
        CHECK(found == doctest::Approx(counted_footprint(graph.col, window)));
      }
      CHECK(footprint_window(static_cast<int64_t>(footprint.size()) - 1) >= graph.edges());
    }
  }
  CHECK(footprint_of(nullptr, false, 0, 5).empty());
  const std::vector<int32_t> wrong = {0, 7, -1};
  CHECK_THROWS_WITH_AS(footprint_of(wrong.data(), false, 2, 7), "footprint: a column must be in [0, 7) (got 7)",
                       std::out_of_range);
  CHECK_THROWS_AS(footprint_of(wrong.data() + 2, false, 1, 7), std::out_of_range);
}

TEST_CASE("footprint: what a least-recently-used cache misses") {
  Random random(91);
  for (const Graph& graph :
       {random_graph("random", 300, 200, 6000, random), power_law_graph("skewed", 400, 300, false, random)}) {
    const Footprint footprint = footprint_of(graph.col.data(), true, graph.edges(), graph.columns);
    for (const size_t capacity : {5, 20, 60, 150, 500}) {
      const double edges = static_cast<double>(graph.edges());
      const double missed = static_cast<double>(missed_by_lru(graph.col, capacity));
      CAPTURE(graph.name);
      CAPTURE(capacity);
      CHECK(std::abs(missed_edges(footprint, edges, static_cast<double>(capacity)) - missed) < 0.04 * edges);
    }
    CHECK(missed_edges(footprint, 0, 10) == 0);
  }
}

TEST_CASE("footprint: what else streams through the cache drives rows out, and a block has its share of the sources") {
  Random random(93);
  const Graph skewed = power_law_graph("skewed", 400, 300, false, random);
  const Graph even = random_graph("random", 300, 200, 6000, random);
  for (const Graph* graph : {&even, &skewed}) {
    const Footprint footprint = footprint_of(graph->col.data(), true, graph->edges(), graph->columns);
    std::vector<int64_t> streamed, block;
    for (const int64_t c : graph->col) {
      streamed.push_back(c);
      streamed.push_back(-1 - static_cast<int64_t>(streamed.size()));  // never seen again
      if (c % 2 == 0) block.push_back(c);
    }
    for (const size_t capacity : {20, 60, 150, 500}) {
      CAPTURE(graph->name);
      CAPTURE(capacity);
      const double bytes = 64 * static_cast<double>(capacity), edges = static_cast<double>(graph->edges());
      const double among_others = static_cast<double>(missed_by_lru(streamed, capacity)) - edges;
      CHECK(std::abs(missed_edges(footprint, edges, bytes, {64, 64, 1}) - among_others) < 0.05 * edges);
      const double in_block = static_cast<double>(missed_by_lru(block, capacity)),
                   own = static_cast<double>(block.size());
      CHECK(std::abs(missed_edges(footprint, own, bytes, {64, 0, 2}) - in_block) < 0.06 * own);
    }
  }
}

TEST_CASE("footprint: of a part of the edges, no more sources are missed than there are while the cache has room") {
  Random random(95);
  const Graph graph = random_graph("random", 300, 1000, 100'000, random);
  const Footprint part = footprint_of(graph.col.data(), true, graph.edges(), graph.columns, 2000);
  CHECK(part.back() <= 1000);
  const double edges = static_cast<double>(graph.edges());
  CHECK(missed_edges(part, edges, 64 * 2000, {64, 0, 1, 1000}) == 1000);
  CHECK(missed_edges(part, edges / 2, 64 * 2000, {64, 0, 2, 1000}) == 500);
  CHECK(missed_edges(part, edges, 64 * 500, {64, 0, 1, 1000}) > 10'000);
}

TEST_CASE("footprint: sources drawn evenly") {
  Random random(92);
  const Graph graph = random_graph("random", 500, 300, 20'000, random);
  const Footprint measured = footprint_of(graph.col.data(), true, graph.edges(), graph.columns);
  const Footprint assumed = uniform_footprint(graph.edges(), graph.columns);
  REQUIRE(measured.size() == assumed.size());
  // Columns ascend within a row, so that a few are repeated there less often than by chance.
  for (size_t i = 0; i < measured.size(); ++i) CHECK(measured[i] == doctest::Approx(assumed[i]).epsilon(0.05));
  CHECK(uniform_footprint(0, 5).empty());
}

TEST_CASE("cost: by hand, where everything fits and where nothing does") {
  // 100 rows of 64 features, two lines... four lines each; 1000 edges.
  const AggregateShape shape{100, 100, 1000, 64, 4};
  const Footprint footprint = uniform_footprint(1000, 100);
  Schedule by_rows;
  const double indices = 1000 * 4 + 100 * 8, outputs = 100 * 256;
  const Traffic fits = estimate_traffic(shape, by_rows, machine_of(1, 1 << 20), footprint);
  const double touched = footprint.back();  // of all edges, nearly all of the 100
  CHECK(fits.memory_bytes == doctest::Approx(touched * 256 + indices + outputs).epsilon(0.001));
  CHECK(fits.llc_bytes == doctest::Approx((1000 - touched) * 256).epsilon(0.001));
  const Traffic none = estimate_traffic(shape, by_rows, machine_of(1, 1), footprint);
  CHECK(none.memory_bytes == doctest::Approx(1000 * 256 + indices + outputs).epsilon(0.02));

  Schedule mixed{ScheduleKind::mixed, 1, 1, 16, 50, 1};  // four slices of one line, two blocks
  const Traffic sliced = estimate_traffic(shape, mixed, machine_of(1, 1 << 20), footprint);
  const double waiting = 100 * (1 - 1 / 1024.0);  // rows of ten edges with one in the first block, nearly all
  CHECK(sliced.llc_bytes == 4 * 1000 * 64 + 100 * 256);
  CHECK(sliced.memory_bytes ==
        doctest::Approx(100 * 256 + outputs + 4 * (indices + 100 * 16) + 2 * waiting * 256 + indices + 100 * 4)
            .epsilon(0.001));
  CHECK(sliced.regions == 17);

  AggregateShape fused = shape;
  fused.fused = true;
  CHECK(estimate_traffic(fused, by_rows, machine_of(1, 1), footprint).memory_bytes ==
        doctest::Approx(none.memory_bytes - outputs));
  CHECK(estimate_traffic(fused, mixed, machine_of(1, 1 << 20), footprint).memory_bytes ==
        doctest::Approx(sliced.memory_bytes + outputs));
}

TEST_CASE("planner: slices where a slice fits, blocks where none does, neither where rows are near") {
  const Machine machine = machine_of(16, 16 << 20);
  const auto planned = [&](int64_t nodes, int64_t edges, const Footprint& footprint) {
    return plan_aggregate({nodes, nodes, edges, 1024, 4}, machine, 128, footprint);
  };
  const auto evenly = [&](int64_t nodes, int64_t edges) {
    return planned(nodes, edges, uniform_footprint(edges, nodes));
  };
  // The paper's dim / D, 64 features, makes slices of 34 MB for its 16 MiB.
  for (const int64_t nodes : {20'000, 132'534, 1'000'991}) {
    const Schedule s = evenly(nodes, nodes * 300);
    CHECK(s.kind == ScheduleKind::mixed);
    const int64_t packed = (s.block_columns > 0 ? s.block_columns : nodes) * s.slice_width * 4;
    CHECK(packed <= 16 << 20);
    CHECK(packed >= 4 << 20);  // and the cache is used
  }
  CHECK(evenly(20'000, 20'000 * 300).block_columns == 0);
  CHECK(evenly(1'000'991, 1'000'991 * 300).block_columns > 0);
  // A graph of components of 20 nodes: a source is used a few times in a row, and never again.
  std::vector<int64_t> near;
  for (int64_t e = 0; e < 400'000; ++e) near.push_back(e / 40 * 20 + e * 7 % 20);
  CHECK(planned(200'000, 400'000, footprint_of(near.data(), true, 400'000, 200'000)).kind ==
        ScheduleKind::hierarchical);
}

}  // namespace
}  // namespace frontgi::test
