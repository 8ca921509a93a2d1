// The innermost product on the tile unit: a tile of packed rows times a panel or two of packed
// weights, and work for the vector units beside it. Knows nothing of threads, norms or what becomes
// of the result.
#pragma once

#include <algorithm>

#include "amx.hpp"
#include "dot.hpp"
#include "operands.hpp"

#if CENOTE_LEVEL >= CENOTE_LEVEL_AMX

namespace cenote::CENOTE_ISA {

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
  // Panels of an MLP's middle that are made at a time where all of them would leave room for few rows.
  // Of the second product's weights they meet 24 KiB a panel, which stay in the L1 cache. Quantised
  // rows are scaled as a whole.
  static constexpr int64_t kSlicePanels = kQuantised<Dot> ? 0 : 12;
  // What a block of slices may take: most of it are sums, which pass once a slice.
  static constexpr int64_t kSlicedBytes = 4 << 20;
  // Parts of 24 KiB of a panel that is too long for the L1 cache: each meets all tiles in turn.
  static constexpr int64_t parts_of(int64_t chunks) { return chunks > 16 ? (chunks + 11) / 12 : 1; }
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
  static constexpr int64_t kLower = 16 * kWeightStride;  // a panel's sums lie as a chunk's weights do

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

  // `next_sums`: from the first two tiles of sums to the others, 0 if there are none.
  static CENOTE_INLINE void begin_sums(const char* start, int64_t stride, int64_t next_sums) {
    if (!start) return amx::zero_sums();
    amx::load_sums(start, stride, 64, next_sums);
  }

  // 32 rows by one panel. Registers: 0–3 sums, 4–5 rows, 6–7 columns. The panel stays in the L1 cache,
  // rows pass. A register isn't renamed: it is loaded when the last product that reads it has begun,
  // and as long before the next one as may be, the rows' first.
  static void tall_product(const Operands& operands, const Beside& beside) {
    constexpr int64_t kHalf = 16 * kChunkBytes;
    const char* rows = operands.rows;
    const char* weights = operands.weights;
    const char* next = operands.next;
    Aside aside{beside, operands.chunks};
    begin_sums(operands.start, kWeightStride, kLower);
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
    amx::store_sums(operands.sums, kWeightStride, 64, kLower);
  }

  // 16 rows by P panels.
  template <int P>
  static void flat_product(const Operands& operands, const Beside& beside) {
    constexpr int64_t kSumStride = P * kPanel * 4, kOthers = P == 2 ? kPanel * 4 : 0;
    const char* rows = operands.rows;
    const char* weights = operands.weights;
    const char* next = operands.next;
    Aside aside{beside, operands.chunks};
    begin_sums(operands.start, kSumStride, kOthers);
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
    amx::store_sums(operands.sums, kSumStride, 64, kOthers);
  }
};

}  // namespace cenote::CENOTE_ISA

#endif
