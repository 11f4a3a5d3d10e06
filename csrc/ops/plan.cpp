// SPDX-License-Identifier: MIT
// frontgi::footprint, frontgi::plan_aggregate, frontgi::estimate_cost, frontgi::slot_rows, frontgi::tile_rows: the
// planner, for Python to ask.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "../graph/footprint.h"
#include "../graph/row_slots.h"
#include "../run/cost.h"
#include "../run/update.h"
#include "aggregate.h"

namespace frontgi {
namespace {

constexpr const char* kOp = "plan";

template <class T>
Tensor vector_of(const Tensor& like, const std::vector<T>& values, ScalarType type) {
  const int64_t sizes[] = {static_cast<int64_t>(values.size())};
  Tensor out = torch::stable::new_empty(like, {sizes, 1}, type);
  std::copy(values.begin(), values.end(), static_cast<T*>(out.mutable_data_ptr()));
  return out;
}

// [rows, columns, edges, width, element_bytes, fused]
AggregateShape shape_from(const std::vector<int64_t>& sizes) {
  require(sizes.size() == 6, kOp, "a shape has 6 numbers (got ", sizes.size(), ")");
  for (size_t i = 0; i < 4; ++i) require(sizes[i] >= 0, kOp, "sizes must not be negative (got ", sizes[i], ")");
  require(sizes[4] == 2 || sizes[4] == 4 || sizes[4] == 8, kOp, "an element has 2, 4 or 8 bytes (got ", sizes[4], ")");
  const double most = static_cast<double>(std::max({sizes[0], sizes[1], sizes[2]}));
  require(most * static_cast<double>(sizes[3]) * static_cast<double>(sizes[4]) < 0x1p60, kOp, "rows of ", sizes[3],
          " features make more bytes than there are addresses");
  return AggregateShape{sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5] != 0};
}

Machine machine_of(const std::vector<int64_t>& llc_bytes, int64_t max_workers) {
  require(max_workers >= 1 && max_workers <= kWorkersMax && !llc_bytes.empty(), kOp,
          "there must be at least one domain and 1 to ", kWorkersMax, " workers (got ", llc_bytes.size(), " and ",
          max_workers, ")");
  Machine shaped;
  shaped.llc_bytes = llc_bytes;
  return shaped;
}

// As Python's Rates has them; none for those of rates.h.
Rates rates_from(const std::vector<double>& numbers) {
  if (numbers.empty()) return {};
  Rates rates;
  double* const places[] = {
      &rates.gather_seconds,      &rates.worker_llc_bytes, &rates.worker_memory_bytes, &rates.domain_memory_bytes,
      &rates.shared_memory_bytes, &rates.row_seconds,      &rates.pack_row_seconds,    &rates.pack_bytes,
      &rates.region_seconds,      &rates.llc_share};
  require(numbers.size() == std::size(places), kOp, "there are ", std::size(places), " rates (got ", numbers.size(),
          ")");
  for (size_t i = 0; i < numbers.size(); ++i) {
    require(std::isfinite(numbers[i]) && numbers[i] >= 0, kOp, "a rate must be finite and not negative (got ",
            numbers[i], ")");
    *places[i] = numbers[i];
  }
  require(rates.worker_llc_bytes > 0 && rates.worker_memory_bytes > 0 && rates.pack_bytes > 0 &&
              std::max(rates.domain_memory_bytes, rates.shared_memory_bytes) > 0 && rates.llc_share > 0,
          kOp, "bytes a second and the share of a cache must be positive");
  return rates;
}

}  // namespace

Tensor footprint_op(const Tensor& col, int64_t num_cols) {
  require_cpu(col, 1, "footprint", "col");
  const bool wide = col.scalar_type() == ScalarType::Long;
  require(wide || col.scalar_type() == ScalarType::Int, "footprint", "'col' must be int32 or int64 (got ", col, ")");
  const Tensor whole = torch::stable::contiguous(col);
  return vector_of(whole, footprint_of(whole.const_data_ptr(), wide, whole.size(0), num_cols), ScalarType::Double);
}

Tensor plan_aggregate_op(const Tensor& like, const std::vector<int64_t>& shape, int64_t max_workers,
                         const std::vector<int64_t>& llc_bytes, const std::vector<double>& footprint,
                         const std::vector<int64_t>& asked, const std::vector<double>& rates) {
  const Schedule s = schedule_for(asked, shape_from(shape), max_workers, machine_of(llc_bytes, max_workers), footprint,
                                  rates_from(rates));
  return vector_of(like, numbers_of(s), ScalarType::Long);
}

Tensor estimate_cost_op(const Tensor& like, const std::vector<int64_t>& shape, int64_t max_workers,
                        const std::vector<int64_t>& llc_bytes, const std::vector<double>& footprint,
                        const std::vector<int64_t>& asked, const std::vector<double>& counted,
                        const std::vector<double>& rates) {
  const Rates fast = rates_from(rates);
  const Machine shaped = machine_of(llc_bytes, max_workers);
  const AggregateShape of = shape_from(shape);
  const Schedule s = schedule_for(asked, of, max_workers, shaped, footprint, fast);
  Traffic traffic = estimate_traffic(of, s, shaped, footprint, fast.llc_share);
  if (!counted.empty()) {
    require(counted.size() == 2, kOp, "counted bytes are [memory, llc] (got ", counted.size(), " numbers)");
    traffic.memory_bytes = counted[0];
    traffic.llc_bytes = counted[1];
  }
  return vector_of<double>(
      like,
      {traffic.memory_bytes, traffic.llc_bytes, traffic.gathers, traffic.row_visits, traffic.packed_rows,
       traffic.packed_bytes, traffic.regions, seconds_for(traffic, s, shaped, fast)},
      ScalarType::Double);
}

Tensor slot_rows_op(const Tensor& rowptr, int64_t slots) {
  require_cpu(rowptr, 1, kOp, "rowptr");
  require(rowptr.scalar_type() == ScalarType::Long && rowptr.size(0) >= 1 && slots >= 1, kOp,
          "'rowptr' must be int64 and not empty, and there must be a slot (got ", rowptr, " and ", slots, ")");
  const Tensor whole = torch::stable::contiguous(rowptr);
  const RowSlots cut(static_cast<const int64_t*>(whole.const_data_ptr()), whole.size(0) - 1, 1, 1, slots);
  std::vector<int64_t> rows;
  for (int64_t slot = 0; slot <= slots; ++slot) rows.push_back(cut.first_row(slot));
  return vector_of(whole, rows, ScalarType::Long);
}

int64_t tile_rows_op(int64_t width, int64_t element_bytes) {
  require(width >= 0 && (element_bytes == 2 || element_bytes == 4 || element_bytes == 8), kOp,
          "a row has 0 elements or more, of 2, 4 or 8 bytes (got ", width, " and ", element_bytes, ")");
  return tile_rows(width, element_bytes == 8);
}

}  // namespace frontgi
