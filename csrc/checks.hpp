// What the binding files check: things that a wrong call would turn into a crash. Failures raise
// ValueError, or IndexError where an index is outside its table.
#pragma once

#include <stdexcept>

#include "bindings.hpp"
#include "kernels.hpp"

namespace cenote {

inline void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

inline DType checked_dtype(int code) {
  require(code == 0 || code == 1, "dtype must be F32 or BF16");
  return static_cast<DType>(code);
}

inline Activation checked_activation(int code) {
  require(code >= 0 && code <= static_cast<int>(Activation::quick_gelu), "unknown activation");
  return static_cast<Activation>(code);
}

// Raises unless the two weights make an MLP with such a gate.
inline Gate checked_gate(int gated, const PackedWeight& up, const PackedWeight& down) {
  require(gated >= 0 && gated <= 2, "gated must be 0, 1 or 2");
  require((gated != 0) == up.halves, "a gated MLP's up matrix must be packed with halves=True");
  require(!down.halves, "the down matrix can't be packed in halves");
  require(down.in_features == up.out_features / (gated ? 2 : 1), "up and down don't fit");
  require(up.kernels == down.kernels && up.kind == down.kind,
          "up and down must be packed for one level and kind");
  return static_cast<Gate>(gated);
}

inline void check_heads(int64_t heads, int64_t kv_heads, int64_t head_dim, float scale) {
  require(heads > 0 && kv_heads > 0 && heads % kv_heads == 0,
          "heads must be a multiple of kv_heads");
  require(head_dim > 0 && head_dim % 8 == 0 && head_dim <= 256,
          "head_dim must be a multiple of 8 up to 256");
  require(scale > 0, "attention's scale must be above 0");
}

inline void check_rotary(int64_t rotary_dim, int64_t head_dim) {
  require(rotary_dim >= 0 && rotary_dim % 2 == 0 && rotary_dim <= head_dim,
          "rotary_dim must be even and at most head_dim");
}

inline void check_offsets(const int32_t* cu, int64_t count, const char* message) {
  for (int64_t i = 0; i < count; ++i) require(cu[0] >= 0 && cu[i] <= cu[i + 1], message);
}

template <class Index>
void check_indices(const Index* indices, int64_t count, int64_t size, const char* message) {
  for (int64_t i = 0; i < count; ++i) {
    if (indices[i] < 0 || indices[i] >= size) throw std::out_of_range(message);
  }
}

}  // namespace cenote
