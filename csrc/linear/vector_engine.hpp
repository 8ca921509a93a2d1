// The innermost product on vector registers: a tile of packed rows times a few panels of packed
// weights. Knows nothing of threads, norms or what becomes of the result.
#pragma once

#include "dot.hpp"
#include "operands.hpp"

namespace cenote::CENOTE_ISA {

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
  // Weights keep up with vectors: neither slices of an MLP's middle nor parts of a panel gain anything.
  static constexpr int64_t kSlicePanels = 0;
  static constexpr int64_t parts_of(int64_t) { return 1; }
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

}  // namespace cenote::CENOTE_ISA
