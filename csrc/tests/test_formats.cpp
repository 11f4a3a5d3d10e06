// SPDX-License-Identifier: MIT
// bf16 and fp16: every value survives being read and written, and float is rounded to nearest, ties to even.
//
// The conversions are internal to the kernels and are reached through a maximum over one edge, which leaves a value as
// it is (a sum would lose the sign of zero). Widths of 1, a tail, and several vectors take all the paths there are.
#include <doctest/doctest.h>

#include <vector>

#include "../run/aggregate.h"
#include "reference.h"

namespace frontgi::test {
namespace {

constexpr DType kShort[] = {DType::bf16, DType::f16};

bool is_nan_bits(uint16_t bits, DType dtype) { return std::isnan(value_of(bits, dtype)); }

// A graph whose row r has the one edge (r, r).
Graph diagonal(int64_t rows) {
  Edges edges;
  for (int64_t r = 0; r < rows; ++r) edges.emplace_back(r, r);
  return graph_of("diagonal", rows, rows, edges);
}

Matrix maximum_over_one_edge(AggregateCase& c) {
  c.reduce = Reduce::max;
  Matrix out(c.dtype, c.graph->rows, c.width);
  SerialExecutor executor;
  run_aggregate(c.args(out), c.graph->rows, c.graph->columns, Schedule{}, Machine{}, executor);
  return out;
}

TEST_CASE("formats: the reference agrees with itself on every 16-bit value") {
  for (const DType dtype : kShort) {
    int wrong = 0;
    for (int bits = 0; bits < 0x10000; ++bits) {
      const double value = value_of(static_cast<uint16_t>(bits), dtype);
      if (std::isnan(value)) continue;
      wrong += bits_of(value, dtype) != bits || rounded(value, dtype) != value;
    }
    CHECK(wrong == 0);
  }
  CHECK(value_of(0x3c00, DType::f16) == 1);
  CHECK(value_of(0x7bff, DType::f16) == 65504);
  CHECK(value_of(0x0001, DType::f16) == std::ldexp(1.0, -24));
  CHECK(value_of(0x3f80, DType::bf16) == 1);
  CHECK(value_of(0xc040, DType::bf16) == -3);
}

TEST_CASE("formats: every 16-bit value survives being read and written") {
  Random random(60);
  for (const DType dtype : kShort) {
    for (const int64_t width : {1, 3, 16, 37, 300}) {
      const int64_t rows = (0x10000 + width - 1) / width;
      const Graph graph = diagonal(rows);
      AggregateCase c(graph, dtype, width, random);
      for (int64_t i = 0; i < rows * width; ++i) c.x.set_bits(i / width, i % width, static_cast<uint16_t>(i));
      const Matrix out = maximum_over_one_edge(c);
      const int quiet = 1 << (format_of(dtype).precision - 2);
      int64_t wrong = -1;
      for (int64_t i = 0; i < rows * width; ++i) {
        const uint16_t bits = static_cast<uint16_t>(i), got = out.get_bits(i / width, i % width);
        // A signalling NaN may come back quiet.
        if (got != bits && !(is_nan_bits(bits, dtype) && got == (bits | quiet))) wrong = i;
      }
      CAPTURE(name_of(dtype));
      CAPTURE(width);
      CHECK(wrong == -1);
    }
  }
}

float from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Every value of the format, the ties between neighbours, and the floats next to all of these; then the ends of float's
// own range, NaN, and any floats.
std::vector<float> floats_to_round(DType dtype, Random& random) {
  std::vector<float> all;
  const auto add_with_neighbours = [&](double value) {
    const float middle = static_cast<float>(value);
    for (const float f : {middle, std::nextafter(middle, INFINITY), std::nextafter(middle, -INFINITY)}) {
      all.push_back(f);
      all.push_back(-f);
    }
  };
  for (int bits = 0; bits < 0x7fff; ++bits) {
    const double value = value_of(static_cast<uint16_t>(bits), dtype);
    const double next = value_of(static_cast<uint16_t>(bits + 1), dtype);
    if (std::isnan(value) || std::isinf(value)) break;
    add_with_neighbours(value);
    // The tie beyond the largest value is where infinity begins.
    const double above = std::isinf(next) ? std::ldexp(1.0, format_of(dtype).max_exponent + 1) : next;
    add_with_neighbours((value + above) / 2);
  }
  for (const uint32_t bits : {0x00000001u, 0x007fffffu, 0x00800000u, 0x7f7fffffu, 0x7f800000u}) {
    all.push_back(from_bits(bits));
    all.push_back(-from_bits(bits));
  }
  for (int i = 0; i < 20'000; ++i) all.push_back(from_bits(static_cast<uint32_t>(random.bits())));
  return all;
}

TEST_CASE("formats: float is rounded to nearest, ties to even") {
  Random random(61);
  for (const DType dtype : kShort) {
    const std::vector<float> values = floats_to_round(dtype, random);
    const int64_t rows = static_cast<int64_t>(values.size());
    const Graph graph = diagonal(rows);
    for (const int64_t width : {1, 17}) {
      AggregateCase c(graph, dtype, width, random);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t f = 0; f < width; ++f) c.x.set_bits(r, f, bits_of(1, dtype));
      }
      c.edge_weight.emplace(DType::f32, 1, rows);
      std::memcpy(c.edge_weight->data(), values.data(), values.size() * sizeof(float));
      const Matrix out = maximum_over_one_edge(c);
      int64_t wrong = -1;
      for (int64_t r = 0; r < rows; ++r) {
        const float value = values[static_cast<size_t>(r)];
        const uint16_t expected = bits_of(rounded(value, dtype), dtype);
        for (int64_t f = 0; f < width; ++f) {
          const uint16_t got = out.get_bits(r, f);
          const bool right = std::isnan(value) ? is_nan_bits(got, dtype) && (got ^ expected) < 0x8000 : got == expected;
          if (!right) wrong = r;
        }
      }
      CAPTURE(name_of(dtype));
      CAPTURE(width);
      CAPTURE(wrong < 0 ? 0.0f : values[static_cast<size_t>(wrong)]);
      CHECK(wrong == -1);
    }
  }
}

}  // namespace
}  // namespace frontgi::test
