// SPDX-License-Identifier: MIT
// Aggregate's schedules: the same bits whatever the schedule, the slices, the domains and the workers; and what the
// planner decides.
#include <doctest/doctest.h>

#include <algorithm>
#include <stdexcept>

#include "../run/aggregate.h"
#include "reference.h"
#include "threads.h"

namespace frontgi::test {
namespace {

constexpr ScheduleKind kKinds[] = {ScheduleKind::serial, ScheduleKind::hierarchical, ScheduleKind::mixed,
                                   ScheduleKind::node_parallel};

Machine stated_machine(int64_t domains, int64_t llc_bytes = 0) {
  Machine machine;
  machine.llc_bytes.assign(static_cast<size_t>(domains), llc_bytes);
  machine.stated = true;
  return machine;
}

AggregateShape shape_of(const AggregateCase& c) {
  return {c.graph->rows, c.graph->columns, c.graph->edges(), c.width, element_bytes(c.dtype)};
}

// A case that has everything in it, on a graph with hubs.
AggregateCase whole_case(const Graph& graph, DType dtype, Reduce reduce, int64_t width, Random& random) {
  AggregateCase c(graph, dtype, width, random);
  c.reduce = reduce;
  c.add_edge_weight(random);
  c.add_col_scale(random);
  c.add_row_scale(random);
  c.add_self(random);
  c.add_bias(random);
  c.relu = true;
  return c;
}

Matrix run(const AggregateCase& c, const Schedule& schedule, const Machine& machine, Executor& executor) {
  Matrix out(c.dtype, c.graph->rows, c.width);
  run_aggregate(c.args(out), c.graph->rows, c.graph->columns, schedule, machine, executor);
  return out;
}

Matrix run_serially(const AggregateCase& c) {
  SerialExecutor executor;
  return run(c, Schedule{}, Machine{}, executor);
}

TEST_CASE("schedules: the same bits for every kind, executor and number of domains") {
  Random random(10);
  const std::vector<NamedExecutor> all = executors();
  for (const Graph& graph :
       {hub_graph("hubs", 60, 50, 400, random), power_law_graph("power law", 90, 200, false, random),
        graph_of("one row", 1, 3, {{0, 0}, {0, 1}, {0, 1}, {0, 2}}), graph_of("no edges", 4, 4, {}),
        graph_of("no columns", 4, 0, {})}) {
    for (const DType dtype : kDTypes) {
      for (const Reduce reduce : {Reduce::sum, Reduce::max}) {
        AggregateCase c = whole_case(graph, dtype, reduce, 83, random);
        c.stream = reduce == Reduce::sum;
        const Matrix expected = run_serially(c);
        for (const int64_t domains : {1, 2, 4, 16}) {
          for (const ScheduleKind kind : kKinds) {
            for (const NamedExecutor& how : all) {
              const int64_t workers = kind == ScheduleKind::serial ? 1 : how.executor->max_workers();
              const Machine machine = stated_machine(domains, domains == 4 ? 20'000 : 0);
              const Schedule schedule = forced_schedule({kind, workers}, shape_of(c), machine, workers);
              const bool same = run(c, schedule, machine, *how.executor).same_bits(expected);
              CAPTURE(graph.name);
              CAPTURE(name_of(dtype));
              CAPTURE(domains);
              CAPTURE(static_cast<int>(kind));
              CAPTURE(how.name);
              CHECK(same);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("schedules: the same bits for every width of a slice") {
  Random random(11);
  const std::vector<NamedExecutor> all = executors();
  const Graph graph = hub_graph("hubs", 40, 30, 120, random);
  for (const DType dtype : kDTypes) {
    AggregateCase c = whole_case(graph, dtype, Reduce::mean, 41, random);
    const Matrix expected = run_serially(c);
    for (int64_t slice_width = 1; slice_width <= c.width + 1; ++slice_width) {
      for (const int64_t domains : {1, 2, 4, 16}) {
        const NamedExecutor& how = all[static_cast<size_t>(slice_width + domains) % all.size()];
        const Machine machine = stated_machine(domains);
        const Schedule schedule = forced_schedule({ScheduleKind::mixed, how.executor->max_workers(), slice_width},
                                                  shape_of(c), machine, how.executor->max_workers());
        const bool same = run(c, schedule, machine, *how.executor).same_bits(expected);
        CAPTURE(name_of(dtype));
        CAPTURE(slice_width);
        CAPTURE(domains);
        CAPTURE(how.name);
        CHECK(same);
      }
    }
  }
}

// Rows of one chain and of several, ended within a block and at its end, by more rows than a worker takes at a time.
TEST_CASE("schedules: the same bits for every block of columns") {
  Random random(13);
  const std::vector<NamedExecutor> all = executors();
  Edges ends;  // rows of 255, 256, 257, 511, 512 and 513 edges, and of one
  for (const int64_t degree : {255, 256, 257, 511, 512, 513, 1, 0, 2}) {
    const int64_t row = ends.empty() ? 0 : ends.back().first + 1;
    for (int64_t e = 0; e < degree; ++e) ends.emplace_back(row, e * 300 / degree);
  }
  for (const Graph& graph :
       {hub_graph("hubs", 40, 30, 700, random), power_law_graph("power law", 50, 60, false, random),
        graph_of("chains", 10, 300, ends), graph_of("no edges", 4, 4, {})}) {
    for (const DType dtype : kDTypes) {
      for (const Reduce reduce : {Reduce::sum, Reduce::mean, Reduce::max}) {
        AggregateCase c = whole_case(graph, dtype, reduce, 41, random);
        c.stream = true;
        const Matrix expected = run_serially(c);
        for (const int64_t block_columns : {1, 2, 7, 29, 256, 1000}) {
          for (const int64_t slice_width : {3, 16, 50}) {
            const NamedExecutor& how = all[static_cast<size_t>(slice_width + block_columns) % all.size()];
            const int64_t workers = how.executor->max_workers();
            const Machine machine = stated_machine(3);
            const Schedule schedule = forced_schedule({ScheduleKind::mixed, workers, slice_width, block_columns},
                                                      shape_of(c), machine, workers);
            const bool same = run(c, schedule, machine, *how.executor).same_bits(expected);
            CAPTURE(graph.name);
            CAPTURE(name_of(dtype));
            CAPTURE(static_cast<int>(reduce));
            CAPTURE(block_columns);
            CAPTURE(slice_width);
            CAPTURE(how.name);
            CHECK(same);
          }
        }
      }
    }
  }
}

// A row's edges in a block of columns are a stretch of them only if its columns ascend: otherwise there are no blocks.
TEST_CASE("schedules: unsorted columns are aggregated as they stand") {
  Random random(14);
  Graph graph = random_graph("unsorted", 6, 40, 80, random);
  std::reverse(graph.col.begin(), graph.col.end());
  std::reverse(graph.narrow_col.begin(), graph.narrow_col.end());
  const AggregateCase c = whole_case(graph, DType::f32, Reduce::sum, 20, random);
  ThreadExecutor executor(3);
  const Schedule schedule = forced_schedule({ScheduleKind::mixed, 3, 16, 7}, shape_of(c), Machine{}, 3);
  CHECK(run(c, schedule, Machine{}, executor).same_bits(run_serially(c)));
}

// The root term of SAGE is added to in place: no row may wait in the output it still has to read.
TEST_CASE("schedules: blocks of columns over a self term in the output") {
  Random random(15);
  const Graph graph = random_graph("square", 20, 20, 200, random);
  AggregateCase c(graph, DType::f32, 24, random);
  const auto in_place = [&](const Schedule& schedule) {
    Random same(16);
    Matrix out = random_matrix(DType::f32, 20, 24, same);
    AggregateArgs args = c.args(out);
    args.x_self = out.data();
    args.x_self_stride = out.row_stride();
    SerialExecutor executor;
    run_aggregate(args, 20, 20, schedule, Machine{}, executor);
    return out;
  };
  const Schedule blocked = forced_schedule({ScheduleKind::mixed, 1, 16, 6}, shape_of(c), Machine{}, 1);
  CHECK(in_place(blocked).same_bits(in_place(Schedule{})));
}

TEST_CASE("schedules: a domain on which no worker runs is served by the others") {
  Random random(12);
  const Graph graph = hub_graph("hubs", 60, 50, 400, random);
  const AggregateCase c = whole_case(graph, DType::f32, Reduce::sum, 64, random);
  Machine machine;  // detected: the processors that exist all belong to the last of three domains
  machine.llc_bytes = {1 << 20, 1 << 20, 1 << 20};
  machine.domain_of_cpu.assign(4096, 2);
  ThreadExecutor executor(4);
  for (const ScheduleKind kind : {ScheduleKind::hierarchical, ScheduleKind::mixed}) {
    const Schedule schedule = forced_schedule({kind, 4}, shape_of(c), machine, 4);
    CHECK(schedule.domains == 3);
    CHECK(run(c, schedule, machine, executor).same_bits(run_serially(c)));
  }
}

TEST_CASE("machine: workers are dealt evenly to stated domains") {
  const Machine machine = stated_machine(4);
  std::vector<int64_t> workers_of(4, 0);
  for (int64_t worker = 0; worker < 8; ++worker) ++workers_of[static_cast<size_t>(machine.home_domain(worker, 8))];
  CHECK(workers_of == std::vector<int64_t>{2, 2, 2, 2});
  CHECK(machine.home_domain(0, 1) == 0);
  std::vector<int64_t> homes;  // fewer workers than domains, each with a queue of its own
  for (int64_t worker = 0; worker < 4; ++worker) homes.push_back(stated_machine(16).home_queue(worker, 4, 4));
  CHECK(homes == std::vector<int64_t>{0, 1, 2, 3});
  CHECK(machine.home_queue(7, 8, 3) == 2);
  Machine unknown;  // detected, but no processor's domain is known
  unknown.llc_bytes = {0, 0};
  for (int64_t worker = 0; worker < 8; ++worker) CHECK(unknown.home_domain(worker, 8) == worker / 4);
}

TEST_CASE("planner: sizes of zero are valid") {
  for (const int64_t rows : {0, 1}) {
    for (const int64_t columns : {0, 1}) {
      for (const int64_t width : {0, 1}) {
        for (const int64_t edges : {0, 1}) {
          const AggregateShape shape{rows, columns, edges, width, 4};
          for (const Machine& machine : {Machine{}, stated_machine(4), stated_machine(4, 1 << 20)}) {
            const Schedule planned = plan_aggregate(shape, machine, 7);
            CHECK(planned.kind == ScheduleKind::serial);
            CHECK(planned.workers == 1);
            for (const ScheduleKind kind : kKinds) {
              const Schedule forced = forced_schedule({kind}, shape, machine, 7);
              CHECK(forced.workers >= 1);
              CHECK(forced.domains >= 1);
              CHECK(forced.slots >= 1);
              CHECK((forced.slice_width > 0) == (kind == ScheduleKind::mixed));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("planner: little work stays with one worker, much work takes all") {
  CHECK(plan_aggregate({100, 100, 300, 16, 4}, stated_machine(4), 64).workers == 1);
  const Schedule large = plan_aggregate({1'000'000, 1'000'000, 5'000'000, 128, 4}, stated_machine(4), 64);
  CHECK(large.workers == 64);
  CHECK(large.domains == 4);
  CHECK(large.kind == ScheduleKind::hierarchical);
  CHECK(plan_aggregate({1'000'000, 1'000'000, 5'000'000, 128, 4}, stated_machine(16), 3).domains == 3);
}

TEST_CASE("planner: a slice of all source rows fits the smallest cache") {
  for (const int64_t llc_bytes : {256 << 10, 4 << 20, 16 << 20, 96 << 20}) {
    for (const int64_t columns : {1'000, 20'000, 200'000, 2'000'000}) {
      for (const int64_t element_bytes : {2, 4, 8}) {
        const AggregateShape shape{columns, columns, columns * 100, 600, element_bytes};
        Machine machine = stated_machine(4, llc_bytes);
        machine.llc_bytes[1] = 2 * llc_bytes;
        const Schedule schedule = plan_aggregate(shape, machine, 32);
        if (schedule.kind != ScheduleKind::mixed) continue;
        CHECK(schedule.slice_width < shape.width);
        CHECK(schedule.slice_width * element_bytes % 64 == 0);
        CHECK(columns * schedule.slice_width * element_bytes < llc_bytes);
      }
    }
  }
  // Reddit's shape on 16 MiB domains is sliced; features that fit whole are not, nor is a sparse graph.
  CHECK(plan_aggregate({20'000, 20'000, 2'000'000, 600, 4}, stated_machine(4, 16 << 20), 32).kind ==
        ScheduleKind::mixed);
  CHECK(plan_aggregate({2'000, 2'000, 2'000'000, 600, 4}, stated_machine(4, 16 << 20), 32).kind != ScheduleKind::mixed);
  CHECK(plan_aggregate({20'000, 20'000, 40'000, 600, 4}, stated_machine(4, 16 << 20), 32).kind != ScheduleKind::mixed);
}

TEST_CASE("planner: a schedule that cannot run is refused") {
  const AggregateShape shape{10, 10, 30, 16, 4};
  const auto forced = [&](const AskedSchedule& asked) { return forced_schedule(asked, shape, Machine{}, 4); };
  CHECK_THROWS_WITH_AS(forced({ScheduleKind::mixed, -1}),
                       "plan: workers, slice_width and block_columns must not be negative (got -1, 0 and 0)",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(forced({ScheduleKind::mixed, 1, -2, -3}),
                       "plan: workers, slice_width and block_columns must not be negative (got 1, -2 and -3)",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(forced({ScheduleKind::hierarchical, 2, 8}),
                       "plan: slice_width and block_columns are for the mixed schedule alone (got 8 and 0)",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(forced({ScheduleKind::serial, 2}), "plan: the serial schedule has one worker (got 2)",
                       std::invalid_argument);
  CHECK(forced({ScheduleKind::hierarchical}).workers == 4);
  CHECK(forced({ScheduleKind::mixed, 3, 8, 5}).slice_width == 8);
  CHECK(forced({ScheduleKind::mixed, 3, 8, 5}).block_columns == 5);
  CHECK(forced({ScheduleKind::mixed, 3, INT64_MAX, INT64_MAX}).slice_width == 16);
  CHECK(forced({ScheduleKind::mixed, 3, INT64_MAX, INT64_MAX}).block_columns == 0);
  const AggregateShape large{1'000'000, 1'000'000, 5'000'000, 16, 4};
  CHECK_THROWS_WITH_AS(forced_schedule({ScheduleKind::mixed, 1, 16, 1}, large, Machine{}, 4),
                       "plan: blocks of 1 source rows make 1000000 of them, and 3999996000000 bytes to tell each row's "
                       "edges apart: at most 1073741824",
                       std::invalid_argument);
}

}  // namespace
}  // namespace frontgi::test
