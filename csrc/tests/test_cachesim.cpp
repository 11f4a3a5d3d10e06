// SPDX-License-Identifier: MIT
// The cache model: sequences and small aggregations counted on paper, and what must hold of all counts.
#include <doctest/doctest.h>

#include <stdexcept>

#include "simulations.h"

namespace frontgi::test {
namespace {

// ---- one cache -----------------------------------------------------------------------------------------------------

// A cache with memory of its own, asked one batch at a time.
struct OwnedCache {
  explicit OwnedCache(const CacheShape& shape) : memory(static_cast<size_t>(Cache::tags(shape)) * sizeof(Access)) {
    cache = Cache(shape, static_cast<Access*>(memory.get()));
  }
  // The lines missed, in order.
  std::vector<Access> missed(std::vector<Access> accesses) {
    victims.assign(accesses.size() + 1, 0);
    written.assign(accesses.size() + 1, 0);
    Access* end = written.data();
    const size_t misses = cache.access(accesses.data(), accesses.size(), victims.data(), end);
    accesses.resize(misses);
    victims.resize(misses);
    written.resize(static_cast<size_t>(end - written.data()));
    return accesses;
  }
  AlignedBuffer memory;
  Cache cache;
  std::vector<Access> victims, written;
};

using Lines = std::vector<Access>;

TEST_CASE("cache: direct-mapped, a line drives out the one of its set") {
  OwnedCache cache({4 * kLineBytes, 1, false});  // sets 0 to 3
  CHECK(cache.missed({0, 1, 4, 0, 1, 5, 1}) == Lines{0, 1, 4, 0, 5, 1});
  CHECK(cache.victims == Lines{kNoLine, kNoLine, 0, 4, 1, 5});
}

TEST_CASE("cache: the line not used for longest is driven out") {
  OwnedCache cache({3 * kLineBytes, 3, false});  // one set
  CHECK(cache.missed({10, 20, 30, 10, 40, 20, 10, 30}) == Lines{10, 20, 30, 40, 20, 30});
  CHECK(cache.victims == Lines{kNoLine, kNoLine, kNoLine, 20, 30, 40});
}

TEST_CASE("cache: sets of 3 need not be a power of two") {
  OwnedCache cache({3 * kLineBytes, 1, false});
  CHECK(cache.missed({0, 1, 2, 3, 1, 2, 0}) == Lines{0, 1, 2, 3, 0});
}

TEST_CASE("cache: a line stays marked as written until it is driven out") {
  OwnedCache cache({2 * kLineBytes, 2, false});
  CHECK(cache.missed({1 | kWrite, 2, 1, 3, 1 | kWrite}) == Lines{1 | kWrite, 2, 3});
  CHECK(cache.victims == Lines{kNoLine, kNoLine, 2});
  CHECK(cache.written == Lines{1 | kWrite});
  CHECK(cache.cache.mark_written(3));
  CHECK_FALSE(cache.cache.mark_written(2));
  cache.missed({4, 5});
  CHECK(cache.victims == Lines{3 | kWrite, 1 | kWrite});
}

TEST_CASE("cache: an absent one misses everything") {
  OwnedCache cache({0, 1, false});
  CHECK(cache.missed({1, 1, 2}) == Lines{1, 1, 2});
}

// Slow and obviously right: a list of lines a set, the latest first.
Lines missed_by_definition(int64_t sets, size_t ways, const Lines& accesses) {
  std::vector<Lines> held(static_cast<size_t>(sets));
  Lines missed;
  for (const Access line : accesses) {
    Lines& set = held[line % static_cast<Access>(sets)];
    const auto at = std::find(set.begin(), set.end(), line);
    if (at == set.end()) {
      missed.push_back(line);
      if (set.size() == ways) set.pop_back();
    } else {
      set.erase(at);
    }
    set.insert(set.begin(), line);
  }
  return missed;
}

TEST_CASE("cache: as by definition, for every number of ways") {
  Random random(2);
  for (const int64_t ways : {1, 2, 4, 7, 8, 12, 16, 20}) {
    for (const int64_t sets : {1, 5, 8, 600}) {
      Lines accesses;
      for (int i = 0; i < 20'000; ++i) {  // some again at once, some soon, some late
        const bool again = !accesses.empty() && random.below(3) == 0;
        const size_t back = static_cast<size_t>(random.below(std::clamp<int64_t>(i, 1, 20)));
        accesses.push_back(again ? accesses[accesses.size() - 1 - back]
                                 : static_cast<Access>(random.below(2 * sets * ways)));
      }
      OwnedCache cache({sets * ways * kLineBytes, ways, false});
      CAPTURE(ways);
      CAPTURE(sets);
      const bool same = cache.missed(accesses) == missed_by_definition(sets, static_cast<size_t>(ways), accesses);
      CHECK(same);
    }
  }
}

TEST_CASE("cache: hashed, lines at any stride spread over the sets") {
  constexpr int64_t lines = 1 << 16;
  for (Access stride = 1; stride <= 4096; stride = stride * 5 / 4 + 1) {
    for (const Access multiple : {stride, stride / 64 * 64}) {
      if (multiple == 0) continue;
      Lines half;
      for (Access i = 0; i < lines / 2; ++i) half.push_back(i * multiple);
      OwnedCache cache({lines * kLineBytes, 16, true});
      cache.missed(half);
      CAPTURE(multiple);
      CHECK(cache.missed(half).size() < lines / 2 / 25);  // at random it would be 1 in 100
    }
  }
}

// ---- aggregations counted on paper ---------------------------------------------------------------------------------

using Row = std::array<int64_t, 3>;
Row row_of(const DomainCounts& counts, Level level) {
  const LevelCounts& of = counts.levels[level];
  return {of.hits, of.misses, of.filled};
}

TEST_CASE("simulate: two rows, every level on paper") {
  // x: lines 0 and 1; rowptr: 64; col: 128; out: 192 and 193. Row 0: 64, 128, 0, 1, w192. Row 1: 64, 128, 1, w193.
  const Graph graph = graph_of("two rows", 2, 2, {{0, 0}, {0, 1}, {1, 1}});
  SimulationArgs args = args_of(graph, 16, Schedule{}, {64});  // one line in the last level
  args.l1 = {256, 2, false};  // sets of even and of odd lines; 1 is there again, 128 and 64 were driven out by 192
  args.l2 = {384, 6, false};  // asked for 64, 128, 0, 1, w192, 64, 128, w193: of which 64 and 128 come again
  args.llc_ways = 1;          // asked for 64, 128, 0, 1, w192, w193: the last drives out a line that was written
  const Counts counts = simulate(args);
  CHECK(row_of(counts.domains[0], kL1) == Row{1, 8, 8});
  CHECK(row_of(counts.domains[0], kL2) == Row{2, 6, 6});
  CHECK(row_of(counts.domains[0], kLlc) == Row{0, 6, 6});
  CHECK(row_of(counts.domains[0], kRemote) == Row{0, 6, 0});
  CHECK(row_of(counts.domains[0], kMemory) == Row{6, 1, 0});
  CHECK(counts.sampled == 1);
  CHECK(counts.error == 0);
}

TEST_CASE("simulate: without an L2 its level passes everything on") {
  const Graph graph = graph_of("two rows", 2, 2, {{0, 0}, {0, 1}, {1, 1}});
  SimulationArgs args = args_of(graph, 16, Schedule{}, {1 << 20});
  args.l1 = {256, 2, false};
  args.l2 = {0, 1, false};
  const Counts counts = simulate(args);
  CHECK(row_of(counts.domains[0], kL1) == Row{1, 8, 8});
  CHECK(row_of(counts.domains[0], kL2) == Row{0, 8, 0});
  CHECK(row_of(counts.domains[0], kLlc) == Row{2, 6, 6});
}

TEST_CASE("simulate: an output that is streamed misses the last level and is not kept") {
  const Graph graph = graph_of("two rows", 2, 1, {{0, 0}, {1, 0}});
  SimulationArgs args = args_of(graph, 16, Schedule{}, {1 << 20});
  args.stream = true;
  args.warm_passes = 1;  // rowptr, col, x of each row are in L1 then
  const Counts counts = simulate(args);
  CHECK(row_of(counts.domains[0], kL1) == Row{6, 0, 0});
  CHECK(row_of(counts.domains[0], kLlc) == Row{0, 2, 0});
  CHECK(row_of(counts.domains[0], kMemory) == Row{0, 0, 2});
}

TEST_CASE("simulate: what is not aligned to vectors is not streamed") {
  const Graph graph = graph_of("two rows", 2, 1, {{0, 0}, {1, 0}});
  SimulationArgs args = args_of(graph, 17, Schedule{}, {1 << 20});
  args.stream = true;
  CHECK(simulate(args).domains[0].lines_streamed() == 0);
  args.shape.width = 20;
  args.vector_bytes = 16;  // rows of 80 bytes: lines 0 and 1, then 1 and 2
  CHECK(simulate(args).domains[0].lines_streamed() == 3);
}

TEST_CASE("simulate: a line that another domain holds is a remote hit") {
  // Each domain sums one row of one edge to the only source: rowptr, col, x, and a line of output.
  const Graph graph = graph_of("shared", 2, 1, {{0, 0}, {1, 0}});
  const Schedule schedule = schedule_of(ScheduleKind::hierarchical, 2, 2, 2);
  SimulationArgs args = args_of(graph, 16, schedule, {1 << 20, 1 << 20});
  Counts counts = simulate(args);
  CHECK(row_of(counts.domains[0], kRemote) == Row{0, 4, 0});
  CHECK(row_of(counts.domains[1], kRemote) == Row{3, 1, 3});
  CHECK(counts.domains[1].lines_read() == 1);
  args.remote = false;
  counts = simulate(args);
  CHECK(row_of(counts.domains[1], kRemote) == Row{0, 4, 0});
  CHECK(counts.domains[1].lines_read() == 4);
}

TEST_CASE("simulate: what was driven out is no remote hit") {
  const Graph graph = graph_of("shared", 2, 1, {{0, 0}, {1, 0}});
  const Schedule schedule = schedule_of(ScheduleKind::hierarchical, 2, 2, 2);
  SimulationArgs args = args_of(graph, 16, schedule, {64, 1 << 20});  // of rowptr, col, x, out it holds the last
  args.llc_ways = 1;
  CHECK(row_of(simulate(args).domains[1], kRemote) == Row{0, 4, 0});
}

TEST_CASE("simulate: a row takes its accumulators up again in the next block") {
  // x: lines 0 to 3; packed: 64 and 65; rowptr: 128; col: 192; splits: 256; out: 320.
  const Graph graph = graph_of("one row", 1, 4, {{0, 0}, {0, 1}, {0, 2}, {0, 3}});
  const Schedule schedule = schedule_of(ScheduleKind::mixed, 1, 1, 1, 16, 2);
  const Counts counts = simulate(args_of(graph, 16, schedule, {1 << 20}));
  // Split: 128, 192, w256. Packed: 0, w64, 1, w65. Summed: 128, 256, 192, 64, 65, w320. Packed: 2, w64, 3, w65.
  // Summed: 128, 256, 320, 192, 64, 65, w320.
  CHECK(row_of(counts.domains[0], kL1) == Row{14, 10, 10});
  CHECK(row_of(counts.domains[0], kMemory) == Row{10, 0, 0});
}

TEST_CASE("simulate: a row without edges in a block is passed over until the last") {
  // As above with edges in the last block alone. Summed: 128, 256; then 128, 256, 192, 64, 65, w320.
  const Graph graph = graph_of("one row", 1, 4, {{0, 2}, {0, 3}});
  const Schedule schedule = schedule_of(ScheduleKind::mixed, 1, 1, 1, 16, 2);
  const Counts counts = simulate(args_of(graph, 16, schedule, {1 << 20}));
  CHECK(counts.domains[0].accesses() == 3 + 4 + 2 + 4 + 6);
}

TEST_CASE("simulate: a long row keeps the sum of its chains beside the chain begun") {
  // 300 edges to column 0 and one to column 1: the first block ends with one chain done and one begun.
  Edges edges(300, {0, 0});
  edges.emplace_back(0, 1);
  const Graph graph = graph_of("long row", 1, 2, edges);
  const Schedule schedule = schedule_of(ScheduleKind::mixed, 1, 1, 1, 16, 1);
  const Counts counts = simulate(args_of(graph, 16, schedule, {1 << 20}));
  // col: 19 lines. Split: 1 + 19 + 1. Packed: 2. Summed: rowptr, split, 19 + 300, sum and chain. Packed: 2. Summed:
  // rowptr, split, sum and chain, 1 + 1, output.
  CHECK(counts.domains[0].accesses() == 21 + 2 + (2 + 319 + 2) + 2 + (2 + 2 + 2 + 1));
}

TEST_CASE("simulate: columns that fall within a row are one block, as in the run") {
  Graph graph = graph_of("one row", 1, 4, {{0, 0}, {0, 1}, {0, 2}, {0, 3}});
  std::swap(graph.narrow_col[0], graph.narrow_col[3]);
  const Schedule blocks = schedule_of(ScheduleKind::mixed, 1, 1, 1, 16, 2),
                 whole = schedule_of(ScheduleKind::mixed, 1, 1, 1, 16);
  CHECK(sum(simulate(args_of(graph, 16, blocks, {1 << 20}))).accesses() ==
        sum(simulate(args_of(graph, 16, whole, {1 << 20}))).accesses());
}

TEST_CASE("simulate: a hub is shared by features") {
  // Seven edges to one source of two lines; each domain reads rowptr, col and one line seven times, and writes one.
  const Graph graph = graph_of("hub", 1, 1, Edges(7, {0, 0}));
  const Schedule schedule = schedule_of(ScheduleKind::hierarchical, 2, 2, 2);
  const Counts counts = simulate(args_of(graph, 32, schedule, {1 << 20, 1 << 20}));
  for (const DomainCounts& domain : counts.domains) CHECK(row_of(domain, kL1) == Row{6, 4, 4});
}

TEST_CASE("simulate: wide rows are walked a piece at a time") {
  // 300 features: pieces of 256, 32 and 12 with 64-byte vectors; 9 of 32 and 12 more with 16-byte ones. Each piece
  // reads col, two rows of its lines and writes its own: 1216-byte rows that begin lines.
  const Graph graph = graph_of("one row", 1, 2, {{0, 0}, {0, 1}});
  SimulationArgs args = args_of(graph, 304, Schedule{}, {1 << 20});
  CHECK(sum(simulate(args)).accesses() == 1 + 3 * 1 + 3 * 19);  // 256, 32, 16
  args.vector_bytes = 16;
  CHECK(sum(simulate(args)).accesses() == 1 + 10 * 1 + 3 * 19);  // 9 of 32, 16
}

TEST_CASE("simulate: indices of 64 bits take twice the lines") {
  const Graph graph = graph_of("one row", 1, 1, Edges(32, {0, 0}));
  SimulationArgs args = args_of(graph, 16, Schedule{}, {1 << 20});
  CHECK(sum(simulate(args)).accesses() == 1 + 2 + 32 + 1);
  args.col = graph.col.data();
  args.wide_index = true;
  CHECK(sum(simulate(args)).accesses() == 1 + 4 + 32 + 1);
}

TEST_CASE("simulate: half types wait in scratch of float32") {
  const Graph graph = graph_of("one row", 1, 4, {{0, 0}, {0, 3}});
  const Schedule schedule = schedule_of(ScheduleKind::mixed, 1, 1, 1, 32, 2);
  SimulationArgs args = args_of(graph, 32, schedule, {1 << 20});
  args.shape.element_bytes = 2;
  // Distinct: x 4, packed 2, state 2, rowptr, col, splits, out 1 each.
  CHECK(row_of(simulate(args).domains[0], kL1)[1] == 12);
}

// ---- what must hold ------------------------------------------------------------------------------------------------

void check_levels(const Counts& counts) {
  for (const DomainCounts& domain : counts.domains) {
    const auto& levels = domain.levels;
    CHECK(levels[kL2].hits + levels[kL2].misses == levels[kL1].misses);
    CHECK(levels[kLlc].hits + levels[kLlc].misses == levels[kL2].misses + levels[kMemory].filled);
    CHECK(levels[kRemote].hits + levels[kRemote].misses == levels[kLlc].misses - levels[kMemory].filled);
    CHECK(levels[kMemory].hits == levels[kRemote].misses);
  }
}

TEST_CASE("simulate: each level is asked what the one above missed, and repeats itself") {
  std::vector<Graph> graphs = small_graphs();
  Random random(3);
  graphs.push_back(hub_graph("hubs", 300, 200, 3000, random));
  graphs.push_back(power_law_graph("power law", 400, 800, false, random));
  for (const Graph& graph : graphs) {
    for (const NamedSchedule& named : schedules(std::max<int64_t>(1, graph.rows), graph.columns)) {
      for (const int64_t width : {1, 40, 128}) {
        SimulationArgs args = args_of(graph, width, named.schedule, std::vector<int64_t>(4, 16 << 10));
        args.l1 = {1 << 10, 4, false};
        args.l2 = {4 << 10, 8, false};
        args.stream = width == 128;
        CAPTURE(graph.name);
        CAPTURE(named.name);
        CAPTURE(width);
        const Counts counts = simulate(args), again = simulate(args);
        check_levels(counts);
        for (size_t d = 0; d < 4; ++d) {
          for (const Level level : {kL1, kL2, kLlc, kRemote, kMemory}) {
            CHECK(row_of(counts.domains[d], level) == row_of(again.domains[d], level));
          }
        }
      }
    }
  }
}

TEST_CASE("simulate: where everything fits, memory is read once for each line") {
  Random random(4);
  const Graph graph = random_graph("random", 200, 150, 2000, random);
  for (const NamedSchedule& named : schedules(graph.rows, graph.columns)) {
    const bool mixed = named.schedule.kind == ScheduleKind::mixed, blocks = named.schedule.block_columns > 0;
    if (blocks) continue;
    SimulationArgs args = args_of(graph, 64, named.schedule, std::vector<int64_t>(4, 64 << 20));
    int64_t packed_lines = 0;  // a slice each has its own buffer
    for (int64_t begin = 0; mixed && begin < 64; begin += named.schedule.slice_width) {
      packed_lines += (150 * 4 * std::min(named.schedule.slice_width, 64 - begin) + 63) / 64;
    }
    const int64_t lines = 150 * 4 + 200 * 4 + (201 * 8 + 63) / 64 + 2000 * 4 / 64 + packed_lines;
    CAPTURE(named.name);
    CHECK(sum(simulate(args)).lines_read() == lines);  // from the first domain on, lines come from its cache
    args.warm_passes = 1;
    CHECK(sum(simulate(args)).lines_read() == 0);
  }
}

TEST_CASE("simulate: every edge's features are read once, whoever reads them") {
  Random random(5);
  const Graph graph = random_graph("random", 500, 400, 6000, random);
  for (const NamedSchedule& named : schedules(graph.rows, graph.columns)) {
    if (named.schedule.kind == ScheduleKind::mixed || named.schedule.workers > 8) continue;  // 64: rows become hubs
    const Counts counts = simulate(args_of(graph, 64, named.schedule, std::vector<int64_t>(4, 1 << 20)));
    CAPTURE(named.name);
    const int64_t features = 6000 * 4, output = 500 * 4, rowptr = 500 + 500 / 8;
    int64_t col = 0;  // lines of each row's edges
    for (size_t r = 0; r < 500; ++r) {
      if (graph.rowptr[r] < graph.rowptr[r + 1]) col += (graph.rowptr[r + 1] - 1) / 16 - graph.rowptr[r] / 16 + 1;
    }
    CHECK(sum(counts).accesses() == features + output + rowptr + col);
  }
}

TEST_CASE("simulate: sizes of zero count nothing, or only what there is") {
  for (const Graph& graph : {graph_of("empty", 0, 0, {}), graph_of("no edges", 3, 3, {})}) {
    CHECK(sum(simulate(args_of(graph, 0, Schedule{}, {1 << 20}))).accesses() == 0);
  }
  const Graph graph = graph_of("no columns", 3, 0, {});
  CHECK(sum(simulate(args_of(graph, 16, Schedule{}, {1 << 20}))).accesses() == 3 + 3);  // rowptr, output
}

TEST_CASE("simulate: what cannot be is refused") {
  const Graph graph = graph_of("one row", 1, 1, {{0, 0}});
  const auto refused = [&](const auto& change, const char* message) {
    SimulationArgs args = args_of(graph, 16, Schedule{}, {1 << 20, 1 << 20});
    change(args);
    CHECK_THROWS_WITH_AS(simulate(args), message, std::invalid_argument);
  };
  refused([](SimulationArgs& a) { a.llc_bytes[1] = 0; },
          "simulate: the size of domain 1's last-level cache is not known");
  refused([](SimulationArgs& a) { a.l1.bytes = 100; },
          "simulate: a cache must hold at least a line in each of its ways (got 100 bytes in 8 ways)");
  refused([](SimulationArgs& a) { a.vector_bytes = 8; }, "simulate: a vector has 16, 32 or 64 bytes (got 8)");
  refused([](SimulationArgs& a) { a.shape.columns = int64_t{1} << 31; },
          "simulate: an aggregation may touch at most 2^31 lines of 64 bytes (got 2147483840)");
  refused([](SimulationArgs& a) { a.schedule.slots = 0; }, "simulate: the schedule cannot run");
  refused(
      [](SimulationArgs& a) {
        a.llc_bytes.assign(256, 1 << 20);
        a.schedule = schedule_of(ScheduleKind::hierarchical, 256, 256, 256);
      },
      "simulate: remote hits are told apart for up to 255 domains (got 256)");
}

// ---- what it is for ------------------------------------------------------------------------------------------------

TEST_CASE("simulate: slices that fit save most misses, shares of rows alone save none") {
  Random random(9);
  const Graph graph =
      random_graph("uniform", 4000, 4000, 240'000, random);  // features of 2 MiB, four caches of 512 KiB
  const auto misses = [&](const Schedule& schedule) {
    return llc_misses(simulate(scaled_down(graph, 128, schedule, 4, 512 << 10)));
  };
  const double node_parallel = misses(schedule_of(ScheduleKind::node_parallel, 8, 1, 250));
  const double hierarchical = misses(schedule_of(ScheduleKind::hierarchical, 8, 4, 128));
  const double slices = misses(schedule_of(ScheduleKind::mixed, 8, 4, 32, 16));
  const double wide_slices = misses(schedule_of(ScheduleKind::mixed, 8, 4, 32, 64));
  const double wide_slices_in_blocks = misses(schedule_of(ScheduleKind::mixed, 8, 4, 32, 64, 1000));
  CHECK(hierarchical == doctest::Approx(node_parallel).epsilon(0.05));
  CHECK(slices < 0.2 * hierarchical);
  CHECK(wide_slices > 2 * slices);
  CHECK(wide_slices_in_blocks < 0.6 * wide_slices);
}

}  // namespace
}  // namespace frontgi::test
