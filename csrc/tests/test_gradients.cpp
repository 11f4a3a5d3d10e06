// SPDX-License-Identifier: MIT
// What the backward pass needs: weight_grad, column_sum, edge_dot, extremum_grad, against their formulas and with the
// same bits for any workers.
#include <doctest/doctest.h>

#include "../run/aggregate.h"
#include "../run/update.h"
#include "reference.h"
#include "threads.h"

namespace frontgi::test {
namespace {

Expected weight_grad_reference(const Matrix& g, const Matrix& x) {
  std::vector<double> value(static_cast<size_t>(g.columns() * x.columns()), 0), magnitude(value);
  for (int64_t row = 0; row < g.rows(); ++row) {
    size_t at = 0;
    for (int64_t i = 0; i < g.columns(); ++i) {
      for (int64_t j = 0; j < x.columns(); ++j, ++at) {
        const double term = g.get(row, i) * x.get(row, j);
        value[at] += term;
        magnitude[at] += std::fabs(term);
      }
    }
  }
  Expected expected;
  for (size_t at = 0; at < value.size(); ++at) {
    expected.add(value[at], static_cast<double>(g.rows()), magnitude[at], accumulator_of(g.dtype()));
  }
  return expected;
}

Matrix run_weight_grad_on(const Matrix& g, const Matrix& x, Executor& executor) {
  Matrix out(accumulator_of(g.dtype()), g.columns(), x.columns());
  WeightGradArgs args;
  args.dtype = g.dtype();
  args.rows = g.rows();
  args.n = g.columns();
  args.k = x.columns();
  args.g = g.data();
  args.g_stride = g.row_stride();
  args.x = x.data();
  args.x_stride = x.row_stride();
  args.out = out.data();
  run_weight_grad(args, executor);
  return out;
}

TEST_CASE("weight_grad: every element type and shape") {
  Random random(40);
  SerialExecutor executor;
  for (const DType dtype : kDTypes) {
    for (const int64_t rows : {0, 1, 255, 257, 600}) {
      for (const int64_t n : {0, 1, 14, 17}) {
        for (const int64_t k : {0, 1, 16, 33}) {
          const Matrix g = random_matrix(dtype, rows, n, random, {.row_stride = n + random.below(3)});
          const Matrix x = random_matrix(dtype, rows, k, random, {.row_stride = k + random.below(3), .offset = 1});
          const std::string wrong = difference(run_weight_grad_on(g, x, executor), weight_grad_reference(g, x));
          CAPTURE(name_of(dtype));
          CAPTURE(rows);
          CAPTURE(n);
          CAPTURE(k);
          CHECK(wrong == "");
        }
      }
    }
  }
}

TEST_CASE("weight_grad: the same bits for every executor") {
  Random random(41);
  for (const DType dtype : kDTypes) {
    const int64_t rows = dtype == DType::f32 ? 140'000 : 25'000;  // 16 chunks, and 4
    const Matrix g = random_matrix(dtype, rows, 3, random), x = random_matrix(dtype, rows, 5, random);
    SerialExecutor serial;
    const Matrix expected = run_weight_grad_on(g, x, serial);
    CHECK(difference(expected, weight_grad_reference(g, x)) == "");
    for (const NamedExecutor& how : executors()) {
      CAPTURE(name_of(dtype));
      CAPTURE(how.name);
      CHECK(run_weight_grad_on(g, x, *how.executor).same_bits(expected));
    }
  }
}

TEST_CASE("weight_grad: a weight large enough for its two chunks to be added by two workers") {
  Random random(42);
  const Matrix g = random_matrix(DType::f32, 8200, 150, random), x = random_matrix(DType::f32, 8200, 220, random);
  SerialExecutor serial;
  ThreadExecutor threads(2);
  InTurnExecutor in_reverse(2, true);
  const Matrix expected = run_weight_grad_on(g, x, serial);
  CHECK(run_weight_grad_on(g, x, threads).same_bits(expected));
  CHECK(run_weight_grad_on(g, x, in_reverse).same_bits(expected));
}

TEST_CASE("column_sum: against the reference, and the same bits for every executor") {
  Random random(43);
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const int64_t rows : {0, 1, 100, 25'000, 140'000}) {
      for (const int64_t n : {0, 1, 7}) {
        const Matrix g = random_matrix(dtype, rows, n, random, {.row_stride = n + random.below(3)});
        Expected expected;
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0, magnitude = 0;
          for (int64_t i = 0; i < rows; ++i) sum += g.get(i, j), magnitude += std::fabs(g.get(i, j));
          expected.add(sum, static_cast<double>(rows), magnitude, dtype);
        }
        std::vector<Matrix> outs;
        for (const NamedExecutor& how : executors()) {
          Matrix& out = outs.emplace_back(dtype, 1, n);
          run_column_sum(dtype == DType::f64, g.data(), g.row_stride(), rows, n, out.data(), *how.executor);
          CAPTURE(name_of(dtype));
          CAPTURE(rows);
          CAPTURE(how.name);
          CHECK(out.same_bits(outs.front()));
        }
        CHECK(difference(outs.front(), expected) == "");
      }
    }
  }
}

