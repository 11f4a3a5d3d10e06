// SPDX-License-Identifier: MIT
// Nothing outside the arguments is read or written: operands end at an unreadable page, and null stands for nothing.
#include <doctest/doctest.h>

#include "../graph/convert.h"
#include "../run/aggregate.h"
#include "../run/update.h"
#include "reference.h"
#include "threads.h"

namespace frontgi::test {
namespace {

constexpr Layout kGuarded{.where = Where::guarded};

template <class T>
const T* guarded(const Memory& memory, const std::vector<T>& values) {
  std::memcpy(memory.start(), values.data(), memory.bytes());
  return reinterpret_cast<const T*>(memory.start());
}

TEST_CASE("memory: aggregate and edge_dot end with their operands, at every width") {
  Random random(70);
  // The last row, the last edge and the last source row are all used.
  const Graph graph = graph_of("to the end", 4, 3, {{0, 2}, {1, 0}, {1, 1}, {3, 1}, {3, 2}});
  const Memory rowptr_memory(graph.rowptr.size() * 8, Where::guarded), col_memory(graph.col.size() * 4, Where::guarded);
  SerialExecutor executor;
  for (const DType dtype : kDTypes) {
    for (int64_t width = 1; width <= 300; width += width < 70 ? 1 : 23) {
      for (const int64_t block_columns : {-1, 0, 2}) {  // by rows; in slices; in slices and blocks of columns
        const bool mixed = block_columns >= 0;
        AggregateCase c(graph, dtype, width, random, kGuarded);
        c.reduce = mixed ? Reduce::max : Reduce::sum;
        c.edge_weight = random_matrix(accumulator_of(dtype), 1, graph.edges(), random, kGuarded);
        c.row_scale = random_matrix(accumulator_of(dtype), 1, graph.rows, random, kGuarded);
        c.col_scale = random_matrix(accumulator_of(dtype), 1, graph.columns, random, kGuarded);
        c.self_scale = random_matrix(accumulator_of(dtype), 1, graph.rows, random, kGuarded);
        c.x_self = random_matrix(dtype, graph.rows, width, random, kGuarded);
        c.bias = random_matrix(dtype, 1, width, random, kGuarded);
        c.stream = true;
        Matrix out(dtype, graph.rows, width, kGuarded);
        AggregateArgs args = c.args(out);
        args.rowptr = guarded(rowptr_memory, graph.rowptr);
        args.col = guarded(col_memory, graph.narrow_col);
        Schedule schedule;
        if (mixed) schedule = {ScheduleKind::mixed, 1, 1, std::max<int64_t>(1, width / 2), block_columns, 1};
        run_aggregate(args, graph.rows, graph.columns, schedule, Machine{}, executor);
        CAPTURE(name_of(dtype));
        CAPTURE(width);
        CHECK(difference(out, aggregate_reference(c)) == "");
      }
      const Matrix a = random_matrix(dtype, graph.rows, width, random, kGuarded);
      const Matrix b = random_matrix(dtype, graph.columns, width, random, kGuarded);
      Matrix dots(accumulator_of(dtype), 1, graph.edges(), kGuarded);
      EdgeDotArgs args;
      args.dtype = dtype;
      args.rowptr = guarded(rowptr_memory, graph.rowptr);
      args.col = guarded(col_memory, graph.narrow_col);
      args.a = a.data();
      args.a_stride = a.row_stride();
      args.b = b.data();
      args.b_stride = b.row_stride();
      args.out = dots.data();
      args.width = width;
      run_edge_dot(args, graph.rows, graph.edges(), executor);
    }
  }
}

TEST_CASE("memory: update and weight_grad end with their operands, at every width") {
  Random random(71);
  SerialExecutor executor;
  for (const DType dtype : kDTypes) {
    for (int64_t size = 1; size <= 70; ++size) {
      for (const bool transposed : {false, true}) {
        const int64_t rows = 1 + size % 17, k = size, n = 71 - size;
        const auto layout = [&](int64_t height) {
          return transposed ? Layout{.row_stride = 1, .column_stride = height, .where = Where::guarded} : kGuarded;
        };
        const Matrix a = random_matrix(dtype, rows, k, random, layout(rows));
        const Matrix weight = random_matrix(dtype, n, k, random, layout(n));
        const Matrix bias = random_matrix(dtype, 1, n, random, kGuarded);
        Matrix out(dtype, rows, n, kGuarded);
        UpdateArgs args;
        args.dtype = dtype;
        args.rows = rows;
        args.n = n;
        args.operands[0] = {a.data(),      a.row_stride(),      a.column_stride(),     k,
                            weight.data(), weight.row_stride(), weight.column_stride()};
        args.bias = bias.data();
        args.stream = true;
        args.out = out.data();
        args.out_stride = n;
        run_update(args, Machine{}, executor);
        CAPTURE(name_of(dtype));
        CAPTURE(size);
        CHECK(difference(out, linear_reference({{&a, &weight}}, &bias, false, dtype)) == "");
      }
      const Matrix g = random_matrix(dtype, 5, size, random, kGuarded);
      const Matrix x = random_matrix(dtype, 5, 71 - size, random, kGuarded);
      Matrix grad(accumulator_of(dtype), size, 71 - size, kGuarded);
      run_weight_grad({dtype, 5, size, 71 - size, g.data(), g.row_stride(), x.data(), x.row_stride(), grad.data()},
                      executor);
    }
  }
}

// `values` behind `offset` others that are never touched.
template <class T>
const T* behind(const Memory& memory, int64_t offset, const T* values, size_t count) {
  std::memcpy(memory.start() + static_cast<size_t>(offset) * sizeof(T), values, count * sizeof(T));
  return reinterpret_cast<const T*>(memory.start());
}

TEST_CASE("memory: rows and edges whose offsets do not fit 32 bits") {
  Random random(73);
  constexpr int64_t width = 35, far = (int64_t{1} << 31) + 64;
  constexpr Layout layout{.row_stride = far, .where = Where::sparse};
  const Graph graph = graph_of("small", 3, 3, {{0, 2}, {1, 0}, {1, 1}, {2, 1}, {2, 2}});
  const size_t edges = graph.col.size();
  const Memory col_memory((far + edges) * 4, Where::sparse), weight_memory((far + edges) * 4, Where::sparse);
  std::vector<int64_t> rowptr = graph.rowptr;
  for (int64_t& position : rowptr) position += far;
  InTurnExecutor executor(2, false);

  AggregateCase c(graph, DType::f32, width, random, layout);
  c.add_edge_weight(random);
  c.add_self(random, layout);
  AggregateArgs args;
  for (const ScheduleKind kind : {ScheduleKind::hierarchical, ScheduleKind::mixed}) {
    Matrix out(DType::f32, 3, width, layout);
    args = c.args(out);
    args.rowptr = rowptr.data();
    args.col = behind(col_memory, far, graph.narrow_col.data(), edges);
    args.edge_weight = behind(weight_memory, far, static_cast<const float*>(c.edge_weight->data()), edges);
    const Schedule schedule =
        forced_schedule({kind, 2}, {3, 3, graph.edges(), width, 4}, Machine{}, executor.max_workers());
    run_aggregate(args, 3, 3, schedule, Machine{}, executor);
    CHECK(difference(out, aggregate_reference(c)) == "");
  }

  const Matrix weight = random_matrix(DType::f32, 3, width, random, layout);
  Matrix aggregated(DType::f32, 3, width);
  run_aggregate(args = c.args(aggregated), 3, 3, Schedule{}, Machine{}, executor);
  for (const bool fused : {false, true}) {
    Matrix out(DType::f32, 3, 3, layout);
    UpdateArgs update;
    update.rows = update.n = 3;
    update.operands[0] = {c.x.data(), far, 1, width, weight.data(), far, 1};
    update.out = out.data();
    update.out_stride = far;
    update.aggregate = fused ? &args : nullptr;
    run_update(update, Machine{}, executor);
    CHECK(difference(out, linear_reference({{fused ? &aggregated : &c.x, &weight}}, nullptr, false, DType::f32)) == "");
  }
}

// An empty tensor has no memory, but its strides need not be 0.
TEST_CASE("memory: null operands of no elements") {
  const std::vector<int64_t> rowptr = {0, 2, 2, 3};
  const std::vector<int32_t> col = {0, 1, 1};
  const std::vector<int64_t> no_edges(41, 0);
  ThreadExecutor executor(3);
  Random random(72);
  const auto schedules = [&](const AggregateShape& shape) {
    std::vector<Schedule> all;
    for (const ScheduleKind kind : {ScheduleKind::serial, ScheduleKind::hierarchical, ScheduleKind::mixed}) {
      all.push_back(forced_schedule({kind}, shape, Machine{}, 3));
    }
    for (const int64_t block_columns : {1, 5}) {
      all.push_back(forced_schedule({ScheduleKind::mixed, 0, 16, block_columns}, shape, Machine{}, 3));
    }
    return all;
  };

  SUBCASE("aggregate of no features, of no rows, of no sources") {
    AggregateArgs args;
    args.rowptr = rowptr.data();
    args.col = col.data();
    args.x_stride = args.x_self_stride = args.out_stride = 1;
    for (const Schedule& s : schedules({3, 2, 3, 0, 4})) run_aggregate(args, 3, 2, s, Machine{}, executor);
    args.rowptr = no_edges.data();
    args.col = nullptr;
    args.width = 300;
    for (const Schedule& s : schedules({0, 2, 0, 300, 4})) run_aggregate(args, 0, 2, s, Machine{}, executor);
    Matrix out(DType::f32, 40, 300);
    args.out = out.data();
    args.out_stride = 300;
    for (const Schedule& s : schedules({40, 0, 0, 300, 4})) run_aggregate(args, 40, 0, s, Machine{}, executor);
    for (const double value : out.values()) CHECK(value == 0);
  }
  SUBCASE("edge_dot of no features, of no rows") {
    Matrix out(DType::f32, 1, 3);
    EdgeDotArgs args;
    args.rowptr = rowptr.data();
    args.col = col.data();
    args.a_stride = args.b_stride = 1;
    args.out = out.data();
    run_edge_dot(args, 3, 3, executor);
    for (const double value : out.values()) CHECK(value == 0);
    args.out = nullptr;
    args.rowptr = no_edges.data();
    run_edge_dot(args, 40, 0, executor);
    run_edge_dot(args, 0, 0, executor);
  }
  SUBCASE("extremum_grad of no features, of no rows") {
    AggregateArgs args;
    args.rowptr = rowptr.data();
    args.col = col.data();
    args.x_stride = 1;
    args.reduce = Reduce::max;
    Matrix grad_weight(DType::f32, 1, 3);
    run_extremum_grad(args, 3, nullptr, nullptr, grad_weight.data(), executor);
    for (const double value : grad_weight.values()) CHECK(value == 0);
    args.rowptr = no_edges.data();
    args.width = 5;
    run_extremum_grad(args, 0, nullptr, nullptr, nullptr, executor);
  }
  SUBCASE("update over k = 0, alone, beside another operand, and fused") {
    for (const DType dtype : kDTypes) {
      const Matrix bias = random_matrix(dtype, 1, 100, random), x = random_matrix(dtype, 40, 3, random);
      const Matrix weight = random_matrix(dtype, 100, 3, random);
      Matrix out(dtype, 40, 100);
      UpdateArgs args;
      args.dtype = dtype;
      args.rows = 40;
      args.n = 100;
      args.operands[0] = {nullptr, 1, 1, 0, nullptr, 1, 1};
      args.bias = bias.data();
      args.out = out.data();
      args.out_stride = 100;
      run_update(args, Machine{}, executor);
      for (int64_t i = 0; i < 40; ++i) CHECK(out.same_row_bits(i, bias, 0));
      AggregateArgs aggregate;
      aggregate.dtype = dtype;
      aggregate.rowptr = no_edges.data();
      aggregate.x_stride = 1;
      args.aggregate = &aggregate;
      run_update(args, Machine{}, executor);
      for (int64_t i = 0; i < 40; ++i) CHECK(out.same_row_bits(i, bias, 0));
      args.operands[1] = {x.data(), 3, 1, 3, weight.data(), 3, 1};
      args.operand_count = 2;
      for (const AggregateArgs* fused : {static_cast<const AggregateArgs*>(nullptr), &std::as_const(aggregate)}) {
        args.aggregate = fused;
        run_update(args, Machine{}, executor);
        CHECK(difference(out, linear_reference({{&x, &weight}}, &bias, false, dtype)) == "");
      }
    }
  }
  SUBCASE("weight_grad and column_sum of no rows") {
    for (const DType dtype : kDTypes) {
      Matrix grad(accumulator_of(dtype), 40, 7);
      run_weight_grad({dtype, 0, 40, 7, nullptr, 40, nullptr, 7, grad.data()}, executor);
      for (const double value : grad.values()) CHECK(value == 0);
      run_weight_grad({dtype, 9, 0, 7, nullptr, 1, nullptr, 7, nullptr}, executor);
      run_weight_grad({dtype, 9, 7, 0, nullptr, 7, nullptr, 1, nullptr}, executor);
    }
    for (const DType dtype : {DType::f32, DType::f64}) {
      Matrix sum(dtype, 1, 7);
      run_column_sum(dtype == DType::f64, nullptr, 7, 0, 7, sum.data(), executor);
      for (const double value : sum.values()) CHECK(value == 0);
      run_column_sum(dtype == DType::f64, nullptr, 1, 9, 0, nullptr, executor);
    }
  }
  SUBCASE("conversions of no edges, of no rows") {
    for (const int64_t rows : {0, 40}) {
      std::vector<int64_t> to(static_cast<size_t>(rows + 1), -1);
      coo_to_csr<int32_t>(nullptr, nullptr, 0, rows, 0, to.data(), nullptr, nullptr, executor);
      CHECK(to == std::vector<int64_t>(to.size(), 0));
      check_csr<int32_t>("op", to.data(), rows, nullptr, 0, 0, executor);
      std::vector<float> root(static_cast<size_t>(rows), -1), self(root);
      gcn_norm<float, int32_t>(to.data(), rows, nullptr, nullptr, 1, Loops::none, root.data(), self.data(), executor);
      CHECK(root == std::vector<float>(root.size(), 0));
    }
  }
}

}  // namespace
}  // namespace frontgi::test
