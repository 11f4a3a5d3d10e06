// SPDX-License-Identifier: MIT
// One queue of numbered slots a domain. A worker empties its own domain's queue first, then helps the others, so a
// domain without workers (an affinity mask, a stated topology) is still served, and nobody waits.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace frontgi {

class WorkQueues {
 public:
  // Queue q hands out [begin, end) of its range.
  struct Range {
    int64_t begin, end;
  };
  explicit WorkQueues(const std::vector<Range>& ranges) : queues_(ranges.size()) {
    for (size_t q = 0; q < ranges.size(); ++q) {
      queues_[q].next.store(ranges[q].begin, std::memory_order_relaxed);
      queues_[q].end = ranges[q].end;
    }
  }

  // `count` slots in all, cut evenly over `queues` queues.
  static std::vector<Range> cut(int64_t count, int64_t queues) {
    std::vector<Range> ranges;
    for (int64_t q = 0; q < queues; ++q) ranges.push_back({count * q / queues, count * (q + 1) / queues});
    return ranges;
  }
  static WorkQueues even(int64_t count, int64_t queues) { return WorkQueues(cut(count, queues)); }

  // A worker's way through the queues, from its home on.
  struct Place {
    int64_t home = 0, passed = 0;
  };
  // Hands out a slot; false once every queue is empty.
  bool next(Place& place, int64_t& q, int64_t& slot) {
    const int64_t count = static_cast<int64_t>(queues_.size());
    for (; place.passed < count; ++place.passed) {
      q = (place.home + place.passed) % count;
      Queue& queue = queues_[static_cast<size_t>(q)];
      slot = queue.next.fetch_add(1, std::memory_order_relaxed);
      if (slot < queue.end) return true;
    }
    return false;
  }

  // Calls body(queue, slot) until every queue is empty.
  template <class Body>
  void drain(int64_t home, const Body& body) {
    Place place{home};
    for (int64_t q, slot; next(place, q, slot);) body(q, slot);
  }

 private:
  struct alignas(64) Queue {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  std::vector<Queue> queues_;
};

}  // namespace frontgi