// ---- edge_dot ------------------------------------------------------------------------------------------------------

struct EdgeDotCase {
  const Graph& graph;
  Matrix a, b;
  std::optional<Matrix> row_scale, col_scale;

  Matrix run(bool wide_index, Executor& executor) const {
    Matrix out(accumulator_of(a.dtype()), 1, graph.edges());
    EdgeDotArgs args;
    args.dtype = a.dtype();
    args.wide_index = wide_index;
    args.rowptr = graph.rowptr.data();
    args.col = graph.col_data(wide_index);
    args.row_scale = row_scale ? row_scale->data() : nullptr;
    args.col_scale = col_scale ? col_scale->data() : nullptr;
    args.a = a.data();
    args.a_stride = a.row_stride();
    args.b = b.data();
    args.b_stride = b.row_stride();
    args.out = out.data();
    args.width = a.columns();
    run_edge_dot(args, graph.rows, graph.edges(), executor);
    return out;
  }

  Expected reference() const {
    Expected expected;
    for (int64_t i = 0; i < graph.rows; ++i) {
      for (int64_t e = graph.rowptr[static_cast<size_t>(i)]; e < graph.rowptr[static_cast<size_t>(i + 1)]; ++e) {
        const int64_t j = graph.col[static_cast<size_t>(e)];
        const double scale = (row_scale ? row_scale->get(0, i) : 1) * (col_scale ? col_scale->get(0, j) : 1);
        double sum = 0, magnitude = 0;
        for (int64_t f = 0; f < a.columns(); ++f) {
          sum += scale * a.get(i, f) * b.get(j, f);
          magnitude += std::fabs(scale * a.get(i, f) * b.get(j, f));
        }
        expected.add(sum, static_cast<double>(a.columns()), magnitude, accumulator_of(a.dtype()));
      }
    }
    return expected;
  }
};

TEST_CASE("edge_dot: every graph, width, element and index type") {
  Random random(44);
  SerialExecutor executor;
  for (const Graph& graph : small_graphs()) {
    for (const DType dtype : kDTypes) {
      for (const int64_t width : {0, 1, 3, 7, 15, 16, 17, 31, 33, 64, 100, 257}) {
        EdgeDotCase c{graph,
                      random_matrix(dtype, graph.rows, width, random, {.row_stride = width + random.below(3)}),
                      random_matrix(dtype, graph.columns, width, random,
                                    {.row_stride = width + random.below(3), .offset = random.below(2)}),
                      {},
                      {}};
        if (random.below(2)) c.row_scale = random_matrix(accumulator_of(dtype), 1, graph.rows, random);
        if (random.below(2)) c.col_scale = random_matrix(accumulator_of(dtype), 1, graph.columns, random);
        const std::string wrong = difference(c.run(random.below(2), executor), c.reference());
        CAPTURE(graph.name);
        CAPTURE(name_of(dtype));
        CAPTURE(width);
        CHECK(wrong == "");
      }
    }
  }
}

TEST_CASE("edge_dot: the same bits for every executor") {
  Random random(45);
  const Graph graph = hub_graph("hubs", 300, 200, 2500, random);
  for (const DType dtype : kDTypes) {
    const EdgeDotCase c{graph, random_matrix(dtype, 300, 70, random), random_matrix(dtype, 200, 70, random), {}, {}};
    SerialExecutor serial;
    const Matrix expected = c.run(false, serial);
    for (const NamedExecutor& how : executors()) {
      CAPTURE(name_of(dtype));
      CAPTURE(how.name);
      CHECK(c.run(false, *how.executor).same_bits(expected));
    }
  }
}

// ---- extremum_grad -------------------------------------------------------------------------------------------------

struct ExtremumGrad {
  Matrix grad_x, grad_weight;
};

Matrix zeros(DType dtype, int64_t rows, int64_t columns) {
  Matrix matrix(dtype, rows, columns);
  std::memset(matrix.data(), 0, static_cast<size_t>(rows * columns * element_bytes(dtype)));
  return matrix;
}

