// SPDX-License-Identifier: MIT
// Which part of an aggregation is simulated, and what the part says of the whole.
//
// What is left out: rounds of a mixed schedule, then domains, then windows of consecutive slots. A segment is what is
// simulated without a gap: one region, or of a region that gathers one window; a unit is one domain's share of it, or,
// since what sets windows apart is their rows, of the same window of all blocks of columns.
// Segments form strata: where rows are packed, the first window of a region, which finds the caches as packing left
// them or cold, and the other windows, which find them as any window leaves them; each of the first round, and of the
// others. Invariant: work is an estimate of accesses that is proportional within a stratum.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "accesses.h"

namespace frontgi::cachesim {

class Sampling {
 public:
  static constexpr size_t kStrata = 6;

  Sampling(const Aggregation& aggregation, const Machine& machine)
      : a_(aggregation), walk_(*aggregation.walk), machine_(machine), workers_(aggregation.schedule.workers) {
    const int64_t domains = machine.domains();
    domain_in_.assign(static_cast<size_t>(domains), true);
    regions_a_round_ = walk_.packed() ? 2 * walk_.blocks() : 1;
    rounds_ = walk_.regions() / regions_a_round_;
    const int64_t last = machine.home_domain(workers_ - 1, workers_);
    shared_ = !walk_.packed() && a_.schedule.domains == 1 && last > 0;
    const int64_t domain_units = shared_ ? domains : a_.schedule.domains;
    const bool by_domains = domain_units == domains && last == domains - 1;
    choose(by_domains ? domains : 1);
    measure();
    bool only_idle = false;  // only units without work were chosen
    for (size_t stratum = 0; stratum < kStrata; ++stratum) only_idle |= all_[stratum] > 0 && in_[stratum] == 0;
    if (only_idle) take_all();
  }

  int64_t rounds() const { return rounds_; }
  bool round_in(int64_t round) const { return round_in_[static_cast<size_t>(round)]; }
  int64_t first_region(int64_t round) const { return round * regions_a_round_; }
  int64_t regions_a_round() const { return regions_a_round_; }

  // Packing is done whole: what is gathered behind it depends on all of it.
  int64_t windows(int64_t region) const { return walk_.packs(region) ? 1 : windows_; }
  // Other ones in every round: edges' indices that an earlier round left in the caches are not to be found.
  bool window_in(int64_t region, int64_t window) const {
    if (walk_.packs(region) || window == 0) return true;
    return window_in_[static_cast<size_t>(1 + (window - 1 + region / regions_a_round_) % (windows_ - 1))];
  }
  std::vector<WorkQueues::Range> queues(int64_t region, int64_t window) const {
    std::vector<WorkQueues::Range> ranges = walk_.queues(region);
    const int64_t count = windows(region);
    for (WorkQueues::Range& range : ranges) {
      const int64_t slots = range.end - range.begin;
      range = {range.begin + slots * window / count, range.begin + slots * (window + 1) / count};
    }
    return ranges;
  }

  bool all_domains() const { return all_domains_; }
  // One queue for all domains, of which only some are simulated: slots are dealt, not pulled.
  bool deals() const { return shared_ && !all_domains_; }
  bool worker_in(int64_t worker, int64_t queues) const {
    return all_domains_ || domain_in_[static_cast<size_t>(shared_ ? machine_.home_domain(worker, workers_)
                                                                  : machine_.home_queue(worker, workers_, queues))];
  }

  size_t stratum(int64_t region, int64_t window) const {
    return (region < regions_a_round_ ? 0 : 3) + (walk_.packs(region) ? 0u : window == 0 ? 1u : 2u);
  }
  // A number for the unit that a domain's share of a segment belongs to.
  int64_t unit(int64_t region, int64_t window, int64_t domain) const {
    return (region / regions_a_round_ * windows_ + window) * machine_.domains() + domain;
  }
  // What a stratum's counts are multiplied by.
  double scale(size_t stratum) const { return all_[stratum] / in_[stratum]; }
  double share_in(size_t stratum) const { return all_[stratum] > 0 ? in_[stratum] / all_[stratum] : 1; }
  double sampled() const { return std::reduce(in_.begin(), in_.end()) / std::reduce(all_.begin(), all_.end()); }

 private:
  static double lines_of(int64_t bytes) { return static_cast<double>((bytes + kLineBytes - 1) / kLineBytes); }

  double slice_lines(int64_t region, int64_t queue) const {
    return lines_of((walk_.slice_end(region, queue) - walk_.slice_begin(region, queue)) * a_.element_bytes());
  }
  int64_t queue_count(int64_t region) const { return static_cast<int64_t>(walk_.queues(region).size()); }

