// Rows of activations on their way into a product: read, converted or quantised, and laid out as the
// engines read them. Knows nothing of weights or threads.
//
// Layout: [tile][chunk][row of the tile][64 bytes]. A chunk of a row is one cache line, so packing is
// a plain copy, an engine walks through a tile in one ascending stream, and neither a power-of-two
// row length nor the tile unit's row stride is ever a special case.
#pragma once

#include <algorithm>

#include "../memory.hpp"
#include "../rows.hpp"
#include "engine.hpp"

namespace cenote::CENOTE_ISA {

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Splits rows over tiles as evenly as the engine's row step allows.
template <class E>
struct Tiling {
  int64_t rows, tiles, units_each, longer;

  explicit Tiling(int64_t row_count) : rows(row_count) {
    const int64_t units = divide_up(rows, E::kRowStep);
    tiles = divide_up(units, E::kTileRows / E::kRowStep);
    units_each = tiles ? units / tiles : 0;
    longer = tiles ? units % tiles : 0;
  }
  int64_t start(int64_t tile) const {
    return std::min(rows, (tile * units_each + std::min(tile, longer)) * E::kRowStep);
  }
  int size(int64_t tile) const { return static_cast<int>(start(tile + 1) - start(tile)); }
};

// A block of packed rows in somebody's scratch memory.
template <class E>
struct PackedRows {
  using Dot = typename E::Dot;
  Tiling<E> tiling;
  int64_t chunks;
  char* data;
  float* scales;  // of quantised rows: what one unit is worth

  static constexpr int64_t kChunkStride = int64_t{E::kTileRows} * kChunkBytes;

  static int64_t chunks_of(int64_t features) { return divide_up(features, kChunk<Dot>); }

  static size_t bytes(int64_t rows, int64_t features) {
    const size_t tiles = Tiling<E>(rows).tiles;
    return tiles * chunks_of(features) * kChunkStride + scale_bytes(rows);
  }

  PackedRows(Scratch& scratch, int64_t rows, int64_t features)
      : tiling(rows), chunks(chunks_of(features)) {
    data = scratch.take<char>(tiling.tiles * chunks * kChunkStride);
    scales = scratch.take<float>(rows);
  }

  char* tile(int64_t index) const { return data + index * chunks * kChunkStride; }
  int64_t padded_features() const { return chunks * kChunk<Dot>; }

  // Calls `visit(row, address of its first chunk)` for rows of the block in [first, last).
  template <class Visit>
  void each_row(int64_t first, int64_t last, Visit visit) const {
    for (int64_t t = 0; t < tiling.tiles; ++t) {
      const int64_t start = tiling.start(t);
      const int64_t from = std::max(first, start), to = std::min(last, tiling.start(t + 1));
      for (int64_t row = from; row < to; ++row) visit(row, tile(t) + (row - start) * kChunkBytes);
    }
  }

  // An engine with a coarse row step reads rows behind the last one.
  void clear_padding_rows() const {
    if constexpr (E::kRowStep > 1) {
      const int64_t t = tiling.tiles - 1;
      const int used = tiling.size(t);
      const int padded = static_cast<int>(round_up(used, E::kRowStep));
      for (int64_t c = 0; c < chunks; ++c) {
        std::memset(tile(t) + c * kChunkStride + used * kChunkBytes, 0,
                    size_t(padded - used) * kChunkBytes);
      }
    }
  }

