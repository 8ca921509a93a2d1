// The two products of attention on the tile unit. Knows nothing of softmax, masks or threads.
#pragma once

#include "attention_products.hpp"
#include "linear/amx.hpp"

namespace cenote::CENOTE_ISA::attending {

#if CENOTE_LEVEL >= CENOTE_LEVEL_AMX && defined(__AVX512BF16__)

// For head sizes that are multiples of 32. A panel of queries or weights is just what the unit wants
// as columns, and rows of keys just what it wants as rows; only the values are transposed.
struct TileProducts {
  using Dot = Bf16Dot;
  static constexpr int64_t kKeyStep = 32;  // keys in a step of the second product
  static constexpr int64_t kStepWords = 16;
  static constexpr int64_t kGroupRowBytes = kStepWords * kWordBytes;
  using Session = amx::Session;

  static int64_t padded(int64_t keys) { return (keys + kKeyStep - 1) / kKeyStep * kKeyStep; }

  static int64_t gathered_bytes(int64_t keys, int64_t dim) {
    return padded(keys) * dim * int64_t{sizeof(bf16)};
  }

  // Always a copy, with zeros for the rows of the last step that aren't there.
  static Rows gather_rows(const bf16* x, int64_t stride, int64_t rows, int64_t dim, bool,
                          char* buffer) {
    const Rows gathered = as_rows_of<bf16>(x, stride, rows, dim, false, buffer);
    std::memset(buffer + rows * gathered.step, 0, (padded(rows) - rows) * gathered.step);
    return gathered;
  }

  // Values: [group of 32 keys][dimension][16 pairs], with zeros for the keys behind the last.
  static Keys gather(const Source<bf16>& from, Span span, int64_t dim, bool once, char* keys,
                     char* values) {
    const bf16* v = from.v + span.begin * from.v_stride;
    const Rows key_rows =
        gather_rows(from.k + span.begin * from.k_stride, from.k_stride, span.size(), dim, once, keys);
    float* to = reinterpret_cast<float*>(values);
    for (int64_t start = 0; start < span.size(); start += kKeyStep, to += dim * kStepWords) {
      for (int64_t d = 0; d < dim; d += kLanes) {
        Vec words[kLanes];
        for (int i = 0; i < kLanes; ++i) {
          const int64_t pair = start / 2 + i;
          words[i] = 2 * pair < span.size()
                         ? pair_words<Dot>(v, from.v_stride, pair, span.size(), d, dim)
                         : zero();
        }
        transpose(words);
        for (int i = 0; i < kLanes; ++i) store(to + (d + i) * kStepWords, words[i]);
      }
    }
    return {key_rows, {values, dim * kGroupRowBytes}, span.begin};
  }

  // Sums of 32 rows × C · 16 columns in tiles 0 … 3; two tiles of rows and C of columns a step.
  template <int C>
  static CENOTE_INLINE void multiply_tiles(const char* rows, int64_t row_bytes, int64_t step_bytes,
                                           const float* columns, int64_t steps) {
    constexpr int64_t kColumnStride = C * kLanes * kWordBytes;
    for (int64_t s = 0; s < steps; ++s, rows += step_bytes, columns += kStepWords * C * kLanes) {
      amx::load<4>(rows, row_bytes);
      amx::load<6>(columns, kColumnStride);
      amx::dot_bf16<0, 4, 6>();
      amx::load<5>(rows + 16 * row_bytes, row_bytes);
      amx::dot_bf16<2, 5, 6>();
      if constexpr (C == 2) {
        amx::load<7>(columns + kLanes, kColumnStride);
        amx::dot_bf16<1, 4, 7>();
        amx::dot_bf16<3, 5, 7>();
      }
    }
  }

  // Where sums lie: see amx::load_sums.
  template <int C>
  struct Sums {
    static constexpr int64_t kStride = C * kLanes * kWordBytes;
    static constexpr int64_t kRight = C == 2 ? kLanes * kWordBytes : 0;
    static constexpr int64_t kBelow = 16 * kStride;
  };

  template <int C>
  static CENOTE_INLINE void store_tiles(float* out) {
    amx::store_sums(out, Sums<C>::kStride, Sums<C>::kRight, Sums<C>::kBelow);
  }

  // Fills scores up to the next multiple of kKeyStep.
  template <int C>
  static void score(const Keys& keys, Span block, const float* queries, int64_t dim, float* scores) {
    for (int64_t key = block.begin; key < block.end; key += kKeyStep) {
      amx::zero_sums();
      multiply_tiles<C>(keys.k.data + (key - keys.first) * keys.k.step, keys.k.step, kGroupRowBytes,
                        queries, dim / kKeyStep);
      store_tiles<C>(scores + (key - block.begin) * C * kLanes);
    }
  }

  template <int C>
  static void add_values(const Keys& keys, Span block, float* weights, int64_t dim,
                         const Earlier<C>& earlier, float* output) {
    const int64_t pairs = (block.size() + 1) / 2, steps = padded(block.size()) / kKeyStep;
    std::memset(weights + pairs * C * kLanes, 0,
                (steps * kStepWords - pairs) * C * kLanes * sizeof(float));
    const char* values = keys.v.data + (block.begin - keys.first) / kKeyStep * keys.v.step;
    for (int64_t d = 0; d < dim; d += 2 * kStepWords) {
      float* out = output + d * C * kLanes;
      if (earlier.none) {
        amx::zero_sums();
      } else {
        for (int64_t i = 0; earlier.correction && i < 2 * kStepWords * C; ++i) {
          store(out + i * kLanes, earlier.of(out + i * kLanes, i % C));
        }
        amx::load_sums(out, Sums<C>::kStride, Sums<C>::kRight, Sums<C>::kBelow);
      }
      multiply_tiles<C>(values + d * kGroupRowBytes, kGroupRowBytes, keys.v.step, weights, steps);
      store_tiles<C>(out);
    }
  }
};

#endif

}  // namespace cenote::CENOTE_ISA::attending
