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
// access, with the same result.
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

class Hierarchy {
 public:
  explicit Hierarchy(const HierarchyShape& shape)
      : domain_of_worker_(shape.domain_of_worker), counts_(shape.llc.size()), llc_(shape.llc.size()) {
    lay_out(shape);
    if (!shape.remote) return;
    const auto lines = static_cast<size_t>(shape.lines);
    std::memset(holders_.reserve(lines), 0, lines);
  }

  // A worker's next accesses, `count` of them; overwrites them. REQUIRES: count <= kBatchMax.
  void access(int64_t worker, Access* accesses, size_t count) {
    const auto w = static_cast<size_t>(worker), d = static_cast<size_t>(domain_of_worker_[w]);
    DomainCounts& counts = counts_[d];
    Access* written = written_.data();
    size_t left = ask(l1_[w], counts.levels[kL1], accesses, count, written);
    left = ask(l2_[w], counts.levels[kL2], accesses, left, written);
    const Access* const written_above = written;
    left = ask(llc_[d], counts.levels[kLlc], accesses, left, written);
    const int64_t remote = holders_.get() ? take(accesses, left) : 0;
    counts.levels[kRemote].hits += remote;
    counts.levels[kRemote].misses += static_cast<int64_t>(left) - remote;
    counts.levels[kRemote].filled += remote;
    counts.lines_read() += static_cast<int64_t>(left) - remote;
    for (size_t i = 0; i < left; ++i) counts.lines_written_back() += victims_[i] >> 31;
    for (const Access* line = written_.data(); line < written_above; ++line) {
      counts.lines_written_back() += !llc_[d].mark_written(*line);
    }
  }

  // Whole lines that a worker writes around the caches.
  void stream(int64_t worker, int64_t lines) {
    DomainCounts& counts = counts_[static_cast<size_t>(domain_of_worker_[static_cast<size_t>(worker)])];
    counts.levels[kLlc].misses += lines;
    counts.lines_streamed() += lines;
  }

  const std::vector<DomainCounts>& counts() const { return counts_; }
  // Counts from zero again; the caches stay as they are.
  void forget_counts() { counts_.assign(counts_.size(), {}); }

 private:
  size_t ask(Cache& cache, LevelCounts& counts, Access* accesses, size_t count, Access*& written) {
    const size_t misses = cache.access(accesses, count, victims_.data(), written);
    counts.hits += static_cast<int64_t>(count - misses);
    counts.misses += static_cast<int64_t>(misses);
    if (cache.present()) counts.filled += static_cast<int64_t>(misses);
    return misses;
  }

  // Enters in the directory what a domain took in and drove out. Returns how many lines another domain held: since the
  // domain itself missed them, whoever holds them is another. The directory is large: entries are fetched a few
  // accesses ahead.
  int64_t take(const Access* missed, size_t count) {
    constexpr size_t ahead = 16;
    uint8_t* const holders = static_cast<uint8_t*>(holders_.get());
    const auto fetch = [&](size_t i) {
      __builtin_prefetch(holders + (missed[i] & kLineMask), 1);
      __builtin_prefetch(holders + (victims_[i] & kLineMask), 1);
    };
    for (size_t i = 0; i < std::min(ahead, count); ++i) fetch(i);
    int64_t remote = 0;
    for (size_t i = 0; i < count; ++i) {
      if (i + ahead < count) fetch(i + ahead);
      const Access victim = victims_[i] & kLineMask;
      if (victim != kNoLine) --holders[victim];
      remote += holders[missed[i] & kLineMask]++ != 0;
    }
    return remote;
  }

  // All tags in one piece of memory, in huge pages if it can be, a domain's together.
  void lay_out(const HierarchyShape& shape) {
    const int64_t l1_tags = Cache::tags(shape.l1), l2_tags = Cache::tags(shape.l2);
    int64_t tags = 0;
    std::vector<bool> used(shape.llc.size());
    for (const int64_t domain : domain_of_worker_) {
      if (domain < 0) continue;
      tags += l1_tags + l2_tags;
      used[static_cast<size_t>(domain)] = true;
    }
    for (size_t d = 0; d < used.size(); ++d) tags += used[d] ? Cache::tags(shape.llc[d]) : 0;
    Access* next = static_cast<Access*>(tags_.reserve(static_cast<size_t>(tags) * sizeof(Access)));
    const auto place = [&](const CacheShape& of) {
      const Cache placed(of, next);
      next += Cache::tags(of);
      return placed;
    };
    for (const int64_t domain : domain_of_worker_) {
      const auto d = static_cast<size_t>(domain);
      if (domain >= 0 && used[d]) llc_[d] = place(shape.llc[d]), used[d] = false;
      l1_.push_back(domain < 0 ? Cache() : place(shape.l1));
      l2_.push_back(domain < 0 ? Cache() : place(shape.l2));
    }
  }

  std::vector<int64_t> domain_of_worker_;
  std::vector<DomainCounts> counts_;
  std::vector<Cache> l1_, l2_, llc_;
  AlignedBuffer tags_;
  AlignedBuffer holders_;  // the directory: by line, how many domains hold it; none if not remote
  std::array<Access, kBatchMax> victims_;
  std::array<Access, 3 * kBatchMax> written_;
};

}  // namespace frontgi::cachesim
