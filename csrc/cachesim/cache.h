// SPDX-License-Identifier: MIT
// One set-associative cache of 64-byte lines: which lines it holds, not what is in them.
//
// Layout: a set is its tags in order of use, the latest first, so that the last one is the victim and an access moves
// its tag to the front (true LRU). A tag is a line's number in 31 bits, and above it whether the line was written; 16
// tags of 32 bits are one line of the host's own cache. Invariant: no line is in a set twice.
//
// Speed: tags are compared and moved four at a time; a miss moves all of a set back by one, a hit those before it.
// Lines are taken a batch at a time, so that a set can be fetched into the host's cache a few accesses before it is
// searched. One update without a branch for both took 1.6 times as long in L1 and 1.25 times in larger caches; compiled
// for AVX2 it was no faster.
//
// Source: the rules of cache simulators such as Cachegrind (Nethercote and Seward, 2007): write-allocate, LRU; the set
// is chosen by the lowest bits or, as in last-level caches since Sandy Bridge (Maurice et al., 2015), by a hash.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace frontgi::cachesim {

constexpr int64_t kLineBytes = 64;

// An access is a line's number and, in the highest bit, whether it is written. So is a tag.
using Access = uint32_t;
constexpr Access kWrite = Access{1} << 31;
constexpr Access kLineMask = kWrite - 1;
constexpr Access kNoLine = kLineMask;  // of an empty way: no line has this number

struct CacheShape {
  int64_t bytes = 0;  // 0: no cache at this level
  int64_t ways = 8;
  bool hashed = false;  // the set is chosen by a hash of the line's number, else by its remainder
};

struct Ignore {
  void operator()(Access, Access) const {}
};

class Cache {
 public:
  Cache() = default;  // absent: misses everything

  // Its tags lie at `memory`, on a line of the host's, and are `tags(shape)` many.
  Cache(const CacheShape& shape, Access* memory) : ways_(shape.ways), hashed_(shape.hashed), first_(memory) {
    if (shape.bytes == 0) return;
    sets_ = static_cast<uint64_t>(shape.bytes / (shape.ways * kLineBytes));
    std::fill_n(first_, tags(shape), kNoLine);
  }

  // A multiple of a line of the host's. Throws std::invalid_argument if there can be no such cache.
  static int64_t tags(const CacheShape& shape) {
    if (shape.bytes == 0) return 0;
    if (shape.ways < 1 || shape.bytes / kLineBytes < shape.ways || shape.bytes / kLineBytes > int64_t{kLineMask}) {
      throw std::invalid_argument("simulate: a cache must hold at least a line in each of its ways (got " +
                                  std::to_string(shape.bytes) + " bytes in " + std::to_string(shape.ways) + " ways)");
    }
    const int64_t tags = shape.bytes / (shape.ways * kLineBytes) * shape.ways;
    return (tags + kHostLine - 1) / kHostLine * kHostLine;
  }

  bool present() const { return sets_ > 0; }

  // Accesses `count` lines in order. The misses come to lie, in order, at the beginning of `accesses`, and in
  // `victims` what each drove out, kNoLine if nothing. Writes that hit are appended to `written`, which is advanced.
  // Returns the number of misses; of each, on_miss(line, victim) is called on the way. REQUIRES: room for `count` in
  // victims and written.
  template <class OnMiss = Ignore>
  size_t access(Access* accesses, size_t count, Access* victims, Access*& written, const OnMiss& on_miss = {}) {
    if (!present()) return count;
    return placed<size_t>([&](auto place) {
      if (ways_ == 8) return access_all<8>(place, accesses, count, victims, written, on_miss);
      if (ways_ == 16) return access_all<16>(place, accesses, count, victims, written, on_miss);
      return access_all<0>(place, accesses, count, victims, written, on_miss);
    });
  }

  // Marks a line as written. False if it is not here.
  bool mark_written(Access line) {
    Access* set =
        placed<Access*>([&](auto place) { return first_ + place(line & kLineMask) * static_cast<uint64_t>(ways_); });
    for (int64_t way = 0; way < ways_; ++way) {
      if ((set[way] & kLineMask) != (line & kLineMask)) continue;
      set[way] |= kWrite;
      return true;
    }
    return false;
  }

 private:
  static constexpr int64_t kHostLine = 64 / sizeof(Access);
  // How many sets are in flight on the host, where the tags do not lie in its first cache.
  static constexpr size_t kAhead = 12;
  static constexpr size_t kFetchedBytes = 16 << 10;

  using Four = Access __attribute__((vector_size(16)));
  using FourInts = int32_t __attribute__((vector_size(16)));

  // How a line's set is chosen: by its lowest bits, by its remainder or by a hash. The multiplier is 2^32 divided by
  // the golden ratio: lines at any one stride spread evenly (Knuth, 6.4).
  struct ByBits {
    uint32_t mask;
    uint64_t operator()(Access line) const { return line & mask; }
  };
  struct ByRemainder {
    uint32_t sets;
    uint64_t operator()(Access line) const { return line % sets; }
  };
  struct ByHash {
    uint64_t sets;
    uint64_t operator()(Access line) const { return uint64_t{(line ^ line >> 13) * 0x9E3779B1u} * sets >> 32; }
  };
  template <class Result, class Body>
  Result placed(const Body& body) const {
    const auto sets = static_cast<uint32_t>(sets_);
    if (hashed_) return body(ByHash{sets_});
    return (sets & (sets - 1)) == 0 ? body(ByBits{sets - 1}) : body(ByRemainder{sets});
  }

