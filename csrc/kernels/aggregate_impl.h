// SPDX-License-Identifier: MIT
// Aggregate over the rows of a CSR adjacency (FrontGI, algorithm 2), for one instruction set.
//
// Idea: the accumulators of a piece of a row stay in registers over all of the row's edges, and the output is
// written once. A row is cut into pieces of kWide vectors, then of half as many, ..., one, then a masked tail; each
// piece walks the row's edges, prefetching the source row of an edge a few ahead (into the following rows too).
//
// Layout: see AggregateArgs. Requires col ascending within a row only for the result to be canonical, not for safety.
//
// Bits: every lane does the same multiply, then add, unfused, edge by edge, in chains cut by position in the row alone,
// so pieces and instruction sets agree.
#pragma once

namespace frontgi::FRONTGI_ISA {

constexpr int kWide = kRegisters / 2;
// How much of the gathered stream is in flight, and into which cache. Into L2 (hint 2): a prefetch into L1 took 1.2 to
// 1.7 times as long on graphs whose rows come from memory, one past the caches (hint 0) 1.4 times. Eight edges ahead;
// four were 1.2 times slower, sixteen the same.
constexpr int64_t kPrefetchBytesAhead = 4096;
constexpr int64_t kPrefetchEdgesMin = 8, kPrefetchEdgesMax = 16;
constexpr int kPrefetchIntoL2 = 2;

template <Reduce R, class A>
FRONTGI_INLINE Vector<A> first_value() {
  if constexpr (R == Reduce::min) return broadcast<A>(A(__builtin_inff()));
  if constexpr (R == Reduce::max) return broadcast<A>(-A(__builtin_inff()));
  return Vector<A>{};
}

template <Reduce R, class V>
FRONTGI_INLINE V combine(V acc, V v) {
  // A NaN wins and stays, as in torch.
  if constexpr (R == Reduce::min) return ((v < acc) | (v != v)) ? v : acc;
  if constexpr (R == Reduce::max) return ((v > acc) | (v != v)) ? v : acc;
  return acc + v;
}

template <class A>
FRONTGI_INLINE A value_or(const void* values, int64_t i, A otherwise) {
  return values ? static_cast<const A*>(values)[i] : otherwise;
}

// What a row's edges have in common while its pieces are worked on.
struct RowOfEdges {
  int64_t row, begin, end;
  int64_t ahead, prefetch_end;  // the row of edge e + ahead is prefetched at edges e before prefetch_end
  int64_t row_begin, count;     // of the whole row: begin and end may be a block's
  bool waits;                   // for its next block
  void *state, *sums;           // see ColumnBlock; null if not blocked
};

inline int64_t position_of(const int64_t* ascending, int64_t count, int64_t value) {
  int64_t low = 0;
  while (low < count && ascending[low] < value) {
    const int64_t middle = low + (count - low) / 2;
    if (ascending[middle] < value) {
      low = middle + 1;
    } else {
      count = middle;
    }
  }
  return low;
}

// Cuts a row to the block's edges. False if it has none there and waits for another block.
// What the next row has come to, prefetched here, made no difference (0.92 to 1.05 times the time); its first sources
// took 1.0 to 1.3 times as long.
template <class A>
FRONTGI_INLINE bool enter_block(const AggregateArgs& args, RowOfEdges& r) {
  const ColumnBlock& block = args.block;
  r.waits = block.end != nullptr;
  if (block.begin) r.begin = r.row_begin + int64_t(block.begin[r.row]);
  if (block.end) r.end = r.row_begin + int64_t(block.end[r.row]);
  if (r.waits && r.begin == r.end) return false;
  r.prefetch_end = args.prefetch ? r.end - r.ahead : 0;  // the edges behind may gather from another block
  r.state = static_cast<A*>(block.state) + r.row * block.state_stride;
  if (r.count >= kEdgesSummed) {
    r.sums = static_cast<A*>(block.sums) + position_of(block.long_rows, block.long_count, r.row) * block.sums_stride;
  }
  return true;
}

template <class T, class Index, Reduce R, bool Weighted, int NV, bool Tail>
FRONTGI_INLINE void reduce_piece(const AggregateArgs& args, const RowOfEdges& r, int64_t f, int tail, T* out) {
  using A = Accumulator<T>;
  using V = Vector<A>;
  constexpr int L = kLanes<A>;
  const Index* col = static_cast<const Index*>(args.col);
  const T* x = args.x ? static_cast<const T*>(args.x) + f : nullptr;  // null if there are no source rows
  const int64_t stride = args.x_stride;

  const int64_t first_column = args.block.first_column;
  const auto load_waiting = [&](const void* from, V* to) {
    const A* at = static_cast<const A*>(from) + f;
    for (int v = 0; v < NV; ++v) to[v] = Tail ? load_first(at, tail) : load(at + v * L);
  };
  const auto store_waiting = [&](void* to, const V* from) {
    A* at = static_cast<A*>(to) + f;
    for (int v = 0; v < NV; ++v) Tail ? store_first(at, from[v], tail) : store(at + v * L, from[v]);
  };

  V sum[NV];
  int64_t e = r.begin;
  bool first = e - r.row_begin < kEdgesSummed;           // no chain is done yet
  bool resumes = (e - r.row_begin) % kEdgesSummed != 0;  // one is begun
  if (!first) load_waiting(r.sums, sum);
  while (e < r.end || first || resumes) {
    const int64_t chain_end = e - (e - r.row_begin) % kEdgesSummed + kEdgesSummed;
    const int64_t stop = r.end < chain_end ? r.end : chain_end;
    V acc[NV];
    if (resumes) {
      load_waiting(r.state, acc);
    } else {
      for (int v = 0; v < NV; ++v) acc[v] = first_value<R, A>();
    }
    const auto add_edge = [&] {
      const int64_t j = int64_t(col[e]);
      if (args.skip_loops && j == r.row) return;
      const T* source = x + (j - first_column) * stride;
      A weight = 1;
      if constexpr (Weighted) weight = value_or<A>(args.edge_weight, e, 1) * value_or<A>(args.col_scale, j, 1);
      for (int v = 0; v < NV; ++v) {
        V value = Tail ? load_first(source, tail) : load(source + v * L);
        if constexpr (Weighted) value = value * broadcast<A>(weight);
        acc[v] = combine<R>(acc[v], value);
      }
    };
    for (const int64_t prefetched = r.prefetch_end < stop ? r.prefetch_end : stop; e < prefetched; ++e) {
      const char* next = reinterpret_cast<const char*>(x + (int64_t(col[e + r.ahead]) - first_column) * stride);
      constexpr int bytes = NV * L * int(sizeof(T));
      for (int b = 0; b < bytes; b += 64) __builtin_prefetch(next + b, 0, kPrefetchIntoL2);
      add_edge();
    }
    for (; e < stop; ++e) add_edge();
    if (r.waits && stop < chain_end) {
      store_waiting(r.state, acc);
      if (!first) store_waiting(r.sums, sum);
      return;
    }
    for (int v = 0; v < NV; ++v) sum[v] = first ? acc[v] : combine<R>(sum[v], acc[v]);
    first = resumes = false;
  }
  if (r.waits) return store_waiting(r.sums, sum);

  const int64_t count = r.count;
  const bool empty = count == 0;
  const A row_scale = value_or<A>(args.row_scale, r.row, 1);
  const T* self = args.x_self ? static_cast<const T*>(args.x_self) + r.row * args.x_self_stride + f : nullptr;
  const A self_scale = value_or<A>(args.self_scale, r.row * args.self_step, 1);
  const T* bias = args.bias ? static_cast<const T*>(args.bias) + f : nullptr;
  for (int v = 0; v < NV; ++v) {
    V value = sum[v];
    if constexpr (R == Reduce::min || R == Reduce::max) {
      if (empty) value = V{};
    }
    if (args.reduce == Reduce::mean && !empty) value = value / broadcast<A>(A(count));
    if (args.row_scale) value = value * broadcast<A>(row_scale);
    if (self) {
      const V own = Tail ? load_first(self, tail) : load(self + v * L);
      value = value + own * broadcast<A>(self_scale);
    }
    if (bias) value = value + (Tail ? load_first(bias, tail) : load(bias + v * L));
    if (args.relu) value = (value < V{}) ? V{} : value;
    if constexpr (Tail) {
      store_first(out, value, tail);
    } else if (args.stream) {
      store_stream(out + v * L, value);
    } else {
      store(out + v * L, value);
    }
  }
}

// Whole vectors of a row from feature f on, in pieces of NV, then of half as many. Returns the feature behind them.
template <class T, class Index, Reduce R, bool Weighted, int NV>
FRONTGI_INLINE int64_t reduce_pieces(const AggregateArgs& args, const RowOfEdges& r, int64_t f, T* out) {
  constexpr int64_t features = NV * kLanes<Accumulator<T>>;
  for (; f + features <= args.width; f += features)
    reduce_piece<T, Index, R, Weighted, NV, false>(args, r, f, 0, out + f);
  if constexpr (NV > 1) return reduce_pieces<T, Index, R, Weighted, NV / 2>(args, r, f, out);
  return f;
}

template <class T, class Index, Reduce R, bool Weighted>
void aggregate_range(const AggregateArgs& args, int64_t row_begin, int64_t row_end) {
  const int64_t width = args.width;
  RowOfEdges r{};
  const int64_t row_bytes = width * int64_t(sizeof(T));
  r.ahead = row_bytes > 0 ? kPrefetchBytesAhead / row_bytes : 0;
  r.ahead = r.ahead < kPrefetchEdgesMin ? kPrefetchEdgesMin : r.ahead > kPrefetchEdgesMax ? kPrefetchEdgesMax : r.ahead;
  r.prefetch_end = args.prefetch ? args.rowptr[row_end] - r.ahead : 0;  // into the following rows, not beyond the range
  T* out = static_cast<T*>(args.out);
  for (int64_t row = row_begin; row < row_end; ++row) {
    r.row = row;
    r.begin = args.rowptr[row];
    r.end = args.rowptr[row + 1];
    if (args.pass_empty && r.begin == r.end) continue;
    r.row_begin = r.begin;
    r.count = r.end - r.begin;
    if (args.blocked && !enter_block<Accumulator<T>>(args, r)) {
      out += args.out_stride;
      continue;
    }
    const int64_t f = reduce_pieces<T, Index, R, Weighted, kWide>(args, r, 0, out);
    if (f < width) reduce_piece<T, Index, R, Weighted, 1, true>(args, r, f, int(width - f), out + f);
    out += args.out_stride;
  }
}

template <class T, class Index>
void aggregate_typed(const AggregateArgs& given, int64_t row_begin, int64_t row_end) {
  AggregateArgs args = given;
  args.stream = given.stream && can_stream(static_cast<const T*>(args.out), args.out_stride);
  const bool weighted = args.edge_weight || args.col_scale;
  using Range = void (*)(const AggregateArgs&, int64_t, int64_t);
  constexpr Range sum[] = {aggregate_range<T, Index, Reduce::sum, false>, aggregate_range<T, Index, Reduce::sum, true>};
  constexpr Range min[] = {aggregate_range<T, Index, Reduce::min, false>, aggregate_range<T, Index, Reduce::min, true>};
  constexpr Range max[] = {aggregate_range<T, Index, Reduce::max, false>, aggregate_range<T, Index, Reduce::max, true>};
  const Range* range = args.reduce == Reduce::min ? min : args.reduce == Reduce::max ? max : sum;
  range[weighted](args, row_begin, row_end);
  if (args.stream) finish_streaming();
}

void aggregate_rows(const AggregateArgs& args, int64_t row_begin, int64_t row_end) {
  using Typed = void (*)(const AggregateArgs&, int64_t, int64_t);
  constexpr Typed narrow_index[] = {aggregate_typed<float, int32_t>, aggregate_typed<double, int32_t>,
                                    aggregate_typed<Bf16, int32_t>, aggregate_typed<Half, int32_t>};
  constexpr Typed wide_index[] = {aggregate_typed<float, int64_t>, aggregate_typed<double, int64_t>,
                                  aggregate_typed<Bf16, int64_t>, aggregate_typed<Half, int64_t>};
  (args.wide_index ? wide_index : narrow_index)[int(args.dtype)](args, row_begin, row_end);
}

}  // namespace frontgi::FRONTGI_ISA
