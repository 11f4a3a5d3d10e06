// SPDX-License-Identifier: MIT
// The lines that an aggregation touches: each worker's tasks (run/walk.h), taken apart as the kernel does it
// (kernels/aggregate_impl.h, and pack_rows and the buffers of run/aggregate.cpp). A plain sum: no weights, no scales,
// no self term. What is read but once and little, the bisection for a slot's first row and the list of long rows, is
// left out, and so are prefetches, which touch what is touched soon after.
//
// Layout: the arrays lie one after another from address 0 on, each beginning a page. Addresses are of bytes, accesses
// of lines. Invariant: every line is below `lines`.
#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "../run/blocked_walk.h"
#include "hierarchy.h"
#include "simulate.h"

namespace frontgi::cachesim {

// An aggregation laid out: what run_aggregate holds while it runs.
struct Aggregation {
  explicit Aggregation(const SimulationArgs& given) : args(given), blocked(walk_of(given)) { lay_out(); }
  Aggregation(const Aggregation&) = delete;
  Aggregation& operator=(const Aggregation&) = delete;

  int64_t element_bytes() const { return args.shape.element_bytes; }
  int64_t accumulator_bytes() const { return element_bytes() == 8 ? 8 : 4; }
  int64_t index_bytes() const { return args.wide_index ? 8 : 4; }
  int64_t row_bytes() const { return args.shape.width * element_bytes(); }
  bool waits_in_output() const { return element_bytes() == accumulator_bytes(); }

  const SimulationArgs& args;
  const BlockedWalk blocked;
  const Schedule& schedule = blocked.schedule;
  const AggregateWalk* const walk = &*blocked.walk;
  const ColumnBlocks* const blocks = blocked.blocks ? &*blocked.blocks : nullptr;
  // Addresses; of buffers, those of queue 0 and the distance to the next queue's.
  int64_t x = 0, rowptr = 0, col = 0, splits = 0, out = 0;
  int64_t packed = 0, packed_step = 0, state = 0, state_step = 0, sums = 0, sums_step = 0;
  int64_t lines = 0;

 private:
  static BlockedWalk walk_of(const SimulationArgs& args) {
    AggregateArgs adjacency;
    adjacency.rowptr = args.rowptr;
    adjacency.col = args.col;
    adjacency.wide_index = args.wide_index;
    SerialExecutor executor;
    return BlockedWalk(adjacency, args.shape, args.schedule, 1, executor);
  }

  void lay_out() {
    constexpr int64_t page = 4096;
    int64_t end = 0;
    const auto place = [&](int64_t bytes, int64_t count = 1) {
      const int64_t begin = end;
      end += (bytes + page - 1) / page * page * count;
      return begin;
    };
    const AggregateShape& shape = args.shape;
    x = place(shape.columns * row_bytes());
    if (walk->packed()) {
      const int64_t width = std::min(schedule.slice_width, shape.width);
      packed = place((walk->block_end(0) - walk->block_begin(0)) * width * element_bytes(), schedule.domains);
      packed_step = (end - packed) / schedule.domains;
      if (blocks) {
        state = place(waits_in_output() ? 0 : shape.rows * width * accumulator_bytes(), schedule.domains);
        state_step = (end - state) / schedule.domains;
        sums = place(static_cast<int64_t>(blocks->long_rows().size()) * width * accumulator_bytes(), schedule.domains);
        sums_step = (end - sums) / schedule.domains;
      }
    }
    rowptr = place((shape.rows + 1) * 8);
    col = place(shape.edges * index_bytes());
    if (blocks) splits = place((walk->blocks() - 1) * shape.rows * 4);
    out = place(shape.rows * row_bytes());
    lines = end / kLineBytes;
    if (lines >= int64_t{kNoLine}) {
      throw std::invalid_argument("simulate: an aggregation may touch at most 2^31 lines of 64 bytes (got " +
                                  std::to_string(lines) + ")");
    }
  }
};

// A worker's way through a region, a quantum of accesses at a time.
class WorkerAccesses {
 public:
  // Accesses a turn. Long enough that a worker's tags are worth fetching, short beside what a last-level cache holds.
  static constexpr size_t kQuantum = 512;

