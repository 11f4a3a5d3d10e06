// SPDX-License-Identifier: MIT
// Attention and its gradients against their formulas, for scores of any size, and with the same bits for any workers.
#include <doctest/doctest.h>

#include <functional>

#include "../run/attention.h"
#include "reference.h"
#include "threads.h"

namespace frontgi::test {
namespace {

struct AttentionCase {
  const Graph& graph;
  DType dtype;
  int64_t heads, channels;
  bool dynamic, loops, wide_index;
  double slope = 0.2;
  Matrix x, x_dst, att, src_score, dst_score, edge_score, loop_score, bias, grad, grad_alpha;

  AttentionCase(const Graph& on, DType type, int64_t h, int64_t c, bool gatv2, bool with_loops, Random& random,
                double largest_score = 2)
      : graph(on),
        dtype(type),
        heads(h),
        channels(c),
        dynamic(gatv2),
        loops(with_loops),
        wide_index(random.below(2)),
        x(random_matrix(type, on.columns, h * c, random, {.row_stride = h * c + random.below(3)})),
        x_dst(random_matrix(type, on.rows, h * c, random, {.row_stride = h * c + random.below(3)})),
        att(random_matrix(sums(), 1, h * c, random)),
        src_score(random_matrix(sums(), on.columns, h, random, {.row_stride = h + random.below(3)})),
        dst_score(random_matrix(sums(), on.rows, h, random)),
        edge_score(random_matrix(sums(), on.edges(), h, random)),
        loop_score(random_matrix(sums(), loop_count(), h, random)),
        bias(random_matrix(type, 1, h * c, random)),
        grad(random_matrix(type, on.rows, h * c, random, {.row_stride = h * c + random.below(3)})),
        grad_alpha(random_matrix(sums(), values(), h, random)) {
    if (largest_score != 2) src_score.fill(random, -largest_score, largest_score);
  }

  DType sums() const { return accumulator_of(dtype); }
  int64_t loop_count() const { return loops ? std::min(graph.rows, graph.columns) : 0; }
  int64_t values() const { return graph.edges() + loop_count(); }
  int64_t width() const { return heads * channels; }

  AttentionArgs args() const {
    AttentionArgs a;
    a.dtype = dtype;
    a.wide_index = wide_index;
    a.loops = loops;
    a.rowptr = graph.rowptr.data();
    a.col = graph.col_data(wide_index);
    a.edges = graph.edges();
    a.columns = graph.columns;
    a.heads = heads;
    a.channels = channels;
    a.slope = slope;
    a.x = x.data();
    a.x_stride = x.row_stride();
    if (dynamic) {
      a.x_dst = x_dst.data();
      a.x_dst_stride = x_dst.row_stride();
      a.att = att.data();
    } else {
      a.src_score = src_score.data();
      a.src_score_stride = src_score.row_stride();
      a.dst_score = dst_score.data();
      a.dst_score_stride = dst_score.row_stride();
      a.edge_score = edge_score.data();
      a.loop_score = loop_score.data();
    }
    a.bias = bias.data();
    return a;
  }

  // (source, value) of the edges of a row that take part.
  std::vector<std::pair<int64_t, int64_t>> edges_of(int64_t row) const {
    std::vector<std::pair<int64_t, int64_t>> all;
    for (int64_t e = graph.rowptr[static_cast<size_t>(row)]; e < graph.rowptr[static_cast<size_t>(row + 1)]; ++e) {
      const int64_t source = graph.col[static_cast<size_t>(e)];
      if (!loops || source != row) all.emplace_back(source, e);
    }
    if (loops && row < graph.columns) all.emplace_back(row, graph.edges() + row);
    return all;
  }

