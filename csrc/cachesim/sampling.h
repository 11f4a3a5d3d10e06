// SPDX-License-Identifier: MIT
// Which part of an aggregation is simulated, and what the part says of the whole.
//
// What is left out: of a mixed schedule rounds, then domains, then windows of consecutive slots; by rows windows, then
// domains. A segment is what is simulated without a gap: one region, or of a region that gathers one window. Segments
// form strata: where rows are packed, the first window of a region, which finds the caches as packing left them or
// cold, and the other windows, which find them as any window leaves them; each of the first round, and of the others.
// Counts are scaled by work, an estimate of accesses. Units, whose spread tells the error, are windows (all domains
// walk the same rows of a slice), or domains where rows are dealt to domains and only some are simulated.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "accesses.h"

namespace frontgi::cachesim {

class Sampling {
 public:
  enum Part : size_t { kPacks, kFirstWindow, kOtherWindows, kParts };
  static constexpr size_t kStrata = 2 * kParts;

  Sampling(const Aggregation& aggregation, const Machine& machine)
      : a_(aggregation), walk_(*aggregation.walk), machine_(machine), workers_(aggregation.schedule.workers) {
    const int64_t domains = machine.domains();
    domain_in_.assign(static_cast<size_t>(domains), true);
    regions_a_round_ = walk_.packed() ? 2 * walk_.blocks() : 1;
    rounds_ = walk_.regions() / regions_a_round_;
    const int64_t last = machine.home_domain(workers_ - 1, workers_);
    shared_ = !walk_.packed() && a_.schedule.domains == 1 && last > 0;
    const int64_t domain_units = shared_ ? domains : a_.schedule.domains;
    const std::vector<int64_t>& llc = machine.llc_bytes;
    const bool alike = std::adjacent_find(llc.begin(), llc.end(), std::not_equal_to<>()) == llc.end();
    const bool by_domains = domain_units == domains && last == domains - 1 && alike;
    choose(by_domains ? domains : 1);
    if (all_domains_ && windows_ == 1 && rounds_in() == rounds_) return;  // nothing is left out
    measure();
    bool only_idle = false;  // of a stratum, only units without work were chosen
    for (size_t stratum = 0; stratum < kStrata; ++stratum) only_idle |= all_[stratum] > 0 && in_[stratum] == 0;
    if (only_idle) take_whole_rounds();
  }

  int64_t rounds() const { return rounds_; }
  bool round_in(int64_t round) const { return round_in_[static_cast<size_t>(round)]; }
  int64_t first_region(int64_t round) const { return round * regions_a_round_; }
  int64_t regions_a_round() const { return regions_a_round_; }
  int64_t queue_count(int64_t region) const { return static_cast<int64_t>(walk_.queues(region).size()); }

