// The innermost products: a tile of packed rows times a few panels of packed weights, accumulated in
// registers over all inputs. Knows nothing of threads, norms or what becomes of the result.
//
// Every element of the result is one chain of additions over the inputs in ascending order, whatever
// the size of the tile: that is why a row's result doesn't depend on the rows beside it.
#pragma once

#include <algorithm>

#include "amx.hpp"
#include "dot.hpp"

namespace cenote::CENOTE_ISA {

// One call's operands. The sums are [rows][panels · kPanel] words.
struct Operands {
  const char* rows;
  const char* weights;  // of the first panel
  int64_t panel_bytes;  // from panel to panel
  int64_t chunks;
  char* sums;
  const char* next;  // weights that will be wanted soon,
  int next_lines;    // and how many cache lines of them to fetch per chunk
};

// Work for the vector units while the tile unit multiplies: `run` takes any pieces of [first, last).
struct Beside {
  void (*run)(const void* context, int first, int last);
  const void* context;
  int first, last;
};

// To the L2 cache: the panel in use keeps the L1 cache.
CENOTE_INLINE void prefetch(const char* from, int lines) {
  for (int i = 0; i < lines; ++i) __builtin_prefetch(from + i * 64, 0, 2);
}

// The product over the vector registers, M rows by P panels at a time.
template <class DotType>
struct VectorEngine {
  using Dot = DotType;
  using Accumulator = typename Dot::Accumulator;
  static constexpr int kTileRows = Dot::kTileRows;
  static constexpr int kRowStep = 1;  // tiles may have any number of rows
  static constexpr int64_t kTurns = 8;  // tiles that take turns at a panel
  // What a block's rows and results may take of the L2 cache; the weights stream through the rest.
  static constexpr int64_t kBlockBytes = 512 << 10;
  static constexpr bool kOverlaps = false;  // the product uses the vector units itself
  struct Session {};  // nothing to set up

  // Fewer rows leave registers for more panels, which hides the latency of the sums.
  static constexpr int panels_for(int rows) {
    if (rows * 4 <= kTileRows) return 4;
    return rows * 2 <= kTileRows ? 2 : 1;
  }

  static void multiply(int rows, int panels, const Operands& operands, const Beside&) {
    pick<kTileRows>(rows, panels)(operands);
  }

 private:
  using Product = void (*)(const Operands&);

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
  static void product(const Operands& operands) {
    constexpr int kVectors = P * kPanelVectors;
    constexpr int kVectorBytes = kLanes * 4;
    const char* rows = operands.rows;
    const char* weights = operands.weights;
    const char* next = operands.next;
    const int64_t panel_bytes = operands.panel_bytes;
    Accumulator sums[M][kVectors] = {};
    for (int64_t chunk = operands.chunks; chunk > 0; --chunk) {
      prefetch(next, operands.next_lines);
      next += operands.next_lines * 64;
      for (int step = 0; step < kChunkSteps<Dot>; ++step) {
        typename Dot::Columns columns[kVectors];
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          columns[v] = Dot::columns(weights + (v / kPanelVectors) * panel_bytes +
                                    (v % kPanelVectors) * kVectorBytes);
        }
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) {
          const auto row = Dot::row(rows + m * kChunkBytes + step * Dot::kStepBytes);
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) sums[m][v] = Dot::add(sums[m][v], row, columns[v]);
        }
        weights += kPanelVectors * kVectorBytes;
      }
      rows += kTileRows * kChunkBytes;
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        std::memcpy(operands.sums + (m * kVectors + v) * kVectorBytes, &sums[m][v], kVectorBytes);
      }
    }
  }
};

#if CENOTE_LEVEL >= CENOTE_LEVEL_AMX
// The product over the tile registers: 32 rows by one panel, or 16 rows by two, in four of them.
// Tiles are always full; rows beyond the last are zeros whose results nobody reads.
//
// The unit outruns every cache but the first. So each panel that comes from far away meets twice as
// many rows as on vectors, and the vector units don't wait for the unit but work beside it.
template <class DotType>
struct TileEngine {
  using Dot = DotType;
  static constexpr int kTileRows = 32;
  static constexpr int kRowStep = 16;
  static constexpr int64_t kTurns = 16;
  // More than fits, where rows wait to be quantised: fetching the weights more often would cost more.
  static constexpr int64_t kBlockBytes = (kQuantised<Dot> ? 2 : 1) << 20;
  static constexpr bool kOverlaps = true;
  using Session = amx::Session;

  static constexpr int panels_for(int rows) { return rows <= 16 ? 2 : 1; }

