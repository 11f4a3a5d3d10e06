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
// Whether the system may take the block's pages from now on; without that, keeping it would deprive others.
bool offer_back(void* block, size_t bytes) {
#if defined(MADV_FREE)
  return madvise(block, bytes, MADV_FREE) == 0;
#else
  (void)block;
  (void)bytes;
  return false;
#endif
}
#else
void* map_block(size_t) { return nullptr; }
void unmap_block(void*, size_t) {}
bool offer_back(void*, size_t) { return false; }
#endif

}  // namespace

BlockPool::~BlockPool() { set_limit(0); }

void* BlockPool::take(size_t bytes) {
  const size_t wanted = whole_pages(bytes);
  Block best{nullptr, 0};
  {
    const std::lock_guard guard(mutex_);
    size_t at = kept_.size();
    for (size_t i = kept_.size(); i-- > 0;) {  // the tightest; of equals the one given last, which may still be cached
      const size_t have = kept_[i].bytes;
      if (have < wanted || have - wanted > wanted / kWastedPart) continue;
      if (at == kept_.size() || have < kept_[at].bytes) at = i;
    }
    if (at < kept_.size()) {
      best = kept_[at];
      kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(at));
      kept_bytes_ -= best.bytes;
    }
  }
  if (!best.start) {
    void* fresh = map_block(wanted);
    if (fresh) return fresh;
    drop_oldest_until(0);  // what is kept may be what is missing
    return map_block(wanted);
  }
  // What it is too long by goes back at once: a block is always as long as its request.
  if (best.bytes > wanted) unmap_block(static_cast<char*>(best.start) + wanted, best.bytes - wanted);
  return best.start;
}

void BlockPool::give(void* block, size_t bytes) {
  const size_t length = whole_pages(bytes);
  bool kept = false;
  std::vector<Block> dropped;
  if (offer_back(block, length)) {
    const std::lock_guard guard(mutex_);
    if (length <= limit_bytes_) {
      dropped = take_oldest_until(limit_bytes_ - length);
      kept_.push_back({block, length});
      kept_bytes_ += length;
      kept = true;
    }
  }
  if (!kept) unmap_block(block, length);
  for (const Block& old : dropped) unmap_block(old.start, old.bytes);
}

void BlockPool::set_limit(size_t limit_bytes) {
  {
    const std::lock_guard guard(mutex_);
    limit_bytes_ = limit_bytes;
  }
  drop_oldest_until(limit_bytes);
}

void BlockPool::drop_oldest_until(size_t bytes) {
  std::vector<Block> dropped;
  {
    const std::lock_guard guard(mutex_);
    dropped = take_oldest_until(bytes);
  }
  for (const Block& old : dropped) unmap_block(old.start, old.bytes);
}

size_t BlockPool::kept_bytes() const {
  const std::lock_guard guard(mutex_);
  return kept_bytes_;
}

size_t BlockPool::default_limit_bytes() {
#if defined(__linux__)
  const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0) return static_cast<size_t>(pages) / 4 * static_cast<size_t>(page_bytes);
#endif
  return 0;
}

std::vector<BlockPool::Block> BlockPool::take_oldest_until(size_t bytes) {
  std::vector<Block> dropped;
  while (kept_bytes_ > bytes) {
    const Block& oldest = kept_[dropped.size()];
    kept_bytes_ -= oldest.bytes;
    dropped.push_back(oldest);
  }
  kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(dropped.size()));
  return dropped;
}

}  // namespace frontgi
