// SPDX-License-Identifier: MIT
// Work is dealt exactly once: rows and features to slots, slots to workers.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "../graph/row_slots.h"
#include "../run/work_queue.h"
#include "graphs.h"
#include "threads.h"

namespace frontgi::test {
namespace {

// What the slots of a cut cover. A hub's part stands for its share of the row's features.
struct Cover {
  std::vector<std::vector<RowSlots::Hub>> hubs;  // by row
  std::vector<int64_t> whole;                    // how often a row was covered in full

  Cover(const RowSlots& slots, int64_t rows) : hubs(static_cast<size_t>(rows)), whole(static_cast<size_t>(rows), 0) {
    for (int64_t slot = 0; slot < slots.slots(); ++slot) {
      const RowSlots::Share share = slots.share(slot);
      for (int64_t row = share.begin; row < share.end; ++row) ++whole[static_cast<size_t>(row)];
      for (const RowSlots::Hub& hub : {share.before, share.after}) {
        if (hub.row >= 0) hubs[static_cast<size_t>(hub.row)].push_back(hub);
      }
    }
  }

  // Covered once in full, or once by each of at least two parts.
  bool exactly_once(int64_t row, bool is_hub) const {
    const std::vector<RowSlots::Hub>& shared = hubs[static_cast<size_t>(row)];
    if (!is_hub) return whole[static_cast<size_t>(row)] == 1 && shared.empty();
    if (whole[static_cast<size_t>(row)] != 0 || shared.size() < 2) return false;
    std::vector<int64_t> parts;
    for (const RowSlots::Hub& hub : shared) {
      if (hub.parts != static_cast<int64_t>(shared.size())) return false;
      parts.push_back(hub.part);
    }
    std::sort(parts.begin(), parts.end());
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i] != static_cast<int64_t>(i)) return false;
    }
    return true;
  }
};

std::vector<int64_t> random_rowptr(int64_t rows, Random& random) {
  std::vector<int64_t> rowptr{0};
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t kind = random.below(10);
    const int64_t degree = kind < 4 ? 0 : kind < 9 ? random.below(8) : random.below(500);
    rowptr.push_back(rowptr.back() + degree);
  }
  return rowptr;
}

TEST_CASE("row slots: every row and feature exactly once, hubs shared") {
  Random random(20);
  for (int trial = 0; trial < 2000; ++trial) {
    const int64_t rows = random.below(60);
    const std::vector<int64_t> rowptr = random_rowptr(rows, random);
    const int64_t edge_cost = random.below(4), row_cost = 1 + random.below(50), count = 1 + random.below(80);
    const bool without_edges = random.below(8) == 0;
    const RowSlots slots(without_edges ? nullptr : rowptr.data(), rows, edge_cost, row_cost, count);
    const Cover cover(slots, rows);
    int64_t wrong = -1;
    for (int64_t row = 0; row < rows; ++row) {
      if (!cover.exactly_once(row, slots.is_hub(row))) wrong = row;
    }
    CAPTURE(trial);
    CHECK(wrong == -1);
    CHECK(slots.first_row(0) == 0);
    CHECK(slots.first_row(count) == rows);
  }
}

TEST_CASE("row slots: no slot has much more than its share of the work") {
  Random random(21);
  const std::vector<int64_t> rowptr = random_rowptr(3000, random);
  const int64_t slots = 16, total = rowptr.back() + 3000;
  const RowSlots cut(rowptr.data(), 3000, 1, 1, slots);
  for (int64_t slot = 0; slot < slots; ++slot) {
    const int64_t begin = cut.first_row(slot), end = cut.first_row(slot + 1);
    const int64_t cost = rowptr[static_cast<size_t>(end)] - rowptr[static_cast<size_t>(begin)] + end - begin;
    CHECK(cost <= total / slots + 501);  // a row's work at most beyond it
  }
}

TEST_CASE("row slots: a rowptr of a part of a larger graph need not start at 0") {
  const std::vector<int64_t> rowptr = {100, 103, 103, 190, 191};
  const Cover cover(RowSlots(rowptr.data(), 4, 1, 1, 3), 4);
  for (int64_t row = 0; row < 4; ++row) CHECK(cover.exactly_once(row, row == 2));
}

TEST_CASE("work queues: every slot exactly once under contention") {
  const std::vector<WorkQueues::Range> ranges = {{0, 5000}, {5000, 5000}, {5000, 5001}, {5001, 20000}};
  for (const NamedExecutor& how : executors()) {
    for (const int64_t queues : {int64_t{0}, int64_t{1}, int64_t{5}, int64_t{16}}) {
      WorkQueues queue = queues ? WorkQueues::even(20000, queues) : WorkQueues(ranges);
      const int64_t count = queues ? queues : static_cast<int64_t>(ranges.size());
      std::vector<std::atomic<int>> taken(20000);
      const int64_t workers = how.executor->max_workers();
      std::atomic<int64_t> wrong_queue{0};
      how.executor->run(workers, [&](int64_t worker) {
        queue.drain(worker % count, [&](int64_t q, int64_t slot) {
          taken[static_cast<size_t>(slot)].fetch_add(1, std::memory_order_relaxed);
          const int64_t begin = queues ? 20000 * q / count : ranges[static_cast<size_t>(q)].begin;
          const int64_t end = queues ? 20000 * (q + 1) / count : ranges[static_cast<size_t>(q)].end;
          if (slot < begin || slot >= end) ++wrong_queue;
        });
      });
      CAPTURE(how.name);
      CHECK(wrong_queue == 0);
      CHECK(std::all_of(taken.begin(), taken.end(), [](const std::atomic<int>& times) { return times == 1; }));
    }
  }
}

TEST_CASE("work queues: a worker starts with its own queue") {
  WorkQueues queue = WorkQueues::even(9, 3);
  std::vector<int64_t> order;
  queue.drain(2, [&](int64_t, int64_t slot) { order.push_back(slot); });
  CHECK(order == std::vector<int64_t>{6, 7, 8, 0, 1, 2, 3, 4, 5});
}

}  // namespace
}  // namespace frontgi::test
