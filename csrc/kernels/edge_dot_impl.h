// SPDX-License-Identifier: MIT
// One dot product an edge (a sampled dense-dense product): the gradient of edge weights.
//
// Layout: see EdgeDotArgs. Two vectors of partial sums, added lane by lane at the end in a fixed order.
#pragma once

namespace frontgi::FRONTGI_ISA {

template <class T>
FRONTGI_INLINE Accumulator<T> dot(const T* a, const T* b, int64_t width) {
  using A = Accumulator<T>;
  using V = Vector<A>;
  constexpr int L = kLanes<A>;
  V even{}, odd{};
  int64_t f = 0;
  for (; f + 2 * L <= width; f += 2 * L) {
    even = even + load(a + f) * load(b + f);
    odd = odd + load(a + f + L) * load(b + f + L);
  }
  if (f + L <= width) {
    even = even + load(a + f) * load(b + f);
    f += L;
  }
  if (f < width) odd = odd + load_first(a + f, int(width - f)) * load_first(b + f, int(width - f));
  even = even + odd;
  A sum = 0;
  for (int i = 0; i < L; ++i) sum += even[i];
  return sum;
}

template <class T, class Index>
void edge_dot_typed(const EdgeDotArgs& args, int64_t row_begin, int64_t row_end) {
  using A = Accumulator<T>;
  const Index* col = static_cast<const Index*>(args.col);
  for (int64_t row = row_begin; row < row_end; ++row) {
    const T* a = static_cast<const T*>(args.a) + row * args.a_stride;
    const A row_scale = value_or<A>(args.row_scale, row, 1);
    for (int64_t e = args.rowptr[row]; e < args.rowptr[row + 1]; ++e) {
      const int64_t j = int64_t(col[e]);
      const A product = dot(a, static_cast<const T*>(args.b) + j * args.b_stride, args.width);
      static_cast<A*>(args.out)[e] = row_scale * value_or<A>(args.col_scale, j, 1) * product;
    }
  }
}

void edge_dot_rows(const EdgeDotArgs& args, int64_t row_begin, int64_t row_end) {
  using Typed = void (*)(const EdgeDotArgs&, int64_t, int64_t);
  constexpr Typed narrow_index[] = {edge_dot_typed<float, int32_t>, edge_dot_typed<double, int32_t>,
                                    edge_dot_typed<Bf16, int32_t>, edge_dot_typed<Half, int32_t>};
  constexpr Typed wide_index[] = {edge_dot_typed<float, int64_t>, edge_dot_typed<double, int64_t>,
                                  edge_dot_typed<Bf16, int64_t>, edge_dot_typed<Half, int64_t>};
  (args.wide_index ? wide_index : narrow_index)[int(args.dtype)](args, row_begin, row_end);
}

}  // namespace frontgi::FRONTGI_ISA
