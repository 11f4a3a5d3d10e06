// SPDX-License-Identifier: MIT
// Attention over the rows of a CSR adjacency, for one instruction set: edge softmax and weighted sum in one sweep.
//
// Idea: a row is walked in chunks of kEdgesAttended edges. A chunk's scores become weights relative to the largest
// score so far; then its sources, still in a cache, are summed with these weights, in registers, a piece of the columns
// at a time. Where a later chunk has a larger score, the sums before it are scaled down (Milakov and Gimelshein,
// "Online normalizer calculation for softmax", 2018), so that no exponent is above 0 and nothing is kept for each edge.
// Layout: see AttentionArgs. Heads are taken kHeadsTogether at a time, whose weights fit on the stack.
// Bits: chunks are cut by position in the row alone, and heads know nothing of each other.
#pragma once

namespace frontgi::FRONTGI_ISA {

constexpr int kMiddle = 4;  // vectors of a piece that is not kWide
constexpr int64_t kHeadsTogether = 16;
constexpr int64_t kSourcesAhead = 8;  // prefetched so many edges ahead, as in aggregate_impl.h

// Edges of a row, those that take no part left out.
template <class A>
struct EdgeChunk {
  int64_t count;
  int64_t source[kEdgesAttended + kSourcesAhead];  // behind `count`: those that come next
  int64_t value[kEdgesAttended];                   // where the edge's values are, of [edges + loops]
  A weight[kEdgesAttended * kHeadsTogether + kLanes<A>];
};

// A row and the heads [begin, end) of it that are worked on at once.
struct RowOfHeads {
  int64_t row, first_edge, edges;
  bool has_loop;
  int64_t head, heads;
  int64_t next_edges_end;  // of the range of rows: where sources to prefetch end

