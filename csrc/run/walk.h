// SPDX-License-Identifier: MIT
// An aggregation as a schedule does it, in tasks: the one text that the kernels' loops (aggregate.cpp) and the cache
// model (csrc/cachesim) both follow. Plain integers; reads rowptr, touches no feature.
//
//   region   done after the one before it; only here do workers wait for each other
//   queue    of a region, one a domain: workers empty their own first, then help the others (WorkQueues)
//   slot     of a queue, taken whole by one worker
//   task     of a slot, done in order: rows packed, or rows aggregated
//
// Invariant: over all regions, every (destination row, feature, block of columns) is aggregated exactly once, blocks in
// ascending order, and whatever a mixed schedule gathers was packed in the region before.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "../graph/row_slots.h"
#include "schedule.h"
#include "work_queue.h"

namespace frontgi {

struct AggregateTask {
  bool packs;                          // copies source rows into the queue's buffer, else aggregates destination rows
  int64_t row_begin, row_end;          // of the sources, or of the destinations
  int64_t feature_begin, feature_end;  // a hub is shared out by features
};

class AggregateWalk {
 public:
  // REQUIRES: shape.rows > 0, shape.width > 0; rowptr outlives the walk.
  AggregateWalk(const int64_t* rowptr, const AggregateShape& shape, const Schedule& schedule)
      : shape_(shape),
        schedule_(schedule),
        packed_(schedule.kind == ScheduleKind::mixed && shape.columns > 0),
        slots_(rowptr, shape.rows, 1, 1, schedule.slots) {
    if (!packed_) return;
    slices_ = (shape.width + schedule.slice_width - 1) / schedule.slice_width;
    block_columns_ = schedule.block_columns > 0 ? std::min(schedule.block_columns, shape.columns) : shape.columns;
    blocks_ = (shape.columns + block_columns_ - 1) / block_columns_;
    pack_slots_ = std::clamp<int64_t>(block_columns_, 1, schedule.slots);
  }

  bool packed() const { return packed_; }
  int64_t blocks() const { return blocks_; }
  int64_t regions() const { return packed_ ? rounds() * blocks_ * 2 : 1; }

  // Which block of columns [block_begin, block_end) a region packs or gathers.
  int64_t block(int64_t region) const { return packed_ ? region / 2 % blocks_ : 0; }
  int64_t block_begin(int64_t region) const { return block(region) * block_columns_; }
  int64_t block_end(int64_t region) const { return std::min(shape_.columns, block_begin(region) + block_columns_); }
  bool packs(int64_t region) const { return packed_ && region % 2 == 0; }

  // The features that a queue of a region works on: those of its buffer, if packed.
  int64_t slice_begin(int64_t region, int64_t queue) const { return packed_ ? slice(region, queue) : 0; }
  int64_t slice_end(int64_t region, int64_t queue) const {
    return packed_ ? std::min(shape_.width, slice(region, queue) + schedule_.slice_width) : shape_.width;
  }

  std::vector<WorkQueues::Range> queues(int64_t region) const {
    if (!packed_) return WorkQueues::cut(schedule_.slots, schedule_.domains);
    const int64_t active = std::min(schedule_.domains, slices_ - round(region) * schedule_.domains);
    return std::vector<WorkQueues::Range>(static_cast<size_t>(active),
                                          {0, packs(region) ? pack_slots_ : schedule_.slots});
  }

  // Calls body(task) for each task of a slot, in order.
  template <class Body>
  void tasks(int64_t region, int64_t queue, int64_t slot, const Body& body) const {
    const int64_t begin = slice_begin(region, queue), end = slice_end(region, queue);
    if (packs(region)) {
      const int64_t first = block_begin(region), count = block_end(region) - first;
      body(AggregateTask{true, first + count * slot / pack_slots_, first + count * (slot + 1) / pack_slots_, begin,
                         end});
      return;
    }
    const RowSlots::Share share = slots_.share(slot);
    hub(share.before, begin, end, body);
    if (share.begin < share.end) body(AggregateTask{false, share.begin, share.end, begin, end});
    hub(share.after, begin, end, body);
  }

 private:
  int64_t rounds() const { return (slices_ + schedule_.domains - 1) / schedule_.domains; }
  int64_t round(int64_t region) const { return region / 2 / blocks_; }
  int64_t slice(int64_t region, int64_t queue) const {
    return (round(region) * schedule_.domains + queue) * schedule_.slice_width;
  }

  template <class Body>
  void hub(const RowSlots::Hub& hub, int64_t slice_begin, int64_t slice_end, const Body& body) const {
    if (hub.row < 0) return;
    const int64_t line = 64 / shape_.element_bytes, width = slice_end - slice_begin;
    const int64_t lines = (width + line - 1) / line;
    const int64_t begin = std::min(width, lines * hub.part / hub.parts * line);
    const int64_t end = std::min(width, lines * (hub.part + 1) / hub.parts * line);
    if (begin < end) body(AggregateTask{false, hub.row, hub.row + 1, slice_begin + begin, slice_begin + end});
  }

  AggregateShape shape_;
  Schedule schedule_;
  bool packed_;
  RowSlots slots_;
  int64_t slices_ = 1, blocks_ = 1, block_columns_ = 0, pack_slots_ = 1;
};

}  // namespace frontgi
