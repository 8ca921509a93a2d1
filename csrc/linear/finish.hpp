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

// A sink is where tiles go. `sink.column(tile, c)` is the place of the vector that starts in column c
// of the tile: `lanes`, how many of its floats are wanted (none where it is 0 or less), and
// `put(row, x)`.

// Puts f(sums + bias) of each vector of the tile into the sink.
template <class Dot, Activation kActivation, class Sink>
void finish_as(const Tile& tile, const PackedWeight& weight, const float* row_scales,
               const Sink& sink) {
  constexpr bool kCoarse = !std::is_same_v<typename Dot::Weight, float>;
  for (int panel = 0; panel < tile.columns; panel += kPanel) {
    Column<Dot> columns[kPanelVectors];
    typename Sink::Place places[kPanelVectors];
    for (int v = 0; v < kPanelVectors; ++v) {
      columns[v] = Column<Dot>(weight, tile.first_column + panel + v * kLanes);
      places[v] = sink.column(tile, panel + v * kLanes);
    }
    const float* sums = tile.at(0, panel);
    for (int r = 0; r < tile.rows; ++r, sums += tile.columns) {
      const Vec row_scale = kQuantised<Dot> ? set1(row_scales[tile.first_row + r]) : zero();
      for (int v = 0; v < kPanelVectors; ++v) {
        if (places[v].lanes <= 0) continue;
        const Vec sum = columns[v].value(sums + v * kLanes, row_scale);
        places[v].put(r, activate<kActivation, kCoarse>(sum));
      }
    }
  }
}

template <class Dot, class Sink>
void finish(const Tile& tile, const PackedWeight& weight, const float* row_scales,
            Activation activation, const Sink& sink) {
  with_activation(activation, [&](auto constant) {
    finish_as<Dot, decltype(constant)::value>(tile, weight, row_scales, sink);
  });
}

// Back into the tile, for one that another tile will be multiplied with.
struct InPlace {
  struct Place {
    float* data;
    int64_t stride;
    int64_t lanes;
    CENOTE_INLINE void put(int r, Vec x) const { store(data + r * stride, x); }
  };
  Place column(const Tile& tile, int c) const { return {tile.at(0, c), tile.columns, kLanes}; }
};

// Rows of results, [rows][columns], and what is added to them.
template <class T>
struct Output {
  T* data;
  const float* residual;  // null, or laid out like data
  int64_t columns;

  struct Place {
    T* data;
    const float* residual;
    int64_t stride;
    int64_t lanes;
    CENOTE_INLINE void put(int r, Vec x) const {
      const int64_t at = r * stride;
      if (residual) x = x + load_up_to(residual + at, lanes);
      store_up_to(data + at, x, lanes);
    }
  };

  Place column(const Tile& tile, int c) const {
    const int64_t at = start(tile) + c;
    return {data + at, residual ? residual + at : nullptr, columns,
            columns - tile.first_column - c};
  }

 private:
  int64_t start(const Tile& tile) const { return tile.first_row * columns + tile.first_column; }
};

}  // namespace cenote::CENOTE_ISA
