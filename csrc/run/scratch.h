// SPDX-License-Identifier: MIT
// Cache-line-aligned working memory: owned buffers, and one kept by each thread from call to call so that small
// tiles are not faulted in anew every time.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#include "../hw/huge_pages.h"

namespace frontgi {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes) { reserve(bytes); }

  // At least `bytes` bytes of unspecified content; earlier content is lost when it grows.
  void* reserve(size_t bytes) {
    if (bytes > bytes_) {
      memory_.reset();
      bytes_ = 0;
      const size_t alignment = bytes >= kHugePageBytes ? kHugePageBytes : kLineBytes;
      const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
      memory_.reset(std::aligned_alloc(alignment, rounded));
      if (!memory_) throw std::bad_alloc();
      advise_huge_pages(memory_.get(), rounded);
      bytes_ = rounded;
    }
    return memory_.get();
  }
  void* get() const { return memory_.get(); }

 private:
  static constexpr size_t kLineBytes = 64;
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> memory_;
  size_t bytes_ = 0;
};

// The calling thread's own buffers of a tile's life: the aggregated rows, and their packed form.
inline AlignedBuffer& thread_tile() {
  thread_local AlignedBuffer buffer;
  return buffer;
}
inline AlignedBuffer& thread_packed() {
  thread_local AlignedBuffer buffer;
  return buffer;
}

}  // namespace frontgi
