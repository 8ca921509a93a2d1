// The running softmax over blocks of scores, and the output's rows. Knows nothing of products, masks,
// sequences or threads.
//
// Weights are 2^(scale · score - reference), in place of the scores, where `scale` has the log2 e in
// it. The reference is the running maximum, or whatever lies near it: it cancels in the end.
#pragma once

#include <cmath>
#include <cstdint>

#include "attention_powers.hpp"
#include "tile.hpp"

namespace cenote::CENOTE_ISA::attending {

constexpr float kLog2e = 1.44269504f;
// A reference from before any key was seen: finite, so that no difference of infinities arises.
constexpr float kNothingSeen = -1e30f;

// For each query the reference, the sum of weights, and what earlier blocks' results must be
// multiplied by since the last change of the reference.
template <int C>
struct Running {
  Vec reference[C], sum[C], correction[C];
  bool corrected = false;  // otherwise all corrections are 1

  Running() {
    set_all(reference, set1(kNothingSeen));
    set_all(sum, zero());
  }
};

template <int C>
void find_highest(const float* scores, int64_t keys, Vec (&highest)[C]) {
  set_all(highest, set1(kNothingSeen));
  for (int64_t key = 0; key < keys; ++key) {
    for (int c = 0; c < C; ++c) highest[c] = max(highest[c], load(scores + (key * C + c) * kLanes));
  }
}

// Raises the reference to the highest score.
template <class Dot, int C>
void raise_reference(const float* scores, int64_t keys, float scale, Running<C>& running) {
  Vec highest[C];
  find_highest(scores, keys, highest);
  for (int c = 0; c < C; ++c) {
    const Vec before = running.reference[c], found = Powers<Dot>::reference(highest[c] * set1(scale));
    const Vec raised = select(highest[c] < set1(kNothingSeen / 2), before, max(before, found));
    running.correction[c] = exp2(before - raised);
    running.reference[c] = raised;
  }
  running.corrected = true;
}

// Turns scores into weights in place. With pairs, the words of two keys take the place of one.
template <class Dot, int C>
void weigh(float* scores, int64_t keys, float scale, Running<C>& running) {
  raise_reference<Dot>(scores, keys, scale, running);
  Vec sums[C];
  Powers<Dot>::template weigh<C>(scores, keys, scale, running.reference, sums);
  for (int c = 0; c < C; ++c) {
    running.sum[c] = fma(running.sum[c], running.correction[c], sums[c]);
  }
}

// The same without looking for a maximum: the reference stays as it is, or is 0 if there is none.
// Returns false, and leaves `running` alone, if a weight would be out of range; the scores are lost.
// `changed` says that some scores may be very low, such as those of hidden keys; `blind(c)` which
// queries see none of these keys.
template <class Dot, int C, class Blind>
bool weigh_near(float* scores, int64_t keys, float scale, bool changed, const Blind& blind,
                Running<C>& running) {
  Vec reference[C], sums[C];
  for (int c = 0; c < C; ++c) {
    const Mask unseen = running.reference[c] < set1(kNothingSeen / 2);
    reference[c] = select(unseen, zero(), running.reference[c]);
  }
  using P = Powers<Dot>;
  bool near = changed ? P::template weigh_near<C, true>(scores, keys, scale, reference, sums)
                      : P::template weigh_near<C, false>(scores, keys, scale, reference, sums);
  for (int c = 0; c < C; ++c) {
    sums[c] = running.sum[c] + sums[c];
    // So far from both ends that neither sums nor their products with values leave float32.
    near &= !any((set1(0x1p60f) < sums[c]) | is_nan(sums[c]));
    if (!any(sums[c] < set1(0x1p-60f))) continue;
    const Mask unseen = blind(c);
    near &= !any(select(unseen, set1(1), sums[c]) < set1(0x1p-60f));
    reference[c] = select(unseen, running.reference[c], reference[c]);
  }
  if (!near) return false;
  for (int c = 0; c < C; ++c) {
    running.reference[c] = reference[c];
    running.sum[c] = sums[c];
  }
  running.corrected = false;
  return true;
}

template <int C, class T>
void write(const float* output, int64_t head_dim, const Running<C>& running, T* out, int64_t stride,
           int64_t rows) {
  for (int c = 0; c < C; ++c) {
    const Vec sum = running.sum[c];
    const Vec factor = select(zero() < sum | is_nan(sum), set1(1) / sum, zero());
    const int64_t here = at_most(at_least(rows - c * kLanes, 0), kLanes);
    for (int64_t d = 0; d < head_dim; d += kLanes) {
      Vec values[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        values[i] = d + i < head_dim ? load(output + ((d + i) * C + c) * kLanes) * factor : zero();
      }
      transpose(values);
      for (int64_t i = 0; i < here; ++i) {
        store_up_to(out + (c * kLanes + i) * stride + d, values[i], head_dim - d);
      }
    }
  }
}

}  // namespace cenote::CENOTE_ISA::attending
