// SPDX-License-Identifier: MIT
#include "schedule.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "cost.h"

namespace frontgi {
namespace {

constexpr int64_t kLineBytes = 64;
// Waking a worker costs a few microseconds, in which one core moves about this much.
constexpr int64_t kBytesPerWorker = 128 << 10;
// Dynamic slots a worker: enough that the last one to finish is late by about 1/16 of its time.
constexpr int64_t kSlotsPerWorker = 16;
// Rows in a chunk of the node-parallel schedule, on average: about what PyG's and DGL's loops take at a time.
constexpr int64_t kChunkRows = 16;
// FrontGI, section 4.2.2: below 20 hierarchical, above 50 mixed, either in between.
constexpr double kMixedAboveDegree = 50;
// With a slice that is known to fit, packing (two passes over the features) pays from a lower degree on.
constexpr double kFittingMixedAboveDegree = 24;
// Blocks of columns beyond this many cost more in waiting rows than any cache saves.
constexpr int64_t kBlocksMax = 64;
// Of the positions at which rows cross from block to block, when blocks are asked for.
constexpr double kSplitBytesMax = 1 << 30;
// Memory that the planner lets a mixed schedule take beside input and output: so much, and so much a worker.
constexpr double kExtraBytes = 64 << 20, kExtraBytesPerWorker = 8 << 20;
// What a mixed schedule must save by the model to be worth its buffers and the model's error.
constexpr double kWorthwhile = 0.98;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t line_elements(const AggregateShape& shape) { return kLineBytes / shape.element_bytes; }

// Of rows of a slice, those that fit a domain's share.
int64_t fitting_rows(const AggregateShape& shape, int64_t slice_width, int64_t llc_bytes) {
  return static_cast<int64_t>(static_cast<double>(llc_bytes) * kSliceShareOfLlc) /
         std::max<int64_t>(1, slice_width * shape.element_bytes);
}

// Whole cache lines of every source row that fit a domain's share, as features; 0 if not one line does.
int64_t fitting_slice_width(const AggregateShape& shape, int64_t llc_bytes) {
  const int64_t lines = static_cast<int64_t>(static_cast<double>(llc_bytes) * kSliceShareOfLlc) /
                        std::max<int64_t>(1, shape.columns * kLineBytes);
  return lines * line_elements(shape);
}

// The paper's dim / D, in whole lines.
int64_t paper_slice_width(const AggregateShape& shape, const Machine& machine) {
  const int64_t line = line_elements(shape);
  return std::max(line, ceil_div(ceil_div(shape.width, machine.domains()), line) * line);
}

int64_t default_slice_width(const AggregateShape& shape, const Machine& machine) {
  const int64_t fitting = fitting_slice_width(shape, machine.smallest_llc_bytes());
  return fitting > 0 ? fitting : paper_slice_width(shape, machine);
}

Schedule with_slots(Schedule s, const AggregateShape& shape) {
  const int64_t rows = std::max<int64_t>(1, shape.rows);
  const int64_t sharing = s.kind == ScheduleKind::mixed ? std::max<int64_t>(1, s.workers / s.domains) : s.workers;
  s.slots = s.kind == ScheduleKind::node_parallel ? ceil_div(rows, kChunkRows)
            : s.workers == 1                      ? 1
                                                  : std::clamp<int64_t>(sharing * kSlotsPerWorker, 1, rows);
  return s;
}

// Packed slices, rows that wait for their next block beside the output, and where rows cross from block to block.
double extra_bytes(const AggregateShape& shape, const Schedule& s) {
  const double rows = static_cast<double>(shape.rows), columns = static_cast<double>(shape.columns);
  const double held = s.block_columns > 0 ? static_cast<double>(s.block_columns) : columns;
  const double blocks = s.block_columns > 0 ? std::ceil(columns / held) : 1;
  const double waiting = blocks > 1 && shape.element_bytes == 2 ? rows * 4 : 0;
  const double slice = static_cast<double>(s.slice_width), element = static_cast<double>(shape.element_bytes);
  return static_cast<double>(s.domains) * slice * (held * element + waiting) + 4 * rows * (blocks - 1);
}

// Slices of `slice_width`, and of as many source rows at a time as fit, if that is known; `like` has the workers.
Schedule mixed(Schedule like, int64_t slice_width, const AggregateShape& shape, int64_t llc_bytes) {
  like.kind = ScheduleKind::mixed;
  like.slice_width = slice_width;
  const int64_t fitting = fitting_rows(shape, slice_width, llc_bytes);
  if (fitting > 0 && fitting < shape.columns) {  // in blocks as equal as can be
    like.block_columns = ceil_div(shape.columns, ceil_div(shape.columns, fitting));
  }
  return with_slots(like, shape);
}

// The cheapest of all: slices of one line, two, four, ..., of all source rows, of as many as fit, and of twice and four
// times as many (of skewed graphs a few sources are gathered most). Other widths are walked in more than one piece.
Schedule cheapest(const Schedule& by_rows, const AggregateShape& shape, const Machine& machine,
                  const Footprint& footprint, const Rates& rates) {
  const int64_t llc = machine.smallest_llc_bytes();
  Schedule best = by_rows;
  const auto cost = [&](const Schedule& s) {
    return seconds_for(estimate_traffic(shape, s, machine, footprint, rates.llc_share), s, machine, rates);
  };
  double least = cost(by_rows) * kWorthwhile;
  for (int64_t width = line_elements(shape); width < shape.width; width *= 2) {
    for (const int64_t fitting : {int64_t{0}, llc, 2 * llc, 4 * llc}) {
      const Schedule s = mixed(by_rows, width, shape, fitting);
      if (fitting > 0 && s.block_columns == 0) break;
      if (s.block_columns > 0 && ceil_div(shape.columns, s.block_columns) > kBlocksMax) continue;
      if (extra_bytes(shape, s) > kExtraBytes + kExtraBytesPerWorker * static_cast<double>(s.workers)) continue;
      const double seconds = cost(s);
      if (seconds >= least) continue;
      least = seconds;
      best = s;
    }
  }
  return best;
}

}  // namespace

int64_t workers_for_bytes(int64_t bytes, int64_t max_workers) {
  return std::clamp<int64_t>(bytes / kBytesPerWorker, 1, max_workers);
}

Schedule plan_aggregate(const AggregateShape& shape, const Machine& machine, int64_t max_workers,
                        const Footprint& footprint, const Rates& rates) {
  Schedule s;
  const int64_t row_bytes = shape.width * shape.element_bytes;
  s.workers = workers_for_bytes((shape.edges + shape.rows) * row_bytes, max_workers);
  s.domains = std::min(machine.domains(), s.workers);
  s.kind = s.workers == 1 ? ScheduleKind::serial : ScheduleKind::hierarchical;
  if (shape.rows == 0 || shape.width == 0) return s;
  s = with_slots(s, shape);

  const double degree = static_cast<double>(shape.edges) / static_cast<double>(shape.rows);
  const int64_t llc = machine.smallest_llc_bytes();
  if (llc == 0) {
    const bool papers = degree > kMixedAboveDegree && machine.domains() > 1 && shape.columns > 0;
    return papers ? mixed(s, default_slice_width(shape, machine), shape, 0) : s;
  }
  if (shape.columns * row_bytes <= static_cast<int64_t>(kSliceShareOfLlc * static_cast<double>(llc))) return s;
  if (shape.columns == 0) return s;
  if (!footprint.empty()) return cheapest(s, shape, machine, footprint, rates);
  const int64_t slice = fitting_slice_width(shape, llc);
  const bool pays = slice > 0 && slice < shape.width && degree >= kFittingMixedAboveDegree;
  return pays ? mixed(s, slice, shape, llc) : s;
}

Schedule forced_schedule(const AskedSchedule& asked, const AggregateShape& shape, const Machine& machine,
                         int64_t max_workers) {
  const auto refuse = [](const std::string& why) { throw std::invalid_argument("plan: " + why); };
  const std::string sizes = std::to_string(asked.workers) + ", " + std::to_string(asked.slice_width) + " and " +
                            std::to_string(asked.block_columns);
  if (asked.workers < 0 || asked.slice_width < 0 || asked.block_columns < 0) {
    refuse("workers, slice_width and block_columns must not be negative (got " + sizes + ")");
  }
  if (asked.kind != ScheduleKind::mixed && (asked.slice_width > 0 || asked.block_columns > 0)) {
    refuse("slice_width and block_columns are for the mixed schedule alone (got " + std::to_string(asked.slice_width) +
           " and " + std::to_string(asked.block_columns) + ")");
  }
  if (asked.kind == ScheduleKind::serial && asked.workers > 1) {
    refuse("the serial schedule has one worker (got " + std::to_string(asked.workers) + ")");
  }
  Schedule s;
  s.kind = asked.kind;
  s.workers = asked.kind == ScheduleKind::serial ? 1 : asked.workers > 0 ? asked.workers : max_workers;
  s.domains = asked.kind == ScheduleKind::node_parallel ? 1 : std::min(machine.domains(), s.workers);
  if (asked.kind == ScheduleKind::mixed) {
    const int64_t width = asked.slice_width > 0 ? asked.slice_width : default_slice_width(shape, machine);
    s.slice_width = std::min(width, std::max<int64_t>(1, shape.width));
    s.block_columns = asked.block_columns < shape.columns ? asked.block_columns : 0;
    const int64_t blocks = s.block_columns > 0 ? ceil_div(shape.columns, s.block_columns) : 1;
    const double split_bytes = 4.0 * static_cast<double>(shape.rows) * static_cast<double>(blocks - 1);
    if (split_bytes > kSplitBytesMax) {
      refuse("blocks of " + std::to_string(s.block_columns) + " source rows make " + std::to_string(blocks) +
             " of them, and " + std::to_string(static_cast<int64_t>(split_bytes)) +
             " bytes to tell each row's edges apart: at most " + std::to_string(static_cast<int64_t>(kSplitBytesMax)));
    }
  }
  return with_slots(s, shape);
}

}  // namespace frontgi