  double leaky(double z) const { return z > 0 ? z : z * slope; }
  double leaky_slope(double z) const { return z > 0 ? 1 : slope; }
  // What the kernel adds and compares: in the accumulators' type, so that a sum near 0 has the same sign here.
  double own_sum(int64_t row, int64_t source, int64_t f) const {
    return rounded(x.get(source, f) + x_dst.get(row, f), sums());
  }
  double bare_score(int64_t row, int64_t source, int64_t value, int64_t h) const {
    const double nodes = rounded(src_score.get(source, h) + dst_score.get(row, h), sums());
    const double edge = value < graph.edges() ? edge_score.get(value, h) : loop_score.get(value - graph.edges(), h);
    return rounded(nodes + edge, sums());
  }
  double score(int64_t row, int64_t source, int64_t value, int64_t h) const {
    if (!dynamic) return leaky(bare_score(row, source, value, h));
    double sum = 0;
    for (int64_t f = h * channels; f < (h + 1) * channels; ++f) sum += att.get(0, f) * leaky(own_sum(row, source, f));
    return sum;
  }
};

struct Forward {
  Matrix out, alpha;
};

Forward run_forward(const AttentionCase& c, Executor& executor) {
  Forward result{Matrix(c.dtype, c.graph.rows, c.width()), Matrix(c.sums(), c.values(), c.heads)};
  AttentionArgs args = c.args();
  args.out = result.out.data();
  args.alpha = result.alpha.data();
  run_attention(args, c.graph.rows, Machine{}, executor);
  return result;
}

// The softmax's relative error: of every score, a rounding a term; of the exponentials; of their sum.
double softmax_terms(const AttentionCase& c, size_t edges, double largest) {
  const double a_score = c.dynamic ? static_cast<double>(c.channels) * 4 : 1;
  return static_cast<double>(edges) + 8 + 4 * largest * a_score;
}

struct ForwardReference {
  std::vector<double> alpha;  // [values, heads]
  Expected out, expected_alpha;

  explicit ForwardReference(const AttentionCase& c) : alpha(static_cast<size_t>(c.values() * c.heads), 0) {
    std::vector<double> terms(alpha.size(), 0);
    for (int64_t i = 0; i < c.graph.rows; ++i) {
      const auto edges = c.edges_of(i);
      for (int64_t h = 0; h < c.heads; ++h) {
        double largest = -INFINITY, size = 0, sum = 0;
        for (const auto& [j, e] : edges) {
          largest = std::max(largest, c.score(i, j, e, h));
          size = std::max(size, std::fabs(c.score(i, j, e, h)));
        }
        for (const auto& [j, e] : edges) sum += std::exp(c.score(i, j, e, h) - largest);
        for (const auto& [j, e] : edges) {
          alpha[at(c, e, h)] = std::exp(c.score(i, j, e, h) - largest) / sum;
          terms[at(c, e, h)] = softmax_terms(c, edges.size(), size);
        }
        for (int64_t f = h * c.channels; f < (h + 1) * c.channels; ++f) {
          double value = c.bias.get(0, f), magnitude = std::fabs(value);
          for (const auto& [j, e] : edges) {
            value += alpha[at(c, e, h)] * c.x.get(j, f);
            magnitude += alpha[at(c, e, h)] * std::fabs(c.x.get(j, f));
          }
          out.add(value, 2 * softmax_terms(c, edges.size(), size), magnitude, c.dtype);
        }
      }
    }
    for (size_t k = 0; k < alpha.size(); ++k) expected_alpha.add(alpha[k], terms[k], alpha[k], c.sums());
    // What is not above the smallest normal number may be 0.
    for (double& error : expected_alpha.error) error += std::ldexp(1.0, format_of(c.sums()).min_exponent + 1);
  }

