// SPDX-License-Identifier: MIT
// The pool of output blocks: what is kept, what is let go, and from several threads.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "../hw/block_pool.h"
#include "../hw/huge_pages.h"

namespace frontgi::test {
namespace {

constexpr size_t kPage = kHugePageBytes;

#if defined(__linux__)
TEST_CASE("block pool: a block that was given back is taken again, by requests that it fits") {
  BlockPool pool(64 * kPage);
  void* first = pool.take(16 * kPage - 5);
  REQUIRE(first != nullptr);
  CHECK(reinterpret_cast<uintptr_t>(first) % kPage == 0);
  std::memset(first, 1, 16 * kPage);
  pool.give(first, 16 * kPage - 5);
  CHECK(pool.kept_bytes() == 16 * kPage);

  void* too_large = pool.take(17 * kPage);
  void* too_small = pool.take(8 * kPage);
  CHECK(too_large != first);
  CHECK(too_small != first);
  CHECK(pool.kept_bytes() == 16 * kPage);
  void* again = pool.take(15 * kPage);
  CHECK(again == first);
  CHECK(pool.kept_bytes() == 0);
  std::memset(again, 2, 15 * kPage);
  pool.give(again, 15 * kPage);
  CHECK(pool.kept_bytes() == 15 * kPage);  // what it was too long by is gone
  pool.give(too_large, 17 * kPage);
  pool.give(too_small, 8 * kPage);
  CHECK(pool.kept_bytes() == 40 * kPage);
}

TEST_CASE("block pool: the oldest are let go beyond the limit, and everything at limit 0") {
  BlockPool pool(10 * kPage);
  void* a = pool.take(4 * kPage);
  void* b = pool.take(5 * kPage);
  void* c = pool.take(6 * kPage);
  void* large = pool.take(11 * kPage);
  pool.give(a, 4 * kPage);
  pool.give(b, 5 * kPage);
  CHECK(pool.kept_bytes() == 9 * kPage);
  pool.give(c, 6 * kPage);  // a and b must go
  CHECK(pool.kept_bytes() == 6 * kPage);
  pool.give(large, 11 * kPage);  // kept by no pool of this limit, and nothing goes for it
  CHECK(pool.kept_bytes() == 6 * kPage);
  CHECK(pool.take(6 * kPage) == c);
  pool.give(c, 6 * kPage);
  pool.set_limit(5 * kPage);
  CHECK(pool.kept_bytes() == 0);
  pool.set_limit(0);
  void* last = pool.take(kPage);
  REQUIRE(last != nullptr);
  std::memset(last, 3, kPage);
  pool.give(last, kPage);
  CHECK(pool.kept_bytes() == 0);
}

TEST_CASE("block pool: sizes in turn do not wear the blocks down") {
  BlockPool pool(1000 * kPage);
  for (int i = 0; i < 20; ++i) {
    for (const size_t pages : {16, 15}) pool.give(pool.take(pages * kPage), pages * kPage);
  }
  CHECK(pool.kept_bytes() <= (16 + 15) * kPage);
}

TEST_CASE("block pool: no memory is nullptr") {
  BlockPool pool(10 * kPage);
  pool.give(pool.take(3 * kPage), 3 * kPage);
  CHECK(pool.take(size_t{1} << 60) == nullptr);
  CHECK(pool.kept_bytes() == 0);  // it was given up for the request
}

TEST_CASE("block pool: threads never hold one block at once") {
  BlockPool pool(6 * kPage);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&pool, &wrong, t] {
      for (size_t i = 0; i < 200; ++i) {
        const size_t bytes = (1 + (i + t) % 3) * kPage;
        auto* block = static_cast<volatile unsigned char*>(pool.take(bytes));
        const auto mark = static_cast<unsigned char>(t + 1);
        block[0] = mark;
        block[bytes - 1] = mark;
        std::this_thread::yield();
        wrong[t] += block[0] != mark || block[bytes - 1] != mark;
        pool.give(const_cast<unsigned char*>(block), bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : wrong) CHECK(count == 0);
  CHECK(pool.kept_bytes() <= 6 * kPage);
}
#endif

}  // namespace
}  // namespace frontgi::test
