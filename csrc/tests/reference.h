// SPDX-License-Identifier: MIT
// Slow and obviously right: every operation in double, element by element from its formula, with the error that the
// kernel may make.
//
// The bound on an element summed from n terms is (n + kRoundings) * unit roundoff of the accumulator * the sum of the
// terms' magnitudes (twice that in f64, where the reference errs as much), and one rounding to the element's own type.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "../kernels/kernels.h"
#include "graphs.h"
#include "matrix.h"

namespace frontgi::test {

constexpr double kRoundings = 8;  // products of a term, scales, division, self term, bias

// Rows of values that a kernel should give, and how far each may be off.
struct Expected {
  std::vector<double> value, error;

  void add(double exact, double terms, double magnitude, DType dtype) {
    const double both = dtype == DType::f64 ? 2 : 1;
    const double accumulated = both * (terms + kRoundings) * unit_roundoff(accumulator_of(dtype)) * magnitude;
    const double written = unit_roundoff(dtype) * (std::fabs(exact) + accumulated) + smallest(dtype);
    value.push_back(exact);
    error.push_back(accumulated + written);
  }
};

// Empty if every element of `got` is as expected, else what the first wrong one is.
inline std::string difference(const Matrix& got, const Expected& expected) {
  size_t at = 0;
  for (int64_t i = 0; i < got.rows(); ++i) {
    for (int64_t j = 0; j < got.columns(); ++j, ++at) {
      const double value = got.get(i, j), wanted = expected.value[at];
      const bool right =
          std::isnan(wanted) ? std::isnan(value) : value == wanted || std::fabs(value - wanted) <= expected.error[at];
      if (right) continue;
      std::ostringstream text;
      text.precision(17);
      text << "[" << i << ", " << j << "] is " << value << ", not " << wanted << " within " << expected.error[at];
      return text.str();
    }
  }
  return "";
}

// ---- aggregate -----------------------------------------------------------------------------------------------------

struct AggregateCase {
  const Graph* graph;
  DType dtype;
  int64_t width;
  Reduce reduce = Reduce::sum;
  bool wide_index = false, skip_loops = false, relu = false, stream = false;
  Matrix x;
  std::optional<Matrix> edge_weight, row_scale, col_scale, self_scale, x_self, bias;

  AggregateCase(const Graph& on, DType type, int64_t features, Random& random, Layout x_layout = {})
      : graph(&on), dtype(type), width(features), x(random_matrix(type, on.columns, features, random, x_layout)) {}

  void add_edge_weight(Random& random) { edge_weight = vector(graph->edges(), random); }
  void add_row_scale(Random& random) { row_scale = vector(graph->rows, random); }
  void add_col_scale(Random& random) { col_scale = vector(graph->columns, random); }
  void add_bias(Random& random) { bias = random_matrix(dtype, 1, width, random); }
  void add_self(Random& random, Layout layout = {}) {
    x_self = random_matrix(dtype, graph->rows, width, random, layout);
  }
  void add_self_scale(Random& random, bool one) { self_scale = vector(one ? 1 : graph->rows, random); }

  AggregateArgs args(Matrix& out) const {
    AggregateArgs a;
    a.dtype = dtype;
    a.reduce = reduce;
    a.wide_index = wide_index;
    a.skip_loops = skip_loops;
    a.relu = relu;
    a.stream = stream;
    a.rowptr = graph->rowptr.data();
    a.col = graph->col_data(wide_index);
    a.edge_weight = data(edge_weight);
    a.row_scale = data(row_scale);
    a.col_scale = data(col_scale);
    a.x = x.data();
    a.x_stride = x.row_stride();
    a.self_scale = data(self_scale);
    a.self_step = self_scale && self_scale->columns() == 1 && graph->rows != 1 ? 0 : 1;
    a.x_self = data(x_self);
    a.x_self_stride = x_self ? x_self->row_stride() : 0;
    a.bias = data(bias);
    a.out = out.data();
    a.out_stride = out.row_stride();
    a.width = width;
    return a;
  }