  int64_t all_edges() const { return edges + has_loop; }
  bool is_loop(int64_t position) const { return position >= edges; }
};

template <class Index>
FRONTGI_INLINE int64_t index_at(const void* indices, int64_t i) {
  return int64_t(static_cast<const Index*>(indices)[i]);
}
// Null if there is nothing to point into.
template <class T>
FRONTGI_INLINE T* offset_by(const void* p, int64_t elements) {
  return p ? const_cast<T*>(static_cast<const T*>(p)) + elements : nullptr;
}
template <class A>
FRONTGI_INLINE A* values_at(const void* values, int64_t row, int64_t heads, int64_t head) {
  return offset_by<A>(values, row * heads + head);
}

// Lists the edges at [first, first + kEdgesAttended) of the row. `absent` is called with the value of each edge that
// takes no part; `positions` (optional) tells where the values of the edges are.
template <class Index, class A, class Absent>
FRONTGI_INLINE void list_edges(const AttentionArgs& args, const RowOfHeads& r, int64_t first, const void* positions,
                               EdgeChunk<A>& chunk, const Absent& absent) {
  const int64_t all = r.all_edges();
  const int64_t last = first + kEdgesAttended < all ? first + kEdgesAttended : all;
  chunk.count = 0;
  for (int64_t k = first; k < last; ++k) {
    const bool loop = r.is_loop(k);
    const int64_t e = r.first_edge + k;
    const int64_t source = loop ? r.row : index_at<Index>(args.col, e);
    const int64_t value = loop ? args.edges + r.row : positions ? index_at<Index>(positions, e) : e;
    if (args.loops && !loop && source == r.row) {
      absent(value);
      continue;
    }
    chunk.source[chunk.count] = source;
    chunk.value[chunk.count] = value;
    ++chunk.count;
  }
  const int64_t next = r.first_edge + (last < r.edges ? last : r.edges);
  for (int64_t a = 0; a < kSourcesAhead; ++a) {
    const int64_t e = next + a < r.next_edges_end ? next + a : -1;
    chunk.source[chunk.count + a] = e >= 0 ? index_at<Index>(args.col, e) : 0;
  }
}

FRONTGI_INLINE void prefetch_bytes(const void* from, int64_t bytes) {
  const char* p = static_cast<const char*>(from);
  for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(p + b, 0, kPrefetchIntoL2);
}

template <class V, class A>
FRONTGI_INLINE V leaky(V z, A slope) {
  return (z > V{}) ? z : z * slope;
}

// ---- weighted sums -------------------------------------------------------------------------------------------------

// What is summed of a source's element: the element itself, or leaky' of its sum with the row's own.
enum class Summed { source, slope };

// Where the columns of one row are summed to. Between chunks they wait in `scratch`.
template <class A, class Out>
struct RowSum {
  const void* x;  // sources
  int64_t x_stride;
  const void* own;  // the row's own features, for Summed::slope
  A slope;
  bool prefetch;
  int64_t channels, head, heads;  // heads [head, head + heads), whose weights a chunk holds
  bool first, last;               // chunk of the row
  const A *rescale, *inverse;     // a head each: of the sum before, and of the whole at the end
  A* scratch;
  const void* bias;  // optional
  Out* out;
};

// Columns at `f` of HP heads from `h` (of the chunk) on, VH vectors each; with Tail the first `tail` lanes of one.
template <class T, Summed S, int HP, int VH, bool Tail, class Out>
FRONTGI_INLINE void sum_piece(const EdgeChunk<Accumulator<T>>& chunk, const RowSum<Accumulator<T>, Out>& sum, int64_t h,
                              int64_t f, int tail) {
  using A = Accumulator<T>;
  using V = Vector<A>;
  constexpr int L = kLanes<A>;
  const T* x = offset_by<T>(sum.x, f);
  V own[HP * VH];
  if constexpr (S == Summed::slope) {
    const T* from = offset_by<T>(sum.own, f);
    for (int v = 0; v < HP * VH; ++v) own[v] = Tail ? load_first(from, tail) : load(from + v * L);
  }
  V acc[HP * VH] = {};
  const A* weight = chunk.weight + h;
  for (int64_t k = 0; k < chunk.count; ++k, weight += sum.heads) {
    const T* source = x + chunk.source[k] * sum.x_stride;
    if (sum.prefetch) {
      prefetch_bytes(x + chunk.source[k + kSourcesAhead] * sum.x_stride, HP * VH * L * int64_t(sizeof(T)));
    }
    for (int p = 0; p < HP; ++p) {
      const V w = broadcast<A>(weight[p]);
      for (int v = p * VH; v < (p + 1) * VH; ++v) {
        V value = Tail ? load_first(source, tail) : load(source + v * L);
        if constexpr (S == Summed::slope) value = (own[v] + value > V{}) ? broadcast<A>(1) : broadcast<A>(sum.slope);
        acc[v] = acc[v] + w * value;
      }
    }
  }
  A* scratch = offset_by<A>(sum.scratch, f);
  for (int v = 0; v < HP * VH; ++v) {
    const int64_t head = h + v / VH;
    V total = acc[v];
    if (!sum.first) {
      const V before = Tail ? load_first(scratch, tail) : load(scratch + v * L);
      total = before * broadcast<A>(sum.rescale[head]) + total;
    }
    if (!sum.last) {
      Tail ? store_first(scratch, total, tail) : store(scratch + v * L, total);
      continue;
    }
    total = total * broadcast<A>(sum.inverse[head]);
    if (sum.bias) {
      const T* bias = offset_by<T>(sum.bias, f);
      total = total + (Tail ? load_first(bias, tail) : load(bias + v * L));
    }
    Tail ? store_first(sum.out + f, total, tail) : store(sum.out + f + v * L, total);
  }
}

// Heads of exactly VH vectors, as many at a time as there are registers for; returns how many were done.
template <class T, Summed S, int VH, class Out>
FRONTGI_INLINE int64_t sum_whole_heads(const EdgeChunk<Accumulator<T>>& chunk, const RowSum<Accumulator<T>, Out>& sum) {
  constexpr int HP = (kWide < 16 ? kWide : 16) / VH;
  int64_t h = 0;
  for (; h + HP <= sum.heads; h += HP) {
    sum_piece<T, S, HP, VH, false>(chunk, sum, h, (sum.head + h) * sum.channels, 0);
  }
  return h;
}

// Adds a chunk to the columns of `range`'s channels of all heads of the chunk.
template <class T, Summed S, class Out>
void sum_chunk(const EdgeChunk<Accumulator<T>>& chunk, const RowSum<Accumulator<T>, Out>& sum, const HeadRange& range) {
  using A = Accumulator<T>;
  constexpr int L = kLanes<A>;
  int64_t h = 0;
  if (range.channel_end - range.channel_begin == sum.channels) {
    if (sum.channels == L) h = sum_whole_heads<T, S, 1>(chunk, sum);
    if (sum.channels == 2 * L) h = sum_whole_heads<T, S, 2>(chunk, sum);
    if (sum.channels == 4 * L) h = sum_whole_heads<T, S, 4>(chunk, sum);
  }
  for (; h < sum.heads; ++h) {
    int64_t f = (sum.head + h) * sum.channels + range.channel_begin;
    const int64_t end = (sum.head + h) * sum.channels + range.channel_end;
    for (; f + kWide * L <= end; f += kWide * L) sum_piece<T, S, 1, kWide, false>(chunk, sum, h, f, 0);
    for (; f + kMiddle * L <= end; f += kMiddle * L) sum_piece<T, S, 1, kMiddle, false>(chunk, sum, h, f, 0);
    for (; f + L <= end; f += L) sum_piece<T, S, 1, 1, false>(chunk, sum, h, f, 0);
    if (f < end) sum_piece<T, S, 1, 1, true>(chunk, sum, h, f, int(end - f));
  }
}

// ---- scores --------------------------------------------------------------------------------------------------------

// The score before leaky, GAT.
template <class A>
FRONTGI_INLINE A bare_score(const AttentionArgs& args, const RowOfHeads& r, int64_t source, int64_t value, int64_t h) {
  A score = values_at<A>(args.src_score, source, args.src_score_stride, r.head)[h];
  if (args.dst_score) score += values_at<A>(args.dst_score, r.row, args.dst_score_stride, r.head)[h];
  if (value < args.edges) {
    if (args.edge_score) score += values_at<A>(args.edge_score, value, args.heads, r.head)[h];
  } else if (args.loop_score) {
    score += values_at<A>(args.loop_score, value - args.edges, args.heads, r.head)[h];
  }
  return score;
}

// <att, leaky(source + own)> of one head, GATv2.
template <class T>
FRONTGI_INLINE Accumulator<T> dynamic_score(const T* source, const T* own, const Accumulator<T>* att, int64_t channels,
                                            Accumulator<T> slope) {
  using A = Accumulator<T>;
  constexpr int L = kLanes<A>;
  Vector<A> even{}, odd{};
  int64_t f = 0;
  for (; f + 2 * L <= channels; f += 2 * L) {
    even = even + load(att + f) * leaky(load(source + f) + load(own + f), slope);
    odd = odd + load(att + f + L) * leaky(load(source + f + L) + load(own + f + L), slope);
  }
  if (f + L <= channels) {
    even = even + load(att + f) * leaky(load(source + f) + load(own + f), slope);
    f += L;
  }
  if (f < channels) {
    const int tail = int(channels - f);
    odd = odd + load_first(att + f, tail) * leaky(load_first(source + f, tail) + load_first(own + f, tail), slope);
  }
  even = even + odd;
  A sum = 0;
  for (int i = 0; i < L; ++i) sum += even[i];
  return sum;
}

// The chunk's scores, [count, heads], in the place of its weights.
template <class T>
FRONTGI_INLINE void score_chunk(const AttentionArgs& args, const RowOfHeads& r, EdgeChunk<Accumulator<T>>& chunk) {
  using A = Accumulator<T>;
  const A slope = A(args.slope);
  A* score = chunk.weight;
  if (args.src_score) {
    for (int64_t k = 0; k < chunk.count; ++k) {
      for (int64_t h = 0; h < r.heads; ++h) {
        const A bare = bare_score<A>(args, r, chunk.source[k], chunk.value[k], h);
        *score++ = bare > 0 ? bare : bare * slope;
      }
    }
    return;
  }
  const int64_t column = r.head * args.channels;
  const T* x = offset_by<T>(args.x, column);
  const T* own = offset_by<T>(args.x_dst, r.row * args.x_dst_stride + column);
  const A* att = offset_by<A>(args.att, column);
  for (int64_t k = 0; k < chunk.count; ++k) {
    const T* source = x + chunk.source[k] * args.x_stride;
    if (args.prefetch) {
      const T* next = x + chunk.source[k + kSourcesAhead] * args.x_stride;
      prefetch_bytes(next, r.heads * args.channels * int64_t(sizeof(T)));
    }
    for (int64_t h = 0; h < r.heads; ++h) {
      const int64_t f = h * args.channels;
      *score++ = dynamic_score(source + f, own + f, att + f, args.channels, slope);
    }
  }
}

// ---- rows ----------------------------------------------------------------------------------------------------------

// Calls body(row and heads) for every row of the range, kHeadsTogether heads at a time.
template <class Body>
FRONTGI_INLINE void for_rows(const AttentionArgs& args, int64_t row_begin, int64_t row_end, const Body& body) {
  RowOfHeads r;
  r.next_edges_end = args.rowptr[row_end];
  for (r.row = row_begin; r.row < row_end; ++r.row) {
    r.first_edge = args.rowptr[r.row];
    r.edges = args.rowptr[r.row + 1] - r.first_edge;
    r.has_loop = args.loops && r.row < args.columns;
    for (r.head = args.range.head_begin; r.head < args.range.head_end; r.head += kHeadsTogether) {
      const int64_t left = args.range.head_end - r.head;
      r.heads = left < kHeadsTogether ? left : kHeadsTogether;
      body(r);
    }
  }
}

// The largest score of each head so far, the sum of the weights relative to it, and how to scale what was summed
// before.
template <class A>
struct OnlineSoftmax {
  A largest[kHeadsTogether], sum[kHeadsTogether], rescale[kHeadsTogether], inverse[kHeadsTogether];

