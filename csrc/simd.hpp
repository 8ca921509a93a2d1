// A vector of floats as wide as the level allows (16, 8 or 4 lanes), and the elementary functions
// on it. The three blocks below are all that differs between instruction sets; what follows them is
// written once. Knows nothing of shapes, threads or layouts.
//
// Everything lives in the level's own namespace: the linker must never take a function that was
// compiled for wider vectors as the one copy for all levels.
#pragma once

#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#pragma GCC diagnostic push  // gcc 12 warns of the undefined registers in its own header
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

#ifndef CENOTE_ISA
#define CENOTE_ISA generic
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define CENOTE_SIMD_512 1
#elif defined(__AVX2__) && defined(__FMA__)
#define CENOTE_SIMD_256 1
#endif

#define CENOTE_INLINE inline __attribute__((always_inline))

namespace cenote {

// The upper half of a float32. A type of its own, so that loads and stores convert by overload.
struct bf16 {
  uint16_t bits;
};

}  // namespace cenote

namespace cenote::CENOTE_ISA {

CENOTE_INLINE float to_float(float x) { return x; }

CENOTE_INLINE float to_float(bf16 x) {
  const uint32_t bits = uint32_t{x.bits} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// Round to nearest even; a NaN stays a (quiet) NaN.
CENOTE_INLINE bf16 to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

CENOTE_INLINE void assign(float& out, float x) { out = x; }
CENOTE_INLINE void assign(bf16& out, float x) { out = to_bf16(x); }

#if defined(CENOTE_SIMD_512)

constexpr int kLanes = 16;

struct Vec {
  __m512 v;
};
struct Mask {
  __mmask16 m;
};

CENOTE_INLINE __mmask16 first_lanes(int64_t n) {
  return static_cast<__mmask16>((1u << n) - 1);
}
CENOTE_INLINE Vec widen(__m256i bits) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
CENOTE_INLINE __m256i narrow(Vec x) {
#if defined(__AVX512BF16__)
  return (__m256i)_mm512_cvtneps_pbh(x.v);
#else
  const __m512i bits = _mm512_castps_si512(x.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(up, nan, quiet), 16));
#endif
}

CENOTE_INLINE Vec zero() { return {_mm512_setzero_ps()}; }
CENOTE_INLINE Vec set1(float x) { return {_mm512_set1_ps(x)}; }
CENOTE_INLINE Vec lane_index() {
  return {_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
}
CENOTE_INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
CENOTE_INLINE Vec load(const bf16* p) { return widen(_mm256_loadu_si256((const __m256i*)p)); }
CENOTE_INLINE Vec load_n(const float* p, int64_t n) {
  return {_mm512_maskz_loadu_ps(first_lanes(n), p)};
}
CENOTE_INLINE Vec load_n(const bf16* p, int64_t n) {
  return widen(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
CENOTE_INLINE void store(float* p, Vec x) { _mm512_storeu_ps(p, x.v); }
CENOTE_INLINE void store(bf16* p, Vec x) { _mm256_storeu_si256((__m256i*)p, narrow(x)); }
CENOTE_INLINE void store_n(float* p, Vec x, int64_t n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), x.v);
}
CENOTE_INLINE void store_n(bf16* p, Vec x, int64_t n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), narrow(x));
}

CENOTE_INLINE Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
CENOTE_INLINE Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
CENOTE_INLINE Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
CENOTE_INLINE Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
CENOTE_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
CENOTE_INLINE Vec fnma(Vec a, Vec b, Vec c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
// Both return `b` where either is NaN.
CENOTE_INLINE Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
CENOTE_INLINE Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
CENOTE_INLINE Vec sqrt(Vec x) { return {_mm512_sqrt_ps(x.v)}; }
CENOTE_INLINE Vec abs(Vec x) { return {_mm512_abs_ps(x.v)}; }
CENOTE_INLINE Vec copy_sign(Vec x, Vec sign) {
  return {_mm512_or_ps(_mm512_abs_ps(x.v), _mm512_and_ps(sign.v, _mm512_set1_ps(-0.0f)))};
}

CENOTE_INLINE Mask operator<(Vec a, Vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
CENOTE_INLINE Mask operator|(Mask a, Mask b) { return {static_cast<__mmask16>(a.m | b.m)}; }
CENOTE_INLINE Mask is_nan(Vec a) { return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)}; }
CENOTE_INLINE bool any(Mask a) { return a.m != 0; }
CENOTE_INLINE Vec select(Mask where, Vec yes, Vec no) {
  return {_mm512_mask_blend_ps(where.m, no.v, yes.v)};
}