 private:
  Matrix vector(int64_t size, Random& random) const {
    Matrix matrix(accumulator_of(dtype), 1, size);
    matrix.fill(random, 0.25, 1.75);
    return matrix;
  }
  static const void* data(const std::optional<Matrix>& matrix) { return matrix ? matrix->data() : nullptr; }
};

inline double at_or(const std::optional<Matrix>& vector, int64_t i, double otherwise) {
  return vector ? vector->get(0, vector->columns() == 1 ? 0 : i) : otherwise;
}

inline Expected aggregate_reference(const AggregateCase& c) {
  const Graph& graph = *c.graph;
  Expected expected;
  for (int64_t i = 0; i < graph.rows; ++i) {
    for (int64_t f = 0; f < c.width; ++f) {
      double sum = 0, magnitude = 0, least = INFINITY, most = -INFINITY;
      int64_t count = 0;
      bool nan = false;
      for (int64_t e = graph.rowptr[static_cast<size_t>(i)]; e < graph.rowptr[static_cast<size_t>(i + 1)]; ++e) {
        const int64_t j = graph.col[static_cast<size_t>(e)];
        if (c.skip_loops && i == j) continue;
        const double weight = c.edge_weight ? c.edge_weight->get(0, e) : 1;
        const double term = weight * (c.col_scale ? c.col_scale->get(0, j) : 1) * c.x.get(j, f);
        ++count;
        sum += term;
        magnitude += std::fabs(term);
        least = std::fmin(least, term);
        most = std::fmax(most, term);
        nan = nan || std::isnan(term);
      }
      double value = 0;
      if (count > 0) {
        const bool extremum = c.reduce == Reduce::min || c.reduce == Reduce::max;
        value = c.reduce == Reduce::min ? least : c.reduce == Reduce::max ? most : sum;
        if (c.reduce == Reduce::mean) value /= static_cast<double>(count), magnitude /= static_cast<double>(count);
        if (extremum) magnitude = std::fabs(value);
        if (extremum && nan) value = NAN;
      }
      const double row_scale = c.row_scale ? c.row_scale->get(0, i) : 1;
      value *= row_scale;
      magnitude *= std::fabs(row_scale);
      if (c.x_self) {
        const double self = at_or(c.self_scale, i, 1) * c.x_self->get(i, f);
        value += self;
        magnitude += std::fabs(self);
      }
      if (c.bias) {
        value += c.bias->get(0, f);
        magnitude += std::fabs(c.bias->get(0, f));
      }
      if (c.relu && value < 0) value = 0;
      expected.add(value, static_cast<double>(count), magnitude, c.dtype);
    }
  }
  return expected;
}

// ---- update --------------------------------------------------------------------------------------------------------

struct Factors {
  const Matrix* a;       // [rows, k]
  const Matrix* weight;  // [n, k]
};

inline Expected linear_reference(const std::vector<Factors>& operands, const Matrix* bias, bool relu, DType dtype) {
  const int64_t rows = operands[0].a->rows(), n = operands[0].weight->rows();
  std::vector<double> value(static_cast<size_t>(rows * n), 0), magnitude(value);
  double terms = 0;
  for (const Factors& factors : operands) {
    const int64_t k = factors.a->columns();
    const std::vector<double> a = factors.a->values(), weight = factors.weight->values();
    terms += static_cast<double>(k);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, magnitudes = 0;
        const double *left = a.data() + i * k, *right = weight.data() + j * k;
        for (int64_t l = 0; l < k; ++l) {
          sum += left[l] * right[l];
          magnitudes += std::fabs(left[l] * right[l]);
        }
        value[static_cast<size_t>(i * n + j)] += sum;
        magnitude[static_cast<size_t>(i * n + j)] += magnitudes;
      }
    }
  }
  Expected expected;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const size_t at = static_cast<size_t>(i * n + j);
      const double added = bias ? bias->get(0, j) : 0;
      const double sum = value[at] + added;
      expected.add(relu && sum < 0 ? 0 : sum, terms, magnitude[at] + std::fabs(added), dtype);
    }
  }
  return expected;
}

}  // namespace frontgi::test
