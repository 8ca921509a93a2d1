// Whole rows from one table to another, by index on either side. Knows bytes and nothing of what
// they mean.
#pragma once

#include <cstdint>

namespace cenote {

// A table's rows lie `stride` bytes apart. Row i of a copy is `rows[i]`, or i where `rows` is null.
struct RowTable {
  char* data = nullptr;
  int64_t stride = 0;
  const int64_t* rows = nullptr;

  char* row(int64_t i) const { return data + (rows ? rows[i] : i) * stride; }
};

// The first `bytes` of each of `count` rows of `source` to those of `target`, which don't overlap.
void copy_rows(const RowTable& source, const RowTable& target, int64_t count, int64_t bytes);

}  // namespace cenote