  static size_t at(const AttentionCase& c, int64_t value, int64_t h) {
    return static_cast<size_t>(value * c.heads + h);
  }
};

void for_cases(int64_t seed, const std::function<void(const AttentionCase&)>& body) {
  Random random(static_cast<uint64_t>(seed));
  const std::pair<int64_t, int64_t> shapes[] = {{1, 1}, {1, 130}, {3, 7}, {8, 8}, {4, 16}, {8, 32}, {17, 4}, {2, 0}};
  for (const Graph& graph : small_graphs()) {
    for (const DType dtype : kDTypes) {
      for (const auto& [heads, channels] : shapes) {
        for (const bool dynamic : {false, true}) {
          const AttentionCase c(graph, dtype, heads, channels, dynamic, random.below(2), random);
          CAPTURE(graph.name);
          CAPTURE(name_of(dtype));
          CAPTURE(heads);
          CAPTURE(channels);
          CAPTURE(dynamic);
          CAPTURE(c.loops);
          body(c);
        }
      }
    }
  }
}

TEST_CASE("attention: every graph, shape, element and index type") {
  SerialExecutor executor;
  for_cases(50, [&](const AttentionCase& c) {
    const Forward got = run_forward(c, executor);
    const ForwardReference expected(c);
    CHECK(difference(got.alpha, expected.expected_alpha) == "");
    // Rows of out follow head by head: the reference wrote them so.
    CHECK(difference(got.out, expected.out) == "");
  });
}

// Rows of several chunks, hubs, and loops that fill a chunk.
std::vector<Graph> large_graphs(Random& random) {
  std::vector<Graph> all;
  all.push_back(hub_graph("hubs", 60, 60, 700, random));
  Edges loops;
  for (int64_t e = 0; e < 200; ++e) loops.emplace_back(1, 1);
  loops.emplace_back(1, 2);
  all.push_back(graph_of("a chunk of loops", 3, 3, loops));
  return all;
}

TEST_CASE("attention: long rows, of scores of any size") {
  Random random(51);
  SerialExecutor executor;
  for (const Graph& graph : large_graphs(random)) {
    for (const DType dtype : kDTypes) {
      for (const double largest : {2.0, 1e4}) {
        for (const bool loops : {false, true}) {
          const AttentionCase c(graph, dtype, 3, 20, false, loops, random, largest);
          const Forward got = run_forward(c, executor);
          const ForwardReference expected(c);
          CAPTURE(graph.name);
          CAPTURE(name_of(dtype));
          CAPTURE(largest);
          CAPTURE(loops);
          CHECK(difference(got.alpha, expected.expected_alpha) == "");
          CHECK(difference(got.out, expected.out) == "");
        }
      }
    }
  }
}

TEST_CASE("attention: exponentials within a few roundings, down to the smallest normal number") {
  const Graph graph = graph_of("two edges", 1, 2, {{0, 0}, {0, 1}});
  Random random(52);
  SerialExecutor executor;
  for (const DType dtype : {DType::f32, DType::f64}) {
    AttentionCase c(graph, dtype, 1, 1, false, false, random);
    c.slope = 1;
    c.dst_score.set(0, 0, 0);
    c.edge_score.set(0, 0, 0);
    c.edge_score.set(1, 0, 0);
    c.src_score.set(0, 0, 0);
    const double least = dtype == DType::f32 ? 86.9 : 707.9;
    for (int step = 0; step <= 2000; ++step) {
      c.src_score.set(1, 0, -least * step / 2000);
      const double exact = std::exp(c.src_score.get(1, 0));
      const Forward got = run_forward(c, executor);
      const double ratio = got.alpha.get(1, 0) / got.alpha.get(0, 0);
      CHECK(std::fabs(ratio / exact - 1) <= 6 * unit_roundoff(dtype));
    }
    for (const double below : {-2 * least, -1e4, -1e30, -static_cast<double>(INFINITY)}) {
      c.src_score.set(1, 0, below);
      const Forward got = run_forward(c, executor);
      CHECK(got.alpha.get(1, 0) == 0);
      CHECK(got.alpha.get(0, 0) == 1);
    }
    c.src_score.set(1, 0, NAN);
    CHECK(std::isnan(run_forward(c, executor).alpha.get(0, 0)));
  }
}

// ---- gradients -----------------------------------------------------------------------------------------------------

struct Gradients {
  Matrix score, dst, dst_slopes, x, src, src_slopes;
};

// The transposed graph, and the position in the given one of each of its edges.
struct Transposed {
  Graph graph;
  std::vector<int64_t> perm;
  std::vector<int32_t> narrow_perm;

