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

// Calls `emit(row, column, value)` with f(sums + bias) for each vector of the tile.
template <class Dot, Activation kActivation, class Emit>
void finish_as(const Tile& tile, const PackedWeight& weight, const float* row_scales,
               const Emit& emit) {
  constexpr bool kCoarse = !std::is_same_v<typename Dot::Weight, float>;
  for (int panel = 0; panel < tile.columns; panel += kPanel) {
    Column<Dot> columns[kPanelVectors];
    for (int v = 0; v < kPanelVectors; ++v) {
      columns[v] = Column<Dot>(weight, tile.first_column + panel + v * kLanes);
    }
    for (int r = 0; r < tile.rows; ++r) {
      const Vec row_scale = kQuantised<Dot> ? set1(row_scales[tile.first_row + r]) : zero();
      for (int v = 0; v < kPanelVectors; ++v) {
        const int c = panel + v * kLanes;
        const Vec sum = columns[v].value(tile.at(r, c), row_scale);
        emit(r, c, activate<kActivation, kCoarse>(sum));
      }
    }
  }
}

template <class Dot, class Emit>
void finish(const Tile& tile, const PackedWeight& weight, const float* row_scales,
            Activation activation, const Emit& emit) {
  with_activation(activation, [&](auto constant) {
    finish_as<Dot, decltype(constant)::value>(tile, weight, row_scales, emit);
  });
}

// The same in place, for a tile that another one will be multiplied with.
template <class Dot>
void finish_in_place(const Tile& tile, const PackedWeight& weight, const float* row_scales,
                     Activation activation) {
  finish<Dot>(tile, weight, row_scales, activation,
              [&](int r, int c, Vec x) { store(tile.at(r, c), x); });
}

// Rows of results, [rows][columns], and what is added to them.
template <class T>
struct Output {
  T* data;
  const float* residual;  // null, or laid out like data
  int64_t columns;

  template <class Dot>
  void write(const Tile& tile, const PackedWeight& weight, const float* row_scales,
             Activation activation) const {
    const int64_t start = tile.first_row * columns + tile.first_column;
    const int64_t left = columns - tile.first_column;
    if (residual) {
      finish<Dot>(tile, weight, row_scales, activation, [&](int r, int c, Vec x) {
        if (c >= left) return;
        const int64_t at = start + r * columns + c;
        store_up_to(data + at, x + load_up_to(residual + at, left - c), left - c);
      });
    } else {
      finish<Dot>(tile, weight, row_scales, activation, [&](int r, int c, Vec x) {
        if (c < left) store_up_to(data + start + r * columns + c, x, left - c);
      });
    }
  }
};

}  // namespace cenote::CENOTE_ISA
