// What a call of an engine reads and writes. Knows nothing of how the product is made.
#pragma once

#include <cstdint>

#include "../simd.hpp"

namespace cenote::CENOTE_ISA {

// One call's operands. The sums are [rows][panels · kPanel] words, and so are those that they start
// from (null: zeros), which only the tile unit's engine takes.
struct Operands {
  const char* rows;
  const char* weights;  // of the first panel
  int64_t panel_bytes;  // from panel to panel
  int64_t chunks;
  const char* start;
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

}  // namespace cenote::CENOTE_ISA
