// What happens to a tile of sums before it leaves the L1 cache: dequantisation, bias, activation,
// gate, residual, and the store. Knows nothing of where tiles come from.
//
// These functions see one row after the other in vectors of one width, so that the size of the tile
// can't change a result.
#pragma once

#include "activation.hpp"
#include "rows.hpp"

namespace cenote::CENOTE_ISA {

// A tile as the engine left it, [rows][columns] words of 32 bits, and its place in the block.
struct Tile {
  char* words;
  int rows;
  int columns;
  int64_t index;         // within the block
  int64_t first_row;     // within the block
  int64_t first_column;  // among the packed columns

  float* at(int row, int column) const {
    return reinterpret_cast<float*>(words) + row * columns + column;
  }
};

// What a vector of columns has in common for all rows.
template <class Dot, bool = kQuantised<Dot>>
struct Column {
  Vec bias;
  Column() = default;
  Column(const PackedWeight& weight, int64_t at) : bias(load(weight.bias + at)) {}
  CENOTE_INLINE Vec value(const float* sums, Vec) const { return load(sums) + bias; }
};

template <class Dot>
struct Column<Dot, true> {
  Vec bias, scale;
  IntV offset;
  Column() = default;
  Column(const PackedWeight& weight, int64_t at)
      : bias(load(weight.bias + at)),
        scale(load(weight.scales + at)),
        offset(load_words(weight.column_sums + at)) {}
  CENOTE_INLINE Vec value(const float* sums, Vec row_scale) const {
    return fma(to_floats(load_words(sums) - offset), scale * row_scale, bias);
  }
};

// One row's share of a panel.
using PanelRow = Vec[kPanelVectors];

CENOTE_INLINE void store_panel(float* to, const PanelRow& x) {
  for (int v = 0; v < kPanelVectors; ++v) store(to + v * kLanes, x[v]);
}

// One wide store where there is one: each narrow one costs the product behind it some cycles.
CENOTE_INLINE void store_panel(bf16* to, const PanelRow& x) {
#if CENOTE_LEVEL >= CENOTE_LEVEL_AVX512_BF16
  _mm512_storeu_si512(to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(x[1].v, x[0].v)));
#else
  for (int v = 0; v < kPanelVectors; ++v) store(to + v * kLanes, x[v]);
#endif
}

// A sink is where tiles go. `sink.panel(tile, c)` is the place of the panel that starts in column c
// of the tile, and its `put(row, x)` takes one row of it, of which it may want the first floats.

// Some rows of a tile.
struct TileRows {
  int first, last;
};

// Puts f(sums + bias) of these rows of each panel of the tile into the sink.
template <class Dot, Activation kActivation, class Sink>
void finish_as(const Tile& tile, TileRows rows, const PackedWeight& weight, const float* row_scales,
               const Sink& sink) {
  constexpr bool kCoarse = !std::is_same_v<typename Dot::Weight, float>;
  for (int panel = 0; panel < tile.columns; panel += kPanel) {
    Column<Dot> columns[kPanelVectors];
    for (int v = 0; v < kPanelVectors; ++v) {
      columns[v] = Column<Dot>(weight, tile.first_column + panel + v * kLanes);
    }
    const auto place = sink.panel(tile, panel);
    const float* sums = tile.at(rows.first, panel);
    for (int r = rows.first; r < rows.last; ++r, sums += tile.columns) {
      const Vec row_scale = kQuantised<Dot> ? set1(row_scales[tile.first_row + r]) : zero();
      PanelRow x;
      for (int v = 0; v < kPanelVectors; ++v) {
        x[v] = activate<kActivation, kCoarse>(columns[v].value(sums + v * kLanes, row_scale));
      }
      place.put(r, x);
    }
  }
}

template <class Dot, class Sink>
void finish(const Tile& tile, TileRows rows, const PackedWeight& weight, const float* row_scales,
            Activation activation, const Sink& sink) {
  with_activation(activation, [&](auto constant) {
    finish_as<Dot, decltype(constant)::value>(tile, rows, weight, row_scales, sink);
  });
}

// Back into the tile, for one that another tile will be multiplied with.
struct InPlace {
  struct Place {
    float* data;
    int64_t stride;
    CENOTE_INLINE void put(int r, const PanelRow& x) const { store_panel(data + r * stride, x); }
  };
  Place panel(const Tile& tile, int c) const { return {tile.at(0, c), tile.columns}; }
};

// Rows of results, [rows][columns], and what is added to them, [rows][columns] side by side.
template <class T>
struct Output {
  T* data;
  const float* residual;  // or null
  int64_t columns, stride;

  struct Place {
    T* data;
    const float* residual;
    int64_t stride, residual_stride;
    int64_t lanes;
    CENOTE_INLINE void put(int r, PanelRow& x) const {
      const int64_t at = r * stride;
      for (int v = 0; v < kPanelVectors && residual && v * kLanes < lanes; ++v) {
        x[v] = x[v] + load_up_to(residual + r * residual_stride + v * kLanes, lanes - v * kLanes);
      }
      if (lanes >= kPanel) return store_panel(data + at, x);
      for (int v = 0; v * kLanes < lanes; ++v) {
        store_up_to(data + at + v * kLanes, x[v], lanes - v * kLanes);
      }
    }
  };

  Place panel(const Tile& tile, int c) const {
    const int64_t column = tile.first_column + c;
    const float* addends = residual ? residual + tile.first_row * columns + column : nullptr;
    return {data + tile.first_row * stride + column, addends, stride, columns, columns - column};
  }
};

}  // namespace cenote::CENOTE_ISA
