// SPDX-License-Identifier: MIT
// frontgi::pool_is_lost, frontgi::set_output_pool_limit, frontgi::isa, frontgi::force_isa, frontgi::set_machine,
// frontgi::plan_aggregate: what the library knows of the host.
#include <string>

#include "../hw/isa.h"
#include "../run/schedule.h"
#include "aggregate.h"

namespace frontgi {

bool pool_is_lost_op() { return pool_is_lost(); }

void set_output_pool_limit_op(int64_t limit_bytes) {
  require(limit_bytes >= 0, "set_output_pool_limit", "'limit_bytes' must not be negative (got ", limit_bytes, ")");
  output_pool().set_limit(static_cast<size_t>(limit_bytes));
}

std::string isa_op() {
  std::string text = current_isa();
  for (const std::string& name : available_isas()) text += " " + name;
  return text;
}

void force_isa_op(const std::string& name) { force_isa(name); }

void set_machine_op(const std::vector<int64_t>& domain_of_cpu, const std::vector<int64_t>& llc_bytes, bool stated) {
  require(!llc_bytes.empty(), "set_machine", "there must be at least one domain");
  Machine fresh;
  fresh.llc_bytes = llc_bytes;
  fresh.stated = stated;
  for (int64_t domain : domain_of_cpu) {
    require(domain >= -1 && domain < fresh.domains(), "set_machine", "a domain must be in [-1, ", fresh.domains(),
            ") (got ", domain, ")");
    fresh.domain_of_cpu.push_back(static_cast<int32_t>(domain));
  }
  machine() = fresh;
}

Tensor plan_aggregate_op(const Tensor& like, int64_t rows, int64_t columns, int64_t edges, int64_t width,
                         int64_t element_bytes, int64_t max_workers, const std::vector<int64_t>& llc_bytes,
                         const std::vector<int64_t>& asked) {
  constexpr const char* op = "plan";
  require(rows >= 0 && columns >= 0 && edges >= 0 && width >= 0, op, "sizes must not be negative (got ", rows, ", ",
          columns, ", ", edges, " and ", width, ")");
  require(element_bytes == 2 || element_bytes == 4 || element_bytes == 8, op, "an element has 2, 4 or 8 bytes (got ",
          element_bytes, ")");
  require(max_workers >= 1 && max_workers <= kWorkersMax && !llc_bytes.empty(), op,
          "there must be at least one domain and 1 to ", kWorkersMax, " workers (got ", llc_bytes.size(), " and ",
          max_workers, ")");
  Machine shaped;
  shaped.llc_bytes = llc_bytes;
  const AggregateShape shape{rows, columns, edges, width, element_bytes};
  const Schedule s = schedule_for(asked, shape, max_workers, shaped);
  const int64_t sizes[] = {5};
  Tensor out = torch::stable::new_empty(like, {sizes, 1}, ScalarType::Long);
  int64_t* to = static_cast<int64_t*>(out.mutable_data_ptr());
  to[0] = static_cast<int64_t>(s.kind);
  to[1] = s.workers;
  to[2] = s.domains;
  to[3] = s.slice_width;
  to[4] = s.slots;
  return out;
}

}  // namespace frontgi
