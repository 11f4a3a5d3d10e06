// SPDX-License-Identifier: MIT
// frontgi::pool_is_lost, frontgi::set_output_pool_limit, frontgi::empty_cache, frontgi::empty_in_huge_pages,
// frontgi::isa, frontgi::force_isa, frontgi::set_machine: what the library knows of the host.
#include <string>

#include "../hw/isa.h"
#include "boundary.h"

namespace frontgi {

bool pool_is_lost_op() { return pool_is_lost(); }

void set_output_pool_limit_op(int64_t limit_bytes) {
  require(limit_bytes >= 0, "set_output_pool_limit", "'limit_bytes' must not be negative (got ", limit_bytes, ")");
  output_pool().set_limit(static_cast<size_t>(limit_bytes));
}

void empty_cache_op() { output_pool().clear(); }

Tensor empty_in_huge_pages_op(const Tensor& like, int64_t rows, int64_t columns) {
  constexpr const char* op = "to_huge_pages";
  dtype_of(like, op, "x");
  require(rows >= 0 && columns >= 0, op, "sizes must not be negative (got ", rows, " and ", columns, ")");
  return new_matrix(like, rows, columns, like.scalar_type());
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

}  // namespace frontgi
