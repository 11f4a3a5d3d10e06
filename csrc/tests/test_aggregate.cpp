// SPDX-License-Identifier: MIT
// Aggregate against its reference: element types, index types, reductions, every optional argument, widths around the
// sizes of vectors, layouts and graphs.
#include <doctest/doctest.h>

#include "../hw/isa.h"
#include "../run/aggregate.h"
#include "reference.h"
#include "threads.h"

namespace frontgi::test {
namespace {

constexpr int64_t kWidths[] = {0, 1, 3, 7, 15, 16, 17, 31, 33, 64, 100, 257};
constexpr Reduce kReductions[] = {Reduce::sum, Reduce::mean, Reduce::min, Reduce::max};

// The optional arguments, a bit each.
enum Option { kEdgeWeight = 1, kRowScale = 2, kColScale = 4, kSelf = 8, kBias = 16, kRelu = 32, kSkipLoops = 64 };
constexpr int kOptionSets = 128;

void set_options(AggregateCase& c, int options, Random& random) {
  if (options & kEdgeWeight) c.add_edge_weight(random);
  if (options & kRowScale) c.add_row_scale(random);
  if (options & kColScale) c.add_col_scale(random);
  if (options & kSelf) {
    c.add_self(random, {.row_stride = c.width + random.below(3)});
    if (random.below(3)) c.add_self_scale(random, random.below(2) == 0);
  }
  if (options & kBias) c.add_bias(random);
  c.relu = options & kRelu;
  c.skip_loops = c.reduce == Reduce::sum && (options & kSkipLoops);
}

// Contiguous, with gaps, rows aligned to vectors, or off by one element.
Layout some_layout(int64_t width, Random& random) {
  switch (random.below(4)) {
    case 0:
      return {};
    case 1:
      return {.row_stride = width + 1 + random.below(4)};
    case 2:
      return {.row_stride = (width + 15) / 16 * 16};
    default:
      return {.row_stride = width + 1, .offset = 1};
  }
}

std::string run_and_compare(const AggregateCase& c, Layout out_layout) {
  Matrix out(c.dtype, c.graph->rows, c.width, out_layout);
  SerialExecutor executor;
  run_aggregate(c.args(out), c.graph->rows, c.graph->columns, Schedule{}, Machine{}, executor);
  if (!out.gaps_untouched()) return "something was written between the rows";
  return difference(out, aggregate_reference(c));
}

TEST_CASE("aggregate: every graph, width, element type, index type and reduction") {
  Random random(2);
  for (const Graph& graph : small_graphs()) {
    for (const DType dtype : kDTypes) {
      for (const Reduce reduce : kReductions) {
        for (const int64_t width : kWidths) {
          const int options = static_cast<int>(random.below(kOptionSets));
          AggregateCase c(graph, dtype, width, random, some_layout(width, random));
          c.reduce = reduce;
          c.wide_index = random.below(2);
          c.stream = random.below(2);
          set_options(c, options, random);
          const std::string wrong = run_and_compare(c, some_layout(width, random));
          CAPTURE(graph.name);
          CAPTURE(name_of(dtype));
          CAPTURE(name_of(reduce));
          CAPTURE(width);
          CAPTURE(options);
          CHECK(wrong == "");
        }
      }
    }
  }
}

TEST_CASE("aggregate: every set of options") {
  Random random(3);
  const Graph graph = random_graph("square", 7, 7, 30, random);
  for (const DType dtype : kDTypes) {
    for (const bool wide_index : {false, true}) {
      for (const Reduce reduce : kReductions) {
        for (int options = 0; options < kOptionSets; ++options) {
          AggregateCase c(graph, dtype, 19, random);
          c.reduce = reduce;
          c.wide_index = wide_index;
          set_options(c, options, random);
          const std::string wrong = run_and_compare(c, {});
          CAPTURE(name_of(dtype));
          CAPTURE(name_of(reduce));
          CAPTURE(options);
          CHECK(wrong == "");
        }
      }
    }
  }
}

TEST_CASE("aggregate: the self term may lie in the output") {
  Random random(4);
  const Graph graph = power_law_graph("power law", 20, 40, false, random);
  for (const DType dtype : kDTypes) {
    for (const int64_t width : kWidths) {
      for (const bool stream : {false, true}) {
        AggregateCase c(graph, dtype, width, random);
        c.add_self(random, {.row_stride = (width + 15) / 16 * 16});
        c.add_self_scale(random, false);
        c.stream = stream;
        const Expected expected = aggregate_reference(c);
        SerialExecutor executor;
        run_aggregate(c.args(*c.x_self), graph.rows, graph.columns, Schedule{}, Machine{}, executor);
        CAPTURE(name_of(dtype));
        CAPTURE(width);
        CHECK(difference(*c.x_self, expected) == "");
      }
    }
  }
}

TEST_CASE("aggregate: a NaN wins a minimum or maximum, wherever it stands") {
  Random random(5);
  const Graph graph = graph_of("rows of three", 3, 9, {{0, 0}, {0, 1}, {0, 2}, {1, 3}, {1, 4}, {1, 5}, {2, 6}, {2, 7}});
  for (const DType dtype : kDTypes) {
    for (const Reduce reduce : {Reduce::min, Reduce::max}) {
      for (const bool weighted : {false, true}) {
        AggregateCase c(graph, dtype, 37, random);
        c.reduce = reduce;
        if (weighted) c.add_edge_weight(random);
        for (int64_t f = 0; f < c.width; ++f) {
          c.x.set(f % 3, f, NAN);         // row 0 has one in every feature
          if (f % 2) c.x.set(4, f, NAN);  // row 1 in every other
          c.x.set(6, f, f % 2 ? INFINITY : -INFINITY);
        }
        CAPTURE(name_of(dtype));
        CHECK(run_and_compare(c, {}) == "");
      }
    }
  }
}

TEST_CASE("aggregate: a row whose only edges are skipped loops is an empty row") {
  Random random(6);
  const Graph graph = graph_of("loops", 3, 3, {{0, 0}, {1, 1}, {1, 1}, {2, 0}, {2, 2}});
  AggregateCase c(graph, DType::f32, 5, random);
  c.skip_loops = true;
  Matrix out(c.dtype, 3, c.width);
  SerialExecutor executor;
  run_aggregate(c.args(out), 3, 3, Schedule{}, Machine{}, executor);
  for (int64_t f = 0; f < c.width; ++f) {
    CHECK(out.get(0, f) == 0);
    CHECK(out.get(1, f) == 0);
    CHECK(out.get(2, f) == c.x.get(0, f));
  }
}

TEST_CASE("aggregate: sums of 16-bit elements are kept in float") {
  // 4096 ones are 4096; summed in bf16 they would stop at 256, in fp16 at 2048.
  Edges edges;
  for (int64_t e = 0; e < 4096; ++e) edges.emplace_back(0, 0);
  const Graph graph = graph_of("one row", 1, 1, edges);
  Random random(7);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    AggregateCase c(graph, dtype, 17, random);
    for (int64_t f = 0; f < c.width; ++f) c.x.set(0, f, 1);
    Matrix out(dtype, 1, c.width);
    SerialExecutor executor;
    run_aggregate(c.args(out), 1, 1, Schedule{}, Machine{}, executor);
    for (int64_t f = 0; f < c.width; ++f) CHECK(out.get(0, f) == 4096);
  }
}

TEST_CASE("aggregate: every instruction set of the machine gives the same bits") {
  Random random(8);
  const Graph graph = power_law_graph("power law", 30, 60, false, random);
  const std::string chosen = current_isa();
  for (const DType dtype : kDTypes) {
    for (const Reduce reduce : kReductions) {
      AggregateCase c(graph, dtype, 77, random);
      c.reduce = reduce;
      c.add_edge_weight(random);
      c.add_row_scale(random);
      c.add_self(random);
      c.add_bias(random);
      std::vector<Matrix> outs;
      for (const std::string& isa : available_isas()) {
        force_isa(isa);
        SerialExecutor executor;
        outs.emplace_back(dtype, graph.rows, c.width);
        run_aggregate(c.args(outs.back()), graph.rows, graph.columns, Schedule{}, Machine{}, executor);
        CAPTURE(isa);
        CHECK(outs.back().same_bits(outs.front()));
      }
    }
  }
  force_isa(chosen);
}

}  // namespace
}  // namespace frontgi::test
