// SPDX-License-Identifier: MIT
#include "simulate.h"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>

#include "accesses.h"
#include "pipeline.h"
#include "sampling.h"

namespace frontgi::cachesim {
namespace {

void require(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument("simulate: " + message);
}

void check(const SimulationArgs& args) {
  const AggregateShape& shape = args.shape;
  const Schedule& schedule = args.schedule;
  require(shape.rows >= 0 && shape.columns >= 0 && shape.edges >= 0 && shape.width >= 0, "sizes must not be negative");
  require(shape.element_bytes == 2 || shape.element_bytes == 4 || shape.element_bytes == 8,
          "an element has 2, 4 or 8 bytes (got " + std::to_string(shape.element_bytes) + ")");
  const double most = static_cast<double>(std::max(shape.rows, shape.columns));
  require(most * static_cast<double>(shape.width) * static_cast<double>(shape.element_bytes) < 0x1p40,
          "an aggregation may touch at most 2^31 lines of 64 bytes (got rows of " + std::to_string(shape.width) +
              " features)");
  require(args.vector_bytes == 16 || args.vector_bytes == 32 || args.vector_bytes == 64,
          "a vector has 16, 32 or 64 bytes (got " + std::to_string(args.vector_bytes) + ")");
  require(!args.llc_bytes.empty(), "there must be at least one domain");
  for (size_t d = 0; d < args.llc_bytes.size(); ++d) {
    require(args.llc_bytes[d] > 0, "the size of domain " + std::to_string(d) + "'s last-level cache is not known");
  }
  require(schedule.workers >= 1 && schedule.domains >= 1 && schedule.slots >= 1 && schedule.block_columns >= 0 &&
              (schedule.kind != ScheduleKind::mixed ||
               (schedule.slice_width >= 1 && schedule.slice_width <= int64_t{1} << 40)),
          "the schedule cannot run");
  require(args.warm_passes >= 0 && args.domains_simulated >= 0 && args.rounds_simulated >= 0 && args.max_accesses >= 0,
          "numbers of passes, domains, rounds and accesses must not be negative");
}

Machine stated(const std::vector<int64_t>& llc_bytes) {
  Machine machine;
  machine.llc_bytes = llc_bytes;
  machine.stated = true;
  return machine;
}

// What is handed from the workers' side of the caches to the shared one.
struct Step {
  enum Kind { kBatch, kMoment, kSegmentBegins, kSegmentEnds } kind = kBatch;
  int64_t region = 0, window = 0;  // of the segment
  Batch batch;
};

// The shared levels, and what is counted.
class SharedSide {
 public:
  SharedSide(const HierarchyShape& shape, const Sampling& sampling)
      : caches_(shape), sampling_(sampling), totals_(shape.llc.size()) {}

  void handle(Step& step) {
    if (step.kind == Step::kBatch) return caches_.access(step.batch);
    if (step.kind == Step::kSegmentBegins) return caches_.forget_counts();
    step.kind == Step::kMoment ? note_moment(step) : add_segment(step);
  }

  Counts counts() const { return {totals_, sampling_.sampled(), spread_.relative_error(sampling_)}; }

 private:
  static double misses(const DomainCounts& counts) { return static_cast<double>(counts.levels[kLlc].misses); }

  size_t stratum(const Step& step) const { return sampling_.stratum(step.region, step.window); }

  void add_segment(const Step& step) {
    const std::vector<DomainCounts>& counts = caches_.counts();
    for (size_t d = 0; d < counts.size(); ++d) {
      const int64_t unit = sampling_.unit(step.region, step.window, static_cast<int64_t>(d));
      if (counts[d].accesses() > 0) spread_.add(stratum(step), unit, misses(counts[d]));
      add_scaled(totals_[d], counts[d], sampling_.scale(stratum(step)));
    }
    spread_.end_segment(stratum(step));
  }

  static void add_scaled(DomainCounts& to, const DomainCounts& counts, double scale) {
    const auto scaled = [&](int64_t count) { return std::llround(static_cast<double>(count) * scale); };
    for (size_t level = 0; level < kLevels; ++level) {
      to.levels[level].hits += scaled(counts.levels[level].hits);
      to.levels[level].misses += scaled(counts.levels[level].misses);
      to.levels[level].filled += scaled(counts.levels[level].filled);
    }
  }

