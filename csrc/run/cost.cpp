// SPDX-License-Identifier: MIT
#include "cost.h"

#include <algorithm>
#include <cmath>

namespace frontgi {
namespace {

constexpr double kLineBytes = 64;
constexpr double kIndexBytes = 4, kOffsetBytes = 8, kSplitBytes = 4;

double lines_of(double bytes) { return std::ceil(bytes / kLineBytes); }

// `edges` rows of `row_bytes` gathered by each of `domains`: what their caches hold, and what not.
void gather(Traffic& traffic, const Footprint& footprint, double edges, double row_bytes, double cache,
            double domains) {
  const double bytes = lines_of(row_bytes) * kLineBytes;
  const double missed = missed_edges(footprint, edges, cache / bytes);
  traffic.memory_bytes += domains * missed * bytes;
  traffic.llc_bytes += domains * (edges - missed) * bytes;
}

}  // namespace

Traffic estimate_traffic(const AggregateShape& shape, const Schedule& schedule, const Machine& machine,
                         const Footprint& measured) {
  Traffic traffic;
  if (shape.rows == 0 || shape.width == 0) return traffic;
  const Footprint footprint = measured.empty() ? uniform_footprint(shape.edges, shape.columns) : measured;
  const double rows = static_cast<double>(shape.rows), columns = static_cast<double>(shape.columns);
  const double edges = static_cast<double>(shape.edges), element = static_cast<double>(shape.element_bytes);
  const double width = static_cast<double>(shape.width);
  const double llc = static_cast<double>(machine.smallest_llc_bytes());
  const double indices = edges * kIndexBytes + rows * kOffsetBytes;
  const double features = columns * lines_of(width * element) * kLineBytes;
  const double outputs = rows * lines_of(width * element) * kLineBytes;

  if (schedule.kind != ScheduleKind::mixed) {
    const double domains =
        static_cast<double>(schedule.kind == ScheduleKind::node_parallel ? std::min(machine.domains(), schedule.workers)
                                                                         : schedule.domains);
    gather(traffic, footprint, edges / domains, width * element, llc * kShareOfLlc, domains);
    traffic.memory_bytes += indices + (shape.fused ? 0 : outputs);
    traffic.row_visits = rows;
    traffic.regions = 1;
    return traffic;
  }

  const double slice = static_cast<double>(std::min(schedule.slice_width, shape.width));
  const double slices = std::ceil(width / slice), domains = static_cast<double>(schedule.domains);
  const double block = schedule.block_columns > 0 ? static_cast<double>(std::min(schedule.block_columns, shape.columns))
                                                  : std::max(1.0, columns);
  const double blocks = std::max(1.0, std::ceil(columns / block));
  const double packed = block * slice * element;
  const bool fits = packed <= llc * kShareOfLlc;
  if (fits) {
    traffic.llc_bytes += slices * edges * lines_of(slice * element) * kLineBytes + features;
  } else {
    gather(traffic, footprint, edges, slice * element, llc * kShareOfLlc, slices);
    traffic.memory_bytes += 2 * features;  // the packed slice is written to memory and its lines fetched before
  }
  // A row waits in every block but its last, if it has an edge there.
  const double degree = edges / rows;
  const double visited = blocks > 1 ? rows * (1 - std::pow(1 - 1 / blocks, degree)) : rows;
  // Domains without a slice of their own share one, each with a copy of it in its cache.
  traffic.memory_bytes += std::max(0.0, domains / slices - 1) * features;
  traffic.memory_bytes += features + (shape.fused ? 2 : 1) * outputs;  // read back to be multiplied
  traffic.memory_bytes += slices * (indices + (blocks - 1) * rows * (2 * kSplitBytes + kOffsetBytes));
  traffic.memory_bytes += (blocks - 1) * 2 * visited * lines_of(width * element) * kLineBytes;
  traffic.row_visits = slices * (columns + rows + 3 * (blocks - 1) * visited);
  traffic.regions = std::ceil(slices / domains) * blocks * 2;
  if (blocks > 1) {  // where each row's edges cross from block to block is found beforehand
    traffic.memory_bytes += indices + (blocks - 1) * rows * kSplitBytes;
    traffic.regions += 1;
  }
  return traffic;
}

double seconds_for(const Traffic& traffic, const Schedule& schedule, const Machine& machine, const Rates& rates) {
  const double workers = static_cast<double>(schedule.workers);
  const double domains = static_cast<double>(std::min(machine.domains(), schedule.workers));
  const double shared = std::max(domains * rates.domain_memory_bytes, workers * rates.socket_memory_bytes);
  const double memory = std::min(workers * rates.worker_memory_bytes, shared);
  return traffic.memory_bytes / memory + traffic.llc_bytes / (workers * rates.worker_llc_bytes) +
         traffic.row_visits * rates.row_seconds / workers + traffic.regions * rates.region_seconds;
}

}  // namespace frontgi