 private:
  static size_t scale_bytes(int64_t rows) { return round_up(rows * sizeof(float), kCacheLine); }
};

// --- one row -------------------------------------------------------------------------------------

// Rows to fetch ahead: they come from far away, and the hardware's own guess ends with each page.
constexpr int64_t kRowsAhead = 6;

// Fetches `bytes` of `count` rows, `stride` bytes apart, to be read soon.
CENOTE_INLINE void fetch_rows(const void* first, int64_t stride, int64_t count, int64_t bytes) {
  const char* row = static_cast<const char*>(first);
  for (int64_t r = 0; r < count; ++r, row += stride) {
    for (int64_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(row + at, 0, 3);
  }
}

// The vector at `i` of a row of `count` values, zeros behind its end.
template <class T>
CENOTE_INLINE Vec load_padded(const T* row, int64_t i, int64_t count) {
  return i < count ? load_up_to(row + i, count - i) : zero();
}

// Where column `i` of a packed row lies, counted from the row's first chunk.
template <class E>
CENOTE_INLINE int64_t packed_offset(int64_t i) {
  using Dot = typename E::Dot;
  return i / kChunk<Dot> * PackedRows<E>::kChunkStride +
         i % kChunk<Dot> * int64_t(sizeof(typename Dot::Element));
}

// What rows that aren't quantised are made of.
template <class Dot>
using PackedElement = std::conditional_t<std::is_same_v<typename Dot::Element, float>, float, bf16>;

// The factor that brings the row's largest value to 127, and its inverse in `scale`.
template <class T>
float quantising_factor(const T* row, int64_t count, float* scale) {
  Vec largest[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (int v = 0; v < 4; ++v) largest[v] = max(largest[v], abs(load(row + i + v * kLanes)));
  }
  for (; i < count; i += kLanes) largest[0] = max(largest[0], abs(load_padded(row, i, count)));
  const float top = reduce_max(max(max(largest[0], largest[1]), max(largest[2], largest[3])));
  *scale = top / 127.0f;
  return top > 0 ? 127.0f / top : 0.0f;
}

// The low bytes of each word.
template <class Element>
CENOTE_INLINE void store_low(char* at, IntV words) {
#if CENOTE_LEVEL >= CENOTE_LEVEL_AVX512
  const __m512i whole = reinterpret_cast<__m512i>(words);
  if constexpr (sizeof(Element) == 1) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm512_cvtepi32_epi8(whole));
  } else {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm512_cvtepi32_epi16(whole));
  }
#else
  typedef Element Elements __attribute__((vector_size(kLanes * sizeof(Element))));
  const Elements low = __builtin_convertvector(words, Elements);
  std::memcpy(at, &low, sizeof(low));
#endif
}

// The nearest integers, ties to even, of |x · factor| < 2^15, plus the offset of the rows. Adding
// 1.5 · 2^23 leaves no room for a fraction, and the integer is what the lowest bits hold.
template <class Dot>
CENOTE_INLINE void store_quantised(char* at, Vec x, Vec factor) {
  const Vec shifted = fma(x, factor, set1(12582912.0f + Dot::kOffset));
  store_low<typename Dot::Element>(at, reinterpret_cast<IntV>(shifted.v));
}

// One chunk of a packed row; `factor` only where rows are quantised.
template <class E, class Load>
CENOTE_INLINE void pack_chunk(char* to, Vec factor, const Load& vector_at) {
  using Dot = typename E::Dot;
#pragma GCC unroll 16
  for (int i = 0; i < kChunk<Dot>; i += kLanes) {
    char* at = to + i * sizeof(typename Dot::Element);
    if constexpr (kQuantised<Dot>) {
      store_quantised<Dot>(at, vector_at(i), factor);
    } else {
      store(reinterpret_cast<PackedElement<Dot>*>(at), vector_at(i));
    }
  }
}

// Packs a row of `count` values as row `index` of the block, whose first chunk is at `to`.
template <class E, class T>
void pack_row(const T* row, int64_t count, const PackedRows<E>& block, int64_t index, char* to) {
  using Dot = typename E::Dot;
  Vec factor = zero();
  if constexpr (kQuantised<Dot>) {
    factor = set1(quantising_factor(row, count, block.scales + index));
  }
  const int64_t whole = count / kChunk<Dot>;
  for (int64_t c = 0; c < whole; ++c, row += kChunk<Dot>, to += PackedRows<E>::kChunkStride) {
    pack_chunk<E>(to, factor, [&](int i) { return load(row + i); });
  }
  const int64_t left = count - whole * kChunk<Dot>;
  if (left) pack_chunk<E>(to, factor, [&](int i) { return load_padded(row, i, left); });
}

}  // namespace cenote::CENOTE_ISA
