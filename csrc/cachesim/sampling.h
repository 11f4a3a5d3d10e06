// SPDX-License-Identifier: MIT
// Which part of an aggregation is simulated, and what the part says of the whole.
//
// A unit is one domain's share of one round; where rows are not cut into slices, and even few domains are too much, a
// round is a window of consecutive slots. Units form two strata, the first round and the others: the first finds cold
// caches, the others are alike. Invariant: work is an estimate of accesses that is proportional within a stratum.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "accesses.h"

namespace frontgi::cachesim {

class Sampling {
 public:
  Sampling(const Aggregation& aggregation, const Machine& machine)
      : a_(aggregation), machine_(machine), workers_(aggregation.schedule.workers) {
    const int64_t domains = machine.domains();
    domain_in_.assign(static_cast<size_t>(domains), true);
    regions_a_round_ = a_.walk->packed() ? 2 * a_.walk->blocks() : 1;
    rounds_ = a_.walk->regions() / regions_a_round_;
    const int64_t last = machine.home_domain(workers_ - 1, workers_);
    shared_ = !a_.walk->packed() && a_.schedule.domains == 1 && last > 0;
    const int64_t domain_units = a_.walk->packed() || !shared_ ? a_.schedule.domains : domains;
    const bool by_domains = domain_units == domains && last == domains - 1;
    choose(by_domains ? domains : 1);
    measure();
    if ((all_[0] > 0 && in_[0] == 0) || (all_[1] > 0 && in_[1] == 0)) {  // only domains without work were chosen
      all_domains_ = true;
      round_in_.assign(round_in_.size(), true);
      all_ = in_ = {};
      measure();
    }
  }

  int64_t rounds() const { return rounds_; }
  int64_t regions_a_round() const { return regions_a_round_; }
  int64_t first_region(int64_t round) const { return a_.walk->packed() ? round * regions_a_round_ : 0; }

  // What a round does of a region: all, or of rows the round's window.
  std::vector<WorkQueues::Range> queues(int64_t region, int64_t round) const {
    std::vector<WorkQueues::Range> ranges = a_.walk->queues(region);
    if (a_.walk->packed()) return ranges;
    for (WorkQueues::Range& range : ranges) {
      const int64_t count = range.end - range.begin;
      range = {range.begin + count * round / rounds_, range.begin + count * (round + 1) / rounds_};
    }
    return ranges;
  }
  bool round_in(int64_t round) const { return round_in_[static_cast<size_t>(round)]; }
  bool all_domains() const { return all_domains_; }
  // One queue for all domains, of which only some are simulated: slots are dealt, not pulled.
  bool deals() const { return shared_ && !all_domains_; }

  bool worker_in(int64_t worker, int64_t queues) const {
    return all_domains_ || domain_in_[static_cast<size_t>(shared_ ? machine_.home_domain(worker, workers_)
                                                                  : machine_.home_queue(worker, workers_, queues))];
  }

  // What a round's counts are multiplied by.
  double scale(int64_t round) const { return all_[stratum(round)] / in_[stratum(round)]; }
  double sampled() const { return (in_[0] + in_[1]) / (all_[0] + all_[1]); }
  double share_in(size_t stratum) const { return all_[stratum] > 0 ? in_[stratum] / all_[stratum] : 1; }
  static size_t stratum(int64_t round) { return round == 0 ? 0 : 1; }

 private:
  static double lines_of(int64_t bytes) { return static_cast<double>((bytes + kLineBytes - 1) / kLineBytes); }

  double slice_lines(int64_t round, int64_t queue) const {
    const int64_t region = round * regions_a_round_;
    return lines_of((a_.walk->slice_end(region, queue) - a_.walk->slice_begin(region, queue)) * a_.element_bytes());
  }

  // Accesses in all, roughly: each edge's lines and index, each row's output and, packed, two of each source; of a row,
  // whenever its edges are walked, where they lie; with blocks, what it has come to, written and read again.
  double accesses() const {
    const AggregateShape& shape = a_.args.shape;
    const double edges = static_cast<double>(shape.edges), rows = static_cast<double>(shape.rows);
    const double index = static_cast<double>(a_.index_bytes()) / kLineBytes;
    const double blocks = static_cast<double>(a_.walk->blocks());
    const double sources = a_.walk->packed() ? static_cast<double>(shape.columns) : 0;
    double lines = 0, walks = 0;
    for (int64_t round = 0; round < rounds_; ++round) {
      const auto slices = a_.walk->packed() ? static_cast<int64_t>(queues(first_region(round), round).size()) : 1;
      for (int64_t q = 0; q < slices; ++q) {
        lines += slice_lines(round, q);
        walks += std::ceil(slice_lines(round, q) / 16);
      }
    }
    const double gathered = edges + rows + 2 * sources + 2 * rows * (blocks - 1);
    return lines * gathered + walks * (edges * index + rows * (4 * blocks - 2));
  }

