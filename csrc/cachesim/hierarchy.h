// SPDX-License-Identifier: MIT
// The caches of a machine: an L1 and an L2 for each worker, a last-level cache for each domain, and what lies behind.
//
// An access asks L1, then L2, then its domain's last-level cache (LLC), and is then served by another domain's LLC if
// one holds the line now ("remote"), else by memory; every level it missed takes the line in (write-allocate). Levels
// neither include nor exclude each other. A write marks the LLC's line too, wherever it hits, and a marked line that is
// driven out of the LLC is written to memory; one that only the levels above still hold is written at once. Streamed
// lines pass by all caches.
//
// Invariant: what a level is asked is what the level above missed; the directory of who holds a line is exact.
//
// Since no level acts on the one above it, a batch of accesses may pass level after level instead of access after
// access, and the shared levels may lag behind the private ones, with the same hits and misses. What a batch writes is
// marked in the LLC at its end: of a line that is driven out in between, a write more may be counted.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../run/scratch.h"
#include "cache.h"

namespace frontgi::cachesim {

constexpr size_t kBatchMax = 1024;  // accesses in a batch

enum Level : size_t { kL1, kL2, kLlc, kRemote, kMemory, kLevels };

// What a level of a domain was asked: lines it had, lines it had not, lines that came in from below (of kRemote: from
// other domains). Of the memory: lines read, written back, and written around the caches.
struct LevelCounts {
  int64_t hits = 0, misses = 0, filled = 0;
};
struct DomainCounts {
  std::array<LevelCounts, kLevels> levels{};

  int64_t accesses() const { return levels[kL1].hits + levels[kL1].misses; }
  int64_t& lines_read() { return levels[kMemory].hits; }
  int64_t& lines_written_back() { return levels[kMemory].misses; }
  int64_t& lines_streamed() { return levels[kMemory].filled; }
};

struct HierarchyShape {
  CacheShape l1, l2;
  std::vector<CacheShape> llc;            // by domain
  std::vector<int64_t> domain_of_worker;  // -1 for a worker that accesses nothing
  bool remote = false;                    // whether an LLC may be served by another; at most 255 domains then
  int64_t lines = 0;                      // accesses are to lines below
};

// A worker's next accesses on their way through the levels, in order.
struct Batch {
  size_t worker = 0, domain = 0;
  int64_t asked[2] = {0, 0};  // L1, L2
  size_t left = 0;            // accesses that no level missed so far had
  size_t written = 0;         // lines written in a level that had them
  int64_t streamed = 0;
  std::array<Access, kBatchMax> accesses;
  std::array<Access, 2 * kBatchMax> written_lines;
};

// The tags of several caches in one piece of memory, in huge pages if it can be.
class TagSpace {
 public:
  void reserve(int64_t tags) {
    next_ = static_cast<Access*>(tags_.reserve(static_cast<size_t>(tags) * sizeof(Access)));
  }
  Cache place(const CacheShape& shape) {
    const Cache placed(shape, next_);
    next_ += Cache::tags(shape);
    return placed;
  }

 private:
  AlignedBuffer tags_;
  Access* next_ = nullptr;
};

// The workers' own levels.
class PrivateCaches {
 public:
  explicit PrivateCaches(const HierarchyShape& shape) {
    int64_t tags = 0;
    for (const int64_t domain : shape.domain_of_worker) {
      if (domain >= 0) tags += Cache::tags(shape.l1) + Cache::tags(shape.l2);
    }
    tags_.reserve(tags);
    for (const int64_t domain : shape.domain_of_worker) {
      l1_.push_back(domain < 0 ? Cache() : tags_.place(shape.l1));
      l2_.push_back(domain < 0 ? Cache() : tags_.place(shape.l2));
    }
  }

  // Leaves of the batch what a level missed, and appends what was written and hit.
  void filter_l1(Batch& batch) {
    batch.written = 0;
    filter(l1_, kL1, batch);
  }
  void filter_l2(Batch& batch) { filter(l2_, kL2, batch); }

 private:
  // Of different workers on different threads at once.
  static void filter(std::vector<Cache>& caches, Level level, Batch& batch) {
    std::array<Access, kBatchMax> victims;  // nobody asks for them
    Access* const written_before = batch.written_lines.data();
    Access* written = written_before + batch.written;
    batch.asked[level] = static_cast<int64_t>(batch.left);
    batch.left = caches[batch.worker].access(batch.accesses.data(), batch.left, victims.data(), written);
    batch.written = static_cast<size_t>(written - written_before);
  }