  void note_moment(const Step& step) {
    double asked = 0, missed = 0;
    for (const DomainCounts& counts : caches_.counts()) {
      asked += static_cast<double>(counts.accesses());
      missed += misses(counts);
    }
    spread_.add_moment(stratum(step), asked, missed);
  }

  SharedCaches caches_;
  const Sampling& sampling_;
  std::vector<DomainCounts> totals_;
  Spread spread_;
};

class Simulation {
 public:
  explicit Simulation(const SimulationArgs& args)
      : aggregation_(args),
        machine_(stated(args.llc_bytes)),
        sampling_(aggregation_, machine_),
        shape_(shape(args)),
        private_(shape_),
        shared_(shape_, sampling_),
        steps_(
            [this](Step& step) {
              if (step.kind == Step::kBatch && l2_is_asked_late(step.batch.worker)) private_.filter_l2(step.batch);
              shared_.handle(step);
            },
            args.threaded) {
    for (int64_t w = 0; w < workers(); ++w) accesses_.emplace_back(aggregation_);
  }

  Counts run() {
    for (int64_t pass = 0; pass <= aggregation_.args.warm_passes; ++pass) {
      counts_ = pass == aggregation_.args.warm_passes;
      for (int64_t round = 0; round < sampling_.rounds(); ++round) {
        if (sampling_.round_in(round)) run_round(round);
      }
    }
    steps_.finish();
    return shared_.counts();
  }

 private:
  using Turns = std::vector<int64_t>;  // workers of a domain that are not done

  // Domains take longer turns than workers, unless slots are taken, which goes in turn by workers: a domain's tags fill
  // the host's cache, and have to be fetched for each.
  static constexpr int64_t kTurnsOfDomain = 8;

  int64_t workers() const { return aggregation_.schedule.workers; }

  // The sides are to have as much to do: whole rows, which are seldom in L2, keep the shared side busy alone; what is
  // gathered from slices often is, and every other worker's L2 is asked there. A worker's is always asked by one side.
  bool l2_is_asked_late(size_t worker) const { return aggregation_.walk->packed() && worker % 2 == 0; }

  HierarchyShape shape(const SimulationArgs& args) const {
    HierarchyShape shape{args.l1, args.l2, {}, {}, false, aggregation_.lines};
    for (const int64_t bytes : args.llc_bytes) shape.llc.push_back({bytes, args.llc_ways, args.llc_hashed});
    int64_t used = 0, last = -1;
    for (int64_t w = 0; w < workers(); ++w) {
      const int64_t home = machine_.home_domain(w, workers());
      shape.domain_of_worker.push_back(ever_in(w) ? home : -1);
      used += ever_in(w) && home != last;
      if (ever_in(w)) last = home;
    }
    shape.remote = args.remote && used > 1;
    require(!shape.remote || args.llc_bytes.size() <= 255,
            "remote hits are told apart for up to 255 domains (got " + std::to_string(args.llc_bytes.size()) + ")");
    return shape;
  }

  int64_t queues(int64_t round) const { return sampling_.queue_count(sampling_.first_region(round)); }

  // In the last round of a mixed schedule there may be fewer queues, each with more workers.
  bool ever_in(int64_t worker) const {
    return sampling_.worker_in(worker, queues(0)) || sampling_.worker_in(worker, queues(sampling_.rounds() - 1));
  }

  void run_round(int64_t round) {
    const int64_t first = sampling_.first_region(round);
    for (int64_t region = first; region < first + sampling_.regions_a_round(); ++region) {
      for (int64_t window = 0; window < sampling_.windows(region); ++window) {
        if (sampling_.window_in(region, window)) run_segment(region, window);
      }
    }
  }

  void run_segment(int64_t region, int64_t window) {
    region_ = region;
    window_ = window;
    pass(Step::kSegmentBegins);
    if (region == 0 && aggregation_.blocks) run_splitting();
    const std::vector<WorkQueues::Range> ranges = sampling_.queues(region, window);
    WorkQueues queues(ranges);
    take_turns(begin_region(region, queues, ranges));
    if (counts_) pass(Step::kSegmentEnds);
  }

