// One source for all levels: what copies bytes is the C library's.
#include "copy_rows.hpp"

#include <algorithm>
#include <cstring>

#include "threads.hpp"

namespace cenote {

void copy_rows(const RowTable& source, const RowTable& target, int64_t count, int64_t bytes) {
  constexpr int64_t kTaskBytes = 1 << 16;
  const int64_t grain = std::max<int64_t>(1, kTaskBytes / std::max<int64_t>(bytes, 1));
  parallel_for((count + grain - 1) / grain, [&](int64_t task, int) {
    const int64_t end = std::min(count, (task + 1) * grain);
    for (int64_t i = task * grain; i < end; ++i) {
      std::memcpy(target.row(i), source.row(i), static_cast<size_t>(bytes));
    }
  });
}

}  // namespace cenote