  TagSpace tags_;
  std::vector<Cache> l1_, l2_;
};

// The last-level caches, and the counts of all levels.
class SharedCaches {
 public:
  explicit SharedCaches(const HierarchyShape& shape)
      : present_{shape.l1.bytes > 0, shape.l2.bytes > 0}, counts_(shape.llc.size()), llc_(shape.llc.size()) {
    std::vector<bool> used(shape.llc.size());
    for (const int64_t domain : shape.domain_of_worker) {
      if (domain >= 0) used[static_cast<size_t>(domain)] = true;
    }
    int64_t tags = 0;
    for (size_t d = 0; d < used.size(); ++d) tags += used[d] ? Cache::tags(shape.llc[d]) : 0;
    tags_.reserve(tags);
    for (size_t d = 0; d < used.size(); ++d) {
      if (used[d]) llc_[d] = tags_.place(shape.llc[d]);
    }
    if (!shape.remote) return;
    const auto lines = static_cast<size_t>(shape.lines);
    std::memset(holders_.reserve(lines), 0, lines);
  }

  // What the private levels left of a batch, and what they wrote.
  void access(Batch& batch) {
    Cache& llc = llc_[batch.domain];
    DomainCounts& counts = counts_[batch.domain];
    count(counts.levels[kL1], batch.asked[kL1], batch.asked[kL2], present_[kL1]);
    count(counts.levels[kL2], batch.asked[kL2], static_cast<int64_t>(batch.left), present_[kL2]);
    const size_t missed = holders() ? access(llc, batch, [this](Access line, Access victim) { fetch(line, victim); })
                                    : access(llc, batch, Ignore());
    count(counts.levels[kLlc], static_cast<int64_t>(batch.left), static_cast<int64_t>(missed), llc.present());
    const int64_t remote = holders() ? take(batch.accesses.data(), missed) : 0;
    const int64_t read = static_cast<int64_t>(missed) - remote;
    counts.levels[kRemote].hits += remote;
    counts.levels[kRemote].misses += read;
    counts.levels[kRemote].filled += remote;
    counts.lines_read() += read;
    for (size_t i = 0; i < missed; ++i) counts.lines_written_back() += victims_[i] >> 31;
    for (size_t i = 0; i < batch.written; ++i) {
      counts.lines_written_back() += !llc.mark_written(batch.written_lines[i]);
    }
    counts.levels[kLlc].misses += batch.streamed;
    counts.lines_streamed() += batch.streamed;
  }

  const std::vector<DomainCounts>& counts() const { return counts_; }
  // Counts from zero again; the caches stay as they are.
  void forget_counts() { counts_.assign(counts_.size(), {}); }

 private:
  static void count(LevelCounts& counts, int64_t asked, int64_t missed, bool present) {
    counts.hits += asked - missed;
    counts.misses += missed;
    if (present) counts.filled += missed;
  }

  template <class OnMiss>
  size_t access(Cache& llc, Batch& batch, const OnMiss& on_miss) {
    Access* written = written_.data();
    return llc.access(batch.accesses.data(), batch.left, victims_.data(), written, on_miss);
  }

  uint8_t* holders() const { return static_cast<uint8_t*>(holders_.get()); }

  // The directory is large: entries are fetched when a line is missed, and changed at the end of the batch.
  void fetch(Access line, Access victim) const {
    __builtin_prefetch(holders() + line, 1);
    __builtin_prefetch(holders() + victim, 1);
  }

  // Enters in the directory what a domain took in and drove out. Returns how many lines another domain held: since the
  // domain itself missed them, whoever holds them is another.
  int64_t take(const Access* missed, size_t count) {
    uint8_t* const holding = holders();
    int64_t remote = 0;
    for (size_t i = 0; i < count; ++i) {
      const Access victim = victims_[i] & kLineMask;
      if (victim != kNoLine) --holding[victim];
      remote += holding[missed[i] & kLineMask]++ != 0;
    }
    return remote;
  }

  bool present_[2];
  std::vector<DomainCounts> counts_;
  TagSpace tags_;
  std::vector<Cache> llc_;
  AlignedBuffer holders_;  // the directory: by line, how many domains hold it; none if not remote
  std::array<Access, kBatchMax> victims_;
  std::array<Access, kBatchMax> written_;
};

}  // namespace frontgi::cachesim