  static void multiply(int rows, int panels, const Operands& operands, const Beside& beside) {
    if (rows > 16) return tall_product(operands, beside);
    if (panels == 2) return flat_product<2>(operands, beside);
    flat_product<1>(operands, beside);
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

  static constexpr int64_t kWeightStride = kPanel * 4;          // bytes from step to step
  static constexpr int64_t kChunkWeights = 16 * kWeightStride;  // 16 steps fill a tile

  // What is done beside a product, a piece a chunk.
  struct Aside {
    const Beside& beside;
    int64_t chunks;
    int at = beside.first;

    CENOTE_INLINE void run(int64_t chunks_left) {
      // The sums of the tile before can't be read before their stores are through.
      if (at == beside.last || chunks - chunks_left < std::min<int64_t>(3, chunks / 4)) return;
      const int until = at + static_cast<int>((beside.last - at + chunks_left - 1) / chunks_left);
      beside.run(beside.context, at, until);
      at = until;
    }
  };

  // 32 rows by one panel. Registers: 0–3 sums, 4–5 rows, 6–7 columns. The panel stays in the L1 cache,
  // rows pass. A register isn't renamed: it is loaded when the last product that reads it has begun,
  // and as long before the next one as may be, the rows' first.
  static void tall_product(const Operands& operands, const Beside& beside) {
    constexpr int64_t kHalf = 16 * kChunkBytes;
    const char* rows = operands.rows;
    const char* weights = operands.weights;
    const char* next = operands.next;
    Aside aside{beside, operands.chunks};
    amx::zero_sums();
    amx::load_passing<4>(rows, kChunkBytes);
    amx::load<6>(weights, kWeightStride);
    amx::load<7>(weights + 64, kWeightStride);
    amx::load_passing<5>(rows + kHalf, kChunkBytes);
    const auto multiply_chunk = [&]<bool kMore>() {
      rows += kTileRows * kChunkBytes;
      weights += kChunkWeights;
      dot<0, 4, 6>();
      prefetch(next, operands.next_lines);
      next += operands.next_lines * 64;
      dot<1, 4, 7>();
      if constexpr (kMore) amx::load_passing<4>(rows, kChunkBytes);
      dot<2, 5, 6>();
      if constexpr (kMore) amx::load<6>(weights, kWeightStride);
      dot<3, 5, 7>();
      if constexpr (kMore) amx::load<7>(weights + 64, kWeightStride);
      if constexpr (kMore) amx::load_passing<5>(rows + kHalf, kChunkBytes);
    };
    for (int64_t chunk = operands.chunks; chunk > 1; --chunk) {
      multiply_chunk.template operator()<true>();
      aside.run(chunk);
    }
    multiply_chunk.template operator()<false>();
    aside.run(1);
    constexpr int64_t kLower = 16 * kWeightStride;  // sums lie as a chunk's weights do
    amx::store<0>(operands.sums, kWeightStride);
    amx::store<1>(operands.sums + 64, kWeightStride);
    amx::store<2>(operands.sums + kLower, kWeightStride);
    amx::store<3>(operands.sums + kLower + 64, kWeightStride);
  }

  // 16 rows by P panels.
  template <int P>
  static void flat_product(const Operands& operands, const Beside& beside) {
    constexpr int64_t kSumStride = P * kPanel * 4;
    const char* rows = operands.rows;
    const char* weights = operands.weights;
    const char* next = operands.next;
    Aside aside{beside, operands.chunks};
    amx::zero_sums();
    for (int64_t chunk = operands.chunks; chunk > 0; --chunk) {
      amx::load_passing<4>(rows, kChunkBytes);
      amx::load<6>(weights, kWeightStride);
      dot<0, 4, 6>();
      prefetch(next, operands.next_lines);
      next += operands.next_lines * 64;
      amx::load<7>(weights + 64, kWeightStride);
      dot<1, 4, 7>();
      if constexpr (P == 2) {
        amx::load<6>(weights + operands.panel_bytes, kWeightStride);
        dot<2, 4, 6>();
        amx::load<7>(weights + operands.panel_bytes + 64, kWeightStride);
        dot<3, 4, 7>();
      }
      rows += kTileRows * kChunkBytes;
      weights += kChunkWeights;
      aside.run(chunk);
    }
    amx::store<0>(operands.sums, kSumStride);
    amx::store<1>(operands.sums + 64, kSumStride);
    if constexpr (P == 2) {
      amx::store<2>(operands.sums + kPanel * 4, kSumStride);
      amx::store<3>(operands.sums + kPanel * 4 + 64, kSumStride);
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
