// SPDX-License-Identifier: MIT
// Large blocks of memory for outputs, kept when they are freed for the next call that wants as much.
//
// Idea: a call's output is fresh memory, and the system zeroes fresh pages, one fault after another, in the middle of
// the work: a fifth of the time of a 512 MB aggregation. A block that was freed is kept, marked as one that the system
// may take back at any time (MADV_FREE): while it does not, the next call finds it as it was, without faults.
//
// Thread safety: any thread may call anything, and give back what another took. Who forks takes the lock around it
// (lock, unlock), so that a child never finds it held.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

namespace frontgi {

class BlockPool {
 public:
  explicit BlockPool(size_t limit_bytes) : limit_bytes_(limit_bytes) {}
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool();

  // At least `bytes` bytes of unspecified content, aligned to a huge page and in huge pages where the system has them;
  // nullptr where there is no memory or no mmap. It must be given back with the same number of bytes.
  void* take(size_t bytes);
  void give(void* block, size_t bytes);

  // What is kept takes at most this many bytes of address space from now on.
  void set_limit(size_t limit_bytes);
  size_t kept_bytes() const;
  // Gives back to the system what is kept.
  void clear() { drop_oldest_until(0); }

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

  // A quarter of the machine's memory.
  static size_t default_limit_bytes();

 private:
  struct Block {
    void* start;
    size_t bytes;
  };
  void drop_oldest_until(size_t bytes);
  std::vector<Block> take_oldest_until(size_t bytes);  // out of what is kept; the caller unmaps them, unlocked

  mutable std::mutex mutex_;
  std::vector<Block> kept_;  // oldest first
  size_t kept_bytes_ = 0;
  size_t limit_bytes_;
};

}  // namespace frontgi
