// SPDX-License-Identifier: MIT
// Update alone and fused behind Aggregate: against the reference, and bit for bit against itself for other heights,
// executors, and the two steps taken one after the other.
#include <doctest/doctest.h>

#include <cmath>

#include "../run/aggregate.h"
#include "../run/update.h"
#include "reference.h"
#include "threads.h"

namespace frontgi::test {
namespace {

constexpr int64_t kRows[] = {0, 1, 13, 14, 15, 50};
constexpr int64_t kInner[] = {0, 1, 255, 256, 257, 700};
constexpr int64_t kColumns[] = {1, 15, 16, 17, 31, 32, 33, 100};

// Contiguous, rows with gaps, transposed, or every other column.
Layout some_layout(int64_t rows, int64_t columns, Random& random) {
  switch (random.below(4)) {
    case 0:
      return {.row_stride = columns, .offset = random.below(2)};
    case 1:
      return {.row_stride = columns + 1 + random.below(16)};
    case 2:
      return {.row_stride = 1, .column_stride = rows + random.below(2)};
    default:
      return {.row_stride = 2 * columns, .column_stride = 2, .offset = 1};
  }
}

Layout some_output(int64_t n, Random& random) {
  switch (random.below(3)) {
    case 0:
      return {};
    case 1:
      return {.row_stride = n + 1 + random.below(4), .offset = random.below(2)};
    default:
      return {.row_stride = (n + 15) / 16 * 16};
  }
}

Operand operand_of(const Matrix* a, const Matrix& weight) {
  Operand operand;
  if (a) {
    operand.a = a->data();
    operand.row_stride = a->row_stride();
    operand.column_stride = a->column_stride();
  }
  operand.k = weight.columns();
  operand.weight = weight.data();
  operand.weight_n_stride = weight.row_stride();
  operand.weight_k_stride = weight.column_stride();
  return operand;
}

UpdateArgs update_of(const std::vector<Factors>& operands, const Matrix* bias, Matrix& out) {
  UpdateArgs args;
  args.dtype = out.dtype();
  args.rows = out.rows();
  args.n = out.columns();
  args.operand_count = 0;
  for (const Factors& factors : operands) args.operands[args.operand_count++] = operand_of(factors.a, *factors.weight);
  args.bias = bias ? bias->data() : nullptr;
  args.out = out.data();
  args.out_stride = out.row_stride();
  return args;
}

TEST_CASE("update: every shape, element type and layout") {
  Random random(30);
  SerialExecutor executor;
  for (const DType dtype : kDTypes) {
    for (const int64_t k : kInner) {
      for (const int64_t n : kColumns) {
        for (const int64_t rows : kRows) {
          const Matrix a = random_matrix(dtype, rows, k, random, some_layout(rows, k, random));
          const Matrix weight = random_matrix(dtype, n, k, random, some_layout(n, k, random));
          std::vector<Factors> operands = {{&a, &weight}};
          const int64_t second = k == 700 ? 0 : random.below(2) * (1 + random.below(40));
          const Matrix root = random_matrix(dtype, rows, second, random, some_layout(rows, second, random));
          const Matrix root_weight = random_matrix(dtype, n, second, random, some_layout(n, second, random));
          if (second) operands.push_back({&root, &root_weight});
          const Matrix bias = random_matrix(dtype, 1, n, random);
          const Matrix* added = random.below(2) ? &bias : nullptr;
          Matrix out(dtype, rows, n, some_output(n, random));
          UpdateArgs args = update_of(operands, added, out);
          args.relu = random.below(2);
          args.stream = random.below(2);
          run_update(args, Machine{}, executor);
          const std::string wrong = difference(out, linear_reference(operands, added, args.relu, dtype));
          CAPTURE(name_of(dtype));
          CAPTURE(rows);
          CAPTURE(k);
          CAPTURE(n);
          CHECK(wrong == "");
          CHECK(out.gaps_untouched());
        }
      }
    }
  }
}

TEST_CASE("update: no columns") {
  Random random(31);
  const Matrix a = random_matrix(DType::f32, 3, 4, random), weight(DType::f32, 0, 4);
  Matrix out(DType::f32, 3, 0);
  SerialExecutor executor;
  run_update(update_of({{&a, &weight}}, nullptr, out), Machine{}, executor);
}

TEST_CASE("update: a row has the same bits at every height") {
  Random random(32);
  SerialExecutor executor;
  for (const DType dtype : kDTypes) {
    const int64_t rows = 61, k = 300, n = 49;
    const Matrix a = random_matrix(dtype, rows, k, random), weight = random_matrix(dtype, n, k, random);
    const Matrix bias = random_matrix(dtype, 1, n, random);
    Matrix whole(dtype, rows, n);
    run_update(update_of({{&a, &weight}}, &bias, whole), Machine{}, executor);
    for (int64_t height = 1; height < rows; ++height) {
      // The last `height` rows, so that each row meets every place in a tile.
      Matrix part(dtype, height, n);
      UpdateArgs args = update_of({{&a, &weight}}, &bias, part);
      args.operands[0].a = static_cast<const char*>(a.data()) + (rows - height) * k * element_bytes(dtype);
      run_update(args, Machine{}, executor);
      bool same = true;
      for (int64_t i = 0; i < height; ++i) same = same && part.same_row_bits(i, whole, rows - height + i);
      CAPTURE(name_of(dtype));
      CAPTURE(height);
      CHECK(same);
    }
  }
}

TEST_CASE("update: the same bits for every executor and number of domains") {
  Random random(33);
  for (const DType dtype : kDTypes) {
    const int64_t rows = 701, k = 130, n = 70;  // work enough for seven workers
    const Matrix a = random_matrix(dtype, rows, k, random), weight = random_matrix(dtype, n, k, random);
    const Matrix root = random_matrix(dtype, rows, 9, random), root_weight = random_matrix(dtype, n, 9, random);
    const std::vector<Factors> operands = {{&a, &weight}, {&root, &root_weight}};
    Matrix expected(dtype, rows, n);
    SerialExecutor serial;
    run_update(update_of(operands, nullptr, expected), Machine{}, serial);
    for (const int64_t domains : {1, 4, 16}) {
      Machine machine;
      machine.llc_bytes.assign(static_cast<size_t>(domains), 0);
      machine.stated = true;
      for (const NamedExecutor& how : executors()) {
        Matrix out(dtype, rows, n);
        run_update(update_of(operands, nullptr, out), machine, *how.executor);
        CAPTURE(name_of(dtype));
        CAPTURE(domains);
        CAPTURE(how.name);
        CHECK(out.same_bits(expected));
      }
    }
  }
}

// The layer in two steps: what the fused one must equal bit for bit.
Matrix two_steps(const AggregateCase& c, const Matrix& weight, const Factors* root, const Matrix* bias, bool relu) {
  Matrix aggregated(c.dtype, c.graph->rows, c.width), out(c.dtype, c.graph->rows, weight.rows());
  SerialExecutor executor;
  run_aggregate(c.args(aggregated), c.graph->rows, c.graph->columns, Schedule{}, Machine{}, executor);
  std::vector<Factors> operands = {{&aggregated, &weight}};
  if (root) operands.push_back(*root);
  UpdateArgs args = update_of(operands, bias, out);
  args.relu = relu;
  run_update(args, Machine{}, executor);
  return out;
}

Matrix fused(const AggregateCase& c, const Matrix& weight, const Factors* root, const Matrix* bias, bool relu,
             Executor& executor) {
  Matrix ignored(c.dtype, 0, 0), out(c.dtype, c.graph->rows, weight.rows());
  const AggregateArgs aggregate = c.args(ignored);
  std::vector<Factors> operands = {{nullptr, &weight}};
  if (root) operands.push_back(*root);
  UpdateArgs args = update_of(operands, bias, out);
  args.relu = relu;
  args.stream = true;
  args.aggregate = &aggregate;
  run_update(args, Machine{}, executor);
  return out;
}

TEST_CASE("fused layer: the bits of aggregate, then update, on every small graph") {
  Random random(34);
  SerialExecutor executor;
  for (const Graph& graph : small_graphs()) {
    for (const DType dtype : kDTypes) {
      for (const int64_t k : {0, 1, 7, 16, 33, 257}) {
        AggregateCase c(graph, dtype, k, random);
        c.reduce = random.below(2) ? Reduce::mean : Reduce::max;
        c.wide_index = random.below(2);
        if (random.below(2)) c.add_edge_weight(random);
        if (random.below(2)) c.add_row_scale(random);
        if (random.below(2)) c.add_self(random);
        const Matrix weight = random_matrix(dtype, 33, k, random), bias = random_matrix(dtype, 1, 33, random);
        const Matrix x_root = random_matrix(dtype, graph.rows, 5, random),
                     root_weight = random_matrix(dtype, 33, 5, random);
        const Factors factors{&x_root, &root_weight};
        const Factors* root = random.below(2) ? &factors : nullptr;
        const bool same =
            fused(c, weight, root, &bias, true, executor).same_bits(two_steps(c, weight, root, &bias, true));
        CAPTURE(graph.name);
        CAPTURE(name_of(dtype));
        CAPTURE(k);
        CHECK(same);
      }
    }
  }
}

TEST_CASE("fused layer: the same bits for every executor, hubs shared by several workers") {
  Random random(35);
  const Graph graphs[] = {hub_graph("hubs", 200, 150, 6000, random),
                          power_law_graph("power law", 400, 4000, false, random),
                          graph_of("one row", 1, 1, Edges(30000, {0, 0})),
                          graph_of("fewer rows than slots", 9, 3, {{1, 0}, {1, 2}, {2, 1}, {6, 0}, {6, 1}, {8, 2}})};
  for (const Graph& graph : graphs) {
    for (const DType dtype : kDTypes) {
      for (const int64_t k : {70, 256, 300}) {
        for (const bool with_self : {false, true}) {
          for (const bool with_root : {false, true}) {
            AggregateCase c(graph, dtype, k, random);
            c.add_edge_weight(random);
            if (with_self) c.add_self(random);
            const int64_t n = graph.rows < 10 ? 1000 : 40;  // work enough for several workers
            const Matrix weight = random_matrix(dtype, n, k, random), bias = random_matrix(dtype, 1, n, random);
            const Matrix x_root = random_matrix(dtype, graph.rows, 9, random),
                         root_weight = random_matrix(dtype, n, 9, random);
            const Factors factors{&x_root, &root_weight};
            const Factors* root = with_root ? &factors : nullptr;
            const Matrix expected = two_steps(c, weight, root, &bias, true);
            for (const NamedExecutor& how : executors()) {
              const bool same = fused(c, weight, root, &bias, true, *how.executor).same_bits(expected);
              CAPTURE(graph.name);
              CAPTURE(name_of(dtype));
              CAPTURE(k);
              CAPTURE(with_self);
              CAPTURE(with_root);
              CAPTURE(how.name);
              CHECK(same);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("fused layer: rows without edges are multiplied where that makes NaNs") {
  Random random(36);
  SerialExecutor executor;
  const Graph graph = graph_of("isolated rows", 40, 5, {{3, 0}, {3, 4}, {17, 2}, {39, 1}});
  for (const double odd : {double(INFINITY), -double(INFINITY), double(NAN)}) {
    for (const int64_t k : {5, 300}) {
      for (const bool of_weight : {true, false}) {
        AggregateCase c(graph, DType::f32, k, random);
        c.add_row_scale(random);
        Matrix weight = random_matrix(DType::f32, 20, k, random);
        of_weight ? weight.set(7, k - 1, odd) : c.row_scale->set(0, 30, odd);
        const Matrix out = fused(c, weight, nullptr, nullptr, false, executor);
        CAPTURE(odd);
        CHECK(out.same_bits(two_steps(c, weight, nullptr, nullptr, false)));
        CHECK(std::isnan(of_weight ? out.get(20, 7) : out.get(30, 0)));
        CHECK(out.get(20, 6) == 0);
      }
    }
  }
}

}  // namespace
}  // namespace frontgi::test