CENOTE_INLINE float reduce_add(Vec x) { return _mm512_reduce_add_ps(x.v); }
CENOTE_INLINE float reduce_max(Vec x) { return _mm512_reduce_max_ps(x.v); }

// 2^(x - f) · y, where f is the fraction that `split` took from x. In these levels the hardware
// rounds x down by itself, flushes to 0 what is too small, and gives a fraction of 0 for ±inf.
struct Exponent {
  Vec x, fraction;
};
CENOTE_INLINE Exponent split(Vec x) { return {x, {_mm512_reduce_ps(x.v, 0x09)}}; }
CENOTE_INLINE Vec scale(Exponent e, Vec y) { return {_mm512_scalef_ps(y.v, e.x.v)}; }

// Transposes kLanes × kLanes words of 32 bits in place.
CENOTE_INLINE void transpose(Vec (&r)[16]) {
  __m512 t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i].v, r[i + 1].v);
    t[i + 1] = _mm512_unpackhi_ps(r[i].v, r[i + 1].v);
  }
  __m512 u[16];
  for (int i = 0; i < 16; i += 4) {
    for (int half = 0; half < 2; ++half) {
      const __m512d a = _mm512_castps_pd(t[i + half]), b = _mm512_castps_pd(t[i + 2 + half]);
      u[i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
      u[i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    }
  }
  // u[4q + c] holds, in its 128-bit lane l, column 4l + c of rows 4q … 4q + 3.
  for (int c = 0; c < 4; ++c) {
    const __m512 even01 = _mm512_shuffle_f32x4(u[c], u[4 + c], 0x88);
    const __m512 odd01 = _mm512_shuffle_f32x4(u[c], u[4 + c], 0xdd);
    const __m512 even23 = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0x88);
    const __m512 odd23 = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0xdd);
    r[c].v = _mm512_shuffle_f32x4(even01, even23, 0x88);
    r[4 + c].v = _mm512_shuffle_f32x4(odd01, odd23, 0x88);
    r[8 + c].v = _mm512_shuffle_f32x4(even01, even23, 0xdd);
    r[12 + c].v = _mm512_shuffle_f32x4(odd01, odd23, 0xdd);
  }
}

#elif defined(CENOTE_SIMD_256)

constexpr int kLanes = 8;

struct Vec {
  __m256 v;
};
struct Mask {
  __m256 m;
};

CENOTE_INLINE __m256i first_lanes(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
CENOTE_INLINE Vec widen(__m128i bits) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16))};
}
CENOTE_INLINE __m128i narrow(Vec x) {
  const __m256i bits = _mm256_castps_si256(x.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q));
  const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, nan), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

CENOTE_INLINE Vec zero() { return {_mm256_setzero_ps()}; }
CENOTE_INLINE Vec set1(float x) { return {_mm256_set1_ps(x)}; }
CENOTE_INLINE Vec lane_index() { return {_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7)}; }
CENOTE_INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
CENOTE_INLINE Vec load(const bf16* p) { return widen(_mm_loadu_si128((const __m128i*)p)); }
CENOTE_INLINE Vec load_n(const float* p, int64_t n) {
  return {_mm256_maskload_ps(p, first_lanes(n))};
}
CENOTE_INLINE Vec load_n(const bf16* p, int64_t n) {
  bf16 lanes[kLanes] = {};
  std::memcpy(lanes, p, n * sizeof(bf16));
  return load(lanes);
}
CENOTE_INLINE void store(float* p, Vec x) { _mm256_storeu_ps(p, x.v); }
CENOTE_INLINE void store(bf16* p, Vec x) { _mm_storeu_si128((__m128i*)p, narrow(x)); }
CENOTE_INLINE void store_n(float* p, Vec x, int64_t n) {
  _mm256_maskstore_ps(p, first_lanes(n), x.v);
}
CENOTE_INLINE void store_n(bf16* p, Vec x, int64_t n) {
  bf16 lanes[kLanes];
  store(lanes, x);
  std::memcpy(p, lanes, n * sizeof(bf16));
}

