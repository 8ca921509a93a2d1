// Which sequences of a pack go through the layers together, and on how many threads. Knows nothing of
// layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cenote {

// Sequences side by side in the pack, and how many rows they have.
struct Group {
  int64_t first, end, rows;
};

// Neighbours together, up to `most` rows unless one sequence has more; the largest first. Sequences
// marked in `joined`, which may be null, stay with the one before them.
std::vector<Group> groups_of(const int32_t* cu_seqlens, int64_t sequences, const uint8_t* joined,
                             int64_t most);

// How many of the groups, from the first on, share all threads one after another, so that the rest,
// which threads take in turn, comes out even.
size_t count_shared(const std::vector<Group>& groups, int threads);

}  // namespace cenote
