// Aligned memory; out of line, so that no level's instructions get into code that all levels share.
#include "memory.hpp"

#include <cstdlib>
#include <cstring>
#include <new>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace cenote {

constexpr size_t kHugePage = size_t{2} << 20;

void* aligned_zeroed(size_t bytes) {
  const size_t alignment = bytes >= kHugePage ? kHugePage : kCacheLine;
  bytes = round_up(bytes ? bytes : 1, kCacheLine);
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes) != 0) throw std::bad_alloc();
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (alignment == kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
  std::memset(memory, 0, bytes);
  return memory;
}

Scratch::~Scratch() { std::free(memory_); }

void Scratch::reset(size_t bytes) {
  used_ = 0;
  if (bytes <= size_) return;
  std::free(memory_);
  memory_ = nullptr;
  size_ = 0;
  memory_ = static_cast<char*>(aligned_zeroed(bytes));
  size_ = bytes;
}

Scratch& worker_scratch() {
  static thread_local Scratch scratch;
  return scratch;
}

Scratch& shared_scratch() {
  static thread_local Scratch scratch;
  return scratch;
}

}  // namespace cenote
