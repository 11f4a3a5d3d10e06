// SPDX-License-Identifier: MIT
#include "schedule.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace frontgi {
namespace {

constexpr int64_t kLineBytes = 64;
// Waking a worker costs a few microseconds, in which one core moves about this much.
constexpr int64_t kBytesPerWorker = 128 << 10;
// Dynamic slots a worker: enough that the last one to finish is late by about 1/16 of its time.
constexpr int64_t kSlotsPerWorker = 16;
// A packed slice shares the cache with rowptr, col and the output lines in flight.
constexpr double kSliceShareOfLlc = 0.55;
// FrontGI, section 4.2.2: below 20 hierarchical, above 50 mixed, either in between.
constexpr double kMixedAboveDegree = 50;
// With a slice that is known to fit, packing (two passes over the features) pays from a lower degree on.
constexpr double kFittingMixedAboveDegree = 24;

int64_t line_elements(const AggregateShape& shape) { return kLineBytes / shape.element_bytes; }

// Whole cache lines of every source row that fit a domain's share, as features; 0 if not one line does.
int64_t fitting_slice_width(const AggregateShape& shape, int64_t llc_bytes) {
  const int64_t lines = static_cast<int64_t>(static_cast<double>(llc_bytes) * kSliceShareOfLlc) /
                        std::max<int64_t>(1, shape.columns * kLineBytes);
  return lines * line_elements(shape);
}

// The paper's dim / D, in whole lines.
int64_t paper_slice_width(const AggregateShape& shape, const Machine& machine) {
  const int64_t line = line_elements(shape);
  const int64_t part = (shape.width + machine.domains() - 1) / machine.domains();
  return std::max(line, (part + line - 1) / line * line);
}

int64_t default_slice_width(const AggregateShape& shape, const Machine& machine) {
  const int64_t fitting = fitting_slice_width(shape, machine.smallest_llc_bytes());
  return fitting > 0 ? fitting : paper_slice_width(shape, machine);
}

Schedule with_slots(Schedule s, const AggregateShape& shape) {
  const int64_t sharing = s.kind == ScheduleKind::mixed ? std::max<int64_t>(1, s.workers / s.domains) : s.workers;
  s.slots = s.workers == 1 ? 1 : std::clamp<int64_t>(sharing * kSlotsPerWorker, 1, std::max<int64_t>(1, shape.rows));
  return s;
}

}  // namespace

int64_t workers_for_bytes(int64_t bytes, int64_t max_workers) {
  return std::clamp<int64_t>(bytes / kBytesPerWorker, 1, max_workers);
}

Schedule plan_aggregate(const AggregateShape& shape, const Machine& machine, int64_t max_workers) {
  Schedule s;
  const int64_t row_bytes = shape.width * shape.element_bytes;
  s.workers = workers_for_bytes((shape.edges + shape.rows) * row_bytes, max_workers);
  s.domains = std::min(machine.domains(), s.workers);
  s.kind = s.workers == 1 ? ScheduleKind::serial : ScheduleKind::hierarchical;
  if (shape.rows == 0 || shape.width == 0) return s;

  const double degree = static_cast<double>(shape.edges) / static_cast<double>(shape.rows);
  const int64_t llc = machine.smallest_llc_bytes();
  bool mixed;
  if (llc > 0) {
    const bool already_fits =
        shape.columns * row_bytes <= static_cast<int64_t>(kSliceShareOfLlc * static_cast<double>(llc));
    const int64_t slice = fitting_slice_width(shape, llc);
    mixed = !already_fits && slice > 0 && slice < shape.width && degree >= kFittingMixedAboveDegree;
  } else {
    mixed = degree > kMixedAboveDegree && machine.domains() > 1;
  }
  if (mixed) {
    s.kind = ScheduleKind::mixed;
    s.slice_width = default_slice_width(shape, machine);
  }
  return with_slots(s, shape);
}

Schedule forced_schedule(ScheduleKind kind, int64_t workers, int64_t slice_width, const AggregateShape& shape,
                         const Machine& machine, int64_t max_workers) {
  if (workers < 0 || slice_width < 0) {
    throw std::invalid_argument("plan: workers and slice_width must not be negative (got " + std::to_string(workers) +
                                " and " + std::to_string(slice_width) + ")");
  }
  if (slice_width > 0 && kind != ScheduleKind::mixed) {
    throw std::invalid_argument("plan: slice_width is for the mixed schedule alone (got " +
                                std::to_string(slice_width) + ")");
  }
  if (kind == ScheduleKind::serial && workers > 1) {
    throw std::invalid_argument("plan: the serial schedule has one worker (got " + std::to_string(workers) + ")");
  }
  Schedule s;
  s.kind = kind;
  s.workers = kind == ScheduleKind::serial ? 1 : workers > 0 ? workers : max_workers;
  s.domains = std::min(machine.domains(), s.workers);
  if (kind == ScheduleKind::mixed) s.slice_width = slice_width > 0 ? slice_width : default_slice_width(shape, machine);
  return with_slots(s, shape);
}

}  // namespace frontgi
