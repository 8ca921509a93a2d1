// What attention does with a tile's scores: terms and masks on the logits, then the running softmax,
// then the output's rows. Knows nothing of products, sequences or threads.
//
// Scores are [key][query], C vectors of queries wide, and change in place. They are the products as
// they come: what is added is divided by attention's scale, and the exponent multiplies by it.
#pragma once

#include <cmath>
#include <cstdint>

#include "attention_products.hpp"

namespace cenote::CENOTE_ISA::attending {

constexpr float kLog2e = 1.44269504f;
// A running maximum from before any key was seen: finite, so that no difference of infinities arises.
constexpr float kNothingSeen = -1e30f;

// --- logits --------------------------------------------------------------------------------------

template <int C>
void cap(float* scores, int64_t keys, float softcap) {
  const Vec limit = set1(softcap), inverse = set1(1 / softcap);
  for (int64_t i = 0; i < keys * C; ++i) {
    float* at = scores + i * kLanes;
    store(at, limit * tanh(load(at) * inverse));
  }
}

// `bias` points at the row of the tile's first query, at the block's first key.
template <int C>
void add_bias(float* scores, int64_t keys, const float* bias, int64_t stride, int64_t rows,
              float factor) {
  for (int c = 0; c < C; ++c) {
    const int64_t here = at_most(at_least(rows - c * kLanes, 0), kLanes);
    for (int64_t key = 0; key < keys; key += kLanes) {
      Vec values[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        values[i] = i < here ? load_up_to(bias + (c * kLanes + i) * stride + key, keys - key) : zero();
      }
      transpose(values);
      const int64_t count = at_most(kLanes, keys - key);
      for (int64_t i = 0; i < count; ++i) {
        float* at = scores + ((key + i) * C + c) * kLanes;
        store(at, fma(values[i], set1(factor), load(at)));
      }
    }
  }
}

template <int C>
void positions(int64_t first, Vec (&position)[C]) {
  for (int c = 0; c < C; ++c) {
    position[c] = set1(static_cast<float>(first + c * kLanes)) + lane_index();
  }
}

template <int C>
void add_alibi(float* scores, Span block, int64_t first_position, float slope) {
  Vec position[C];
  positions(first_position, position);
  const Vec factor = set1(slope);
  for (int64_t key = block.begin; key < block.end; ++key) {
    for (int c = 0; c < C; ++c) {
      float* at = scores + ((key - block.begin) * C + c) * kLanes;
      store(at, fnma(factor, abs(set1(static_cast<float>(key)) - position[c]), load(at)));
    }
  }
}

template <int C>
void hide_outside(float* scores, Span block, int64_t first_position, int64_t left, int64_t right) {
  Vec position[C];
  positions(first_position, position);
  const Vec before = set1(-static_cast<float>(left)), after = set1(static_cast<float>(right));
  for (int64_t key = block.begin; key < block.end; ++key) {
    for (int c = 0; c < C; ++c) {
      float* at = scores + ((key - block.begin) * C + c) * kLanes;
      const Vec distance = set1(static_cast<float>(key)) - position[c];
      store(at, select(distance < before | after < distance, set1(-INFINITY), load(at)));
    }
  }
}

template <int C>
void hide_masked(float* scores, int64_t keys, const uint8_t* mask) {
  for (int64_t key = 0; key < keys; ++key) {
    if (mask[key]) continue;
    for (int c = 0; c < C; ++c) store(scores + (key * C + c) * kLanes, set1(-INFINITY));
  }
}

// --- softmax and output -------------------------------------------------------------------------

// The running maximum, the sum of weights relative to it, and what earlier blocks must be multiplied
// by since the last change of the maximum. Weights are 2^(scale · (score - maximum)).
template <int C>
struct Running {
  Vec maximum[C], sum[C], correction[C];
};

template <int C>
void raise_maximum(const Vec (&highest)[C], float scale, Running<C>& running) {
  for (int c = 0; c < C; ++c) {
    const Vec maximum = max(running.maximum[c], highest[c]);
    running.correction[c] = exp2((running.maximum[c] - maximum) * set1(scale));
    running.maximum[c] = maximum;
  }
}

// Turns scores into weights in place. With pairs, the words of two keys take the place of one.
template <class Dot, int C>
void weigh(float* scores, int64_t keys, float scale, Running<C>& running) {
  const Vec factor = set1(scale);
  Vec offset[C], sums[2][C];
  clear(sums);
  for (int c = 0; c < C; ++c) offset[c] = zero() - running.maximum[c] * factor;
  for (int64_t key = 0; key < keys; key += 2) {
    for (int c = 0; c < C; ++c) {
      float* even = scores + (key * C + c) * kLanes;
      float* odd = even + C * kLanes;
      const bool both = key + 1 < keys;
      if constexpr (Dot::kDepth == 2) {
        const Vec a = exp2_coarse(fma(load(even), factor, offset[c]));
        const Vec b = both ? exp2_coarse(fma(load(odd), factor, offset[c])) : zero();
        sums[0][c] = sums[0][c] + a;
        sums[1][c] = sums[1][c] + b;
        store(scores + (key / 2 * C + c) * kLanes, Dot::pair(a, b));
      } else {
        const Vec a = exp2(fma(load(even), factor, offset[c]));
        store(even, a);
        sums[0][c] = sums[0][c] + a;
        if (!both) continue;
        const Vec b = exp2(fma(load(odd), factor, offset[c]));
        store(odd, b);
        sums[1][c] = sums[1][c] + b;
      }
    }
  }
  for (int c = 0; c < C; ++c) {
    running.sum[c] = fma(running.sum[c], running.correction[c], sums[0][c] + sums[1][c]);
  }
}

template <int C, class T>
void write(const float* output, int64_t head_dim, const Running<C>& running, T* out, int64_t stride,
           int64_t rows) {
  for (int c = 0; c < C; ++c) {
    const Vec sum = running.sum[c];
    const Vec factor = select(zero() < sum, set1(1) / sum, zero());
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