CENOTE_INLINE Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
CENOTE_INLINE Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
CENOTE_INLINE Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
CENOTE_INLINE Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
CENOTE_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
CENOTE_INLINE Vec fnma(Vec a, Vec b, Vec c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }
CENOTE_INLINE Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
CENOTE_INLINE Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
CENOTE_INLINE Vec sqrt(Vec x) { return {_mm256_sqrt_ps(x.v)}; }
CENOTE_INLINE Vec abs(Vec x) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), x.v)}; }
CENOTE_INLINE Vec copy_sign(Vec x, Vec sign) {
  return {_mm256_or_ps(abs(x).v, _mm256_and_ps(sign.v, _mm256_set1_ps(-0.0f)))};
}

CENOTE_INLINE Mask operator<(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
CENOTE_INLINE Mask operator|(Mask a, Mask b) { return {_mm256_or_ps(a.m, b.m)}; }
CENOTE_INLINE Mask is_nan(Vec a) { return {_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q)}; }
CENOTE_INLINE bool any(Mask a) { return _mm256_movemask_ps(a.m) != 0; }
CENOTE_INLINE Vec select(Mask where, Vec yes, Vec no) {
  return {_mm256_blendv_ps(no.v, yes.v, where.m)};
}

CENOTE_INLINE float reduce_add(Vec x) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(x.v), _mm256_extractf128_ps(x.v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
CENOTE_INLINE float reduce_max(Vec x) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(x.v), _mm256_extractf128_ps(x.v, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

struct Exponent {
  __m256i whole;
  Vec fraction;
};
// Between -127, whose power is written as 0, and 128, which is written as inf.
CENOTE_INLINE Exponent split(Vec x) {
  x = max(set1(-127), min(set1(128), x));
  const __m256 whole = _mm256_floor_ps(x.v);
  return {_mm256_cvtps_epi32(whole), {_mm256_sub_ps(x.v, whole)}};
}
CENOTE_INLINE Vec scale(Exponent e, Vec y) {
  const __m256i biased = _mm256_add_epi32(e.whole, _mm256_set1_epi32(127));
  return y * Vec{_mm256_castsi256_ps(_mm256_slli_epi32(biased, 23))};
}

CENOTE_INLINE void transpose(Vec (&r)[8]) {
  __m256 t[8], u[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i].v, r[i + 1].v);
    t[i + 1] = _mm256_unpackhi_ps(r[i].v, r[i + 1].v);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int half = 0; half < 2; ++half) {
      u[i + 2 * half] = _mm256_shuffle_ps(t[i + half], t[i + 2 + half], 0x44);
      u[i + 2 * half + 1] = _mm256_shuffle_ps(t[i + half], t[i + 2 + half], 0xee);
    }
  }
  for (int c = 0; c < 4; ++c) {
    r[c].v = _mm256_permute2f128_ps(u[c], u[4 + c], 0x20);
    r[4 + c].v = _mm256_permute2f128_ps(u[c], u[4 + c], 0x31);
  }
}

#else

// Any processor: the compiler's own vectors of four.
constexpr int kLanes = 4;

typedef float Float4 __attribute__((vector_size(16)));
typedef int32_t Int4 __attribute__((vector_size(16)));

struct Vec {
  Float4 v;
};
struct Mask {
  Int4 m;
};

CENOTE_INLINE Vec zero() { return {Float4{0, 0, 0, 0}}; }
CENOTE_INLINE Vec set1(float x) { return {Float4{x, x, x, x}}; }
CENOTE_INLINE Vec lane_index() { return {Float4{0, 1, 2, 3}}; }
CENOTE_INLINE Vec load(const float* p) {
  Vec x;
  std::memcpy(&x.v, p, sizeof(x.v));
  return x;
}
CENOTE_INLINE Vec load(const bf16* p) {
  return {Float4{to_float(p[0]), to_float(p[1]), to_float(p[2]), to_float(p[3])}};
}
template <class T>
CENOTE_INLINE Vec load_n(const T* p, int64_t n) {
  T lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}
CENOTE_INLINE void store(float* p, Vec x) { std::memcpy(p, &x.v, sizeof(x.v)); }
CENOTE_INLINE void store(bf16* p, Vec x) {
  for (int i = 0; i < kLanes; ++i) p[i] = to_bf16(x.v[i]);
}
template <class T>
CENOTE_INLINE void store_n(T* p, Vec x, int64_t n) {
  T lanes[kLanes];
  store(lanes, x);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}