  template <int Ways, class Place, class OnMiss>
  size_t access_all(Place place, Access* accesses, size_t count, Access* victims, Access*& written,
                    const OnMiss& on_miss) {
    const bool fetch = sets_ * static_cast<uint64_t>(ways_) * sizeof(Access) > kFetchedBytes;
    return fetch ? access_all<Ways, true>(place, accesses, count, victims, written, on_miss)
                 : access_all<Ways, false>(place, accesses, count, victims, written, on_miss);
  }

  // Not inlined: each has the registers to itself.
  template <int Ways, bool Fetch, class Place, class OnMiss>
  [[gnu::noinline]] size_t access_all(Place place, Access* accesses, size_t count, Access* victims, Access*& written,
                                      const OnMiss& on_miss) {
    const size_t ways = Ways ? Ways : static_cast<size_t>(ways_);
    Access* const first = first_;
    const auto set_of = [&](Access access) { return first + place(access & kLineMask) * ways; };
    Access* hits = written;
    size_t misses = 0;
    const auto search = [&](const Access access) __attribute__((always_inline)) {
      Access* set = set_of(access);
      victims[misses] = set[ways - 1];
      const bool hit = Ways ? touch_vectors<Ways ? Ways : 4>(set, access) : touch(set, access, ways);
      if (!hit) on_miss(access & kLineMask, victims[misses] & kLineMask);
      accesses[misses] = access;
      misses += !hit;
      *hits = access;
      hits += hit & (access >> 31);
    };
    size_t i = 0;
    if (Fetch) {
      for (size_t j = 0; j < std::min(kAhead, count); ++j) __builtin_prefetch(set_of(accesses[j]), 1);
      for (; i + kAhead < count; ++i) {
        __builtin_prefetch(set_of(accesses[i + kAhead]), 1);
        search(accesses[i]);
      }
    }
    for (; i < count; ++i) search(accesses[i]);
    written = hits;
    return misses;
  }

  // Moves the line to the front of its set, or in at the front. Whether it was there.
  template <int Ways>
  [[gnu::always_inline]] static bool touch_vectors(Access* set, Access access) {
    constexpr int count = Ways / 4;
    const Access line = access & kLineMask;
    Four tags[count], found[count], any = {};
    for (int v = 0; v < count; ++v) {
      tags[v] = *reinterpret_cast<const Four*>(set + 4 * v);
      found[v] = reinterpret_cast<Four>((tags[v] & kLineMask) == Four{line, line, line, line});
      any |= found[v];
    }
    const bool hit = combined(any) != 0;
    if (!hit) {
      push_back<count>(set, tags, access, [](int, Four moved) { return moved; });
      return false;
    }
    Four where = {};
    for (int v = 0; v < count; ++v) {
      const Access p = static_cast<Access>(4 * v);
      where |= found[v] & ((tags[v] & kWrite) | Four{p, p + 1, p + 2, p + 3});
    }
    const Access at = combined(where);
    const int32_t last = static_cast<int32_t>(at & kLineMask);
    const FourInts lasts = {last, last, last, last};
    push_back<count>(set, tags, access | (at & kWrite), [&](int v, Four moved) {
      const Four stays = reinterpret_cast<Four>(FourInts{4 * v, 4 * v + 1, 4 * v + 2, 4 * v + 3} > lasts);
      return (tags[v] & stays) | (moved & ~stays);
    });
    return true;
  }

  // The lanes' bits, or-ed.
  [[gnu::always_inline]] static Access combined(Four lanes) {
    const auto halves = reinterpret_cast<uint64_t __attribute__((vector_size(16)))>(lanes);
    const uint64_t both = halves[0] | halves[1];
    return static_cast<Access>(both | both >> 32);
  }

  // Writes what `choose` makes of the tags moved back by one, `front` in at the front.
  template <int Count, class Choose>
  [[gnu::always_inline]] static void push_back(Access* set, const Four* tags, Access front, const Choose& choose) {
    Four before = {front};
    for (int v = 0; v < Count; ++v) {
      const Four turned = __builtin_shufflevector(tags[v], tags[v], 3, 0, 1, 2);
      Four moved = turned;
      moved[0] = before[0];
      before = turned;
      *reinterpret_cast<Four*>(set + 4 * v) = choose(v, moved);
    }
  }

  static bool touch(Access* set, Access access, size_t ways) {
    Access* const last = set + ways - 1;
    Access* at = set;
    while (at < last && ((*at ^ access) & kLineMask) != 0) ++at;
    const bool hit = ((*at ^ access) & kLineMask) == 0;
    const Access front = access | (hit ? *at & kWrite : 0);
    std::copy_backward(set, at, at + 1);
    *set = front;
    return hit;
  }

  int64_t ways_ = 0;
  bool hashed_ = false;
  Access* first_ = nullptr;
  uint64_t sets_ = 0;
};

}  // namespace frontgi::cachesim
