// How rows and columns of a product are shared out over threads, and what a block needs of scratch
// memory. Knows nothing of what is computed.
#pragma once

#include "../threads.hpp"
#include "rows.hpp"

namespace cenote::CENOTE_ISA {

// Below this many multiply-adds, waking a thread costs more than it brings.
constexpr int64_t kTinyWork = 200'000;
// From this many rows per thread on, blocks of rows beat columns.
constexpr int64_t kRowsPerThread = 48;

struct Plan {
  int64_t blocks;  // 0: columns are shared out instead
  int64_t rows_each;

  // `limit`: rows of the largest block.
  Plan(int64_t rows, int64_t multiply_adds, int64_t limit) {
    const int64_t threads = multiply_adds < kTinyWork ? 1 : num_threads();
    if (threads > 1 && rows < kRowsPerThread * threads) {
      blocks = rows_each = 0;
      return;
    }
    blocks = divide_up(rows, limit);
    if (blocks < 8 * threads) blocks = divide_up(blocks, threads) * threads;
    rows_each = divide_up(rows, blocks);
    blocks = divide_up(rows, rows_each);
  }
};

template <class E>
Plan plan_for(int64_t rows, int64_t multiply_adds, int64_t bytes_per_row,
              int64_t block_bytes = E::kBlockBytes) {
  const int64_t fitting = block_bytes / std::max<int64_t>(1, bytes_per_row) / E::kTileRows;
  return {rows, multiply_adds, std::clamp<int64_t>(fitting, 2, E::kTurns) * E::kTileRows};
}

// Runs `task(first, last)` over pieces of `count` panels.
template <class Task>
void over_columns(int64_t count, const Task& task) {
  const int64_t pieces = std::min<int64_t>(divide_up(count, 4), 3 * num_threads());
  parallel_for(pieces, [&](int64_t i, int) {
    task(count * i / pieces, count * (i + 1) / pieces);
  });
}

// The same over rows, for the cheap stages before and after a product.
template <class Task>
void over_rows(int64_t rows, int64_t features, const Task& task) {
  const int64_t pieces =
      std::clamp<int64_t>(rows * features / 8192, 1, std::min<int64_t>(rows, num_threads()));
  parallel_for(pieces, [&](int64_t i, int) { task(rows * i / pieces, rows * (i + 1) / pieces); });
}

template <class E>
size_t packed_bytes(int64_t rows, int64_t features) {
  return PackedRows<E>::bytes(rows, features) + kCacheLine;
}

template <class E>
size_t buffer_bytes(int64_t features) {
  return PackedRows<E>::chunks_of(features) * kChunk<typename E::Dot> * sizeof(float) + kCacheLine;
}

}  // namespace cenote::CENOTE_ISA
