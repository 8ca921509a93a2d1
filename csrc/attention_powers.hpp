// Powers of two of a block's scores, and their sums. Knows nothing of running softmax, products or
// masks.
#pragma once

#include <cmath>
#include <cstdint>

#include "tile.hpp"

namespace cenote::CENOTE_ISA::attending {

// In float32.
template <class Dot>
struct Powers {
  static constexpr bool kNear = false;  // whether there is a quicker way for scores close together

  static Vec reference(Vec highest) { return highest; }

  template <int C>
  static void weigh(float* scores, int64_t keys, float scale, const Vec (&reference)[C],
                    Vec (&sums)[C]) {
    const Vec factor = set1(scale);
    Vec halves[2][C];
    clear(halves);
    for (int64_t key = 0; key < keys; ++key) {
      for (int c = 0; c < C; ++c) {
        float* at = scores + (key * C + c) * kLanes;
        const Vec weight = exp2(fma(load(at), factor, zero() - reference[c]));
        store(at, weight);
        halves[key & 1][c] = halves[key & 1][c] + weight;
      }
    }
    for (int c = 0; c < C; ++c) sums[c] = halves[0][c] + halves[1][c];
  }
};

#if defined(CENOTE_SIMD_512) && defined(__AVX512BF16__)

constexpr float kWhole = 0x1.8p23f;  // a float32 that counts whole numbers by its low bits
constexpr int kFraction = 256;       // steps of an octave
constexpr int kBias = 127;           // of a bfloat16's exponent

// By how many steps 1 + f exceeds 2^f, for f = (2 i + 1/2) / 256, the middle of two steps.
struct Excess {
  uint8_t steps[128];

  constexpr Excess() : steps() {
    for (int i = 0; i < 128; ++i) {
      const double f = (2 * i + 0.5) / kFraction;
      double power = 0, term = 1;  // of e^(f ln 2)
      for (int n = 1; n < 20; ++n) {
        power += term;
        term *= f * 0.693147180559945309 / n;
      }
      steps[i] = static_cast<uint8_t>((1 + f - power) * kFraction + 0.5);
    }
  }
};
alignas(64) constexpr Excess kExcess;

// In bfloat16, in pairs. A power of two is nearly its own logarithm as a fixed-point number with the
// bias added: what is missing comes from a table of the fraction. So two vectors of scores become
// one of 16-bit numbers, in steps of 1/256 octave, before anything is computed (relative error 0.3 %
// with the rounding to bfloat16, of which that makes 0.2 to 0.4).
//
// References are whole, so another reference means the same bits but for the exponent, and `weigh`
// and `weigh_near` may take turns.
template <>
struct Powers<Bf16Dot> {
  static constexpr bool kNear = true;

  static Vec reference(Vec highest) { return {_mm512_roundscale_ps(highest.v, 0x0a)}; }  // up

  // Steps above 2^-127 as whole numbers in the low bits; exact for any whole reference.
  static CENOTE_INLINE Vec steps(const float* scores, float scale, Vec reference) {
    const Vec zero_step = fnma(reference, set1(kFraction), set1(kWhole + kBias * kFraction));
    return fma(load(scores), set1(scale * kFraction), zero_step);
  }

  static CENOTE_INLINE Vec power_pairs(Vec even, Vec odd) {
    const __m512i low = _mm512_load_si512(kExcess.steps), high = _mm512_load_si512(kExcess.steps + 64);
    const __m512i x = _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_castps_si512(even.v),
                                              _mm512_slli_epi32(_mm512_castps_si512(odd.v), 16));
    const __m512i excess = _mm512_maskz_permutex2var_epi8(0x5555555555555555, low,
                                                          _mm512_srli_epi16(x, 1), high);
    const __m512i halved = _mm512_avg_epu16(_mm512_sub_epi16(x, excess), _mm512_setzero_si512());
    return {_mm512_castsi512_ps(halved)};
  }

  // `clamp(steps, c)` may change them before they become weights; a last key without another meets 0.
  template <int C, class F>
  static CENOTE_INLINE void by_pairs(float* scores, int64_t keys, float scale,
                                     const Vec (&reference)[C], Vec (&sums)[C], F&& clamp) {
    const Vec ones = {_mm512_castsi512_ps(_mm512_set1_epi16(0x3f80))};
    set_all(sums, zero());
    const auto pair = [&](int64_t key, int c, Vec even, Vec odd) {
      const Vec powers = power_pairs(even, odd);
      store(scores + (key / 2 * C + c) * kLanes, powers);
      sums[c] = Bf16Dot::multiply_add(powers, ones, sums[c]);
    };
    int64_t key = 0;
    for (; key + 1 < keys; key += 2) {
      for (int c = 0; c < C; ++c) {
        const float* even = scores + (key * C + c) * kLanes;
        pair(key, c, clamp(steps(even, scale, reference[c]), c),
             clamp(steps(even + C * kLanes, scale, reference[c]), c));
      }
    }
    if (key == keys) return;
    for (int c = 0; c < C; ++c) {
      const float* last = scores + (key * C + c) * kLanes;
      pair(key, c, clamp(steps(last, scale, reference[c]), c), set1(kWhole));
    }
  }

  // For any scores up to the reference; NaN in a sum if there is one among its scores.
  template <int C>
  static void weigh(float* scores, int64_t keys, float scale, const Vec (&reference)[C],
                    Vec (&sums)[C]) {
    Mask nan[C] = {};
    by_pairs<C>(scores, keys, scale, reference, sums, [&](Vec x, int c) {
      nan[c] = nan[c] | is_nan(x);
      return max(x, set1(kWhole));
    });
    for (int c = 0; c < C; ++c) sums[c] = select(nan[c], set1(NAN), sums[c]);
  }

  // Returns false if a weight was out of [2^-127, 2^129), or not a number. With `clamp`, what is below
  // becomes 0.
  template <int C, bool clamp>
  static bool weigh_near(float* scores, int64_t keys, float scale, const Vec (&reference)[C],
                         Vec (&sums)[C]) {
    __m512i seen = _mm512_setzero_si512();  // all bits that occur: above the low 16, kWhole's alone
    by_pairs<C>(scores, keys, scale, reference, sums, [&](Vec x, int) {
      if (clamp) x = max(set1(kWhole), x);  // in this order a NaN stays
      seen = _mm512_or_si512(seen, _mm512_castps_si512(x.v));
      return x;
    });
    const __m512i above = _mm512_srli_epi32(seen, 16);
    return _mm512_cmpneq_epi32_mask(above, _mm512_set1_epi32(0x4b40)) == 0;
  }
};

#endif

}  // namespace cenote::CENOTE_ISA::attending
