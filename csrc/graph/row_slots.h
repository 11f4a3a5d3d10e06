// SPDX-License-Identifier: MIT
// Rows cut into slots of equal work, by edges rather than by nodes, without storing a boundary.
//
// Row r costs edge_cost * degree(r) + row_cost, so the costs before it are a closed form of rowptr, and the first row
// of a slot is found by bisection. A row belongs to the slot in which its costs begin. A hub, a row that alone costs
// more than a slot, covers several: they share it by *features* (see `Share`), never by edges, so that every
// element is still summed by one worker in one order.
//
// Invariant: over all slots, every (row, feature) is covered exactly once.
#pragma once

#include <algorithm>
#include <cstdint>

namespace frontgi {

class RowSlots {
 public:
  // rowptr may be null: then every row costs row_cost. REQUIRES: row_cost >= 1, edge_cost >= 0, slots >= 1.
  RowSlots(const int64_t* rowptr, int64_t rows, int64_t edge_cost, int64_t row_cost, int64_t slots)
      : rowptr_(rowptr), rows_(rows), edge_cost_(edge_cost), row_cost_(row_cost), slots_(slots) {
    slot_cost_ = std::max<int64_t>(1, (cost_before(rows) + slots - 1) / slots);
  }

  int64_t slots() const { return slots_; }

  // The first row whose costs begin in `slot` or later.
  int64_t first_row(int64_t slot) const {
    const int64_t target = slot * slot_cost_;
    int64_t low = 0, high = rows_;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (cost_before(middle) >= target) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  bool is_hub(int64_t row) const { return cost_before(row + 1) - cost_before(row) > slot_cost_; }

  // Rows [begin, end) of a slot in full, and up to two hubs of which it takes part `part` of `parts`.
  struct Hub {
    int64_t row = -1;
    int64_t part = 0, parts = 1;
  };
  struct Share {
    int64_t begin = 0, end = 0;
    Hub before, after;
  };
  Share share(int64_t slot) const {
    Share s;
    s.begin = first_row(slot);
    s.end = first_row(slot + 1);
    if (s.begin > 0) s.before = hub_in(s.begin - 1, slot);
    if (s.end > s.begin && is_hub(s.end - 1)) {
      --s.end;
      s.after = hub_in(s.end, slot);
    }
    return s;
  }

 private:
  int64_t cost_before(int64_t row) const {
    return (rowptr_ ? rowptr_[row] - rowptr_[0] : 0) * edge_cost_ + row * row_cost_;
  }

  Hub hub_in(int64_t row, int64_t slot) const {
    if (!is_hub(row)) return {};
    const int64_t first = cost_before(row) / slot_cost_;
    const int64_t last = (cost_before(row + 1) - 1) / slot_cost_;
    if (slot > last) return {};
    return {row, slot - first, last - first + 1};
  }

  const int64_t* rowptr_;
  int64_t rows_, edge_cost_, row_cost_, slots_, slot_cost_;
};

}  // namespace frontgi
