// What lies between the two products of an MLP: the activated, perhaps gated rows, packed for the
// second one. Knows nothing of threads or of what follows.
#pragma once

#include "finish.hpp"
#include "sharing.hpp"

namespace cenote::CENOTE_ISA {

// The activation between the two products, or the columns of it from `first_column` on. Rows that will
// be quantised must be complete first, so they wait as float32; others are written straight into the
// packed form.
template <class E>
class Middle {
 public:
  using Dot = typename E::Dot;

  static size_t bytes(int64_t rows, int64_t features, int64_t packed_columns) {
    const size_t waiting = kQuantised<Dot> ? rows * stride_for(features, packed_columns) : 0;
    return packed_bytes<E>(rows, features) + waiting * sizeof(float);
  }

  Middle(Scratch& scratch, int64_t rows, int64_t features, int64_t packed_columns)
      : packed(scratch, rows, features),
        features_(features),
        stride_(stride_for(features, packed_columns)) {
    if constexpr (kQuantised<Dot>) waiting_ = scratch.take<float>(rows * stride_);
  }

  // Columns that the first product doesn't reach must be zeros for the second.
  void clear_padding(int64_t first, int64_t last) const {
    packed.each_row(first, last, [&](int64_t row, char* to) {
      if constexpr (kQuantised<Dot>) {
        std::fill(waiting_ + row * stride_ + features_, waiting_ + (row + 1) * stride_, 0.0f);
      } else {
        std::memset(to + (packed.chunks - 1) * packed.kChunkStride, 0, kChunkBytes);
      }
    });
    if (last == packed.tiling.rows) packed.clear_padding_rows();
  }

  struct Place {
    char* data;
    int64_t stride;      // bytes from row to row
    const float* other;  // null, or what is multiplied with
    int64_t other_stride;
    int64_t lanes;
    CENOTE_INLINE void put(int r, PanelRow& x) const {
      char* const to = data + r * stride;
      const float* const factors = other + r * other_stride;
      for (int v = 0; other && v < kPanelVectors; ++v) x[v] = x[v] * load(factors + v * kLanes);
      if constexpr (kQuantised<Dot>) {
        store_panel(reinterpret_cast<float*>(to), x);
      } else if constexpr (kChunk<Dot> >= kPanel) {
        store_panel(reinterpret_cast<PackedElement<Dot>*>(to), x);
      } else {
        for (int v = 0; v < kPanelVectors && v * kLanes < lanes; ++v) {
          store(reinterpret_cast<PackedElement<Dot>*>(to + packed_offset<E>(v * kLanes)), x[v]);
        }
      }
    }
  };

  // The product's tiles are the packed rows' tiles: both split the same block.
  Place panel(const Tile& tile, int c) const {
    const int64_t column = tile.first_column + c - first_column;
    if constexpr (kQuantised<Dot>) {
      float* to = waiting_ + tile.first_row * stride_ + column;
      return {reinterpret_cast<char*>(to), stride_ * int64_t{sizeof(float)}, nullptr, 0, kPanel};
    } else {
      return {packed.tile(tile.index) + packed_offset<E>(column), kChunkBytes, nullptr, 0,
              packed.padded_features() - column};
    }
  }

  void quantise_rows(int64_t first, int64_t last) const {
    if constexpr (kQuantised<Dot>) {
      packed.each_row(first, last, [&](int64_t row, char* to) {
        pack_row(waiting_ + row * stride_, features_, packed, row, to);
      });
    }
  }

  const PackedRows<E> packed;
  int64_t first_column = 0;

 private:
  static int64_t stride_for(int64_t features, int64_t packed_columns) {
    return std::max(packed_columns, PackedRows<E>::chunks_of(features) * kChunk<Dot>);
  }

  int64_t features_;
  int64_t stride_;
  float* waiting_ = nullptr;
};

// A place in the middle for one tile times another.
template <class E>
struct Gated {
  using Place = typename Middle<E>::Place;
  const Middle<E>& middle;
  const Tile& other;

  Place panel(const Tile& tile, int c) const {
    Place place = middle.panel(tile, c);
    place.other = other.at(0, c);
    place.other_stride = other.columns;
    return place;
  }
};

// The tiles of the first product on their way into the middle.
template <class E>
struct MiddleTiles {
  using Dot = typename E::Dot;
  const Middle<E>& middle;
  const PackedRows<E>& block;
  const PackedWeight& up;
  Activation activation;
  Gate gate;

  void take(const Tile& tile, const Tile* other, TileRows rows) const {
    if (!other) return finish<Dot>(tile, rows, up, block.scales, activation, middle);
    const bool first_acts = gate == Gate::first;
    finish<Dot>(*other, rows, up, block.scales, first_acts ? Activation::none : activation,
                InPlace{});
    finish<Dot>(tile, rows, up, block.scales, first_acts ? activation : Activation::none,
                Gated<E>{middle, *other});
  }
};

}  // namespace cenote::CENOTE_ISA
