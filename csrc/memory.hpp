// Aligned memory: owned blocks for weights, and a scratch arena per thread. Knows nothing of layout.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cenote {

constexpr size_t kCacheLine = 64;

inline size_t round_up(size_t value, size_t step) { return (value + step - 1) / step * step; }

// Zeroed memory, to be given back with std::free. Large blocks lie on huge pages: weights are
// streamed panel by panel, and with small pages the TLB would miss all the time.
void* aligned_zeroed(size_t bytes);

// A thread's scratch memory, kept from call to call. Contents are undefined.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch();

  // Makes room for `bytes` in all and starts handing out from the beginning again.
  void reset(size_t bytes);

  // The next `count` elements, on a cache line of their own. The sum of all pieces, each rounded
  // up to cache lines, must have been asked for in `reset`.
  template <class T>
  T* take(size_t count) {
    char* start = memory_ + used_;
    used_ += round_up(count * sizeof(T), kCacheLine);
    return reinterpret_cast<T*>(start);
  }

 private:
  char* memory_ = nullptr;
  size_t size_ = 0;
  size_t used_ = 0;
};

Scratch& worker_scratch();  // what a thread works in during one task
Scratch& shared_scratch();  // what a caller shares with the workers during one call

}  // namespace cenote
