// What the row-by-row kernels share: walking a row in vectors, norming it, splitting rows over
// threads. Knows nothing of what a row means.
#pragma once

#include <cstdint>

#include "kernels.hpp"
#include "simd.hpp"
#include "threads.hpp"

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

// The sum of `term(offset, lanes)` over the vectors of a row and over their lanes. Four sums run side
// by side: one alone would wait for each addition to end.
template <class Term>
CENOTE_INLINE float sum_over(int64_t count, Term&& term) {
  Vec sums[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (int part = 0; part < 4; ++part) {
      sums[part] = sums[part] + term(i + part * kLanes, int64_t{kLanes});
    }
  }
  for (; i < count; i += kLanes) sums[0] = sums[0] + term(i, count - i);
  return reduce_add((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// Calls `write(offset, lanes, normed)`. The variance is taken around the mean, in a second pass: the
// row is in the L1 cache, and the difference of two large sums would lose digits.
template <class T, class Write>
CENOTE_INLINE void normalise(const T* row, int64_t count, const NormArgs& norm, Write&& write) {
  Vec mean = zero();
  if (norm.kind == NormKind::layer) {
    const float total = sum_over(count, [&](int64_t i, int64_t n) { return load_up_to(row + i, n); });
    mean = set1(total / static_cast<float>(count));
  }
  const float squares = sum_over(count, [&](int64_t i, int64_t n) {
    const Vec off = only_first(load_up_to(row + i, n) - mean, n);
    return off * off;
  });
  const float variance = squares / static_cast<float>(count);
  const Vec factor = set1(1.0f / __builtin_sqrtf(variance + norm.eps));
  each_vector(count, [&](int64_t i, int64_t n) {
    const Vec unit = (load_up_to(row + i, n) - mean) * factor;
    const Vec weight = norm.weight ? load_up_to(norm.weight + i, n) : set1(1);
    const Vec bias = norm.bias ? load_up_to(norm.bias + i, n) : zero();
    write(i, n, fma(unit, weight, bias));
  });
}

// Writes the normed row to `out`, which may be the row itself.
template <class From, class To>
void normalise_into(const From* row, int64_t count, const NormArgs& norm, To* out) {
  normalise(row, count, norm, [&](int64_t i, int64_t n, Vec x) { store_up_to(out + i, x, n); });
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