  // Turns a chunk's scores into weights.
  FRONTGI_INLINE void take(EdgeChunk<A>& chunk, int64_t heads, bool first) {
    A least[kHeadsTogether + kLanes<A>], added[kHeadsTogether];
    for (int64_t h = 0; h < heads; ++h) {
      // The lowest number, not -inf: edges of score -inf weigh nothing in whatever chunk they come, and -inf - -inf is
      // NaN.
      if (first) largest[h] = sizeof(A) == 4 ? -A(__FLT_MAX__) : -A(__DBL_MAX__), sum[h] = 0;
      least[h] = largest[h];
      added[h] = 0;
    }
    for (int64_t k = 0; k < chunk.count; ++k) {
      const A* score = chunk.weight + k * heads;
      for (int64_t h = 0; h < heads; ++h) {
        if (score[h] > largest[h] || score[h] != score[h]) largest[h] = score[h];
      }
    }
    for (int64_t h = 0; h < heads; ++h) least[h] = least[h] == largest[h] ? A(0) : least[h] - largest[h];
    exp_all_up_to_0(least, heads);
    for (int64_t k = 0; k < chunk.count; ++k) {
      A* score = chunk.weight + k * heads;
      for (int64_t h = 0; h < heads; ++h) score[h] -= largest[h];
    }
    exp_all_up_to_0(chunk.weight, chunk.count * heads);
    for (int64_t k = 0; k < chunk.count; ++k) {
      const A* weight = chunk.weight + k * heads;
      for (int64_t h = 0; h < heads; ++h) added[h] += weight[h];
    }
    for (int64_t h = 0; h < heads; ++h) {
      rescale[h] = least[h];
      sum[h] = sum[h] * rescale[h] + added[h];
      inverse[h] = sum[h] == 0 ? A(1) : 1 / sum[h];
    }
  }
};

// Turns the scores that a row's alpha holds into alpha.
template <class Index, class A>
FRONTGI_INLINE void finish_alpha(const AttentionArgs& args, const RowOfHeads& r, const OnlineSoftmax<A>& softmax,
                                 EdgeChunk<A>& chunk) {
  for (int64_t first = 0; first < r.all_edges(); first += kEdgesAttended) {
    list_edges<Index>(args, r, first, nullptr, chunk, [&](int64_t absent) {
      A* alpha = values_at<A>(args.alpha, absent, args.heads, r.head);
      for (int64_t h = 0; h < r.heads; ++h) alpha[h] = 0;
    });
    for (int64_t k = 0; k < chunk.count; ++k) {
      const A* score = values_at<A>(args.alpha, chunk.value[k], args.heads, r.head);
      for (int64_t h = 0; h < r.heads; ++h) chunk.weight[k * r.heads + h] = score[h] - softmax.largest[h];
    }
    exp_all_up_to_0(chunk.weight, chunk.count * r.heads);
    for (int64_t k = 0; k < chunk.count; ++k) {
      A* alpha = values_at<A>(args.alpha, chunk.value[k], args.heads, r.head);
      for (int64_t h = 0; h < r.heads; ++h) alpha[h] = chunk.weight[k * r.heads + h] * softmax.inverse[h];
    }
  }
}

template <class A>
FRONTGI_INLINE void copy_weights(const AttentionArgs& args, const RowOfHeads& r, const EdgeChunk<A>& chunk, void* to) {
  for (int64_t k = 0; k < chunk.count; ++k) {
    A* value = values_at<A>(to, chunk.value[k], args.heads, r.head);
    for (int64_t h = 0; h < r.heads; ++h) value[h] = chunk.weight[k * r.heads + h];
  }
}

template <class A, class Out>
FRONTGI_INLINE RowSum<A, Out> row_sum(const AttentionArgs& args, const RowOfHeads& r, const A* rescale,
                                      const A* inverse, Out* out) {
  RowSum<A, Out> sum{};
  sum.x = args.x;
  sum.x_stride = args.x_stride;
  sum.slope = A(args.slope);
  sum.prefetch = args.prefetch;
  sum.channels = args.channels;
  sum.head = r.head;
  sum.heads = r.heads;
  sum.rescale = rescale;
  sum.inverse = inverse;
  sum.scratch = static_cast<A*>(args.scratch);
  sum.out = offset_by<Out>(out, r.row * args.heads * args.channels);
  return sum;
}

template <class T, class Index>
void attend_typed(const AttentionArgs& args, int64_t row_begin, int64_t row_end) {
  using A = Accumulator<T>;
  EdgeChunk<A> chunk;
  OnlineSoftmax<A> softmax;
  const bool writes_alpha = args.alpha && args.range.channel_begin == 0;
  for_rows(args, row_begin, row_end, [&](const RowOfHeads& r) {
    RowSum<A, T> sum = row_sum(args, r, softmax.rescale, softmax.inverse, static_cast<T*>(args.out));
    sum.bias = args.bias;
    if (!args.src_score) sum.prefetch = false;  // the scores have touched every source
    int64_t first = 0;
    do {
      list_edges<Index>(args, r, first, nullptr, chunk, [](int64_t) {});
      score_chunk<T>(args, r, chunk);
      if (writes_alpha) copy_weights(args, r, chunk, args.alpha);
      softmax.take(chunk, r.heads, first == 0);
      sum.first = first == 0;
      first += kEdgesAttended;
      sum.last = first >= r.all_edges();
      sum_chunk<T, Summed::source>(chunk, sum, args.range);
    } while (!sum.last);
    if (writes_alpha) finish_alpha<Index>(args, r, softmax, chunk);
  });
}

// ---- gradients -----------------------------------------------------------------------------------------------------

template <class A>
struct Ones {
  A value[kHeadsTogether];
  Ones() {
    for (A& v : value) v = 1;
  }
};

// grad_score holds the gradient of alpha at first: alpha * (it - the row's mean of it) is that of the softmax.
template <class T, class Index>
void attend_grad_rows_typed(const AttentionGradArgs& args, int64_t row_begin, int64_t row_end) {
  using A = Accumulator<T>;
  const AttentionArgs& forward = args.forward;
  const int64_t heads = forward.heads, channels = forward.channels;
  const A slope = A(forward.slope);
  const Ones<A> ones;
  EdgeChunk<A> chunk;
  for_rows(forward, row_begin, row_end, [&](const RowOfHeads& r) {
    A mean[kHeadsTogether] = {}, total[kHeadsTogether] = {};
    const T* x = offset_by<T>(forward.x, r.head * channels);
    const T* grad = offset_by<T>(args.grad, r.row * args.grad_stride + r.head * channels);
    for (int64_t first = 0; first < r.all_edges(); first += kEdgesAttended) {
      list_edges<Index>(forward, r, first, nullptr, chunk, [&](int64_t absent) {
        A* score = values_at<A>(args.grad_score, absent, heads, r.head);
        for (int64_t h = 0; h < r.heads; ++h) score[h] = 0;
      });
      A added[kHeadsTogether] = {};
      for (int64_t k = 0; k < chunk.count; ++k) {
        const T* source = x + chunk.source[k] * forward.x_stride;
        if (forward.prefetch) {
          const T* next = x + chunk.source[k + kSourcesAhead] * forward.x_stride;
          prefetch_bytes(next, r.heads * channels * int64_t(sizeof(T)));
        }
        const A* alpha = values_at<A>(forward.alpha, chunk.value[k], heads, r.head);
        A* score = values_at<A>(args.grad_score, chunk.value[k], heads, r.head);
        for (int64_t h = 0; h < r.heads; ++h) {
          A of_alpha = dot(grad + h * channels, source + h * channels, channels);
          if (args.grad_alpha) of_alpha += values_at<A>(args.grad_alpha, chunk.value[k], heads, r.head)[h];
          score[h] = of_alpha;
          added[h] += alpha[h] * of_alpha;
        }
      }
      for (int64_t h = 0; h < r.heads; ++h) mean[h] += added[h];
    }
    RowSum<A, A> slopes = row_sum(forward, r, ones.value, ones.value, static_cast<A*>(args.slopes));
    if (args.slopes) slopes.own = offset_by<T>(forward.x_dst, r.row * forward.x_dst_stride);
    int64_t first = 0;
    do {
      list_edges<Index>(forward, r, first, nullptr, chunk, [](int64_t) {});
      A added[kHeadsTogether] = {};
      for (int64_t k = 0; k < chunk.count; ++k) {
        const A* alpha = values_at<A>(forward.alpha, chunk.value[k], heads, r.head);
        A* score = values_at<A>(args.grad_score, chunk.value[k], heads, r.head);
        for (int64_t h = 0; h < r.heads; ++h) {
          A of_score = alpha[h] * (score[h] - mean[h]);
          if (forward.src_score && !(bare_score<A>(forward, r, chunk.source[k], chunk.value[k], h) > 0)) {
            of_score *= slope;
          }
          score[h] = of_score;
          added[h] += of_score;
          chunk.weight[k * r.heads + h] = of_score;
        }
      }
      for (int64_t h = 0; h < r.heads; ++h) total[h] += added[h];
      slopes.first = first == 0;
      first += kEdgesAttended;
      slopes.last = first >= r.all_edges();
      if (args.slopes) sum_chunk<T, Summed::slope>(chunk, slopes, forward.range);
    } while (!slopes.last);
    if (args.grad_dst) {
      A* to = values_at<A>(args.grad_dst, r.row, heads, r.head);
      for (int64_t h = 0; h < r.heads; ++h) to[h] = total[h];
    }
  });
}

template <class T, class Index>
void attend_grad_columns_typed(const AttentionColumnArgs& args, int64_t row_begin, int64_t row_end) {
  using A = Accumulator<T>;
  const AttentionArgs& transposed = args.transposed;
  const int64_t heads = transposed.heads;
  const Ones<A> ones;
  EdgeChunk<A> chunk;
  for_rows(transposed, row_begin, row_end, [&](const RowOfHeads& r) {
    A total[kHeadsTogether] = {};
    RowSum<A, T> of_x = row_sum(transposed, r, ones.value, ones.value, static_cast<T*>(transposed.out));
    RowSum<A, A> slopes = row_sum(transposed, r, ones.value, ones.value, static_cast<A*>(args.slopes));
    if (args.slopes) {
      slopes.x = args.x_other;
      slopes.x_stride = args.x_other_stride;
      slopes.own = offset_by<T>(transposed.x_dst, r.row * transposed.x_dst_stride);
      slopes.scratch = offset_by<A>(slopes.scratch, heads * transposed.channels);
    }
    const auto gather_weights = [&](const void* values) {
      for (int64_t k = 0; k < chunk.count; ++k) {
        const A* from = values_at<A>(values, chunk.value[k], heads, r.head);
        for (int64_t h = 0; h < r.heads; ++h) chunk.weight[k * r.heads + h] = from[h];
      }
    };
    int64_t first = 0;
    do {
      list_edges<Index>(transposed, r, first, args.position, chunk, [](int64_t) {});
      of_x.first = slopes.first = first == 0;
      first += kEdgesAttended;
      of_x.last = slopes.last = first >= r.all_edges();
      gather_weights(transposed.alpha);
      sum_chunk<T, Summed::source>(chunk, of_x, transposed.range);
      gather_weights(args.grad_score);
      if (args.slopes) sum_chunk<T, Summed::slope>(chunk, slopes, transposed.range);
      A added[kHeadsTogether] = {};
      for (int64_t k = 0; k < chunk.count; ++k) {
        for (int64_t h = 0; h < r.heads; ++h) added[h] += chunk.weight[k * r.heads + h];
      }
      for (int64_t h = 0; h < r.heads; ++h) total[h] += added[h];
    } while (!of_x.last);
    if (args.grad_src) {
      A* to = values_at<A>(args.grad_src, r.row, heads, r.head);
      for (int64_t h = 0; h < r.heads; ++h) to[h] = total[h];
    }
  });
}

// ---- by type -------------------------------------------------------------------------------------------------------

void attend_rows(const AttentionArgs& args, int64_t row_begin, int64_t row_end) {
  using Typed = void (*)(const AttentionArgs&, int64_t, int64_t);
  constexpr Typed typed[2][4] = {{attend_typed<float, int32_t>, attend_typed<double, int32_t>,
                                  attend_typed<Bf16, int32_t>, attend_typed<Half, int32_t>},
                                 {attend_typed<float, int64_t>, attend_typed<double, int64_t>,
                                  attend_typed<Bf16, int64_t>, attend_typed<Half, int64_t>}};
  typed[args.wide_index][int(args.dtype)](args, row_begin, row_end);
}

void attend_grad_rows(const AttentionGradArgs& args, int64_t row_begin, int64_t row_end) {
  using Typed = void (*)(const AttentionGradArgs&, int64_t, int64_t);
  constexpr Typed typed[2][4] = {{attend_grad_rows_typed<float, int32_t>, attend_grad_rows_typed<double, int32_t>,
                                  attend_grad_rows_typed<Bf16, int32_t>, attend_grad_rows_typed<Half, int32_t>},
                                 {attend_grad_rows_typed<float, int64_t>, attend_grad_rows_typed<double, int64_t>,
                                  attend_grad_rows_typed<Bf16, int64_t>, attend_grad_rows_typed<Half, int64_t>}};
  typed[args.forward.wide_index][int(args.forward.dtype)](args, row_begin, row_end);
}

void attend_grad_columns(const AttentionColumnArgs& args, int64_t row_begin, int64_t row_end) {
  using Typed = void (*)(const AttentionColumnArgs&, int64_t, int64_t);
  constexpr Typed typed[2][4] = {{attend_grad_columns_typed<float, int32_t>, attend_grad_columns_typed<double, int32_t>,
                                  attend_grad_columns_typed<Bf16, int32_t>, attend_grad_columns_typed<Half, int32_t>},
                                 {attend_grad_columns_typed<float, int64_t>, attend_grad_columns_typed<double, int64_t>,
                                  attend_grad_columns_typed<Bf16, int64_t>, attend_grad_columns_typed<Half, int64_t>}};
  typed[args.transposed.wide_index][int(args.transposed.dtype)](args, row_begin, row_end);
}

}  // namespace frontgi::FRONTGI_ISA
