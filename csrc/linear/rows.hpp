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

// Copies `count` values into `row` as float32, with zeros up to `padded`.
template <class T>
void read_row(const T* from, int64_t count, int64_t padded, float* row) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(row + i, load(from + i));
  if (i < count) {
    store(row + i, load_n(from + i, count - i));
    i += kLanes;
  }
  for (; i < padded; i += kLanes) store(row + i, zero());
}

// Nearest integers, ties to even, for |x| < 2^22: adding 1.5 · 2^23 leaves no room for a fraction.
CENOTE_INLINE IntV nearest(Vec x) {
  const Vec shift = set1(12582912.0f);
  return reinterpret_cast<IntV>((x + shift).v) - 0x4b400000;
}

template <class Dot>
void quantise(const float* row, int64_t padded, char* to, int64_t chunk_stride, float* scale) {
  Vec largest = zero();
  for (int64_t i = 0; i < padded; i += kLanes) largest = max(largest, abs(load(row + i)));
  const float top = reduce_max(largest);
  *scale = top / 127.0f;
  const Vec factor = set1(top > 0 ? 127.0f / top : 0.0f);
  typedef typename Dot::Element Elements
      __attribute__((vector_size(kLanes * sizeof(typename Dot::Element))));
  for (int64_t i = 0; i < padded; i += kLanes) {
    const IntV whole = nearest(load(row + i) * factor) + Dot::kOffset;
    const Elements narrow_values = __builtin_convertvector(whole, Elements);
    char* at = to + i / kChunk<Dot> * chunk_stride + i % kChunk<Dot> * sizeof(typename Dot::Element);
    std::memcpy(at, &narrow_values, sizeof(narrow_values));
  }
}

// Where column `i` of a packed row lies, counted from the row's first chunk.
template <class E>
CENOTE_INLINE int64_t packed_offset(int64_t i) {
  using Dot = typename E::Dot;
  return i / kChunk<Dot> * PackedRows<E>::kChunkStride +
         i % kChunk<Dot> * int64_t(sizeof(typename Dot::Element));
}

// One vector of a row that isn't quantised.
template <class E>
CENOTE_INLINE void store_packed(char* row, int64_t i, Vec x) {
  char* at = row + packed_offset<E>(i);
  if constexpr (std::is_same_v<typename E::Dot::Element, float>) {
    store(reinterpret_cast<float*>(at), x);
  } else {
    store(reinterpret_cast<bf16*>(at), x);
  }
}

// `row` has zeros up to the padded length.
template <class E>
void pack_row(const float* row, const PackedRows<E>& block, int64_t index, char* to) {
  using Dot = typename E::Dot;
  if constexpr (kQuantised<Dot>) {
    quantise<Dot>(row, block.padded_features(), to, block.kChunkStride, block.scales + index);
  } else {
    for (int64_t i = 0; i < block.padded_features(); i += kLanes) {
      store_packed<E>(to, i, load(row + i));
    }
  }
}

}  // namespace cenote::CENOTE_ISA
