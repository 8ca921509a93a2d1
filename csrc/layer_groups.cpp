#include "layer_groups.hpp"

#include <algorithm>

namespace cenote {
namespace {

// What a row takes on all threads at once, which meet after every product, to a row on one thread.
constexpr double kSharedCost = 1.08;

// Rows of the busiest thread when threads take the groups from `first` on in turn.
int64_t busiest(const std::vector<Group>& groups, size_t first, int threads) {
  std::vector<int64_t> loads(threads);
  for (size_t i = first; i < groups.size(); ++i) {
    *std::min_element(loads.begin(), loads.end()) += groups[i].rows;
  }
  return *std::max_element(loads.begin(), loads.end());
}

}  // namespace

std::vector<Group> groups_of(const int32_t* cu_seqlens, int64_t sequences, const uint8_t* joined,
                             int64_t most) {
  std::vector<Group> groups;
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t rows = cu_seqlens[s + 1] - cu_seqlens[s];
    const bool stays = joined && joined[s];
    if (groups.empty() || (groups.back().rows + rows > most && !stays)) groups.push_back({s, s, 0});
    groups.back().end = s + 1;
    groups.back().rows += rows;
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const Group& a, const Group& b) { return a.rows > b.rows; });
  return groups;
}

size_t count_shared(const std::vector<Group>& groups, int threads) {
  if (threads == 1) return 0;
  size_t best = 0;
  double least = 0, shared_rows = 0;
  for (size_t count = 0; count <= groups.size(); ++count) {
    if (count > 0) shared_rows += groups[count - 1].rows;
    const double cost = busiest(groups, count, threads) + kSharedCost * shared_rows / threads;
    if (count == 0 || cost < least) {
      least = cost;
      best = count;
    }
  }
  return best;
}

}  // namespace cenote
