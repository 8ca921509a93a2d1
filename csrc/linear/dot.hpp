// How one level multiplies and adds, per kind of weight: the element types of packed rows and
// weights, and the single step "accumulator += broadcast row element(s) · column vector".
// Knows nothing of loops or blocks.
//
// A step takes `kDepth` consecutive inputs at once. Packed rows give `kStepBytes` bytes to it; packed
// weights always give four bytes per column, so that a vector of columns is one load.
#pragma once

#include <type_traits>

#include "../kernels.hpp"
#include "../simd.hpp"

namespace cenote::CENOTE_ISA {

#if CENOTE_LEVEL >= CENOTE_LEVEL_AVX512
constexpr int kRegisters = 32;
#else
constexpr int kRegisters = 16;
#endif
constexpr int kPanelVectors = 2;
constexpr int kPanel = kPanelVectors * kLanes;  // columns packed side by side

// Rows that fit the registers beside `others` registers for operands.
constexpr int rows_beside(int others) { return (kRegisters - others) / kPanelVectors; }

CENOTE_INLINE IntV splat_word(const char* from) {
  int32_t word;
  std::memcpy(&word, from, 4);
  return IntV{} + word;
}

CENOTE_INLINE Vec as_floats(IntV v) { return {reinterpret_cast<decltype(Vec::v)>(v)}; }

CENOTE_INLINE Vec to_floats(IntV v) {
  typedef float Floats __attribute__((vector_size(kLanes * 4)));
  return {reinterpret_cast<decltype(Vec::v)>(__builtin_convertvector(v, Floats))};
}

struct DotF32 {
  using Element = float;
  using Weight = float;
  using Accumulator = Vec;
  using Row = Vec;
  using Columns = Vec;
  static constexpr int kDepth = 1;
  static constexpr int kStepBytes = 4;
  static constexpr int kTileRows = rows_beside(3);

  static CENOTE_INLINE Row row(const char* from) { return as_floats(splat_word(from)); }
  static CENOTE_INLINE Columns columns(const char* from) { return as_floats(load_words(from)); }
  static CENOTE_INLINE Accumulator add(Accumulator c, Row a, Columns b) { return fma(a, b, c); }
};

#if CENOTE_LEVEL >= CENOTE_LEVEL_AVX512_BF16
struct DotBf16 {
  using Element = uint16_t;
  using Weight = uint16_t;
  using Accumulator = Vec;
  using Row = IntV;
  using Columns = IntV;
  static constexpr int kDepth = 2;
  static constexpr int kStepBytes = 4;
  static constexpr int kTileRows = rows_beside(3);

  static CENOTE_INLINE Row row(const char* from) { return splat_word(from); }
  static CENOTE_INLINE Columns columns(const char* from) { return load_words(from); }
  static CENOTE_INLINE Accumulator add(Accumulator c, Row a, Columns b) {
    return {_mm512_dpbf16_ps(c.v, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b))};
  }
};
#else
// No bfloat16 arithmetic: weights are widened in registers, rows stay float32. A pair of weights in
// one word needs a shift and a mask to become two floats.
struct DotBf16 {
  using Element = float;
  using Weight = uint16_t;
  using Accumulator = Vec;
  struct Row {
    Vec even, odd;
  };
  struct Columns {
    Vec even, odd;
  };
  static constexpr int kDepth = 2;
  static constexpr int kStepBytes = 8;
  static constexpr int kTileRows = rows_beside(6);

  static CENOTE_INLINE Row row(const char* from) {
    return {as_floats(splat_word(from)), as_floats(splat_word(from + 4))};
  }
  static CENOTE_INLINE Columns columns(const char* from) {
    const IntV pair = load_words(from);
    return {as_floats(pair << 16), as_floats(pair & int32_t(0xffff0000))};
  }
  static CENOTE_INLINE Accumulator add(Accumulator c, Row a, Columns b) {
    return fma(a.odd, b.odd, fma(a.even, b.even, c));
  }
};
#endif

#if CENOTE_LEVEL >= CENOTE_LEVEL_AVX512_VNNI
// The instruction wants unsigned rows: they carry an offset of 128, which the epilogue takes off
// again by means of the columns' sums.
struct DotInt8 {
  using Element = uint8_t;
  using Weight = int8_t;
  using Accumulator = IntV;
  using Row = IntV;
  using Columns = IntV;
  static constexpr int kOffset = 128;
  static constexpr int kDepth = 4;
  static constexpr int kStepBytes = 4;
  static constexpr int kTileRows = rows_beside(3);

  static CENOTE_INLINE Row row(const char* from) { return splat_word(from); }
  static CENOTE_INLINE Columns columns(const char* from) { return load_words(from); }
  static CENOTE_INLINE Accumulator add(Accumulator c, Row a, Columns b) {
    return reinterpret_cast<IntV>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(c),
                                                      reinterpret_cast<__m512i>(a),
                                                      reinterpret_cast<__m512i>(b)));
  }
};
#else
// 8-bit numbers kept as 16-bit pairs: the product of pairs is exact in 32 bits.
struct DotInt8 {
  using Element = int16_t;
  using Weight = int16_t;
  using Accumulator = IntV;
  using Row = IntV;
  using Columns = IntV;
  static constexpr int kOffset = 0;
  static constexpr int kDepth = 2;
  static constexpr int kStepBytes = 4;
  static constexpr int kTileRows = rows_beside(4);

  static CENOTE_INLINE Row row(const char* from) { return splat_word(from); }
  static CENOTE_INLINE Columns columns(const char* from) { return load_words(from); }
  static CENOTE_INLINE Accumulator add(Accumulator c, Row a, Columns b) {
#if CENOTE_LEVEL >= CENOTE_LEVEL_AVX512
    return c + reinterpret_cast<IntV>(_mm512_madd_epi16(reinterpret_cast<__m512i>(a),
                                                        reinterpret_cast<__m512i>(b)));
#elif CENOTE_LEVEL >= CENOTE_LEVEL_AVX2
    return c + reinterpret_cast<IntV>(_mm256_madd_epi16(reinterpret_cast<__m256i>(a),
                                                        reinterpret_cast<__m256i>(b)));
#else
    return c + (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
  }
};
#endif

template <class Dot>
constexpr bool kQuantised = std::is_same_v<typename Dot::Accumulator, IntV>;

// Packed rows come in chunks of one cache line.
constexpr int kChunkBytes = 64;

template <class Dot>
constexpr int kChunk = kChunkBytes / int(sizeof(typename Dot::Element));

template <class Dot>
constexpr int kChunkSteps = kChunkBytes / Dot::kStepBytes;

}  // namespace cenote::CENOTE_ISA
