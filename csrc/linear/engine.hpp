// The innermost products: a tile of packed rows times a few panels of packed weights, accumulated in
// registers over all inputs. Knows nothing of threads, norms or what becomes of the result.
//
// Every element of the result is one chain of additions over the inputs in ascending order, whatever
// the size of the tile: that is why a row's result doesn't depend on the rows beside it.
#pragma once

#include "amx.hpp"
#include "dot.hpp"

namespace cenote::CENOTE_ISA {

// The product over the vector registers, M rows by P panels at a time.
template <class DotType>
struct VectorEngine {
  using Dot = DotType;
  using Accumulator = typename Dot::Accumulator;
  static constexpr int kTileRows = Dot::kTileRows;
  static constexpr int kRowStep = 1;     // tiles may have any number of rows
  static constexpr int kMaxPanels = 4;   // of one tile
  struct Session {};                     // nothing to set up

  // Fewer rows leave registers for more panels, which hides the latency of the sums.
  static constexpr int panels_for(int rows) {
    if (rows * 4 <= kTileRows) return 4;
    return rows * 2 <= kTileRows ? 2 : 1;
  }

  // `weights`: the first of the panels, `panel_bytes` apart. `out`: [rows][panels · kPanel].
  static void multiply(int rows, int panels, const char* tile, const char* weights,
                       int64_t panel_bytes, int64_t chunks, void* out) {
    pick<kTileRows>(rows, panels)(tile, weights, panel_bytes, chunks, static_cast<char*>(out));
  }

 private:
  using Product = void (*)(const char*, const char*, int64_t, int64_t, char*);

  template <int M>
  static Product pick(int rows, int panels) {
    if constexpr (M == 0) {
      return nullptr;
    } else {
      if (rows != M) return pick<M - 1>(rows, panels);
      return panels == panels_for(M) ? product<M, panels_for(M)> : product<M, 1>;
    }
  }

  template <int M, int P>
  static void product(const char* tile, const char* weights, int64_t panel_bytes, int64_t chunks,
                      char* out) {
    constexpr int kVectors = P * kPanelVectors;
    constexpr int kVectorBytes = kLanes * 4;
    Accumulator sums[M][kVectors] = {};
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
#pragma GCC unroll 4
      for (int step = 0; step < kChunkSteps<Dot>; ++step) {
        typename Dot::Columns columns[kVectors];
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          columns[v] = Dot::columns(weights + (v / kPanelVectors) * panel_bytes +
                                    (v % kPanelVectors) * kVectorBytes);
        }
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) {
          const auto row = Dot::row(tile + m * kChunkBytes + step * Dot::kStepBytes);
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) sums[m][v] = Dot::add(sums[m][v], row, columns[v]);
        }
        weights += kPanelVectors * kVectorBytes;
      }
      tile += kTileRows * kChunkBytes;
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        std::memcpy(out + (m * kVectors + v) * kVectorBytes, &sums[m][v], kVectorBytes);
      }
    }
  }
};

#if CENOTE_LEVEL >= CENOTE_LEVEL_AMX
// The product over the tile registers: 32 rows by one panel, or 16 rows by two, in four of them.
// Tiles are always full; rows beyond the last are zeros whose results nobody reads.
template <class DotType>
struct TileEngine {
  using Dot = DotType;
  static constexpr int kTileRows = 32;
  static constexpr int kRowStep = 16;
  static constexpr int kMaxPanels = 2;
  using Session = amx::Session;

  static constexpr int panels_for(int rows) { return rows <= 16 ? 2 : 1; }

  static void multiply(int rows, int panels, const char* tile, const char* weights,
                       int64_t panel_bytes, int64_t chunks, void* out) {
    if (rows > 16) return product<2, 1>(tile, weights, panel_bytes, chunks, out);
    if (panels == 2) return product<1, 2>(tile, weights, panel_bytes, chunks, out);
    product<1, 1>(tile, weights, panel_bytes, chunks, out);
  }

  template <int Sum, int Rows, int Columns>
  static CENOTE_INLINE void dot() {
    if constexpr (kQuantised<Dot>) {
      amx::dot_int8<Sum, Rows, Columns>();
    } else {
      amx::dot_bf16<Sum, Rows, Columns>();
    }
  }

 private:
  static_assert(kPanel == 32 && kChunkBytes == 64);

  // Registers: 0–3 sums, 4–5 rows, 6–7 columns.
  template <int R, int P>
  static void product(const char* tile, const char* weights, int64_t panel_bytes, int64_t chunks,
                      void* out) {
    constexpr int64_t kWeightStride = kPanel * 4;             // bytes from step to step
    constexpr int64_t kChunkWeights = 16 * kWeightStride;     // 16 steps fill a tile
    constexpr int64_t kOutStride = P * kPanel * 4;
    amx::zero<0>();
    amx::zero<1>();
    if constexpr (R * P > 1) {
      amx::zero<2>();
      amx::zero<3>();
    }
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      amx::load<4>(tile, kChunkBytes);
      if constexpr (R == 2) amx::load<5>(tile + 16 * kChunkBytes, kChunkBytes);
      amx::load<6>(weights, kWeightStride);
      amx::load<7>(weights + 64, kWeightStride);
      dot<0, 4, 6>();
      dot<1, 4, 7>();
      if constexpr (R == 2) {
        dot<2, 5, 6>();
        dot<3, 5, 7>();
      }
      if constexpr (P == 2) {
        amx::load<6>(weights + panel_bytes, kWeightStride);
        amx::load<7>(weights + panel_bytes + 64, kWeightStride);
        dot<2, 4, 6>();
        dot<3, 4, 7>();
      }
      tile += kTileRows * kChunkBytes;
      weights += kChunkWeights;
    }
    char* to = static_cast<char*>(out);
    amx::store<0>(to, kOutStride);
    amx::store<1>(to + 64, kOutStride);
    if constexpr (R == 2) {
      amx::store<2>(to + 16 * kOutStride, kOutStride);
      amx::store<3>(to + 16 * kOutStride + 64, kOutStride);
    }
    if constexpr (P == 2) {
      amx::store<2>(to + 128, kOutStride);
      amx::store<3>(to + 192, kOutStride);
    }
  }
};
#endif

template <WeightKind kKind>
struct EngineFor;

template <>
struct EngineFor<WeightKind::f32> {
  using type = VectorEngine<DotF32>;
};

#if CENOTE_LEVEL >= CENOTE_LEVEL_AMX
template <>
struct EngineFor<WeightKind::bf16> {
  using type = TileEngine<DotBf16>;
};
template <>
struct EngineFor<WeightKind::int8> {
  using type = TileEngine<DotInt8>;
};
#else
template <>
struct EngineFor<WeightKind::bf16> {
  using type = VectorEngine<DotBf16>;
};
template <>
struct EngineFor<WeightKind::int8> {
  using type = VectorEngine<DotInt8>;
};
#endif

template <WeightKind kKind>
using Engine = typename EngineFor<kKind>::type;

}  // namespace cenote::CENOTE_ISA
