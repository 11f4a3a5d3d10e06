// SPDX-License-Identifier: MIT
#include "isa.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace frontgi {
namespace {

struct Candidate {
  const char* name;
  const KernelTable* table;
};

#if defined(__x86_64__)
// Clang's __builtin_cpu_supports does not know the name. F16C works on the registers of AVX: the system has no say of
// its own in it.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}
#endif

std::vector<Candidate> candidates() {
#if defined(__aarch64__)
  std::vector<Candidate> found = {{"neon", &neon::table}};
#else
  std::vector<Candidate> found = {{"baseline", &baseline::table}};
#endif
#if defined(__x86_64__)
  // The compiler's run-time checks ask the operating system too (XGETBV), not the processor alone.
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) {
    found.push_back({"avx2", &avx2::table});
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
      found.push_back({"avx512", &avx512::table});
    }
  }
#endif
  return found;
}

std::atomic<const KernelTable*>& current() {
  static std::atomic<const KernelTable*> table{candidates().back().table};
  return table;
}

}  // namespace

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const Candidate& candidate : candidates()) names.emplace_back(candidate.name);
  return names;
}

std::string current_isa() {
  const std::vector<Candidate> all = candidates();
  const KernelTable* table = &kernels();
  return std::find_if(all.begin(), all.end(), [&](const Candidate& c) { return c.table == table; })->name;
}

void force_isa(const std::string& name) {
  std::string there;
  for (const Candidate& candidate : candidates()) {
    if (name == candidate.name) {
      current().store(candidate.table, std::memory_order_release);
      return;
    }
    there += there.empty() ? "" : ", ";
    there += candidate.name;
  }
  throw std::invalid_argument("isa: this machine has " + there + " (got '" + name + "')");
}

const KernelTable& kernels() { return *current().load(std::memory_order_acquire); }

}  // namespace frontgi
