// The two products of attention and the layouts that they want keys and values in: on vectors, or on
// the tile unit. Knows nothing of softmax, masks or threads.
//
// Scores are [key][query] and the output is [dimension][query], queries across the lanes; so keys
// and the transposed values are the rows of a product, queries and weights the columns.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "linear/amx.hpp"
#include "tile.hpp"

namespace cenote::CENOTE_ISA::attending {

struct Span {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// Rows of something, `step` bytes apart.
struct Rows {
  const char* data;
  int64_t step;
};

// Keys from `first` on, and their values in the layout of the product.
struct Keys {
  Rows k, v;
  int64_t first;
};

// Where a head's keys and values lie in the pack.
template <class T>
struct Source {
  const T* k;
  const T* v;
  int64_t k_stride, v_stride;
};

// What earlier blocks of keys have added to an output.
template <int C>
struct Earlier {
  bool none;
  const Vec* correction;  // [C], or null: by nothing

  CENOTE_INLINE Vec of(const float* output, int c) const {
    if (none) return zero();
    return correction ? load(output) * correction[c] : load(output);
  }
};

// --- gathering rows ------------------------------------------------------------------------------

template <class From, class To>
CENOTE_INLINE void copy_row(const From* from, int64_t columns, To* to) {
  if constexpr (std::is_same_v<From, To>) {
    // By a size that the compiler knows: a head's row is too short for a call.
    constexpr int64_t kStep = 32 / sizeof(To);
    int64_t d = 0;
    for (; d + kStep <= columns; d += kStep) std::memcpy(to + d, from + d, kStep * sizeof(To));
    if (d < columns) std::memcpy(to + d, from + d, (columns - d) * sizeof(To));
  } else {
    for (int64_t d = 0; d < columns; d += kLanes) {
      store_up_to(to + d, load_up_to(from + d, columns - d), columns - d);
    }
  }
}

// Rows of another type are converted; rows of the right one may be read where they are.
template <class To, class From>
Rows as_rows_of(const From* x, int64_t stride, int64_t rows, int64_t columns, bool in_place,
                char* buffer) {
  if constexpr (std::is_same_v<From, To>) {
    if (in_place) return {reinterpret_cast<const char*>(x), stride * int64_t{sizeof(From)}};
  }
  To* to = reinterpret_cast<To*>(buffer);
  for (int64_t i = 0; i < rows; ++i) copy_row(x + i * stride, columns, to + i * columns);
  return {buffer, columns * int64_t{sizeof(To)}};
}

constexpr bf16 kZeros[256] = {};  // the partner of a last row that has none; as long as a head

// Words of rows 2i and 2i + 1, element by element; a last row without a partner has zeros for one.
template <class Dot>
CENOTE_INLINE Vec pair_words(const bf16* rows, int64_t stride, int64_t i, int64_t count, int64_t d,
                             int64_t columns) {
  const bf16* row = rows + 2 * i * stride + d;
  return Dot::interleave(row, 2 * i + 1 < count ? row + stride : kZeros, columns - d);
}

// --- on vectors ----------------------------------------------------------------------------------

template <class DotType>
struct VectorProducts {
  using Dot = DotType;
  static constexpr int64_t kKeyStep = 2;  // a run of keys starts at a multiple of this
  struct Session {
    Session() {}
  };

  static int64_t gathered_bytes(int64_t keys, int64_t dim) { return (keys + 1) * dim * kWordBytes; }

  // Rows as `score` reads them. With `once`, only one tile of queries will read them: what may stay
  // in place does.
  template <class T>
  static Rows gather_rows(const T* x, int64_t stride, int64_t rows, int64_t dim, bool once,
                          char* buffer) {
    return as_rows_of<typename Dot::Element>(x, stride, rows, dim, once, buffer);
  }

