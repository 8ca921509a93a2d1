// The two products of attention on vectors, and the layouts that they want keys and values in.
// Knows nothing of softmax, masks or threads.
//
// Scores are [key][query] and the output is [dimension][query], queries across the lanes; so keys
// and the transposed values are the rows of a product, queries and weights the columns.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

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

}  // namespace cenote::CENOTE_ISA::attending
