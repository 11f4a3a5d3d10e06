// SPDX-License-Identifier: MIT
// Graph conversions: coo_to_csr against a stable sort, what check_csr refuses, and gcn_norm's four kinds of loops.
#include <doctest/doctest.h>

#include <numeric>
#include <stdexcept>

#include "../graph/convert.h"
#include "reference.h"
#include "threads.h"

namespace frontgi::test {
namespace {

struct Coo {
  int64_t rows, columns;
  std::vector<int64_t> row, col;
};

Coo random_coo(int64_t rows, int64_t columns, int64_t edges, bool sorted, Random& random) {
  Coo coo{rows, columns, std::vector<int64_t>(static_cast<size_t>(edges)),
          std::vector<int64_t>(static_cast<size_t>(edges))};
  for (int64_t& row : coo.row) row = random.below(rows);
  for (int64_t& col : coo.col) col = random.below(columns);
  if (sorted) {
    std::sort(coo.row.begin(), coo.row.end());
    std::sort(coo.col.begin(), coo.col.end());
  }
  return coo;
}

template <class Index>
struct Csr {
  std::vector<int64_t> rowptr;
  std::vector<Index> col, perm;
  bool operator==(const Csr&) const = default;

  explicit Csr(const Coo& coo)
      : rowptr(static_cast<size_t>(coo.rows + 1), -1), col(coo.col.size(), -1), perm(coo.col.size(), -1) {}
};

template <class Index>
Csr<Index> sorted_reference(const Coo& coo) {
  std::vector<size_t> order(coo.row.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(coo.row[a], coo.col[a]) < std::pair(coo.row[b], coo.col[b]);
  });
  Csr<Index> csr(coo);
  csr.rowptr.assign(csr.rowptr.size(), 0);
  for (size_t e = 0; e < order.size(); ++e) {
    csr.col[e] = static_cast<Index>(coo.col[order[e]]);
    csr.perm[e] = static_cast<Index>(order[e]);
    ++csr.rowptr[static_cast<size_t>(coo.row[order[e]] + 1)];
  }
  std::partial_sum(csr.rowptr.begin(), csr.rowptr.end(), csr.rowptr.begin());
  return csr;
}

template <class Index>
Csr<Index> convert(const Coo& coo, Executor& executor) {
  Csr<Index> csr(coo);
  coo_to_csr<Index>(coo.row.data(), coo.col.data(), static_cast<int64_t>(coo.row.size()), coo.rows, coo.columns,
                    csr.rowptr.data(), csr.col.data(), csr.perm.data(), executor);
  return csr;
}

TEST_CASE_TEMPLATE("coo_to_csr: a stable sort by row and column, for every executor", Index, int32_t, int64_t) {
  Random random(50);
  std::vector<Coo> all = {{0, 0, {}, {}}, {0, 4, {}, {}}, {5, 0, {}, {}}, {5, 5, {}, {}}, {3, 2, {2, 0, 2}, {1, 0, 1}}};
  all.push_back(random_coo(7, 5, 300, false, random));            // mostly duplicates
  all.push_back(random_coo(1, 1000, 20'000, false, random));      // one row
  all.push_back(random_coo(3, 100'000, 70'000, false, random));   // fewer rows than buckets
  all.push_back(random_coo(20'003, 50, 230'000, false, random));  // work for seven workers, fourteen buckets
  all.push_back(random_coo(100'000, 10, 1000, false, random));    // nearly all rows empty
  all.push_back(random_coo(500, 500, 40'000, true, random));      // sorted already
  for (const Coo& coo : all) {
    const Csr<Index> expected = sorted_reference<Index>(coo);
    for (const NamedExecutor& how : executors()) {
      const bool same = convert<Index>(coo, *how.executor) == expected;
      CAPTURE(coo.rows);
      CAPTURE(coo.columns);
      CAPTURE(coo.row.size());
      CAPTURE(how.name);
      CHECK(same);
    }
  }
}

TEST_CASE_TEMPLATE("coo_to_csr: an index out of range is refused before anything is written", Index, int32_t, int64_t) {
  ThreadExecutor executor(3);
  const auto refused = [&](Coo coo, const char* message) {
    Csr<Index> csr(coo);
    const Csr<Index> untouched = csr;
    CHECK_THROWS_WITH_AS(
        coo_to_csr<Index>(coo.row.data(), coo.col.data(), static_cast<int64_t>(coo.row.size()), coo.rows, coo.columns,
                          csr.rowptr.data(), csr.col.data(), csr.perm.data(), executor),
        message, std::out_of_range);
    CHECK(csr == untouched);
  };
  refused({3, 4, {0, 3, 1}, {0, 0, 0}}, "coo_to_csr: 'row' must be in [0, 3) (got 3 at position 1)");
  refused({3, 4, {0, 2, -1}, {0, 0, 0}}, "coo_to_csr: 'row' must be in [0, 3) (got -1 at position 2)");
  refused({3, 4, {0, 2, 1}, {4, 0, 0}}, "coo_to_csr: 'col' must be in [0, 4) (got 4 at position 0)");
  refused({3, 4, {0, 2, 1}, {0, INT64_MIN, 0}},
          "coo_to_csr: 'col' must be in [0, 4) (got -9223372036854775808 at position 1)");
  refused({0, 4, {0}, {0}}, "coo_to_csr: 'row' must be in [0, 0) (got 0 at position 0)");
  Random random(51);
  Coo long_one = random_coo(10, 10, 200'000, false, random);  // found by another worker than the first
  long_one.col[150'000] = 10;
  refused(long_one, "coo_to_csr: 'col' must be in [0, 10) (got 10 at position 150000)");
}

TEST_CASE_TEMPLATE("check_csr: what is refused, and how", Index, int32_t, int64_t) {
  ThreadExecutor executor(3);
  const auto check = [&](const std::vector<int64_t>& rowptr, const std::vector<Index>& col, int64_t num_cols) {
    check_csr<Index>("op", rowptr.data(), static_cast<int64_t>(rowptr.size()) - 1, col.data(),
                     static_cast<int64_t>(col.size()), num_cols, executor);
  };
  CHECK_NOTHROW(check({0, 2, 2, 3}, {0, 1, 2}, 3));
  CHECK_NOTHROW(check({0}, {}, 0));
  CHECK_NOTHROW(check({0, 0}, {}, 0));
  CHECK_THROWS_WITH_AS(check({1, 2}, {0, 0}, 3), "op: 'rowptr' must start at 0 (got 1)", std::invalid_argument);
  CHECK_THROWS_WITH_AS(check({0, 2, 1, 3}, {0, 1, 2}, 3), "op: 'rowptr' must never fall (got 2 then 1 at position 2)",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(check({0, 2}, {0, 1, 2}, 3), "op: 'rowptr' must end at the number of edges, 3 (got 2)",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(check({0, 4}, {0, 1, 2}, 3), "op: 'rowptr' must end at the number of edges, 3 (got 4)",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(check({0, 3}, {0, 3, 2}, 3), "op: 'col' must be in [0, 3) (got 3 at position 1)",
                       std::out_of_range);
  CHECK_THROWS_WITH_AS(check({0, 3}, {0, 1, -1}, 3), "op: 'col' must be in [0, 3) (got -1 at position 2)",
                       std::out_of_range);
  // A bound beyond what the index type holds lets no negative index pass.
  CHECK_THROWS_WITH_AS(check({0, 1}, {-1}, int64_t{1} << 40),
                       "op: 'col' must be in [0, 1099511627776) (got -1 at position 0)", std::out_of_range);
}

// ---- gcn_norm ------------------------------------------------------------------------------------------------------

template <class Value, class Index>
void check_gcn_norm(const Graph& graph, bool weighted, Loops loops, double fill, Random& random) {
  constexpr DType dtype = sizeof(Value) == 8 ? DType::f64 : DType::f32;
  Matrix weights(dtype, 1, graph.edges());
  weights.fill(random, 0.25, 1.75);
  Expected inv_sqrt, self_scale;
  for (int64_t i = 0; i < graph.rows; ++i) {
    double degree = 0, loop = loops == Loops::none ? 0 : fill;
    double terms = 1;
    for (int64_t e = graph.rowptr[static_cast<size_t>(i)]; e < graph.rowptr[static_cast<size_t>(i + 1)]; ++e) {
      const double weight = weighted ? weights.get(0, e) : 1;
      const bool is_loop = graph.col[static_cast<size_t>(e)] == i;
      if (is_loop && loops == Loops::remain) loop = weight;
      if (is_loop && (loops == Loops::remain || loops == Loops::replace)) continue;
      degree += weight;
      ++terms;
    }
    degree += loop;
    const double root = degree == 0 ? 0 : 1 / std::sqrt(degree);
    inv_sqrt.add(root, terms, root, dtype);
    self_scale.add(root * loop * root, 2 * terms, root * loop * root, dtype);
  }
  const auto run = [&](Matrix& to_inv_sqrt, Matrix& to_self_scale, Executor& executor) {
    const Index* col = static_cast<const Index*>(graph.col_data(sizeof(Index) == 8));
    gcn_norm<Value, Index>(graph.rowptr.data(), graph.rows, col,
                           weighted ? static_cast<const Value*>(weights.data()) : nullptr, static_cast<Value>(fill),
                           loops, static_cast<Value*>(to_inv_sqrt.data()), static_cast<Value*>(to_self_scale.data()),
                           executor);
  };
  SerialExecutor serial;
  Matrix first_root(dtype, 1, graph.rows), first_self(dtype, 1, graph.rows);
  run(first_root, first_self, serial);
  CHECK(difference(first_root, inv_sqrt) == "");
  CHECK(difference(first_self, self_scale) == "");
  for (const NamedExecutor& how : executors()) {
    Matrix root(dtype, 1, graph.rows), self(dtype, 1, graph.rows);
    run(root, self, *how.executor);
    CAPTURE(how.name);
    CHECK(root.same_bits(first_root));
    CHECK(self.same_bits(first_self));
  }
}

TEST_CASE("gcn_norm: every kind of loops, weights and types") {
  Random random(52);
  std::vector<Graph> graphs = small_graphs();
  graphs.push_back(hub_graph("large", 40'000, 40'000, 70'000, random));  // several workers
  for (const Graph& graph : graphs) {
    for (const Loops loops : {Loops::none, Loops::add, Loops::replace, Loops::remain}) {
      for (const bool weighted : {false, true}) {
        CAPTURE(graph.name);
        CAPTURE(static_cast<int>(loops));
        CAPTURE(weighted);
        check_gcn_norm<float, int32_t>(graph, weighted, loops, 1, random);
        check_gcn_norm<double, int64_t>(graph, weighted, loops, 2, random);
        if (graph.rows > 1000) continue;
        check_gcn_norm<float, int64_t>(graph, weighted, loops, 2, random);
        check_gcn_norm<double, int32_t>(graph, weighted, loops, 1, random);
      }
    }
  }
}

TEST_CASE("gcn_norm: of several loops of one node the last one remains") {
  const Graph graph = graph_of("loops", 2, 2, {{0, 0}, {0, 0}, {0, 1}, {1, 0}});
  const std::vector<double> weight = {0.5, 3, 1, 4};
  std::vector<double> inv_sqrt(2), self_scale(2);
  SerialExecutor executor;
  gcn_norm<double, int32_t>(graph.rowptr.data(), 2, graph.narrow_col.data(), weight.data(), 5, Loops::remain,
                            inv_sqrt.data(), self_scale.data(), executor);
  CHECK(inv_sqrt == std::vector<double>{0.5, 1.0 / 3});
  CHECK(self_scale[0] == 0.75);
  CHECK(self_scale[1] == doctest::Approx(5.0 / 9));
}

}  // namespace
}  // namespace frontgi::test
