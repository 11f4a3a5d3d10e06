// SPDX-License-Identifier: MIT
// frontgi::simulate: the cache model on a graph's tensors.
#include "../cachesim/simulate.h"

#include <tuple>

#include "aggregate.h"

namespace frontgi {
namespace {

constexpr const char* kOp = "simulate";

void require_numbers(const std::vector<int64_t>& numbers, size_t count, const char* what) {
  require(numbers.size() == count, kOp, "'", what, "' is ", count, " numbers (got ", numbers.size(), ")");
}

// [5, domains, 3], as DomainCounts has them.
Tensor counts_tensor(const cachesim::Counts& counts, const Tensor& like) {
  const auto domains = static_cast<int64_t>(counts.domains.size());
  const int64_t sizes[] = {cachesim::kLevels, domains, 3};
  Tensor out = torch::stable::new_empty(like, {sizes, 3}, ScalarType::Long);
  int64_t* to = static_cast<int64_t*>(out.mutable_data_ptr());
  for (size_t level = 0; level < cachesim::kLevels; ++level) {
    for (const cachesim::DomainCounts& domain : counts.domains) {
      const cachesim::LevelCounts& of = domain.levels[level];
      *to++ = of.hits;
      *to++ = of.misses;
      *to++ = of.filled;
    }
  }
  return out;
}

}  // namespace

// schedule: [kind, workers, domains, slice_width, block_columns, slots]; llc_bytes: by domain;
// caches: [bytes, ways, hashed] of L1 and of L2, [ways, hashed] of the last level;
// options: [remote, stream (negative: as the op would), vector_bytes, warm_passes, domains_simulated, rounds_simulated,
// max_accesses]. Returns counts, the share simulated and the relative error.
std::tuple<Tensor, double, double> simulate_op(const Tensor& rowptr, const Tensor& col, int64_t columns, int64_t width,
                                               int64_t element_bytes, const std::vector<int64_t>& schedule,
                                               const std::vector<int64_t>& llc_bytes,
                                               const std::vector<int64_t>& caches,
                                               const std::vector<int64_t>& options) {
  const CsrTensors csr = csr_tensors(rowptr, col, columns, false, kOp);
  require_numbers(caches, 8, "caches");
  require_numbers(options, 7, "options");
  cachesim::SimulationArgs args;
  args.rowptr = csr.rowptr_data;
  args.col = csr.col_data;
  args.wide_index = csr.wide_index;
  args.shape = {csr.rows, csr.columns, csr.edges, width, element_bytes};
  args.schedule = schedule_of(schedule, kOp);
  args.llc_bytes = llc_bytes;
  args.l1 = {caches[0], caches[1], caches[2] != 0};
  args.l2 = {caches[3], caches[4], caches[5] != 0};
  args.llc_ways = caches[6];
  args.llc_hashed = caches[7] != 0;
  args.remote = options[0] != 0;
  args.stream = options[1] < 0 ? streams(csr.rows * width * element_bytes) : options[1] != 0;
  args.vector_bytes = options[2];
  args.warm_passes = options[3];
  args.domains_simulated = options[4];
  args.rounds_simulated = options[5];
  args.max_accesses = options[6];
  args.threaded = TorchExecutor().max_workers() > 1;
  const cachesim::Counts counts = cachesim::simulate(args);
  return {counts_tensor(counts, rowptr), counts.sampled, counts.error};
}

}  // namespace frontgi
