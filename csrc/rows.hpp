// What the row-by-row kernels share: walking a row in vectors, norming it, splitting rows over
// threads. Knows nothing of what a row means.
#pragma once

#include <cstdint>

#include "memory.hpp"
#include "simd.hpp"
#include "threads.hpp"
#include "varlen.hpp"

namespace cenote::CENOTE_ISA::rows {

// Calls `visit(offset, lanes)` for each vector of a row.
template <class Visit>
CENOTE_INLINE void each_vector(int64_t count, Visit&& visit) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) visit(i, int64_t{kLanes});
  if (i < count) visit(i, count - i);
}

CENOTE_INLINE Vec only_first(Vec x, int64_t lanes) {
  return lanes >= kLanes ? x : select(lane_index() < set1(static_cast<float>(lanes)), x, zero());
}

// Calls `write(offset, lanes, normed)`. The variance is taken around the mean, in a second pass: the
// row is in the L1 cache, and the difference of two large sums would lose digits.
template <class T, class Write>
CENOTE_INLINE void normalise(const T* row, int64_t count, const NormArgs& norm, Write&& write) {
  Vec mean = zero();
  if (norm.kind == NormKind::layer) {
    Vec total = zero();
    each_vector(count, [&](int64_t i, int64_t n) { total = total + load_up_to(row + i, n); });
    mean = set1(reduce_add(total) / static_cast<float>(count));
  }
  Vec squares = zero();
  each_vector(count, [&](int64_t i, int64_t n) {
    const Vec off = only_first(load_up_to(row + i, n) - mean, n);
    squares = fma(off, off, squares);
  });
  const float variance = reduce_add(squares) / static_cast<float>(count);
  const Vec factor = set1(1.0f / __builtin_sqrtf(variance + norm.eps));
  each_vector(count, [&](int64_t i, int64_t n) {
    const Vec unit = (load_up_to(row + i, n) - mean) * factor;
    const Vec weight = norm.weight ? load_up_to(norm.weight + i, n) : set1(1);
    const Vec bias = norm.bias ? load_up_to(norm.bias + i, n) : zero();
    write(i, n, fma(unit, weight, bias));
  });
}

// Stores to whichever of the two outputs is wanted.
struct Outputs {
  float* f32;
  bf16* half;

  CENOTE_INLINE void write(int64_t i, int64_t n, Vec x) const {
    if (f32) store_up_to(f32 + i, x, n);
    if (half) store_up_to(half + i, x, n);
  }
};

// Calls `run(begin, end)` for runs of rows large enough to be worth a task. The runs' borders depend
// on the shape alone, and no result depends on them.
template <class Run>
void in_parallel(int64_t count, int64_t elements_each, Run&& run) {
  constexpr int64_t kElements = 16384;
  const int64_t grain = elements_each >= kElements ? 1 : kElements / (elements_each + 1) + 1;
  parallel_for((count + grain - 1) / grain, [&](int64_t task, int) {
    const int64_t begin = task * grain;
    run(begin, begin + grain < count ? begin + grain : count);
  });
}

}  // namespace cenote::CENOTE_ISA::rows
