// The thread pool: a ticket counter that all threads draw from, spin-then-sleep at both ends.
#include "threads.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#if defined(__linux__)
#include <sched.h>
#endif

namespace cenote {
namespace {

using Clock = std::chrono::steady_clock;
// Longer than the gap between two kernels of one step, shorter than anything a person notices.
constexpr auto kSpin = std::chrono::microseconds(30);
// Several times what a query's step takes.
constexpr auto kLongestHold = std::chrono::milliseconds(15);

void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  for (int i = 0; i < 8; ++i) __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// Returns once `ready()` holds or the spinning time is over; tells which.
template <class Ready>
bool spin_until(Ready ready) {
  for (int i = 0; i < 64; ++i) {
    if (ready()) return true;
    pause_briefly();
  }
  const auto end = Clock::now() + kSpin;
  while (Clock::now() < end) {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      pause_briefly();
    }
  }
  return ready();
}

int usable_cores() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1u, std::thread::hardware_concurrency());
}

class Pool {
 public:
  void run(int64_t count, detail::TaskFn task, void* context, int threads) {
    std::lock_guard turn(turn_);
    task_ = task;
    context_ = context;
    count_ = static_cast<uint32_t>(count);
    finished_.store(0, std::memory_order_relaxed);
    start_workers(threads - 1);
    active_workers_.store(threads - 1, std::memory_order_relaxed);
    const uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
    ticket_.store(pack(epoch, count_), std::memory_order_release);
    epoch_.store(epoch, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) epoch_.notify_all();
    draw(epoch, 0);
    wait_for_the_others();
  }

 private:
  static uint64_t pack(uint32_t epoch, uint32_t left) { return uint64_t{epoch} << 32 | left; }

  // Only the holder of the turn starts threads. They are never joined: the pool lives as long as
  // the process, whose end takes them along wherever they sleep.
  void start_workers(int wanted) {
    for (; started_ < wanted; ++started_) {
      const int worker = started_ + 1;
      const uint32_t seen = epoch_.load(std::memory_order_relaxed);
      std::thread([this, worker, seen] { work(worker, seen); }).detach();
    }
  }

  void work(int worker, uint32_t seen) {
    inside = true;
    for (;;) {
      const auto news = [&] { return epoch_.load(std::memory_order_acquire) != seen; };
      if (!spin_until(news)) sleep_until_news(seen);
      seen = epoch_.load(std::memory_order_acquire);
      if (worker <= active_workers_.load(std::memory_order_relaxed)) draw(seen, worker);
    }
  }

  void sleep_until_news(uint32_t seen) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    epoch_.wait(seen, std::memory_order_seq_cst);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

  // Draws tickets of this epoch until none is left. A worker that comes late finds another epoch or
  // a zero and touches nothing else: task, context and count are read only with a ticket in hand,
  // and they can't change before that ticket's task is counted as finished.
  void draw(uint32_t epoch, int worker) {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    for (;;) {
      const uint32_t left = static_cast<uint32_t>(ticket);
      if (static_cast<uint32_t>(ticket >> 32) != epoch || left == 0) return;
      if (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel,
                                         std::memory_order_acquire)) {
        continue;
      }
      const uint32_t total = count_;
      task_(context_, total - left, worker);
      if (finished_.fetch_add(1, std::memory_order_acq_rel) + 1 == total && worker != 0) {
        finished_.notify_all();
      }
      ticket = ticket_.load(std::memory_order_acquire);
    }
  }

  void wait_for_the_others() {
    const auto done = [&] { return finished_.load(std::memory_order_acquire) == count_; };
    if (spin_until(done)) return;
    for (uint32_t seen = finished_.load(std::memory_order_acquire); seen != count_;
         seen = finished_.load(std::memory_order_acquire)) {
      finished_.wait(seen, std::memory_order_acquire);
    }
  }

 public:
  static thread_local bool inside;

 private:
  std::mutex turn_;
  int started_ = 0;

  detail::TaskFn task_ = nullptr;
  void* context_ = nullptr;
  uint32_t count_ = 0;

  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<uint32_t> epoch_{0};
  std::atomic<int> active_workers_{0};
  std::atomic<int> sleepers_{0};
  alignas(64) std::atomic<uint32_t> finished_{0};
};

thread_local bool Pool::inside = false;

// Where threads that compute alone let others go ahead.
class Gate {
 public:
  void hold(bool hold) {
    std::lock_guard lock(mutex_);
    holders_ += hold ? 1 : -1;
    if (holders_ == 0) opened_.notify_all();
  }
  void pass() {
    if (holders_.load(std::memory_order_relaxed) == 0) return;
    std::unique_lock lock(mutex_);
    opened_.wait_for(lock, kLongestHold, [&] { return holders_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  std::atomic<int> holders_{0};
};

std::atomic<Pool*> the_pool{nullptr};
std::atomic<Gate*> the_gate{nullptr};
std::atomic<int> wanted_threads{0};
thread_local bool is_alone = false;

// The child of a fork has none of the parent's threads, and perhaps a locked mutex: it starts anew.
void forget_all() {
  the_pool.store(nullptr, std::memory_order_relaxed);
  the_gate.store(nullptr, std::memory_order_relaxed);
  Pool::inside = false;
}

// The process's own of either, made when it is first asked for and deliberately never deleted.
template <class T>
T& only(std::atomic<T*>& place) {
  static std::mutex making;
  static std::once_flag watch_forks;
  T* existing = place.load(std::memory_order_acquire);
  if (existing) return *existing;
  std::call_once(watch_forks, [] { pthread_atfork(nullptr, nullptr, forget_all); });
  std::lock_guard lock(making);
  if (!place.load(std::memory_order_acquire)) place.store(new T, std::memory_order_release);
  return *place.load(std::memory_order_acquire);
}

}  // namespace

void set_num_threads(int count) {
  wanted_threads.store(std::clamp(count, 1, kMaxThreads), std::memory_order_relaxed);
}

void set_alone(bool alone) { is_alone = alone; }

void hold_alone(bool hold) { only(the_gate).hold(hold); }

void pass_gate() {
  if (is_alone) only(the_gate).pass();
}

int num_threads() {
  if (is_alone || Pool::inside) return 1;
  int count = wanted_threads.load(std::memory_order_relaxed);
  if (count == 0) {
    count = std::min(usable_cores(), kMaxThreads);
    wanted_threads.store(count, std::memory_order_relaxed);
  }
  return count;
}

void detail::run_tasks(int64_t count, TaskFn task, void* context) {
  constexpr int64_t kLimit = int64_t{1} << 31;
  const int threads = static_cast<int>(std::min<int64_t>(num_threads(), count));
  if (threads <= 1 || Pool::inside || count >= kLimit) {
    for (int64_t i = 0; i < count; ++i) task(context, i, 0);
    return;
  }
  Pool::inside = true;
  only(the_pool).run(count, task, context, threads);
  Pool::inside = false;
}

}  // namespace cenote