  // Packing is done whole: what is gathered behind it depends on all of it.
  int64_t windows(int64_t region) const { return walk_.packs(region) ? 1 : windows_; }
  // Other ones in every round: edges' indices that an earlier round left in the caches are not to be found.
  bool window_in(int64_t region, int64_t window) const {
    if (walk_.packs(region) || window == 0) return true;
    return window_in_[static_cast<size_t>(1 + (window - 1 + round_of(region)) % (windows_ - 1))];
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

  // Whether a worker whose queue is empty helps another: at the end of a window it would do so far too often.
  bool helps() const { return all_domains_ && windows_ == 1; }
  // One queue for all domains, of which only some are simulated: slots are dealt, not pulled.
  bool deals() const { return shared_ && !all_domains_; }
  bool worker_in(int64_t worker, int64_t queues) const {
    return all_domains_ || domain_in_[static_cast<size_t>(shared_ ? machine_.home_domain(worker, workers_)
                                                                  : machine_.home_queue(worker, workers_, queues))];
  }

  size_t stratum(int64_t region, int64_t window) const {
    const Part part = walk_.packs(region) ? kPacks : window == 0 ? kFirstWindow : kOtherWindows;
    return (round_of(region) == 0 ? size_t{0} : size_t{kParts}) + part;
  }
  // The unit that a domain's share of a segment belongs to; all blocks of columns have the same windows.
  int64_t unit(int64_t region, int64_t window, int64_t domain) const {
    return walk_.packed() || all_domains_ ? round_of(region) * windows_ + window : domain;
  }
  // Of a unit that is simulated, none if it has no work.
  double work(size_t stratum, int64_t unit) const {
    const auto found = units_[stratum].find(unit);
    return found == units_[stratum].end() ? 0 : found->second;
  }
  // What a stratum's counts are multiplied by.
  double scale(size_t stratum) const { return 1 / share_in(stratum); }
  double share_in(size_t stratum) const { return all_[stratum] > 0 ? in_[stratum] / all_[stratum] : 1; }
  double sampled() const {
    const double all = std::reduce(all_.begin(), all_.end());
    return all > 0 ? std::reduce(in_.begin(), in_.end()) / all : 1;
  }

 private:
  static double lines_of(int64_t bytes) { return static_cast<double>((bytes + kLineBytes - 1) / kLineBytes); }

  double slice_lines(int64_t region, int64_t queue) const {
    return lines_of((walk_.slice_end(region, queue) - walk_.slice_begin(region, queue)) * a_.element_bytes());
  }
  int64_t round_of(int64_t region) const { return region / regions_a_round_; }

  // Accesses, roughly: each edge's lines and index, each row's output; whenever a row's edges are walked, where they
  // lie; with blocks, what the row has come to, written and read again.
  double gathered(double edges, double rows, double lines) const {
    const double index = static_cast<double>(a_.index_bytes()) / kLineBytes, walks = std::ceil(lines / 16);
    const double blocks = static_cast<double>(walk_.blocks());
    return edges * (lines + walks * index) + rows * (lines * (2 * blocks - 1) + walks * (4 * blocks - 2));
  }
  static double packed(double rows, double lines) { return 2 * rows * lines; }

  double accesses() const {
    const double edges = static_cast<double>(a_.args.shape.edges), rows = static_cast<double>(a_.args.shape.rows);
    const double columns = static_cast<double>(a_.args.shape.columns);
    if (!walk_.packed()) return gathered(edges, rows, slice_lines(0, 0));
    double all = 0;
    for (int64_t round = 0; round < rounds_; ++round) {
      for (int64_t q = 0; q < queue_count(first_region(round)); ++q) {
        const double lines = slice_lines(first_region(round), q);
        all += gathered(edges, rows, lines) + packed(columns, lines);
      }
    }
    return all;
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
      const bool cold = a_.args.warm_passes == 0;  // what is left out of a warm pass would not be found
      if (cold && walk_.packed()) {
        rounds = some(rounds_, 2);
        some_domains = some(domains, rounds_ > 1 ? 1 : 2);
        windows = cut_into_windows(share);
      } else {
        if (cold) windows = cut_into_windows(share);
        if (windows > 0) share *= static_cast<double>(windows_) / static_cast<double>(windows);
        some_domains = some(domains, 2);
      }
    }
    round_in_ = spread(rounds_, rounds);
    window_in_ = spread(windows_, windows);
    if (some_domains > 0 && some_domains < domains) {
      all_domains_ = false;
      domain_in_.assign(domain_in_.size(), false);
      for (int64_t i = 0; i < some_domains; ++i)
        domain_in_[static_cast<size_t>(domains * (2 * i + 1) / (2 * some_domains))] = true;
    }
  }

  // The first, and of the others those in the middle of equal stretches; all if `taken` is 0.
  static std::vector<bool> spread(int64_t of, int64_t taken) {
    std::vector<bool> in(static_cast<size_t>(of), taken == 0 || taken >= of);
    in[0] = true;
    const int64_t stretches = std::max<int64_t>(1, taken - 1);
    for (int64_t i = 0; i < stretches && of > 1; ++i) {
      in[static_cast<size_t>(1 + (of - 1) * (2 * i + 1) / (2 * stretches))] = true;
    }
    return in;
  }

  // Cuts the slots of a region into windows, and returns how many of them this share is, at least four; 0 where there
  // are too few to choose from. A window is long enough to fill the caches twice: the others are not to see what the
  // first finds there.
  int64_t cut_into_windows(double share) {
    if (share >= 1 || a_.schedule.domains > machine_.domains()) return 0;  // queues without workers of their own wait
    const auto queues = static_cast<double>(a_.schedule.domains), slots = static_cast<double>(a_.schedule.slots);
    const double queue_slots = std::max(1.0, walk_.packed() ? slots : slots / queues);
    const double work =
        static_cast<double>(a_.args.shape.edges + a_.args.shape.rows) *
        (walk_.packed() ? slice_lines(0, 0) / static_cast<double>(walk_.blocks()) : lines_of(a_.row_bytes()) / queues);
    const double window = std::max(1.0, 2 * cache_lines() / std::max(1.0, work) * queue_slots);
    if (queue_slots < 5 * window) return 0;
    const auto count = static_cast<int64_t>(queue_slots / window);
    const int64_t taken = std::max<int64_t>(4, static_cast<int64_t>(share * queue_slots / window));
    if (taken >= count) return 0;
    windows_ = count;
    return taken;
  }

