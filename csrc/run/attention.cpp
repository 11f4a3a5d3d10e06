// SPDX-License-Identifier: MIT
#include "attention.h"

#include <algorithm>

#include "../graph/row_slots.h"
#include "../hw/isa.h"
#include "schedule.h"
#include "scratch.h"
#include "work_queue.h"

namespace frontgi {
namespace {

constexpr int64_t kSlotsPerWorker = 16;
constexpr int64_t kLineBytes = 64;
// Beside its features, what a row costs, in edges: it is written, and its scores are begun.
constexpr int64_t kRowCost = 2;

// Part `part` of `parts` of a row: a share of the heads or, of a single one, whole lines of its channels.
HeadRange part_of_row(const AttentionArgs& args, int64_t part, int64_t parts, bool whole_heads) {
  HeadRange range{0, args.heads, 0, args.channels};
  if (args.heads > 1 || whole_heads) {
    range.head_begin = args.heads * part / parts;
    range.head_end = args.heads * (part + 1) / parts;
  } else {
    const int64_t line = kLineBytes / element_bytes(args.dtype);
    const int64_t lines = (args.channels + line - 1) / line;
    range.channel_begin = std::min(args.channels, lines * part / parts * line);
    range.channel_end = std::min(args.channels, lines * (part + 1) / parts * line);
    // Of the parts that are left, one has channel 0.
    if (range.channel_begin == range.channel_end && (args.channels > 0 || part > 0)) range.head_end = 0;
  }
  return range;
}

// Calls body(range, scratch, row_begin, row_end) on a worker's own shares until all rows are done. `scratch` holds
// `rows_of_scratch` rows of accumulators.
template <class Body>
void share_rows(const AttentionArgs& args, int64_t rows, bool whole_heads, int64_t rows_of_scratch,
                const Machine& machine, Executor& executor, const Body& body) {
  const int64_t width = args.heads * args.channels;
  const int64_t workers = workers_for_bytes(
      (args.edges + rows) * std::max<int64_t>(width, 1) * element_bytes(args.dtype), executor.max_workers());
  const int64_t domains = std::min(machine.domains(), workers);
  const RowSlots slots(args.rowptr, rows, 1, kRowCost, workers == 1 ? 1 : workers * kSlotsPerWorker);
  WorkQueues queues = WorkQueues::even(slots.slots(), domains);
  executor.run(workers, [&](int64_t worker) {
    void* scratch = thread_tile().reserve(static_cast<size_t>(rows_of_scratch * width * accumulator_bytes(args.dtype)));
    queues.drain(machine.home_queue(worker, workers, domains), [&](int64_t, int64_t slot) {
      const RowSlots::Share share = slots.share(slot);
      for (const RowSlots::Hub& hub : {share.before, share.after}) {
        if (hub.row < 0) continue;
        const HeadRange range = part_of_row(args, hub.part, hub.parts, whole_heads);
        if (range.head_begin < range.head_end) body(range, scratch, hub.row, hub.row + 1);
      }
      if (share.begin < share.end) body(part_of_row(args, 0, 1, whole_heads), scratch, share.begin, share.end);
    });
  });
}

}  // namespace

void run_attention(const AttentionArgs& args, int64_t rows, const Machine& machine, Executor& executor) {
  const KernelTable& table = kernels();
  share_rows(args, rows, false, 1, machine, executor,
             [&](const HeadRange& range, void* scratch, int64_t begin, int64_t end) {
               AttentionArgs part = args;
               part.range = range;
               part.scratch = scratch;
               table.attend(part, begin, end);
             });
}

void run_attention_grad_rows(const AttentionGradArgs& args, int64_t rows, const Machine& machine, Executor& executor) {
  const KernelTable& table = kernels();
  share_rows(args.forward, rows, true, 1, machine, executor,
             [&](const HeadRange& range, void* scratch, int64_t begin, int64_t end) {
               AttentionGradArgs part = args;
               part.forward.range = range;
               part.forward.scratch = scratch;
               table.attend_grad_rows(part, begin, end);
             });
}

void run_attention_grad_columns(const AttentionColumnArgs& args, int64_t rows, const Machine& machine,
                                Executor& executor) {
  const KernelTable& table = kernels();
  share_rows(args.transposed, rows, true, 2, machine, executor,
             [&](const HeadRange& range, void* scratch, int64_t begin, int64_t end) {
               AttentionColumnArgs part = args;
               part.transposed.range = range;
               part.transposed.scratch = scratch;
               table.attend_grad_columns(part, begin, end);
             });
}

}  // namespace frontgi