  explicit WorkerAccesses(const Aggregation& aggregation) : a_(&aggregation) {}

  // Slots are pulled from `queues`, from `place` on.
  void begin(int64_t region, WorkQueues& queues, WorkQueues::Place place) {
    begin_region(region);
    queues_ = &queues;
    place_ = place;
  }
  // Or dealt: every `step`th slot of queue 0, from `first` on.
  void begin_dealt(int64_t region, int64_t first, int64_t step, int64_t end) {
    begin_region(region);
    queues_ = nullptr;
    dealt_ = first;
    dealt_step_ = step;
    dealt_end_ = end;
  }

  // Or, before the first region, rows [first, end) cut where their edges cross into the next block of columns.
  void begin_splitting(int64_t first, int64_t end) {
    split_row_ = first;
    split_rows_end_ = end;
    dealt_end_ = 0;
    queues_ = nullptr;
  }

  // The next accesses: a quantum or little more, or up to the end of a slot, so that no worker takes a second one
  // before the others had their turn; none only when the region's work is done. Lines that are streamed are only
  // counted. REQUIRES: room for kBatchMax.
  size_t fill(Access* to, int64_t& streamed) {
    next_ = begin_ = to;
    streamed_ = 0;
    took_slot_ = false;
    const Access* const stop = to + kQuantum;
    while (next_ < stop && advance(stop)) {
    }
    streamed = streamed_;
    return static_cast<size_t>(next_ - to);
  }

  // Whether the last fill began a slot.
  bool took_slot() const { return took_slot_; }

 private:
  // The steps of a worker, the innermost loop first. False when there is nothing left, in this fill or at all.
  bool advance(const Access* stop) {
    if (split_row_ < split_rows_end_) return split(), true;
    if (edge_ < edges_end_) return gather(stop), true;
    if (in_piece_) return end_piece(), true;
    if (feature_ < row_features_end_) return task_.packs ? pack_piece() : begin_piece(), true;
    if (row_ < task_.row_end) return task_.packs ? pack_row() : begin_row(), true;
    if (task_index_ < task_count_) return begin_task(), true;
    return next_ == begin_ && next_slot();
  }

  void begin_region(int64_t region) {
    region_ = region;
    first_column_ = a_->walk->packed() ? a_->walk->block_begin(region) : 0;
  }

  bool next_slot() {
    int64_t slot;
    if (queues_) {
      if (!queues_->next(place_, queue_, slot)) return false;
    } else {
      if (dealt_ >= dealt_end_) return false;
      queue_ = 0;
      slot = dealt_;
      dealt_ += dealt_step_;
    }
    took_slot_ = true;
    task_count_ = task_index_ = 0;
    a_->walk->tasks(region_, queue_, slot, [&](const AggregateTask& task) { tasks_[task_count_++] = task; });
    slice_begin_ = a_->walk->slice_begin(region_, queue_);
    slice_width_ = a_->walk->slice_end(region_, queue_) - slice_begin_;
    return true;
  }

  void begin_task() {
    task_ = tasks_[task_index_++];
    row_ = task_.row_begin;
    feature_ = row_features_end_ = 0;
    const int64_t part = a_->row_bytes() | task_.feature_begin * a_->element_bytes();
    streams_ = a_->args.stream && !a_->blocks && part % a_->args.vector_bytes == 0;
  }

  // Rows split ------------------------------------------------------------------------------------------------------

  // A row's edges, then its places in each block's array, a stretch at a time.
  void split() {
    const int64_t rows = a_->args.shape.rows, index = a_->index_bytes(), places = a_->walk->blocks() - 1;
    const int64_t begin = a_->args.rowptr[split_row_], end = a_->args.rowptr[split_row_ + 1];
    if (split_edges_ == 0 && split_places_ == 0) touch(a_->rowptr + split_row_ * 8, 16, 0);
    if (begin + split_edges_ < end) {
      const int64_t count = std::min(end - begin - split_edges_, kPieceBytes / index);
      touch(a_->col + (begin + split_edges_) * index, count * index, 0);
      split_edges_ += count;
      return;
    }
    const int64_t stop = std::min(split_places_ + 16, places);
    for (; split_places_ < stop; ++split_places_)
      touch(a_->splits + (split_places_ * rows + split_row_) * 4, 4, kWrite);
    if (split_places_ < places) return;
    split_edges_ = split_places_ = 0;
    ++split_row_;
  }

