// Rows that a product reads: where they lie, the norm in front, and how they get into the packed
// form. Knows nothing of weights, results or threads.
#pragma once

#include "rows.hpp"

namespace cenote::CENOTE_ISA {

struct Input {
  const void* x;
  DType dtype;
  int64_t stride;
  int64_t features;
  const NormArgs* norm;
};

// Packs rows [first, last) of the block, which begins at row `offset` of `x`.
template <class E, class T>
void pack_rows_of(const Input& input, const T* x, int64_t offset, const PackedRows<E>& block,
                  int64_t first, int64_t last, float* buffer) {
  x += offset * input.stride;
  const auto fetch = [&](int64_t row, int64_t rows) {
    fetch_rows(x + row * input.stride, input.stride * sizeof(T), rows, input.features * sizeof(T));
  };
  fetch(first, std::min(kRowsAhead, last - first));
  block.each_row(first, last, [&](int64_t row, char* to) {
    if (row + kRowsAhead < last) fetch(row + kRowsAhead, 1);
    const T* from = x + row * input.stride;
    if (!input.norm) return pack_row(from, input.features, block, row, to);
    rows::normalise_into(from, input.features, *input.norm, buffer);
    pack_row(buffer, input.features, block, row, to);
  });
  if (last == block.tiling.rows) block.clear_padding_rows();
}

// The same for either type; `buffer` has room for a row.
template <class E>
void pack_rows(const Input& input, int64_t offset, const PackedRows<E>& block, int64_t first,
               int64_t last, float* buffer) {
  if (input.dtype == DType::f32) {
    pack_rows_of(input, static_cast<const float*>(input.x), offset, block, first, last, buffer);
  } else {
    pack_rows_of(input, static_cast<const bf16*>(input.x), offset, block, first, last, buffer);
  }
}

}  // namespace cenote::CENOTE_ISA
