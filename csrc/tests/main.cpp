// SPDX-License-Identifier: MIT
// Runs the tests with the kernels of one instruction set: --isa=NAME, the widest there is if not given.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

#include "../hw/isa.h"

namespace {

constexpr int kSkipped = 77;  // SKIP_RETURN_CODE in CMakeLists.txt

// 0, or what to exit with.
int use_isa(const std::string& name) {
  try {
    frontgi::force_isa(name);
    return 0;
  } catch (const std::invalid_argument& error) {
    std::printf("%s\n", error.what());
    return name == "avx2" || name == "avx512" ? kSkipped : 1;  // anything else is a mistake
  }
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* option = "--isa=";
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], option, std::strlen(option)) != 0) continue;
    if (const int code = use_isa(argv[i] + std::strlen(option))) return code;
  }
  std::printf("instruction set: %s\n", frontgi::current_isa().c_str());
  doctest::Context context(argc, argv);
  return context.run();
}