  // Accesses in all, roughly: each edge's lines and index, each row's output and, packed, two of each source; of a row,
  // whenever its edges are walked, where they lie; with blocks, what it has come to, written and read again.
  double accesses() const {
    const AggregateShape& shape = a_.args.shape;
    const double edges = static_cast<double>(shape.edges), rows = static_cast<double>(shape.rows);
    const double index = static_cast<double>(a_.index_bytes()) / kLineBytes;
    const double blocks = static_cast<double>(walk_.blocks());
    const double sources = walk_.packed() ? static_cast<double>(shape.columns) : 0;
    double lines = 0, walks = 0;
    for (int64_t round = 0; round < rounds_; ++round) {
      const int64_t region = first_region(round), slices = walk_.packed() ? queue_count(region) : 1;
      for (int64_t q = 0; q < slices; ++q) {
        lines += slice_lines(region, q);
        walks += std::ceil(slice_lines(region, q) / 16);
      }
    }
    const double gathered = edges + rows + 2 * sources + 2 * rows * (blocks - 1);
    return lines * gathered + walks * (edges * index + rows * (4 * blocks - 2));
  }

  void choose(int64_t domains) {
    int64_t rounds = a_.args.rounds_simulated, some_domains = a_.args.domains_simulated, windows = 0;
    double share = static_cast<double>(a_.args.max_accesses) / std::max(1.0, accesses());
    if (rounds == 0 && some_domains == 0 && a_.args.max_accesses > 0 && share < 1) {
      const auto some = [&](int64_t of, int64_t at_least) {
        const int64_t taken = std::min(of, std::max(at_least, static_cast<int64_t>(share * static_cast<double>(of))));
        share *= static_cast<double>(of) / static_cast<double>(taken);
        return taken;
      };
      rounds = some(rounds_, 2);
      some_domains = some(domains, rounds_ > 1 ? 1 : 2);
      windows = cut_into_windows(share);
    }
    round_in_ = spread(rounds_, rounds);
    window_in_ = spread(windows_, windows);
    if (some_domains > 0 && some_domains < domains) {
      all_domains_ = false;
      domain_in_.assign(domain_in_.size(), false);
      for (int64_t i = 0; i < some_domains; ++i) domain_in_[static_cast<size_t>(domains * i / some_domains)] = true;
    }
  }

  // The first, and evenly of the others; all if `taken` is 0.
  static std::vector<bool> spread(int64_t of, int64_t taken) {
    std::vector<bool> in(static_cast<size_t>(of), taken == 0 || taken >= of);
    in[0] = true;
    const int64_t others = std::max<int64_t>(1, taken - 1);
    for (int64_t i = 0; i < others && of > 1; ++i) in[static_cast<size_t>(1 + (of - 1) * i / others)] = true;
    return in;
  }

  // Cuts the slots of a region into windows, and returns how many of them this share is; 0 where there are too few to
  // choose from. By rows, at least two, each a slot for each worker if four of them can be had. Of slices, at least
  // four, each long enough to fill the cache twice, so that the others do not see what packing left there.
  int64_t cut_into_windows(double share) {
    if (share >= 1) return 0;
    const auto domains = static_cast<double>(a_.schedule.domains), slots = static_cast<double>(a_.schedule.slots);
    const double of = std::max(1.0, walk_.packed() ? slots : slots / domains);
    double window = std::clamp(share * of / 4, 1.0, std::max(1.0, static_cast<double>(workers_) / domains));
    if (walk_.packed()) {
      const double gathered = static_cast<double>(a_.args.shape.edges + a_.args.shape.rows) * slice_lines(0, 0);
      const double cache = lines_of(machine_.smallest_llc_bytes());
      window = std::max(1.0, 2 * cache / (gathered / static_cast<double>(walk_.blocks())) * of);
      if (of < 5 * window) return 0;
    }
    windows_ = static_cast<int64_t>(of / window);
    return std::max<int64_t>(walk_.packed() ? 4 : 2, static_cast<int64_t>(share * of / window));
  }

  void take_all() {
    all_domains_ = true;
    round_in_.assign(round_in_.size(), true);
    window_in_.assign(window_in_.size(), true);
    all_ = in_ = {};
    measure();
  }

  // Of the regions of a round that pack, and of those that gather, the first one stands for all: they have the same
  // units, in the same strata.
  void measure() {
    for (int64_t round = 0; round < rounds_; ++round) {
      const int64_t first = first_region(round), gathers = first + (walk_.packed() ? 1 : 0);
      for (int64_t region = first; region <= gathers; ++region) {
        for (int64_t window = 0; window < windows(region); ++window) {
          const std::vector<WorkQueues::Range> ranges = queues(region, window);
          for (int64_t q = 0; q < static_cast<int64_t>(ranges.size()); ++q) {
            const WorkQueues::Range range = ranges[static_cast<size_t>(q)];
            for (int64_t slot = range.begin; slot < range.end; ++slot) {
              const int64_t domain = shared_ ? machine_.home_domain(slot % workers_, workers_) : q;
              add(region, window, domain, work_of(region, q, slot));
            }
          }
        }
      }
    }
  }

