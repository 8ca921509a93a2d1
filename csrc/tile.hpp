// The product that attention and MaxSim are made of: a few rows, read word by word, times a panel
// whose columns fill vectors. Knows nothing of softmax, sequences or threads.
//
// A word is what one multiply-add takes from a row: a float32, or a pair of bfloat16 where the level
// has an instruction for pairs. A panel is [steps][columns · kLanes] words, so a row that is
// broadcast needs no rearranging, and sums over rows need no sums across lanes.
#pragma once

#include <cstdint>
#include <cstring>

#include "simd.hpp"

namespace cenote::CENOTE_ISA {

CENOTE_INLINE int64_t at_most(int64_t x, int64_t limit) { return x < limit ? x : limit; }
CENOTE_INLINE int64_t at_least(int64_t x, int64_t limit) { return x > limit ? x : limit; }

// Independent sums of a tile: enough to hide the latency of a multiply-add, and as many as registers
// hold.
#if defined(CENOTE_SIMD_512)
constexpr int kTileSums = 16;
#else
constexpr int kTileSums = 8;
#endif
constexpr int kWordBytes = 4;

struct F32Dot {
  using Element = float;
  static constexpr int kDepth = 1;  // elements in a word

  static CENOTE_INLINE Vec broadcast(const char* word) {
    float x;
    std::memcpy(&x, word, sizeof(x));
    return set1(x);
  }
  static CENOTE_INLINE Vec multiply_add(Vec a, Vec b, Vec sum) { return fma(a, b, sum); }

  template <class T>
  static CENOTE_INLINE Vec words(const T* row, int64_t step, int64_t left) {
    return load_up_to(row + step, left);
  }
};

#if defined(CENOTE_SIMD_512) && defined(__AVX512BF16__)
struct Bf16Dot {
  using Element = bf16;
  static constexpr int kDepth = 2;

  static CENOTE_INLINE Vec broadcast(const char* word) {
    int pair;
    std::memcpy(&pair, word, sizeof(pair));
    return {_mm512_castsi512_ps(_mm512_set1_epi32(pair))};
  }
  static CENOTE_INLINE Vec multiply_add(Vec a, Vec b, Vec sum) {
    return {_mm512_dpbf16_ps(sum.v, (__m512bh)a.v, (__m512bh)b.v)};
  }
  static CENOTE_INLINE Vec words(const bf16* row, int64_t step, int64_t left) {
    const void* from = row + 2 * step;
    return {left >= kLanes ? _mm512_loadu_ps(from)
                           : _mm512_maskz_loadu_ps(first_lanes(left), from)};
  }
  // Words of (a[i], b[i]) for up to kLanes elements of two rows.
  static CENOTE_INLINE Vec interleave(const bf16* a, const bf16* b, int64_t left) {
    const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(load_up_to(a, left).v), 16);
    const __m512i high = _mm512_castps_si512(load_up_to(b, left).v);
    return {_mm512_castsi512_ps(_mm512_or_si512(low, high))};
  }
  // The same for whole rows of `columns` elements.
  static CENOTE_INLINE void interleave_rows(const bf16* a, const bf16* b, int64_t columns,
                                            float* to) {
    // (0, 32), (1, 33), … as pairs of 16 bits: the first half of both rows, then the second.
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i low = _mm512_add_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32(0x10001)),
                                         _mm512_set1_epi32(32 << 16));
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(0x100010));
    int64_t d = 0;
    for (; d + 2 * kLanes <= columns; d += 2 * kLanes) {
      const __m512i even = _mm512_loadu_si512(a + d), odd = _mm512_loadu_si512(b + d);
      _mm512_storeu_si512(to + d, _mm512_permutex2var_epi16(even, low, odd));
      _mm512_storeu_si512(to + d + kLanes, _mm512_permutex2var_epi16(even, high, odd));
    }
    for (; d < columns; d += kLanes) {
      store_up_to(to + d, interleave(a + d, b + d, columns - d), columns - d);
    }
  }
  // The same from two vectors of floats.
  static CENOTE_INLINE Vec pair(Vec a, Vec b) {
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                           8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i halves = (__m512i)_mm512_cvtne2ps_pbh(b.v, a.v);
    return {_mm512_castsi512_ps(_mm512_permutexvar_epi16(order, halves))};
  }
};
using NativeBf16Dot = Bf16Dot;
#else
using NativeBf16Dot = F32Dot;  // rows are widened first
#endif

// sums[r][c] += Σ over steps of row r's word × the panel's column vector c.
template <class Dot, int R, int C>
CENOTE_INLINE void multiply(const char* rows, int64_t row_bytes, int64_t step_bytes,
                            const float* panel, int64_t steps, Vec (&sums)[R][C]) {
  const char* row[R];
  for (int r = 0; r < R; ++r) row[r] = rows + r * row_bytes;
  int64_t offset = 0;
  for (int64_t s = 0; s < steps; ++s, offset += step_bytes, panel += C * kLanes) {
    Vec column[C];
    for (int c = 0; c < C; ++c) column[c] = load(panel + c * kLanes);
    for (int r = 0; r < R; ++r) {
      const Vec word = Dot::broadcast(row[r] + offset);
      for (int c = 0; c < C; ++c) sums[r][c] = Dot::multiply_add(word, column[c], sums[r][c]);
    }
  }
}

template <int R, int C>
CENOTE_INLINE void clear(Vec (&sums)[R][C]) {
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) sums[r][c] = zero();
  }
}

template <int C>
CENOTE_INLINE void set_all(Vec (&vectors)[C], Vec value) {
  for (int c = 0; c < C; ++c) vectors[c] = value;
}

// Rows of T as the columns of a panel; columns beyond `rows` are zero.
template <class Dot, int C, class T>
void pack_columns(const T* x, int64_t stride, int64_t rows, int64_t steps, float* panel) {
  for (int c = 0; c < C; ++c) {
    const int64_t here = at_most(at_least(rows - c * kLanes, 0), kLanes);
    for (int64_t step = 0; step < steps; step += kLanes) {
      Vec words[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        words[i] = i < here ? Dot::words(x + (c * kLanes + i) * stride, step, steps - step) : zero();
      }
      transpose(words);
      const int64_t count = at_most(kLanes, steps - step);
      for (int64_t i = 0; i < count; ++i) {
        store(panel + ((step + i) * C + c) * kLanes, words[i]);
      }
    }
  }
}

// Calls f.operator()<N>(at) for tiles of N = 1 … R rows that cover [from, to). A short end is split
// evenly: two tiles of middling height keep more sums in flight than a full one and a sliver.
template <int R, class F>
CENOTE_INLINE void one_tile(int64_t rows, int64_t at, F& f) {
  if (rows == R) {
    f.template operator()<R>(at);
  } else if constexpr (R > 1) {
    one_tile<R - 1>(rows, at, f);
  }
}

template <int R, class F>
CENOTE_INLINE void in_tiles(int64_t from, int64_t to, F&& f) {
  for (; to - from >= 2 * R; from += R) f.template operator()<R>(from);
  if (to - from > R) {
    const int64_t half = (to - from + 1) / 2;
    one_tile<R>(half, from, f);
    from += half;
  }
  one_tile<R>(to - from, from, f);
}

}  // namespace cenote::CENOTE_ISA
