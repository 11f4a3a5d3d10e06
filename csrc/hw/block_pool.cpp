// SPDX-License-Identifier: MIT
#include "block_pool.h"

#include <cstdint>

#include "huge_pages.h"

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace frontgi {
namespace {

// A kept block serves a request that is smaller by at most one part in this many.
constexpr size_t kWastedPart = 8;

size_t whole_pages(size_t bytes) { return (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes; }

#if defined(__linux__)
void* map_block(size_t bytes) {
  // A huge page more, to cut an aligned block out of.
  void* mapped = mmap(nullptr, bytes + kHugePageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t aligned = (begin + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  if (aligned > begin) munmap(mapped, aligned - begin);
  const size_t behind = begin + kHugePageBytes - aligned;
  if (behind > 0) munmap(reinterpret_cast<void*>(aligned + bytes), behind);
  void* block = reinterpret_cast<void*>(aligned);
  advise_huge_pages(block, bytes);
  return block;
}
void unmap_block(void* block, size_t bytes) { munmap(block, bytes); }
void offer_back(void* block, size_t bytes) {
#if defined(MADV_FREE)
  madvise(block, bytes, MADV_FREE);
#else
  (void)block;
  (void)bytes;
#endif
}
#else
void* map_block(size_t) { return nullptr; }
void unmap_block(void*, size_t) {}
void offer_back(void*, size_t) {}
#endif

}  // namespace

BlockPool::~BlockPool() { set_limit(0); }

void* BlockPool::take(size_t bytes) {
  const size_t wanted = whole_pages(bytes);
  if (std::unique_lock lock(mutex_, std::try_to_lock); lock) {
    for (size_t i = kept_.size(); i-- > 0;) {  // the one given last may still be in the caches
      const Block block = kept_[i];
      if (block.bytes < wanted || block.bytes - wanted > wanted / kWastedPart) continue;
      kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(i));
      kept_bytes_ -= block.bytes;
      // What it is too long by goes back at once: a block is always as long as its request.
      if (block.bytes > wanted) unmap_block(static_cast<char*>(block.start) + wanted, block.bytes - wanted);
      return block.start;
    }
  }
  return map_block(wanted);
}

void BlockPool::give(void* block, size_t bytes) {
  const size_t length = whole_pages(bytes);
  if (std::unique_lock lock(mutex_, std::try_to_lock); lock && length <= limit_bytes_) {
    drop_oldest_until(limit_bytes_ - length);
    offer_back(block, length);
    kept_.push_back({block, length});
    kept_bytes_ += length;
    return;
  }
  unmap_block(block, length);
}

void BlockPool::set_limit(size_t limit_bytes) {
  const std::lock_guard lock(mutex_);
  limit_bytes_ = limit_bytes;
  drop_oldest_until(limit_bytes);
}

size_t BlockPool::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

size_t BlockPool::default_limit_bytes() {
#if defined(__linux__)
  const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0) return static_cast<size_t>(pages) / 4 * static_cast<size_t>(page_bytes);
#endif
  return 0;
}

void BlockPool::drop_oldest_until(size_t bytes) {
  size_t dropped = 0;
  while (kept_bytes_ > bytes) {
    unmap_block(kept_[dropped].start, kept_[dropped].bytes);
    kept_bytes_ -= kept_[dropped++].bytes;
  }
  kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(dropped));
}

}  // namespace frontgi