  explicit Transposed(const Graph& given) {
    Edges all;
    for (int64_t i = 0; i < given.rows; ++i) {
      for (int64_t e = given.rowptr[static_cast<size_t>(i)]; e < given.rowptr[static_cast<size_t>(i + 1)]; ++e) {
        all.emplace_back(given.col[static_cast<size_t>(e)], i);
      }
    }
    for (int64_t e = 0; e < given.edges(); ++e) perm.push_back(e);
    std::stable_sort(perm.begin(), perm.end(),
                     [&](int64_t a, int64_t b) { return all[static_cast<size_t>(a)] < all[static_cast<size_t>(b)]; });
    graph = graph_of("transposed", given.columns, given.rows, all);
    narrow_perm = std::vector<int32_t>(perm.begin(), perm.end());
  }
  const void* perm_data(bool wide) const { return wide ? static_cast<const void*>(perm.data()) : narrow_perm.data(); }
};

Gradients run_backward(const AttentionCase& c, const Transposed& t, Executor& executor) {
  const DType sums = c.sums();
  Gradients result{Matrix(sums, c.values(), c.heads),
                   Matrix(sums, c.dynamic ? 0 : c.graph.rows, c.heads),
                   Matrix(sums, c.dynamic ? c.graph.rows : 0, c.width()),
                   Matrix(c.dtype, c.graph.columns, c.width()),
                   Matrix(sums, c.dynamic ? 0 : c.graph.columns, c.heads),
                   Matrix(sums, c.dynamic ? c.graph.columns : 0, c.width())};
  Forward forward = run_forward(c, executor);
  AttentionGradArgs rows;
  rows.forward = c.args();
  rows.forward.alpha = forward.alpha.data();
  rows.grad = c.grad.data();
  rows.grad_stride = c.grad.row_stride();
  rows.grad_alpha = c.grad_alpha.data();
  rows.grad_score = result.score.data();
  rows.grad_dst = c.dynamic ? nullptr : result.dst.data();
  rows.slopes = c.dynamic ? result.dst_slopes.data() : nullptr;
  run_attention_grad_rows(rows, c.graph.rows, Machine{}, executor);

  AttentionColumnArgs columns;
  AttentionArgs& a = columns.transposed;
  a = c.args();
  a.rowptr = t.graph.rowptr.data();
  a.col = t.graph.col_data(c.wide_index);
  a.columns = c.graph.rows;
  a.x = c.grad.data();
  a.x_stride = c.grad.row_stride();
  a.x_dst = c.dynamic ? c.x.data() : nullptr;
  a.x_dst_stride = c.x.row_stride();
  a.alpha = forward.alpha.data();
  a.out = result.x.data();
  columns.position = t.perm_data(c.wide_index);
  columns.grad_score = result.score.data();
  columns.x_other = c.x_dst.data();
  columns.x_other_stride = c.x_dst.row_stride();
  columns.grad_src = c.dynamic ? nullptr : result.src.data();
  columns.slopes = c.dynamic ? result.src_slopes.data() : nullptr;
  run_attention_grad_columns(columns, c.graph.columns, Machine{}, executor);
  return result;
}

// Sums of terms with their magnitudes, [rows, columns].
struct Sums {
  std::vector<double> value, magnitude, terms;
  int64_t columns;

