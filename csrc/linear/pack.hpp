// Weights into the order that the engines read: [panel][step][column of the panel][inputs of the
// step], everything zero-padded; quantised per output where the kind asks for it.
// Knows nothing of rows.
#pragma once

#include <algorithm>
#include <cmath>

#include "../memory.hpp"
#include "../threads.hpp"
#include "engine.hpp"

namespace cenote::CENOTE_ISA {

// Packed column → row of the source matrix, or -1 for padding.
inline int64_t source_row(const PackedWeight& weight, int64_t column) {
  if (!weight.halves) return column < weight.out_features ? column : -1;
  const int64_t half = weight.out_features / 2, packed_half = weight.packed_columns / 2;
  const int64_t within = column % packed_half;
  return within < half ? column / packed_half * half + within : -1;
}

template <class T>
float scale_of(const T* row, int64_t count) {
  float top = 0;
  for (int64_t k = 0; k < count; ++k) top = std::max(top, std::fabs(to_float(row[k])));
  return top / 127.0f;
}

template <class Dot, class T>
void pack_column(const T* row, int64_t count, float scale, char* panel, int column,
                 int32_t* column_sum) {
  using Weight = typename Dot::Weight;
  const float factor = scale > 0 ? 1.0f / scale : 0.0f;
  int32_t sum = 0;
  for (int64_t k = 0; k < count; ++k) {
    const float x = to_float(row[k]);
    char* at = panel + (k / Dot::kDepth * kPanel + column) * 4 + k % Dot::kDepth * sizeof(Weight);
    Weight value;
    if constexpr (kQuantised<Dot>) {
      value = static_cast<Weight>(std::clamp(std::nearbyint(x * factor), -127.0f, 127.0f));
      sum += value;
    } else if constexpr (sizeof(Weight) == 2) {
      value = to_bf16(x).bits;
    } else {
      value = x;
    }
    std::memcpy(at, &value, sizeof(value));
  }
  if constexpr (kQuantised<Dot>) *column_sum = Dot::kOffset * sum;
}

template <class T>
T* zeroed_columns(const PackedWeight& weight) {
  return static_cast<T*>(aligned_zeroed(weight.packed_columns * sizeof(T)));
}

template <class Dot, class T>
void pack_weight(PackedWeight& weight, const T* source, const float* bias) {
  const int64_t parts = weight.halves ? 2 : 1;
  const auto panels_for = [](int64_t columns) { return (columns + kPanel - 1) / kPanel; };
  const int64_t panels = parts * panels_for(weight.out_features / parts);
  const int64_t chunks = (weight.in_features + kChunk<Dot> - 1) / kChunk<Dot>;
  weight.panel_count = panels;
  weight.packed_columns = panels * kPanel;
  weight.panel_bytes = chunks * kChunkSteps<Dot> * kPanel * 4;
  weight.panels = aligned_zeroed(panels * weight.panel_bytes);
  weight.bias = zeroed_columns<float>(weight);
  if constexpr (kQuantised<Dot>) {
    weight.scales = zeroed_columns<float>(weight);
    weight.column_sums = zeroed_columns<int32_t>(weight);
  }
  parallel_for(panels, [&](int64_t p, int) {
    char* panel = static_cast<char*>(weight.panels) + p * weight.panel_bytes;
    for (int c = 0; c < kPanel; ++c) {
      const int64_t column = p * kPanel + c, from = source_row(weight, column);
      if (from < 0) continue;
      const T* row = source + from * weight.in_features;
      float scale = 0;
      int32_t* sum = nullptr;
      if constexpr (kQuantised<Dot>) {
        scale = weight.scales[column] = scale_of(row, weight.in_features);
        sum = weight.column_sums + column;
      }
      pack_column<Dot>(row, weight.in_features, scale, panel, c, sum);
      if (bias) weight.bias[column] = bias[from];
    }
  });
}

}  // namespace cenote::CENOTE_ISA