  void choose(int64_t domains) {
    int64_t rounds = a_.args.rounds_simulated, some_domains = a_.args.domains_simulated;
    const double fits = static_cast<double>(a_.args.max_accesses) / std::max(1.0, accesses());
    if (rounds == 0 && some_domains == 0 && a_.args.max_accesses > 0 && fits < 1) {
      const auto some = [](double share, int64_t of, int64_t at_least) {
        return std::min(of, std::max(at_least, static_cast<int64_t>(share * static_cast<double>(of))));
      };
      if (a_.walk->packed()) {
        rounds = some(fits, rounds_, 2);
        some_domains =
            some(fits * static_cast<double>(rounds_) / static_cast<double>(rounds), domains, rounds_ > 1 ? 1 : 2);
      } else {
        some_domains = some(fits, domains, 2);
        rounds = cut_into_windows(fits * static_cast<double>(domains) / static_cast<double>(some_domains));
      }
    }
    round_in_.assign(static_cast<size_t>(rounds_), true);
    if (rounds > 0 && rounds < rounds_) {
      round_in_.assign(static_cast<size_t>(rounds_), false);
      round_in_[0] = true;
      const int64_t others = std::max<int64_t>(1, rounds - 1);
      for (int64_t i = 0; i < others; ++i) round_in_[static_cast<size_t>(1 + (rounds_ - 1) * i / others)] = true;
    }
    if (some_domains > 0 && some_domains < domains) {
      all_domains_ = false;
      domain_in_.assign(domain_in_.size(), false);
      for (int64_t i = 0; i < some_domains; ++i) domain_in_[static_cast<size_t>(domains * i / some_domains)] = true;
    }
  }

  // Of this share of the slots, as many windows as are simulated, two at least. A window is a slot for each worker if
  // four of them can be had.
  int64_t cut_into_windows(double share) {
    if (share >= 1) return 0;
    const auto queues = static_cast<double>(a_.schedule.domains);
    const double slots = std::max(1.0, static_cast<double>(a_.schedule.slots) / queues);
    const double window = std::clamp(share * slots / 4, 1.0, std::max(1.0, static_cast<double>(workers_) / queues));
    rounds_ = static_cast<int64_t>(slots / window);
    return std::max<int64_t>(2, static_cast<int64_t>(share * slots / window));
  }

  void measure() {
    for (int64_t round = 0; round < rounds_; ++round) {
      const std::vector<WorkQueues::Range> ranges = queues(first_region(round), round);
      for (int64_t q = 0; q < static_cast<int64_t>(ranges.size()); ++q) {
        const WorkQueues::Range range = ranges[static_cast<size_t>(q)];
        if (a_.walk->packed()) {
          add(round, slice_lines(round, q), all_domains_ || domain_in_[static_cast<size_t>(q)]);
          continue;
        }
        for (int64_t slot = range.begin; slot < range.end; ++slot) {
          const int64_t domain = shared_ ? machine_.home_domain(slot % workers_, workers_) : q;
          add(round, slot_cost(slot), all_domains_ || domain_in_[static_cast<size_t>(domain)]);
        }
      }
    }
  }

  void add(int64_t round, double work, bool in) {
    all_[stratum(round)] += work;
    if (in && round_in(round)) in_[stratum(round)] += work;
  }

  // Of a slot of RowSlots: the same for all but the last ones.
  double slot_cost(int64_t slot) const {
    const int64_t total = a_.args.shape.edges + a_.args.shape.rows, slots = a_.schedule.slots;
    const int64_t cost = std::max<int64_t>(1, (total + slots - 1) / slots);
    return static_cast<double>(std::min(total, (slot + 1) * cost) - std::min(total, slot * cost));
  }

  const Aggregation& a_;
  const Machine& machine_;
  int64_t workers_, rounds_ = 1, regions_a_round_ = 1;
  bool shared_ = false, all_domains_ = true;
  std::vector<bool> domain_in_, round_in_;
  std::array<double, 2> all_{}, in_{};  // work, by stratum
};

// The spread of misses, for their standard error.
class Spread {
 public:
  void add(size_t stratum, double accesses, double misses) {
    if (accesses > 0) units_[stratum].push_back({accesses, misses});
  }
  // Totals of one unit as it went on: what its error is taken from where it is the only one.
  void add_moment(size_t stratum, double accesses, double misses) { moments_[stratum].push_back({accesses, misses}); }

  // Of the scaled sum of misses, relative to it.
  double relative_error(const Sampling& sampling) const {
    double variance = 0, misses = 0;
    for (size_t s = 0; s < 2; ++s) {
      const double share = sampling.share_in(s);
      if (share == 0) continue;
      const std::vector<Unit> units = units_[s].size() == 1 ? batches(s) : units_[s];
      variance += variance_of(units) * (1 - share) / (share * share);
      for (const Unit& unit : units) misses += unit.misses / share;
    }
    return misses > 0 ? std::sqrt(variance) / misses : 0;
  }

 private:
  struct Unit {
    double accesses, misses;
  };

  static constexpr size_t kBatches = 16;

  // Differences of totals that lie evenly apart in time.
  std::vector<Unit> batches(size_t stratum) const {
    const std::vector<Unit>& moments = moments_[stratum];
    const size_t count = std::min(kBatches, moments.size());
    std::vector<Unit> all;
    Unit before{0, 0};
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

  std::array<std::vector<Unit>, 2> units_, moments_;
};

}  // namespace frontgi::cachesim
