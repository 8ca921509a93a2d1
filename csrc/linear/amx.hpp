// The tile unit's few operations, as the instructions or (CENOTE_AMX_EMULATED) as plain loops that
// give the same results, so that everything above them is tested on machines without the unit.
// Knows nothing of what the tiles hold.
#pragma once

#include "../kernels.hpp"

#if CENOTE_LEVEL >= CENOTE_LEVEL_AMX

#include "../simd.hpp"

namespace cenote::CENOTE_ISA::amx {

constexpr int kTiles = 8;
constexpr int kTileHeight = 16;
constexpr int kTileBytes = 64;  // of a row

#ifndef CENOTE_AMX_EMULATED

// Eight tiles of 16 rows by 64 bytes while it lives. The release afterwards matters: a thread with
// tiles in use costs the kernel 8 KiB at every switch.
class Session {
 public:
  Session() {
    struct alignas(64) Config {
      uint8_t palette = 1;
      uint8_t start_row = 0;
      uint8_t reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    static_assert(sizeof(Config) == 64);
    for (int t = 0; t < kTiles; ++t) {
      config.row_bytes[t] = kTileBytes;
      config.rows[t] = kTileHeight;
    }
    // The compiler's intrinsic claims to read eight bytes only, so that the rest may never be written.
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  ~Session() { asm volatile("tilerelease"); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
};

// Written as assembly because some compilers' intrinsics take nothing but literal tile numbers, and
// don't say that they touch memory.
template <int T>
CENOTE_INLINE void zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(T));
}
template <int T>
CENOTE_INLINE void load(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(T) : "memory");
}
// Of what won't be read again before the L1 cache has forgotten it.
template <int T>
CENOTE_INLINE void load_passing(const void* from, int64_t stride) {
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(T) : "memory");
}
template <int T>
CENOTE_INLINE void store(void* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(T) : "memory");
}
template <int Sum, int Rows, int Columns>
CENOTE_INLINE void dot_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sum), "i"(Rows), "i"(Columns));
}
// Unsigned rows, signed columns.
template <int Sum, int Rows, int Columns>
CENOTE_INLINE void dot_int8() {
  asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sum), "i"(Rows), "i"(Columns));
}

#else

struct alignas(64) Tile {
  char bytes[kTileHeight][kTileBytes];

  template <class T>
  T get(int row, int element) const {
    T value;
    std::memcpy(&value, bytes[row] + element * sizeof(T), sizeof(T));
    return value;
  }
  template <class T>
  void set(int row, int element, T value) {
    std::memcpy(bytes[row] + element * sizeof(T), &value, sizeof(T));
  }
};

inline thread_local Tile tiles[kTiles];

struct Session {
  Session() {}  // has a body like the real one, so that an unused variable isn't warned of
};

template <int T>
void zero() {
  std::memset(&tiles[T], 0, sizeof(Tile));
}
template <int T>
void load(const void* from, int64_t stride) {
  for (int r = 0; r < kTileHeight; ++r) {
    std::memcpy(tiles[T].bytes[r], static_cast<const char*>(from) + r * stride, kTileBytes);
  }
}
template <int T>
void load_passing(const void* from, int64_t stride) {
  load<T>(from, stride);
}
template <int T>
void store(void* to, int64_t stride) {
  for (int r = 0; r < kTileHeight; ++r) {
    std::memcpy(static_cast<char*>(to) + r * stride, tiles[T].bytes[r], kTileBytes);
  }
}

// Even and odd inputs are summed apart and added to the tile in the end, as the instruction does.
template <int Sum, int Rows, int Columns>
void dot_bf16() {
  for (int m = 0; m < kTileHeight; ++m) {
    float even[16] = {}, odd[16] = {};
    for (int k = 0; k < kTileHeight; ++k) {
      const float a0 = to_float(tiles[Rows].get<bf16>(m, 2 * k));
      const float a1 = to_float(tiles[Rows].get<bf16>(m, 2 * k + 1));
      for (int n = 0; n < 16; ++n) {
        even[n] += a0 * to_float(tiles[Columns].get<bf16>(k, 2 * n));
        odd[n] += a1 * to_float(tiles[Columns].get<bf16>(k, 2 * n + 1));
      }
    }
    for (int n = 0; n < 16; ++n) {
      tiles[Sum].set(m, n, tiles[Sum].get<float>(m, n) + (even[n] + odd[n]));
    }
  }
}

template <int Sum, int Rows, int Columns>
void dot_int8() {
  for (int m = 0; m < kTileHeight; ++m) {
    for (int n = 0; n < 16; ++n) {
      int32_t sum = tiles[Sum].get<int32_t>(m, n);
      for (int k = 0; k < kTileHeight; ++k) {
        for (int i = 0; i < 4; ++i) {
          sum += int32_t{tiles[Rows].get<uint8_t>(m, 4 * k + i)} *
                 int32_t{tiles[Columns].get<int8_t>(k, 4 * n + i)};
        }
      }
      tiles[Sum].set(m, n, sum);
    }
  }
}

#endif

// Tiles 0 to 3, in which all products here make their sums.
CENOTE_INLINE void zero_sums() {
  zero<0>();
  zero<1>();
  zero<2>();
  zero<3>();
}

// The same from and to memory: tile 1 lies `right` bytes behind tile 0, tile 2 `below`, tile 3 both.
// An offset of 0 leaves its tiles out.
CENOTE_INLINE void load_sums(const void* from, int64_t stride, int64_t right, int64_t below) {
  const char* first = static_cast<const char*>(from);
  load<0>(first, stride);
  if (right) load<1>(first + right, stride);
  if (below) load<2>(first + below, stride);
  if (right && below) load<3>(first + below + right, stride);
}
CENOTE_INLINE void store_sums(void* to, int64_t stride, int64_t right, int64_t below) {
  char* first = static_cast<char*>(to);
  store<0>(first, stride);
  if (right) store<1>(first + right, stride);
  if (below) store<2>(first + below, stride);
  if (right && below) store<3>(first + below + right, stride);
}

}  // namespace cenote::CENOTE_ISA::amx

#endif
