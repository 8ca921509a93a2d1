// Terms and masks on a tile's scores. Knows nothing of products, softmax, sequences or threads.
//
// Scores are [key][query], C vectors of queries wide, and change in place. They are the products as
// they come: what is added is divided by attention's scale, and softmax multiplies by it.
#pragma once

#include <cmath>
#include <cstdint>

#include "attention_products.hpp"

namespace cenote::CENOTE_ISA::attending {

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
void hide_outside(float* scores, Span block, Span queries, int64_t left, int64_t right) {
  Vec position[C];
  positions(queries.begin, position);
  const Vec before = set1(-static_cast<float>(left)), after = set1(static_cast<float>(right));
  const auto hide = [&](int64_t from, int64_t to) {
    for (int64_t key = from; key < to; ++key) {
      for (int c = 0; c < C; ++c) {
        float* at = scores + ((key - block.begin) * C + c) * kLanes;
        const Vec distance = set1(static_cast<float>(key)) - position[c];
        store(at, select(distance < before | after < distance, set1(-INFINITY), load(at)));
      }
    }
  };
  // Keys between these are seen by all of the queries.
  const int64_t low = at_least(at_most(queries.end - 1 - left, block.end), block.begin);
  const int64_t high = at_least(at_most(queries.begin + right + 1, block.end), low);
  hide(block.begin, low);
  hide(high, block.end);
}

// Which queries of a vector, from `first_position` on, see none of a block's keys for where they stand.
inline Mask find_blind(Span block, int64_t first_position, int64_t left, int64_t right) {
  Vec position[1];
  positions(first_position, position);
  return (position[0] < set1(static_cast<float>(block.begin - right))) |
         (set1(static_cast<float>(block.end - 1 + left)) < position[0]);
}

template <int C>
void hide_masked(float* scores, int64_t keys, const uint8_t* mask) {
  for (int64_t key = 0; key < keys; ++key) {
    if (mask[key]) continue;
    for (int c = 0; c < C; ++c) store(scores + (key * C + c) * kLanes, set1(-INFINITY));
  }
}

}  // namespace cenote::CENOTE_ISA::attending
