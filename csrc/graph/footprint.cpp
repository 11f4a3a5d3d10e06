// SPDX-License-Identifier: MIT
#include "footprint.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <string>

namespace frontgi {
namespace {

constexpr int64_t kWindowsPerOctave = 4;
constexpr int64_t kFirstOctave = 2;  // that many octaves of windows are one apart

// The bin of times t with window(bin - 1) < t <= window(bin).
int64_t bin_of(int64_t t) {
  if (t <= kFirstOctave * kWindowsPerOctave) return t - 1;
  const int64_t octave = std::bit_width(static_cast<uint64_t>(t - 1)) - 1;
  const int64_t step = (((t - 1) >> (octave - 2)) & (kWindowsPerOctave - 1)) + 1;
  return (octave - 1) * kWindowsPerOctave + step - 1;
}

// Times, counted and added up by bin.
struct TimeHistogram {
  std::vector<double> count, sum;
  explicit TimeHistogram(int64_t bins) : count(static_cast<size_t>(bins)), sum(static_cast<size_t>(bins)) {}

  // Sum of (t - window) over the times t beyond the window of `bin`.
  double beyond(int64_t bin) const {
    double total = 0;
    for (size_t b = static_cast<size_t>(bin) + 1; b < count.size(); ++b) {
      total += sum[b] - count[b] * static_cast<double>(footprint_window(bin));
    }
    return total;
  }
};

template <class Index>
Footprint measure(const Index* col, int64_t edges, int64_t columns) {
  const int64_t bins = bin_of(edges) + 1;
  TimeHistogram times(bins);
  const auto add = [&](int64_t t) {
    const size_t bin = static_cast<size_t>(bin_of(t));
    times.count[bin] += 1;
    times.sum[bin] += static_cast<double>(t);
  };
  std::vector<int64_t> last(static_cast<size_t>(columns), 0);  // 1-based position of the last use; 0 for none
  double distinct = 0;
  for (int64_t e = 0; e < edges; ++e) {
    const int64_t column = static_cast<int64_t>(col[e]);
    if (column < 0 || column >= columns) {
      throw std::out_of_range("footprint: a column must be in [0, " + std::to_string(columns) + ") (got " +
                              std::to_string(column) + ")");
    }
    int64_t& used = last[static_cast<size_t>(column)];
    distinct += used == 0;
    add(e + 1 - used);  // a reuse time, or the time of the first use
    used = e + 1;
  }
  for (const int64_t used : last) {
    if (used > 0) add(edges + 1 - used);  // from the last use to the end
  }
  Footprint footprint;
  for (int64_t bin = 0; bin < bins; ++bin) {
    const int64_t window = std::min(footprint_window(bin), edges);
    footprint.push_back(distinct - times.beyond(bin) / static_cast<double>(edges - window + 1));
  }
  if (bins > 1) {  // the last is the value at all edges
    const double before = footprint[footprint.size() - 2];
    const double known = static_cast<double>(edges - footprint_window(bins - 2));
    const double asked = static_cast<double>(footprint_window(bins - 1) - footprint_window(bins - 2));
    footprint.back() = std::min(static_cast<double>(columns), before + (footprint.back() - before) * asked / known);
  }
  return footprint;
}

}  // namespace

int64_t footprint_window(int64_t index) {
  if (index < kFirstOctave * kWindowsPerOctave) return index + 1;
  const int64_t octave = index / kWindowsPerOctave + 1, step = index % kWindowsPerOctave + 1;
  return (int64_t{1} << octave) + (step << octave) / kWindowsPerOctave;
}

Footprint footprint_of(const void* col, bool wide_index, int64_t edges, int64_t columns, int64_t edges_max) {
  if (edges == 0) return {};
  const int64_t taken = std::min(edges, edges_max), begin = (edges - taken) / 2;
  return wide_index ? measure(static_cast<const int64_t*>(col) + begin, taken, columns)
                    : measure(static_cast<const int32_t*>(col) + begin, taken, columns);
}

Footprint uniform_footprint(int64_t edges, int64_t columns) {
  Footprint footprint;
  const double n = static_cast<double>(std::max<int64_t>(1, columns));
  for (int64_t i = 0; edges > 0; ++i) {
    const double window = static_cast<double>(footprint_window(i));
    footprint.push_back(n > 1 ? -n * std::expm1(window * std::log1p(-1 / n)) : 1);
    if (footprint_window(i) >= edges) break;
  }
  return footprint;
}

double distinct_sources(const Footprint& footprint, double window) {
  if (footprint.empty() || window <= 0) return 0;
  size_t i = 0;
  while (i + 1 < footprint.size() && static_cast<double>(footprint_window(static_cast<int64_t>(i))) < window) ++i;
  if (i == 0) return footprint[0] * std::min(1.0, window);
  const double before = static_cast<double>(footprint_window(static_cast<int64_t>(i) - 1));
  const double after = static_cast<double>(footprint_window(static_cast<int64_t>(i)));
  return footprint[i - 1] + (footprint[i] - footprint[i - 1]) * (window - before) / (after - before);
}

double missed_edges(const Footprint& footprint, double edges, double bytes, const Gathering& g) {
  if (footprint.empty() || edges <= 0) return 0;
  double window = 0, sources = 0;  // the last of the known windows that still fits, in edges of the block
  for (size_t i = 0;; ++i) {
    const bool last = i + 1 == footprint.size();
    const double next = static_cast<double>(footprint_window(static_cast<int64_t>(i))) / g.blocks;
    const double rate = (footprint[i] / g.blocks - sources) / (next - window);
    const double growth = rate * g.row_bytes + g.streamed_bytes;
    const double left = bytes - sources * g.row_bytes - window * g.streamed_bytes;
    const double fills = growth > 0 ? window + std::max(0.0, left) / growth : next;
    const double all_used = rate > 0 ? window + (g.sources / g.blocks - sources) / rate : next;
    if (last && fills >= all_used) return std::min(g.sources / g.blocks, sources + rate * (edges - window));
    if (last || fills < next || next >= edges) {
      // From here on the cache is full, and a miss is a source that is new in the window that fills it.
      const double cold = std::clamp(fills, window, edges);
      return std::clamp(sources + rate * (cold - window) + std::min(1.0, rate) * (edges - cold), 0.0, edges);
    }
    window = next;
    sources = footprint[i] / g.blocks;
  }
}

}  // namespace frontgi