  template <class T>
  static Keys gather(const Source<T>& from, Span span, int64_t dim, bool once, char* keys,
                     char* values) {
    using Element = typename Dot::Element;
    const T* v = from.v + span.begin * from.v_stride;
    const Rows key_rows =
        gather_rows(from.k + span.begin * from.k_stride, from.k_stride, span.size(), dim, once, keys);
    if constexpr (Dot::kDepth == 2) {
      float* to = reinterpret_cast<float*>(values);
      for (int64_t i = 0; i < span.size(); i += 2, to += dim) {
        const T* row = v + i * from.v_stride;
        Dot::interleave_rows(row, i + 1 < span.size() ? row + from.v_stride : kZeros, dim, to);
      }
      return {key_rows, {values, dim * kWordBytes}, span.begin};
    } else {
      return {key_rows, as_rows_of<Element>(v, from.v_stride, span.size(), dim, once, values),
              span.begin};
    }
  }

  template <int C>
  static void score(const Keys& keys, Span block, const float* queries, int64_t dim, float* scores) {
    const int64_t steps = dim / Dot::kDepth;
    in_tiles<kTileSums / C>(block.begin, block.end, [&]<int R>(int64_t key) {
      Vec sums[R][C];
      clear(sums);
      multiply<Dot>(keys.k.data + (key - keys.first) * keys.k.step, keys.k.step, kWordBytes, queries,
                    steps, sums);
      float* out = scores + (key - block.begin) * C * kLanes;
      for (int r = 0; r < R; ++r) {
        for (int c = 0; c < C; ++c) store(out + (r * C + c) * kLanes, sums[r][c]);
      }
    });
  }

  // output = earlier + values · weights
  template <int C>
  static void add_values(const Keys& keys, Span block, float* weights, int64_t dim,
                         const Earlier<C>& earlier, float* output) {
    const char* values = keys.v.data + (block.begin - keys.first) / Dot::kDepth * keys.v.step;
    const int64_t steps = (block.size() + Dot::kDepth - 1) / Dot::kDepth;
    in_tiles<kTileSums / C>(0, dim, [&]<int R>(int64_t d) {
      float* out = output + d * C * kLanes;
      Vec sums[R][C];
      for (int r = 0; r < R; ++r) {
        for (int c = 0; c < C; ++c) {
          sums[r][c] = earlier.of(out + (r * C + c) * kLanes, c);
        }
      }
      multiply<Dot>(values + d * kWordBytes, kWordBytes, keys.v.step, weights, steps, sums);
      for (int r = 0; r < R; ++r) {
        for (int c = 0; c < C; ++c) store(out + (r * C + c) * kLanes, sums[r][c]);
      }
    });
  }
};

// --- on the tile unit ----------------------------------------------------------------------------

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

  template <int C>
  static CENOTE_INLINE void store_tiles(float* out) {
    constexpr int64_t kStride = C * kLanes * kWordBytes;
    amx::store<0>(out, kStride);
    amx::store<2>(out + 16 * C * kLanes, kStride);
    if constexpr (C == 2) {
      amx::store<1>(out + kLanes, kStride);
      amx::store<3>(out + 16 * C * kLanes + kLanes, kStride);
    }
  }

  // Fills scores up to the next multiple of kKeyStep.
  template <int C>
  static void score(const Keys& keys, Span block, const float* queries, int64_t dim, float* scores) {
    for (int64_t key = block.begin; key < block.end; key += kKeyStep) {
      zero_tiles();
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
        zero_tiles();
      } else {
        for (int64_t i = 0; earlier.correction && i < 2 * kStepWords * C; ++i) {
          store(out + i * kLanes, earlier.of(out + i * kLanes, i % C));
        }
        load_tiles<C>(out);
      }
      multiply_tiles<C>(values + d * kGroupRowBytes, kGroupRowBytes, keys.v.step, weights, steps);
      store_tiles<C>(out);
    }
  }

  static CENOTE_INLINE void zero_tiles() {
    amx::zero<0>();
    amx::zero<1>();
    amx::zero<2>();
    amx::zero<3>();
  }

  template <int C>
  static CENOTE_INLINE void load_tiles(const float* from) {
    constexpr int64_t kStride = C * kLanes * kWordBytes;
    amx::load<0>(from, kStride);
    amx::load<2>(from + 16 * C * kLanes, kStride);
    if constexpr (C == 2) {
      amx::load<1>(from + kLanes, kStride);
      amx::load<3>(from + 16 * C * kLanes + kLanes, kStride);
    }
  }
};

#endif

}  // namespace cenote::CENOTE_ISA::attending
