// What happens to a tile of sums before it leaves the L1 cache: dequantisation, bias, activation,
// gate, residual, and the store. Knows nothing of where tiles come from.
//
// These functions see one row after the other in vectors of one width, so that the size of the tile
// can't change a result.
#pragma once

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

// sums → f(sums + bias), in place, float32 afterwards.
template <class Dot, class Function>
void apply(const Tile& tile, const PackedWeight& weight, const float* row_scales, Function f) {
  for (int c = 0; c < tile.columns; c += kLanes) {
    const int64_t column = tile.first_column + c;
    const Vec bias = load(weight.bias + column);
    if constexpr (kQuantised<Dot>) {
      const IntV offset = load_words(weight.column_sums + column);
      const Vec scale = load(weight.scales + column);
      for (int r = 0; r < tile.rows; ++r) {
        const Vec whole = to_floats(load_words(tile.at(r, c)) - offset);
        const Vec unit = scale * set1(row_scales[tile.first_row + r]);
        store(tile.at(r, c), f(fma(whole, unit, bias)));
      }
    } else {
      for (int r = 0; r < tile.rows; ++r) {
        store(tile.at(r, c), f(load(tile.at(r, c)) + bias));
      }
    }
  }
}

template <class Dot>
void apply(const Tile& tile, const PackedWeight& weight, const float* row_scales,
           Activation activation) {
  const auto with = [&](auto f) { apply<Dot>(tile, weight, row_scales, f); };
  switch (activation) {
    case Activation::none: return with([](Vec x) { return x; });
    case Activation::relu: return with([](Vec x) { return relu(x); });
    case Activation::gelu_erf: return with([](Vec x) { return gelu_erf(x); });
    case Activation::gelu_tanh: return with([](Vec x) { return gelu_tanh(x); });
    case Activation::silu: return with([](Vec x) { return silu(x); });
    case Activation::tanh: return with([](Vec x) { return tanh(x); });
    case Activation::quick_gelu:
      return with([](Vec x) { return x * sigmoid(x * set1(1.702f)); });
  }
}

// Rows of results, [rows][columns], and what is added to them.
template <class T>
struct Output {
  T* data;
  const float* residual;  // null, or laid out like data
  int64_t columns;

  void write(const Tile& tile) const {
    const int64_t left = columns - tile.first_column;
    for (int r = 0; r < tile.rows; ++r) {
      const int64_t at = (tile.first_row + r) * columns + tile.first_column;
      for (int c = 0; c < tile.columns && c < left; c += kLanes) {
        Vec x = load(tile.at(r, c));
        if (residual) x = x + load_up_to(residual + at + c, left - c);
        store_up_to(data + at + c, x, left - c);
      }
    }
  }
};

}  // namespace cenote::CENOTE_ISA