  void add(int64_t region, int64_t window, int64_t domain, double work) {
    const size_t of = stratum(region, window);
    const bool in = round_in(region / regions_a_round_) && window_in(region, window) &&
                    (all_domains_ || domain_in_[static_cast<size_t>(domain)]);
    all_[of] += work;
    if (in) in_[of] += work;
  }

  // Accesses, roughly; of a region that gathers from a block of columns, what all the blocks' take.
  double work_of(int64_t region, int64_t queue, int64_t slot) const {
    double work = 0;
    walk_.tasks(region, queue, slot, [&](const AggregateTask& task) {
      const double rows = static_cast<double>(task.row_end - task.row_begin);
      const double lines = lines_of((task.feature_end - task.feature_begin) * a_.element_bytes());
      if (task.packs) {
        work += 2 * rows * lines;
        return;
      }
      const int64_t* rowptr = a_.args.rowptr;
      const double edges = static_cast<double>(rowptr[task.row_end] - rowptr[task.row_begin]);
      const double blocks = static_cast<double>(walk_.blocks());
      work += edges * lines + rows * (blocks > 1 ? blocks * (2 * lines + 3) : lines + 1);
    });
    return work;
  }

  const Aggregation& a_;
  const AggregateWalk& walk_;
  const Machine& machine_;
  int64_t workers_, rounds_ = 1, regions_a_round_ = 1, windows_ = 1;
  bool shared_ = false, all_domains_ = true;
  std::vector<bool> domain_in_, round_in_, window_in_;
  std::array<double, kStrata> all_{}, in_{};  // work
};

// The spread of misses, for their standard error.
class Spread {
 public:
  // What a segment was for one unit of its stratum.
  void add(size_t stratum, int64_t unit, double accesses, double misses) {
    if (accesses == 0) return;
    Unit& all = strata_[stratum].units[unit];
    all.accesses += accesses;
    all.misses += misses;
  }
  // What a segment has come to: what the error is taken from where a stratum has but one unit.
  void add_moment(size_t stratum, double accesses, double misses) {
    const Unit& before = strata_[stratum].before;
    strata_[stratum].moments.push_back({before.accesses + accesses, before.misses + misses});
  }
  void end_segment(size_t stratum) {
    Stratum& s = strata_[stratum];
    if (!s.moments.empty()) s.before = s.moments.back();
  }

  // Of the scaled sum of misses, relative to it.
  double relative_error(const Sampling& sampling) const {
    double variance = 0, misses = 0;
    for (size_t s = 0; s < Sampling::kStrata; ++s) {
      const double share = sampling.share_in(s);
      if (share == 0) continue;
      std::vector<Unit> units;
      for (const auto& [name, unit] : strata_[s].units) units.push_back(unit);
      if (units.size() == 1) units = batches(strata_[s].moments);
      variance += variance_of(units) * (1 - share) / (share * share);
      for (const Unit& unit : units) misses += unit.misses / share;
    }
    return misses > 0 ? std::sqrt(variance) / misses : 0;
  }

 private:
  struct Unit {
    double accesses = 0, misses = 0;
  };
  struct Stratum {
    std::map<int64_t, Unit> units;
    std::vector<Unit> moments;
    Unit before;
  };

  static constexpr size_t kBatches = 16;

  // Differences of totals that lie evenly apart in time.
  static std::vector<Unit> batches(const std::vector<Unit>& moments) {
    const size_t count = std::min(kBatches, moments.size());
    std::vector<Unit> all;
    Unit before;
    for (size_t i = 0; i < count; ++i) {
      const Unit now = moments[moments.size() * (i + 1) / count - 1];
      all.push_back({now.accesses - before.accesses, now.misses - before.misses});
      before = now;
    }
    return all;
  }

  // Of the sum of `misses`, given the accesses: what is left beside the common ratio.
  static double variance_of(const std::vector<Unit>& units) {
    if (units.size() < 2) return 0;
    double accesses = 0, misses = 0, squares = 0;
    for (const Unit& unit : units) accesses += unit.accesses, misses += unit.misses;
    for (const Unit& unit : units) {
      const double residual = unit.misses - misses / accesses * unit.accesses;
      squares += residual * residual;
    }
    const double count = static_cast<double>(units.size());
    return squares * count / (count - 1);
  }

  std::array<Stratum, Sampling::kStrata> strata_;
};

}  // namespace frontgi::cachesim