  Sums(int64_t rows, int64_t width)
      : value(static_cast<size_t>(rows * width), 0), magnitude(value), terms(value), columns(width) {}
  void add(int64_t row, int64_t column, double term, double size, double roundings) {
    const size_t at = static_cast<size_t>(row * columns + column);
    value[at] += term;
    magnitude[at] += size;
    terms[at] = std::max(terms[at] + 1, roundings);
  }
  Expected expected(DType dtype) const {
    Expected all;
    for (size_t at = 0; at < value.size(); ++at) all.add(value[at], terms[at], magnitude[at], dtype);
    return all;
  }
};

void check_gradients(const AttentionCase& c, const Gradients& got) {
  const ForwardReference forward(c);
  Sums score(c.values(), c.heads), dst(c.graph.rows, c.heads), src(c.graph.columns, c.heads);
  Sums dst_slopes(c.graph.rows, c.width()), src_slopes(c.graph.columns, c.width()), x(c.graph.columns, c.width());
  for (int64_t i = 0; i < c.graph.rows; ++i) {
    const auto edges = c.edges_of(i);
    for (int64_t h = 0; h < c.heads; ++h) {
      double largest = 0, mean = 0, mean_size = 0;
      std::vector<double> of_alpha, size_of_alpha;
      for (const auto& [j, e] : edges) {
        largest = std::max(largest, std::fabs(c.score(i, j, e, h)));
        double sum = c.grad_alpha.get(e, h), size = std::fabs(sum);
        for (int64_t f = h * c.channels; f < (h + 1) * c.channels; ++f) {
          sum += c.grad.get(i, f) * c.x.get(j, f);
          size += std::fabs(c.grad.get(i, f) * c.x.get(j, f));
        }
        of_alpha.push_back(sum);
        size_of_alpha.push_back(size);
        mean += forward.alpha[ForwardReference::at(c, e, h)] * sum;
        mean_size += forward.alpha[ForwardReference::at(c, e, h)] * size;
      }
      const double roundings = 2 * softmax_terms(c, edges.size(), largest) + static_cast<double>(c.channels);
      for (size_t k = 0; k < edges.size(); ++k) {
        const auto [j, e] = edges[k];
        const double alpha = forward.alpha[ForwardReference::at(c, e, h)];
        const double slope = c.dynamic ? 1 : c.leaky_slope(c.bare_score(i, j, e, h));
        const double of_score = alpha * (of_alpha[k] - mean) * slope;
        const double size = alpha * (size_of_alpha[k] + mean_size);
        score.add(e, h, of_score, size, roundings);
        dst.add(i, h, of_score, size, roundings);
        src.add(j, h, of_score, size, roundings);
        for (int64_t f = h * c.channels; f < (h + 1) * c.channels; ++f) {
          x.add(j, f, alpha * c.grad.get(i, f), std::fabs(alpha * c.grad.get(i, f)), roundings);
          const double weighted = of_score * c.leaky_slope(c.own_sum(i, j, f));
          dst_slopes.add(i, f, weighted, size, roundings);
          src_slopes.add(j, f, weighted, size, roundings);
        }
      }
    }
  }
  CHECK(difference(got.score, score.expected(c.sums())) == "");
  CHECK(difference(got.x, x.expected(c.dtype)) == "");
  if (c.dynamic) {
    CHECK(difference(got.dst_slopes, dst_slopes.expected(c.sums())) == "");
    CHECK(difference(got.src_slopes, src_slopes.expected(c.sums())) == "");
  } else {
    CHECK(difference(got.dst, dst.expected(c.sums())) == "");
    CHECK(difference(got.src, src.expected(c.sums())) == "");
  }
}

TEST_CASE("attention gradients: every graph, shape, element and index type") {
  SerialExecutor executor;
  for_cases(53, [&](const AttentionCase& c) {
    const Transposed t(c.graph);
    check_gradients(c, run_backward(c, t, executor));
  });
}

TEST_CASE("attention and its gradients: the same bits for every executor") {
  Random random(54);
  const Graph graph = hub_graph("hubs", 150, 120, 1500, random);
  const Transposed t(graph);
  for (const DType dtype : kDTypes) {
    for (const bool dynamic : {false, true}) {
      for (const int64_t heads : {1, 5}) {
        const AttentionCase c(graph, dtype, heads, 70, dynamic, true, random);
        SerialExecutor serial;
        const Forward expected = run_forward(c, serial);
        const Gradients gradients = run_backward(c, t, serial);
        check_gradients(c, gradients);
        for (const NamedExecutor& how : executors()) {
          const Forward got = run_forward(c, *how.executor);
          const Gradients back = run_backward(c, t, *how.executor);
          CAPTURE(name_of(dtype));
          CAPTURE(dynamic);
          CAPTURE(heads);
          CAPTURE(how.name);
          CHECK(got.out.same_bits(expected.out));
          CHECK(got.alpha.same_bits(expected.alpha));
          CHECK(back.score.same_bits(gradients.score));
          CHECK(back.x.same_bits(gradients.x));
          CHECK(back.dst.same_bits(gradients.dst));
          CHECK(back.src.same_bits(gradients.src));
          CHECK(back.dst_slopes.same_bits(gradients.dst_slopes));
          CHECK(back.src_slopes.same_bits(gradients.src_slopes));
        }
      }
    }
  }
}

}  // namespace
}  // namespace frontgi::test