  // Of all caches that a queue's workers share or have.
  double cache_lines() const {
    const double workers = static_cast<double>(workers_) / static_cast<double>(a_.schedule.domains);
    const int64_t llc = *std::max_element(machine_.llc_bytes.begin(), machine_.llc_bytes.end());
    return lines_of(llc) * static_cast<double>(shared_ ? machine_.domains() : 1) +
           lines_of(a_.args.l2.bytes) * std::max(1.0, workers);
  }

  int64_t rounds_in() const { return std::count(round_in_.begin(), round_in_.end(), true); }

  // Rounds have the same rows: those that were chosen have work, if all of it is taken.
  void take_whole_rounds() {
    all_domains_ = true;
    windows_ = 1;
    window_in_ = {true};
    all_ = in_ = {};
    units_ = {};
    if (rounds_in() < rounds_) measure();
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
    const bool in = round_in(round_of(region)) && window_in(region, window) &&
                    (all_domains_ || domain_in_[static_cast<size_t>(domain)]);
    all_[of] += work;
    if (!in || work == 0) return;
    in_[of] += work;
    units_[of][unit(region, window, domain)] += work;
  }

  // Of a region that gathers from a block of columns, what all the blocks' take.
  double work_of(int64_t region, int64_t queue, int64_t slot) const {
    double work = 0;
    walk_.tasks(region, queue, slot, [&](const AggregateTask& task) {
      const double rows = static_cast<double>(task.row_end - task.row_begin);
      const double lines = lines_of((task.feature_end - task.feature_begin) * a_.element_bytes());
      if (task.packs) {
        work += packed(rows, lines) * static_cast<double>(walk_.blocks());
        return;
      }
      const int64_t* rowptr = a_.args.rowptr;
      work += gathered(static_cast<double>(rowptr[task.row_end] - rowptr[task.row_begin]), rows, lines);
    });
    return work;
  }

  const Aggregation& a_;
  const AggregateWalk& walk_;
  const Machine& machine_;
  int64_t workers_, rounds_ = 1, regions_a_round_ = 1, windows_ = 1;
  bool shared_ = false, all_domains_ = true;
  std::vector<bool> domain_in_, round_in_, window_in_;
  std::array<double, kStrata> all_{}, in_{};              // work
  std::array<std::map<int64_t, double>, kStrata> units_;  // of those simulated
};

// The spread of misses, for their standard error.
class Spread {
 public:
  // What a segment was for one unit of its stratum.
  void add(size_t stratum, int64_t unit, double misses) { strata_[stratum].misses[unit] += misses; }
  // What a segment has come to: what the error is taken from where a stratum has but one unit.
  void add_moment(size_t stratum, double accesses, double misses) {
    const Unit& before = strata_[stratum].before;
    strata_[stratum].moments.push_back({before.work + accesses, before.misses + misses});
  }
  void end_segment(size_t stratum) {
    Stratum& s = strata_[stratum];
    if (!s.moments.empty()) s.before = s.moments.back();
  }

  // Of the scaled sum of misses, relative to it; infinite if a part of it is from one unit without a course.
  double relative_error(const Sampling& sampling) const {
    double variance = 0, misses = 0;
    for (size_t s = 0; s < Sampling::kStrata; ++s) {
      const double share = sampling.share_in(s);
      std::vector<Unit> units;
      for (const auto& [unit, missed] : strata_[s].misses) {
        const double work = sampling.work(s, unit);
        if (work > 0) units.push_back({work, missed});
        misses += missed / share;
      }
      if (share == 1 || units.empty()) continue;
      variance += variance_of(units.size() > 1 ? units : batches(strata_[s].moments)) * (1 - share) / (share * share);
    }
    return misses > 0 ? std::sqrt(variance) / misses : 0;
  }

 private:
  struct Unit {
    double work = 0, misses = 0;
  };
  struct Stratum {
    std::map<int64_t, double> misses;  // by unit
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
      all.push_back({now.work - before.work, now.misses - before.misses});
      before = now;
    }
    return all;
  }

  // Of the sum of `misses`, given the work: what is left beside the common ratio.
  static double variance_of(const std::vector<Unit>& units) {
    if (units.size() < 2) return std::numeric_limits<double>::infinity();
    double work = 0, misses = 0, squares = 0;
    for (const Unit& unit : units) work += unit.work, misses += unit.misses;
    for (const Unit& unit : units) {
      const double residual = unit.misses - misses / work * unit.work;
      squares += residual * residual;
    }
    const double count = static_cast<double>(units.size());
    return squares * count / (count - 1);
  }

  std::array<Stratum, Sampling::kStrata> strata_;
};

}  // namespace frontgi::cachesim