  // Rows packed -----------------------------------------------------------------------------------------------------

  void pack_row() {
    at_row_ = row_++;
    feature_ = task_.feature_begin;
    row_features_end_ = task_.feature_end;
  }

  // A stretch of a row; only very wide slices have more than one.
  void pack_piece() {
    const int64_t element = a_->element_bytes(), end = std::min(feature_ + kPieceBytes / element, row_features_end_);
    const int64_t bytes = (end - feature_) * element;
    touch(a_->x + at_row_ * a_->row_bytes() + feature_ * element, bytes, 0);
    touch(packed_row(at_row_) + (feature_ - slice_begin_) * element, bytes, kWrite);
    feature_ = end;
  }

  int64_t packed_row(int64_t source) const {
    return a_->packed + queue_ * a_->packed_step + (source - first_column_) * slice_width_ * a_->element_bytes();
  }

  // Rows aggregated -------------------------------------------------------------------------------------------------

  void begin_row() {
    at_row_ = row_++;
    touch(a_->rowptr + at_row_ * 8, 16, 0);
    row_edges_begin_ = piece_edges_begin_ = a_->args.rowptr[at_row_];
    piece_edges_end_ = a_->args.rowptr[at_row_ + 1];
    waits_ = false;
    if (a_->blocks && !enter_block()) return;
    feature_ = task_.feature_begin;
    row_features_end_ = task_.feature_end;
  }

  // Cuts the row to the block's edges. False if it has none there and waits for another block.
  bool enter_block() {
    const int64_t block = a_->walk->block(region_);
    const uint32_t *begin = a_->blocks->begin(block), *end = a_->blocks->end(block);
    const auto split = [&](int64_t of) { return a_->splits + (of * a_->args.shape.rows + at_row_) * 4; };
    if (begin) {
      touch(split(block - 1), 4, 0);
      piece_edges_begin_ = row_edges_begin_ + begin[at_row_];
    }
    waits_ = end != nullptr;
    if (end) {
      touch(split(block), 4, 0);
      piece_edges_end_ = row_edges_begin_ + end[at_row_];
    }
    return !waits_ || piece_edges_begin_ < piece_edges_end_;
  }

  // The kernel's pieces: 16 vectors (8 where there are but 16 registers), half as many, ..., one, a part of one.
  void begin_piece() {
    const int64_t lanes = a_->args.vector_bytes / a_->accumulator_bytes(), left = row_features_end_ - feature_;
    piece_end_ = row_features_end_;
    tail_ = left < lanes;
    for (int64_t vectors = a_->args.vector_bytes == 64 ? 16 : 8; vectors > 0; vectors /= 2) {
      if (vectors * lanes > left) continue;
      piece_end_ = feature_ + vectors * lanes;
      break;
    }
    wait_or_resume(piece_edges_begin_ - row_edges_begin_, 0);
    edge_ = piece_edges_begin_;
    edges_end_ = piece_edges_end_;
    last_col_line_ = kNoLine;
    in_piece_ = true;
  }

  void end_piece() {
    if (waits_) {
      wait_or_resume(piece_edges_end_ - row_edges_begin_, kWrite);
    } else {
      write_output();
    }
    feature_ = piece_end_;
    in_piece_ = false;
  }

  // The accumulators of a row of which `done` edges are done: the sum of whole chains, and the chain begun.
  void wait_or_resume(int64_t done, Access write) {
    if (!a_->blocks || done == 0) return;
    const int64_t accumulator = a_->accumulator_bytes(), bytes = (piece_end_ - feature_) * accumulator;
    const int64_t offset = (feature_ - slice_begin_) * accumulator;
    if (done % kEdgesSummed != 0) {
      const int64_t scratch = a_->state + queue_ * a_->state_step + at_row_ * slice_width_ * accumulator + offset;
      touch(a_->waits_in_output() ? output() : scratch, bytes, write);
    }
    if (done >= kEdgesSummed) {
      const std::vector<int64_t>& rows = a_->blocks->long_rows();
      const int64_t position = std::lower_bound(rows.begin(), rows.end(), at_row_) - rows.begin();
      touch(a_->sums + queue_ * a_->sums_step + position * slice_width_ * accumulator + offset, bytes, write);
    }
  }

