// SPDX-License-Identifier: MIT
#include "cost.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace frontgi {
namespace {

constexpr double kLineBytes = 64;
constexpr double kIndexBytes = 4, kOffsetBytes = 8, kSplitBytes = 4;

constexpr double kVisitsAgain = 4;  // a row that goes on in another block waits, and is fetched

double line_bytes(double bytes) { return std::ceil(bytes / kLineBytes) * kLineBytes; }
double per_edge(double bytes, double edges) { return edges > 0 ? bytes / edges : 0; }

// The mean of what body(bytes) is for the caches that a domain's is taken for.
template <class Body>
double over_caches(double llc_bytes, const Body& body) {
  double sum = 0;
  for (const double share : kGatheringSharesOfLlc) sum += body(llc_bytes * share);
  return sum / static_cast<double>(std::size(kGatheringSharesOfLlc));
}

// Rows gathered `times` over, so many edges each time: what the caches hold, and what not.
void gather(Traffic& traffic, double times, double edges, double missed, double row_bytes) {
  traffic.gathers += times * edges;
  traffic.memory_bytes += times * missed * row_bytes;
  traffic.llc_bytes += times * (edges - missed) * row_bytes;
}

}  // namespace

Traffic estimate_traffic(const AggregateShape& shape, const Schedule& schedule, const Machine& machine,
                         const Footprint& measured, double llc_share) {
  Traffic traffic;
  if (shape.rows == 0 || shape.width == 0) return traffic;
  const Footprint assumed = measured.empty() ? uniform_footprint(shape.edges, shape.columns) : Footprint{};
  const Footprint& footprint = measured.empty() ? assumed : measured;
  const double rows = static_cast<double>(shape.rows), columns = static_cast<double>(shape.columns);
  const double edges = static_cast<double>(shape.edges), element = static_cast<double>(shape.element_bytes);
  const double width = static_cast<double>(shape.width);
  const double llc_bytes = static_cast<double>(machine.smallest_llc_bytes()) * llc_share;
  const double indices = edges * kIndexBytes + rows * kOffsetBytes;
  const double features = columns * line_bytes(width * element), outputs = rows * line_bytes(width * element);

  if (schedule.kind != ScheduleKind::mixed) {
    const double domains =
        static_cast<double>(schedule.kind == ScheduleKind::node_parallel ? std::min(machine.domains(), schedule.workers)
                                                                         : schedule.domains);
    const double row = line_bytes(width * element), own = edges / domains;
    const Gathering gathering{row, per_edge(indices, edges), 1, columns};
    const auto missed = [&](double cache) { return missed_edges(footprint, own, cache, gathering); };
    gather(traffic, domains, own, over_caches(llc_bytes, missed), row);
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
  const double sharing = std::max(1.0, domains / slices);  // domains without a slice of their own share one
  // A row waits in every block but its last, if it has an edge there.
  const double visited = blocks > 1 ? rows * (1 - std::pow(1 - 1 / blocks, edges / rows)) : rows;
  const double row = line_bytes(slice * element);
  const double splits = blocks > 1 ? rows * 2 * kSplitBytes : 0;

  // Of each domain and block.
  const double own = edges / blocks / sharing;
  const double streamed = indices / blocks + rows * kOffsetBytes * (1 - 1 / blocks) + splits + visited * row;
  const Gathering gathering{row, per_edge(streamed, edges / blocks), blocks, columns};
  const double cold = std::min(columns, distinct_sources(footprint, own * blocks)) / blocks;
  const double missed = over_caches(llc_bytes, [&](double cache) {
    // What was packed just before is there, if the domain packed it and it fits.
    const double found = sharing > 1 ? 0 : std::min(1.0, cache / (block * row));
    return std::max(0.0, missed_edges(footprint, own, cache, gathering) - found * cold);
  });
  gather(traffic, slices * blocks * sharing, own, missed, row);

  traffic.packed_rows = slices * columns;
  traffic.packed_bytes = features;
  traffic.llc_bytes += features;                                       // packed into
  traffic.memory_bytes += features + (shape.fused ? 2 : 1) * outputs;  // read back to be multiplied
  // Written to memory, its lines fetched before.
  traffic.memory_bytes += over_caches(llc_bytes, [&](double cache) { return block * row > cache ? 2 * features : 0; });
  traffic.memory_bytes += slices * (indices + (blocks - 1) * rows * (2 * kSplitBytes + kOffsetBytes));
  traffic.memory_bytes += (blocks - 1) * 2 * visited * line_bytes(width * element);
  traffic.row_visits = slices * (rows + kVisitsAgain * (blocks - 1) * visited);
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
  const double shared = std::max(domains * rates.domain_memory_bytes, workers * rates.shared_memory_bytes);
  const double memory = std::min(workers * rates.worker_memory_bytes, shared);
  const double by_workers = traffic.gathers * rates.gather_seconds + traffic.llc_bytes / rates.worker_llc_bytes +
                            traffic.row_visits * rates.row_seconds + traffic.packed_rows * rates.pack_row_seconds;
  // Packing is slow where memory is waited for line by line, and no faster than memory where many workers pack.
  const double pack = std::min(workers * rates.pack_bytes, memory);
  return (traffic.memory_bytes - traffic.packed_bytes) / memory + traffic.packed_bytes / pack + by_workers / workers +
         traffic.regions * rates.region_seconds;
}

}  // namespace frontgi