ExtremumGrad run_extremum_grad_on(const AggregateCase& c, Matrix& result, const Matrix& grad_out, Executor& executor) {
  ExtremumGrad grad{zeros(c.dtype, c.graph->columns, c.width), Matrix(c.dtype, 1, c.graph->edges())};
  run_extremum_grad(c.args(result), c.graph->rows, grad_out.data(), grad.grad_x.data(),
                    c.edge_weight ? grad.grad_weight.data() : nullptr, executor);
  return grad;
}

// The first edge of a row whose product is the result takes the gradient.
struct ExtremumReference {
  Expected grad_x, grad_weight;

  ExtremumReference(const AggregateCase& c, const Matrix& result, const Matrix& grad_out) {
    const Graph& graph = *c.graph;
    std::vector<double> x_sum(static_cast<size_t>(graph.columns * c.width), 0), x_magnitude(x_sum);
    std::vector<double> weight_sum(static_cast<size_t>(graph.edges()), 0), weight_magnitude(weight_sum);
    for (int64_t i = 0; i < graph.rows; ++i) {
      for (int64_t f = 0; f < c.width; ++f) {
        for (int64_t e = graph.rowptr[static_cast<size_t>(i)]; e < graph.rowptr[static_cast<size_t>(i + 1)]; ++e) {
          const int64_t j = graph.col[static_cast<size_t>(e)];
          const double weight = c.edge_weight ? c.edge_weight->get(0, e) : 1, x = c.x.get(j, f);
          const double product = rounded(weight * x, c.dtype);
          if (product != result.get(i, f) && !(std::isnan(product) && std::isnan(result.get(i, f)))) continue;
          const double grad = grad_out.get(i, f);
          x_sum[static_cast<size_t>(j * c.width + f)] += grad * weight;
          x_magnitude[static_cast<size_t>(j * c.width + f)] += std::fabs(grad * weight);
          weight_sum[static_cast<size_t>(e)] += grad * x;
          weight_magnitude[static_cast<size_t>(e)] += std::fabs(grad * x);
          break;
        }
      }
    }
    for (size_t i = 0; i < x_sum.size(); ++i) {
      grad_x.add(x_sum[i], static_cast<double>(graph.rows), x_magnitude[i], c.dtype);
    }
    for (size_t i = 0; i < weight_sum.size(); ++i) {
      grad_weight.add(weight_sum[i], static_cast<double>(c.width), weight_magnitude[i], c.dtype);
    }
  }
};

void check_extremum_grad(AggregateCase& c, Random& random) {
  Matrix result(c.dtype, c.graph->rows, c.width);
  SerialExecutor serial;
  run_aggregate(c.args(result), c.graph->rows, c.graph->columns, Schedule{}, Machine{}, serial);
  const Matrix grad_out = random_matrix(c.dtype, c.graph->rows, c.width, random);
  const ExtremumReference expected(c, result, grad_out);
  const ExtremumGrad first = run_extremum_grad_on(c, result, grad_out, serial);
  CHECK(difference(first.grad_x, expected.grad_x) == "");
  if (c.edge_weight) CHECK(difference(first.grad_weight, expected.grad_weight) == "");
  for (const NamedExecutor& how : executors()) {
    const ExtremumGrad grad = run_extremum_grad_on(c, result, grad_out, *how.executor);
    CAPTURE(how.name);
    CHECK(grad.grad_x.same_bits(first.grad_x));
    CHECK(grad.grad_weight.same_bits(first.grad_weight));
  }
}

TEST_CASE("extremum_grad: every graph, ties and NaN included, the same bits for every executor") {
  Random random(46);
  for (const Graph& graph : small_graphs()) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      for (const int64_t width : {0, 1, 17, 130}) {
        for (const bool weighted : {false, true}) {
          AggregateCase c(graph, dtype, width, random, {.row_stride = width + random.below(3)});
          c.reduce = random.below(2) ? Reduce::min : Reduce::max;
          c.wide_index = random.below(2);
          if (weighted) c.add_edge_weight(random);
          for (int64_t f = 0; f < width && graph.columns > 1; ++f) {
            if (f % 4 == 1) c.x.set(1, f, c.x.get(0, f));
            if (f % 16 == 3 && !weighted) c.x.set(1, f, NAN);
          }
          CAPTURE(graph.name);
          CAPTURE(name_of(dtype));
          CAPTURE(width);
          CAPTURE(weighted);
          check_extremum_grad(c, random);
        }
      }
    }
  }
}

}  // namespace
}  // namespace frontgi::test
