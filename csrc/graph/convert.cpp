// SPDX-License-Identifier: MIT
// COO to CSR in two steps: edges are dealt stably into buckets of consecutive rows (one pass, each worker its own
// stretch of edges and its own write positions), then every bucket, small enough for a cache, is counted and placed by
// row and each row sorted by column. The result is the only one that is sorted and stable, whatever the workers.
#include "convert.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "row_slots.h"

namespace frontgi {
namespace {

constexpr int64_t kEdgesPerWorker = 1 << 15;  // fewer are not worth a thread
constexpr int64_t kBucketEdges = 1 << 14;     // aimed at: a bucket's records stay in the L2 cache
constexpr int64_t kBucketsMax = 1 << 11;

int64_t workers_for(int64_t work, int64_t per_worker, const Executor& executor) {
  return std::clamp<int64_t>(work / per_worker, 1, executor.max_workers());
}

struct Span {
  int64_t begin, end;
};
Span nth(int64_t size, int64_t i, int64_t n) { return {size * i / n, size * (i + 1) / n}; }

// True if any of the values is outside [0, bound): the unsigned maximum tells, and vectorises. A bound beyond what
// Index holds is cut there, or a negative value would pass as a large unsigned one.
template <class Index>
bool any_outside(const Index* values, int64_t m, int64_t bound, Executor& executor) {
  std::atomic<bool> outside{false};
  const uint64_t limit = std::min(static_cast<uint64_t>(bound), uint64_t{std::numeric_limits<Index>::max()} + 1);
  const int64_t workers = workers_for(m, kEdgesPerWorker, executor);
  using Unsigned = std::make_unsigned_t<Index>;
  executor.run(workers, [&](int64_t worker) {
    const Span span = nth(m, worker, workers);
    Unsigned largest = 0;
    for (int64_t i = span.begin; i < span.end; ++i) largest = std::max(largest, static_cast<Unsigned>(values[i]));
    if (span.begin < span.end && static_cast<uint64_t>(largest) >= limit) {
      outside.store(true, std::memory_order_relaxed);
    }
  });
  return outside.load();
}

template <class Index>
void check_indices(const char* op, const char* name, const Index* values, int64_t m, int64_t bound,
                   Executor& executor) {
  if (!any_outside(values, m, bound, executor)) return;
  for (int64_t i = 0; i < m; ++i) {
    if (values[i] < 0 || values[i] >= bound) {
      throw std::out_of_range(std::string(op) + ": '" + name + "' must be in [0, " + std::to_string(bound) + ") (got " +
                              std::to_string(values[i]) + " at position " + std::to_string(i) + ")");
    }
  }
}

template <class Index>
struct Edge {
  Index row, col, position;
};

template <class Index>
void sort_row(Edge<Index>* first, Edge<Index>* last) {
  const auto by_column = [](const Edge<Index>& a, const Edge<Index>& b) {
    return a.col != b.col ? a.col < b.col : a.position < b.position;
  };
  const auto columns = [](const Edge<Index>& a, const Edge<Index>& b) { return a.col < b.col; };
  if (!std::is_sorted(first, last, columns)) std::sort(first, last, by_column);  // positions are distinct: stable
}

}  // namespace

template <class Index>
void coo_to_csr(const int64_t* row, const int64_t* col, int64_t m, int64_t num_rows, int64_t num_cols, int64_t* rowptr,
                Index* sorted_col, Index* perm, Executor& executor) {
  check_indices("coo_to_csr", "row", row, m, num_rows, executor);
  check_indices("coo_to_csr", "col", col, m, num_cols, executor);

  // Buckets of 2^shift rows.
  const int64_t aimed = std::clamp<int64_t>(m / kBucketEdges, 1, kBucketsMax);
  int shift = 0;
  while (((std::max<int64_t>(num_rows, 1) - 1) >> shift) >= aimed) ++shift;
  const int64_t buckets = ((std::max<int64_t>(num_rows, 1) - 1) >> shift) + 1;
  const int64_t workers = workers_for(m, kEdgesPerWorker, executor);

  // next[worker][bucket]: counts, then the position at which the worker writes its next edge of the bucket.
  std::vector<int64_t> next(static_cast<size_t>(workers * buckets), 0);
  executor.run(workers, [&](int64_t worker) {
    const Span span = nth(m, worker, workers);
    int64_t* count = next.data() + worker * buckets;
    for (int64_t i = span.begin; i < span.end; ++i) ++count[row[i] >> shift];
  });
  std::vector<int64_t> bucket_begin(static_cast<size_t>(buckets + 1), 0);
  int64_t position = 0;
  for (int64_t bucket = 0; bucket < buckets; ++bucket) {
    bucket_begin[bucket] = position;
    for (int64_t worker = 0; worker < workers; ++worker) {
      const int64_t count = next[worker * buckets + bucket];
      next[worker * buckets + bucket] = position;
      position += count;
    }
  }
  bucket_begin[buckets] = position;

  // Not value-initialised: every record is written below, and zeroing them first would cost a pass.
  const std::unique_ptr<Edge<Index>[]> dealt(new Edge<Index>[static_cast<size_t>(m)]);
  executor.run(workers, [&](int64_t worker) {
    const Span span = nth(m, worker, workers);
    int64_t* to = next.data() + worker * buckets;
    for (int64_t i = span.begin; i < span.end; ++i) {
      dealt[to[row[i] >> shift]++] = {static_cast<Index>(row[i]), static_cast<Index>(col[i]), static_cast<Index>(i)};
    }
  });

  std::atomic<int64_t> taken{0};
  executor.run(workers, [&](int64_t) {
    std::vector<Edge<Index>> placed;
    std::vector<int64_t> start;
    for (int64_t bucket = taken++; bucket < buckets; bucket = taken++) {
      const int64_t first_row = bucket << shift;
      const int64_t rows = std::min(num_rows, (bucket + 1) << shift) - first_row;
      const Span edges{bucket_begin[bucket], bucket_begin[bucket + 1]};
      start.assign(static_cast<size_t>(rows + 1), 0);
      for (int64_t i = edges.begin; i < edges.end; ++i) ++start[dealt[i].row - first_row + 1];
      for (int64_t r = 0; r < rows; ++r) {
        rowptr[first_row + r] = edges.begin + start[r];
        start[r + 1] += start[r];
      }
      placed.resize(static_cast<size_t>(edges.end - edges.begin));
      for (int64_t i = edges.begin; i < edges.end; ++i) placed[start[dealt[i].row - first_row]++] = dealt[i];
      // start[r] is now the end of row r.
      for (int64_t r = 0; r < rows; ++r) sort_row(placed.data() + (r ? start[r - 1] : 0), placed.data() + start[r]);
      for (size_t i = 0; i < placed.size(); ++i) {
        sorted_col[edges.begin + static_cast<int64_t>(i)] = placed[i].col;
        perm[edges.begin + static_cast<int64_t>(i)] = placed[i].position;
      }
    }
  });
  rowptr[num_rows] = m;
}

template <class Index>
void check_csr(const char* op, const int64_t* rowptr, int64_t rows, const Index* col, int64_t m, int64_t num_cols,
               Executor& executor) {
  const std::string prefix = std::string(op) + ": 'rowptr' must ";
  if (rowptr[0] != 0) throw std::invalid_argument(prefix + "start at 0 (got " + std::to_string(rowptr[0]) + ")");
  for (int64_t r = 0; r < rows; ++r) {
    if (rowptr[r + 1] < rowptr[r]) {
      throw std::invalid_argument(prefix + "never fall (got " + std::to_string(rowptr[r]) + " then " +
                                  std::to_string(rowptr[r + 1]) + " at position " + std::to_string(r + 1) + ")");
    }
  }
  if (rowptr[rows] != m) {
    throw std::invalid_argument(prefix + "end at the number of edges, " + std::to_string(m) + " (got " +
                                std::to_string(rowptr[rows]) + ")");
  }
  check_indices(op, "col", col, m, num_cols, executor);
}

template <class Value, class Index>
void gcn_norm(const int64_t* rowptr, int64_t rows, const Index* col, const Value* edge_weight, Value fill, Loops loops,
              Value* inv_sqrt, Value* self_scale, Executor& executor) {
  const bool skip = loops == Loops::replace || loops == Loops::remain;
  const int64_t workers = workers_for(rowptr[rows] + rows, kEdgesPerWorker, executor);
  const RowSlots slots(rowptr, rows, 1, 1, workers);
  executor.run(workers, [&](int64_t worker) {
    const int64_t last = slots.first_row(worker + 1);
    for (int64_t i = slots.first_row(worker); i < last; ++i) {
      Value degree = 0;
      Value loop = loops == Loops::none ? Value(0) : fill;
      for (int64_t e = rowptr[i]; e < rowptr[i + 1]; ++e) {
        const Value weight = edge_weight ? edge_weight[e] : Value(1);
        if (skip && static_cast<int64_t>(col[e]) == i) {
          if (loops == Loops::remain) loop = weight;
        } else {
          degree += weight;
        }
      }
      degree += loop;
      const Value root = Value(1) / std::sqrt(degree);
      inv_sqrt[i] = std::isinf(root) ? Value(0) : root;
      self_scale[i] = inv_sqrt[i] * loop * inv_sqrt[i];
    }
  });
}

#define FRONTGI_INSTANTIATE(Index)                                                                                     \
  template void coo_to_csr<Index>(const int64_t*, const int64_t*, int64_t, int64_t, int64_t, int64_t*, Index*, Index*, \
                                  Executor&);                                                                          \
  template void check_csr<Index>(const char*, const int64_t*, int64_t, const Index*, int64_t, int64_t, Executor&);     \
  template void gcn_norm<float, Index>(const int64_t*, int64_t, const Index*, const float*, float, Loops, float*,      \
                                       float*, Executor&);                                                             \
  template void gcn_norm<double, Index>(const int64_t*, int64_t, const Index*, const double*, double, Loops, double*,  \
                                        double*, Executor&);
FRONTGI_INSTANTIATE(int32_t)
FRONTGI_INSTANTIATE(int64_t)
#undef FRONTGI_INSTANTIATE

}  // namespace frontgi