  void pass(Step::Kind kind) {
    Step& step = steps_.next();
    step.kind = kind;
    step.region = region_;
    step.window = window_;
    steps_.pass();
  }

  // As ColumnBlocks does it.
  void run_splitting() {
    const RowSlots slots(aggregation_.args.rowptr, aggregation_.args.shape.rows, 1, 1, workers());
    std::vector<Turns> busy(static_cast<size_t>(machine_.domains()));
    for (int64_t worker = 0; worker < workers(); ++worker) {
      if (!sampling_.worker_in(worker, queues(0))) continue;
      accesses_[static_cast<size_t>(worker)].begin_splitting(slots.first_row(worker), slots.first_row(worker + 1));
      busy[static_cast<size_t>(machine_.home_domain(worker, workers()))].push_back(worker);
    }
    take_turns(std::move(busy));
  }

  void take_turns(std::vector<Turns> domains) {
    while (!domains.empty()) {
      for (Turns& busy : domains) {
        bool took_slot = false;
        for (int64_t turn = 0; turn < kTurnsOfDomain && !busy.empty() && !took_slot; ++turn) {
          std::erase_if(busy, [&](int64_t worker) { return !take_turn(worker, took_slot); });
        }
      }
      std::erase_if(domains, [](const Turns& busy) { return busy.empty(); });
      if (counts_ && sampling_.sampled() < 1) pass(Step::kMoment);
    }
  }

  // False if there was nothing left to do.
  bool take_turn(int64_t worker, bool& took_slot) {
    WorkerAccesses& accesses = accesses_[static_cast<size_t>(worker)];
    Step& step = steps_.next();
    Batch& batch = step.batch;
    step.kind = Step::kBatch;
    batch.worker = static_cast<size_t>(worker);
    batch.domain = static_cast<size_t>(machine_.home_domain(worker, workers()));
    batch.left = accesses.fill(batch.accesses.data(), batch.streamed);
    took_slot |= accesses.took_slot();
    if (batch.left == 0 && batch.streamed == 0) return false;
    private_.filter_l1(batch);
    if (!l2_is_asked_late(batch.worker)) private_.filter_l2(batch);
    steps_.pass();
    return true;
  }

  // The workers that take part, by domain.
  std::vector<Turns> begin_region(int64_t region, WorkQueues& queues, const std::vector<WorkQueues::Range>& ranges) {
    const auto count = static_cast<int64_t>(ranges.size());
    std::vector<Turns> busy(static_cast<size_t>(machine_.domains()));
    for (int64_t worker = 0; worker < workers(); ++worker) {
      if (!sampling_.worker_in(worker, count)) continue;
      WorkerAccesses& accesses = accesses_[static_cast<size_t>(worker)];
      const int64_t domain = machine_.home_domain(worker, workers());
      const int64_t home = machine_.home_queue(worker, workers(), count);
      if (sampling_.deals()) {
        const int64_t past = (ranges[0].begin - worker + workers() - 1) / workers();
        accesses.begin_dealt(region, worker + past * workers(), workers(), ranges[0].end);
      } else if (sampling_.helps()) {
        accesses.begin(region, queues, {home, 0});
      } else {
        accesses.begin(region, queues,
                       {home + 1, count - 1});  // its own queue is the last it looks at, and the only one
      }
      busy[static_cast<size_t>(domain)].push_back(worker);
    }
    return busy;
  }

  Aggregation aggregation_;
  Machine machine_;
  Sampling sampling_;
  HierarchyShape shape_;
  PrivateCaches private_;
  SharedSide shared_;
  std::vector<WorkerAccesses> accesses_;
  Pipeline<Step, std::function<void(Step&)>> steps_;
  int64_t region_ = 0, window_ = 0;  // of the segment
  bool counts_ = true;
};

}  // namespace

Counts simulate(const SimulationArgs& args) {
  check(args);
  if (args.shape.rows == 0 || args.shape.width == 0) return {std::vector<DomainCounts>(args.llc_bytes.size()), 1, 0};
  return Simulation(args).run();
}

}  // namespace frontgi::cachesim