  int64_t output() const { return a_->out + at_row_ * a_->row_bytes() + feature_ * a_->element_bytes(); }

  void write_output() {
    const int64_t bytes = (piece_end_ - feature_) * a_->element_bytes();
    if (!streams_ || tail_) return touch(output(), bytes, kWrite);
    const int64_t first = output() / kLineBytes, last = (output() + bytes - 1) / kLineBytes;
    streamed_ += last - first + (first != last_streamed_line_);  // parts of a line are combined
    last_streamed_line_ = last;
  }

  void gather(const Access* stop) { a_->args.wide_index ? gather_as<int64_t>(stop) : gather_as<int32_t>(stop); }

  template <class Index>
  void gather_as(const Access* stop) {
    const Index* col = static_cast<const Index*>(a_->args.col);
    const int64_t element = a_->element_bytes();
    const int64_t bytes = (piece_end_ - feature_) * element;
    const bool packed = a_->walk->packed();
    const int64_t stride = packed ? slice_width_ * element : a_->row_bytes();
    const int64_t source =
        packed ? packed_row(first_column_) + (feature_ - slice_begin_) * element - first_column_ * stride
               : a_->x + feature_ * element;
    Access* next = next_;
    int64_t e = edge_;
    for (; e < edges_end_ && next < stop; ++e) {
      const Access col_line = static_cast<Access>((a_->col + e * int64_t{sizeof(Index)}) / kLineBytes);
      if (col_line != last_col_line_) *next++ = last_col_line_ = col_line;
      const int64_t address = source + static_cast<int64_t>(col[e]) * stride;
      const Access last = static_cast<Access>((address + bytes - 1) / kLineBytes);
      for (Access line = static_cast<Access>(address / kLineBytes); line <= last; ++line) *next++ = line;
    }
    edge_ = e;
    next_ = next;
  }

  void touch(int64_t address, int64_t bytes, Access write) {
    const int64_t last = (address + bytes - 1) / kLineBytes;
    for (int64_t line = address / kLineBytes; line <= last; ++line) *next_++ = static_cast<Access>(line) | write;
  }

  static constexpr int64_t kPieceBytes = 1024;
  // A step adds at most the accumulators or the output of a piece and its row's sums, or an edge's index and features.
  static_assert(kQuantum + 8 * (kPieceBytes / kLineBytes + 2) <= kBatchMax);

  const Aggregation* a_;
  WorkQueues* queues_ = nullptr;
  WorkQueues::Place place_;
  int64_t dealt_ = 0, dealt_step_ = 1, dealt_end_ = 0;
  int64_t region_ = 0, first_column_ = 0, queue_ = 0, slice_begin_ = 0, slice_width_ = 0;
  std::array<AggregateTask, 3> tasks_{};  // of a slot: a hub's share, rows, a hub's share
  size_t task_index_ = 0, task_count_ = 0;
  AggregateTask task_{};
  bool streams_ = false;
  int64_t split_row_ = 0, split_rows_end_ = 0, split_edges_ = 0, split_places_ = 0;
  int64_t row_ = 0, at_row_ = 0, row_edges_begin_ = 0, row_features_end_ = 0;
  bool waits_ = false, in_piece_ = false, tail_ = false;
  int64_t feature_ = 0, piece_end_ = 0, piece_edges_begin_ = 0, piece_edges_end_ = 0;
  int64_t edge_ = 0, edges_end_ = 0;
  Access last_col_line_ = kNoLine;
  int64_t last_streamed_line_ = -1, streamed_ = 0;
  Access *begin_ = nullptr, *next_ = nullptr;
  bool took_slot_ = false;
};

}  // namespace frontgi::cachesim
