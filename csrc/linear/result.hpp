// Where the rows of a product go, with what is added to them and the norm behind.
// Knows nothing of how the product is made or shared out.
#pragma once

#include "multiplier.hpp"

namespace cenote::CENOTE_ISA {

// Where the rows of a product go: [rows][stride] of T, or float32 first if a norm follows.
struct Result {
  void* out;
  DType dtype;
  int64_t columns;
  Activation activation;
  const float* residual;
  const NormArgs* norm;
  const float* added;      // behind the norm
  int64_t out_stride = 0;  // in elements; 0: columns, as with a norm

  int64_t stride() const { return out_stride ? out_stride : columns; }
  bool needs_rows() const { return norm && dtype != DType::f32; }
  size_t row_bytes(int64_t rows) const {
    return needs_rows() ? round_up(rows * columns * sizeof(float), kCacheLine) : 0;
  }
  // The float32 rows that the norm reads: the output itself where it can hold them.
  float* rows_for(int64_t offset, Scratch& scratch, int64_t rows) const {
    if (needs_rows()) return scratch.take<float>(rows * columns);
    return static_cast<float*>(out) + offset * stride();
  }
  // Whether the norm's pass over whole rows adds the residual. It can't where sums would overwrite it.
  bool adds_late() const { return norm && residual && residual != out; }

  // What tiles add on their way out otherwise: slower, as a few columns of many rows lie far apart.
  const float* residual_at(int64_t offset) const {
    return residual && !adds_late() ? residual + offset * columns : nullptr;
  }

  void normalise_rows(int64_t offset, float* rows, int64_t first, int64_t last) const {
    if (!norm) return;
    for (int64_t r = first; r < last; ++r) {
      float* row = rows + r * columns;
      const int64_t at = (offset + r) * columns;
      if (adds_late()) add_residual(row, residual + at, r + kRowsAhead < last);
      if (added) {
        normalise_and_add(row, at);
      } else if (dtype == DType::f32) {
        rows::normalise_into(row, columns, *norm, static_cast<float*>(out) + at);
      } else {
        rows::normalise_into(row, columns, *norm, static_cast<bf16*>(out) + at);
      }
    }
  }

 private:
  void normalise_and_add(const float* row, int64_t at) const {
    float* to = static_cast<float*>(out) + at;
    rows::normalise(row, columns, *norm, [&](int64_t i, int64_t n, Vec y) {
      store_up_to(to + i, y + load_up_to(added + at + i, n), n);
    });
  }

  void add_residual(float* row, const float* from, bool more) const {
    if (more) {
      fetch_rows(from + kRowsAhead * columns, 0, 1, columns * sizeof(float));
      fetch_rows(row + kRowsAhead * columns, 0, 1, columns * sizeof(float));
    }
    rows::each_vector(columns, [&](int64_t i, int64_t n) {
      store_up_to(row + i, load_up_to(row + i, n) + load_up_to(from + i, n), n);
    });
  }
};

// The tiles of a product of `block`, whose first row is row `offset` of the result; `rows` as
// `Result::rows_for` gave them.
template <class E, class T>
struct ResultTiles {
  Output<T> output;
  const PackedRows<E>& block;
  const PackedWeight& weight;
  Activation activation;

  void take(const Tile& tile, const Tile*, TileRows rows) const {
    finish<typename E::Dot>(tile, rows, weight, block.scales, activation, output);
  }
};

// Multiplies `block`, a slice of the inputs of rows from `offset` of the result on, with the panels
// [first, last).
template <class E>
void multiply_into(const Result& result, const PackedRows<E>& block, const PackedWeight& weight,
                   const Slice& slice, int64_t first, int64_t last, int64_t offset, float* rows) {
  const auto run = [&](auto* data) {
    using T = std::remove_pointer_t<decltype(data)>;
    const Output<T> output{data, result.residual_at(offset), result.columns, result.stride()};
    multiply<E>(block, weight, first, last, 0, slice,
                ResultTiles<E, T>{output, block, weight, result.activation});
  };
  if (result.dtype == DType::f32 || result.norm) {
    run(rows);
  } else {
    run(static_cast<bf16*>(result.out) + offset * result.stride());
  }
}

}  // namespace cenote::CENOTE_ISA