CENOTE_INLINE Vec operator+(Vec a, Vec b) { return {a.v + b.v}; }
CENOTE_INLINE Vec operator-(Vec a, Vec b) { return {a.v - b.v}; }
CENOTE_INLINE Vec operator*(Vec a, Vec b) { return {a.v * b.v}; }
CENOTE_INLINE Vec operator/(Vec a, Vec b) { return {a.v / b.v}; }
CENOTE_INLINE Vec fma(Vec a, Vec b, Vec c) { return {a.v * b.v + c.v}; }
CENOTE_INLINE Vec fnma(Vec a, Vec b, Vec c) { return {c.v - a.v * b.v}; }
CENOTE_INLINE Mask operator<(Vec a, Vec b) { return {a.v < b.v}; }
CENOTE_INLINE Mask operator|(Mask a, Mask b) { return {a.m | b.m}; }
CENOTE_INLINE Mask is_nan(Vec a) { return {a.v != a.v}; }
CENOTE_INLINE bool any(Mask a) { return (a.m[0] | a.m[1] | a.m[2] | a.m[3]) != 0; }
CENOTE_INLINE Vec select(Mask where, Vec yes, Vec no) {
  return {(Float4)((where.m & (Int4)yes.v) | (~where.m & (Int4)no.v))};
}
CENOTE_INLINE Vec max(Vec a, Vec b) { return select({b.v < a.v}, a, b); }
CENOTE_INLINE Vec min(Vec a, Vec b) { return select({a.v < b.v}, a, b); }
CENOTE_INLINE Vec sqrt(Vec x) {
  for (int i = 0; i < kLanes; ++i) x.v[i] = __builtin_sqrtf(x.v[i]);
  return x;
}
CENOTE_INLINE Vec abs(Vec x) { return {(Float4)((Int4)x.v & 0x7fffffff)}; }
CENOTE_INLINE Vec copy_sign(Vec x, Vec sign) {
  return {(Float4)((Int4)abs(x).v | ((Int4)sign.v & ~0x7fffffff))};
}
CENOTE_INLINE float reduce_add(Vec x) { return (x.v[0] + x.v[2]) + (x.v[1] + x.v[3]); }
CENOTE_INLINE float reduce_max(Vec x) {
  const float a = x.v[0] > x.v[2] ? x.v[0] : x.v[2], b = x.v[1] > x.v[3] ? x.v[1] : x.v[3];
  return a > b ? a : b;
}

struct Exponent {
  Int4 whole;
  Vec fraction;
};
CENOTE_INLINE Exponent split(Vec x) {
  x = max(set1(-127), min(set1(128), x));
  // Conversion of a NaN is undefined; its fraction stays one.
  const Vec number = select({x.v == x.v}, x, zero());
  Int4 whole = __builtin_convertvector(number.v, Int4);
  whole += (Int4)(number.v < __builtin_convertvector(whole, Float4));  // true is -1
  return {whole, {x.v - __builtin_convertvector(whole, Float4)}};
}
CENOTE_INLINE Vec scale(Exponent e, Vec y) {
  return {y.v * (Float4)((e.whole + 127) << 23)};
}

CENOTE_INLINE void transpose(Vec (&r)[4]) {
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < i; ++j) {
      const float upper = r[j].v[i];
      r[j].v[i] = r[i].v[j];
      r[i].v[j] = upper;
    }
  }
}

#endif

typedef int32_t IntV __attribute__((vector_size(kLanes * 4)));

CENOTE_INLINE IntV load_words(const void* from) {
  IntV v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}

// The floats at `from[index]`, lane by lane.
CENOTE_INLINE Vec gather(const float* from, IntV index) {
#if defined(CENOTE_SIMD_512)
  return {_mm512_i32gather_ps(reinterpret_cast<__m512i>(index), from, sizeof(float))};
#elif defined(CENOTE_SIMD_256)
  return {_mm256_i32gather_ps(from, reinterpret_cast<__m256i>(index), sizeof(float))};
#else
  return {Float4{from[index[0]], from[index[1]], from[index[2]], from[index[3]]}};
#endif
}

template <class T>
CENOTE_INLINE Vec load_up_to(const T* p, int64_t n) {
  return n >= kLanes ? load(p) : load_n(p, n);
}
template <class T>
CENOTE_INLINE void store_up_to(T* p, Vec x, int64_t n) {
  if (n >= kLanes) {
    store(p, x);
  } else {
    store_n(p, x, n);
  }
}

// c[0] + c[1]·x + … by Horner's rule.
template <int N>
CENOTE_INLINE Vec polynomial(const float (&c)[N], Vec x) {
  Vec y = set1(c[N - 1]);
  for (int i = N - 2; i >= 0; --i) y = fma(y, x, set1(c[i]));
  return y;
}

// The coefficients below are minimax fits made for this file; the errors are those of the fits.


// 2^f for f in [0, 1): relative error 8.3e-8, exact at 0.
constexpr float kExp2[] = {1.0f,
                           0.6931513118052325f,
                           0.2401644501504003f,
                           0.0557999131153471f,
                           0.009017030310652097f,
                           0.0018671300741153196f};
// The same with 8.6e-5, for values that are rounded to bfloat16 (4e-3) afterwards.
constexpr float kExp2Coarse[] = {1.0f, 0.6951167870142992f, 0.22764498975163006f,
                                 0.07706704283421427f};

// 2^x; exactly 0 at -inf.
CENOTE_INLINE Vec exp2(Vec x) {
  const Exponent e = split(x);
  return scale(e, polynomial(kExp2, e.fraction));
}

CENOTE_INLINE Vec exp2_coarse(Vec x) {
  const Exponent e = split(x);
  return scale(e, polynomial(kExp2Coarse, e.fraction));
}

// e^x, relative error 3e-7: ln 2 is subtracted in two parts, of which the first has few bits.
CENOTE_INLINE Vec exp(Vec x) {
  x = max(set1(-104), min(set1(89), x));
  const Vec product = x * set1(1.44269502f);
  const Exponent e = split(product);
  const Vec whole = product - e.fraction;
  const Vec rest = fnma(whole, set1(-2.12194440e-4f), fnma(whole, set1(0.693359375f), x));
  return scale(e, polynomial(kExp2, rest * set1(1.44269502f)));
}

CENOTE_INLINE Vec sigmoid(Vec x) { return set1(1) / (set1(1) + exp(zero() - x)); }

CENOTE_INLINE Vec silu(Vec x) { return x / (set1(1) + exp(zero() - x)); }

CENOTE_INLINE Vec relu(Vec x) { return max(zero(), x); }

CENOTE_INLINE Vec tanh(Vec x) {
  const Vec decay = exp(abs(x) * set1(-2));
  return copy_sign((set1(1) - decay) / (set1(1) + decay), x);
}

// erfc(z) is 2 to the power of a function that is close to a parabola, so a polynomial in the
// exponent gives it without a division. Absolute error 1.5e-7.
CENOTE_INLINE Vec erf(Vec x) {
  constexpr float c[] = {0.0f,
                         -1.6279085930561181f,
                         -0.9184163933390959f,
                         -0.14848161472174815f,
                         0.02825368039815753f,
                         -0.0007746289796816014f,
                         -0.0014894419800744248f,
                         0.0004455077317986897f,
                         -4.5358605842619895e-5f};
  const Vec tail = exp2(polynomial(c, min(set1(6), abs(x))));
  return copy_sign(set1(1) - tail, x);
}

// x · Φ(x) = max(x, 0) - |x| · Φ(-|x|), the tail again as a power of 2 (degree 6: absolute error of
// the result 1.3e-7). Beyond 8 the tail is below 1e-14.
CENOTE_INLINE Vec gelu_erf(Vec x) {
  constexpr float c[] = {-0.9999990961710257f, -1.1511449481608764f,  -0.458934820246021f,
                         -0.05320511343129683f, 0.007953787529507688f, -0.0007323236863325956f,
                         2.9042538937283036e-5f};
  const Vec z = min(set1(8), abs(x));
  return fnma(z, exp2(polynomial(c, z)), relu(x));
}

// x/2 · (1 + tanh(u)) = x · sigmoid(2u), u = √(2/π) · (x + 0.044715 x³).
CENOTE_INLINE Vec gelu_tanh(Vec x) {
  const Vec inner = fma(x * x, set1(0.0713548162726f), set1(1.5957691216057308f));
  return x * sigmoid(x * inner);
}

}  // namespace cenote::CENOTE_ISA
