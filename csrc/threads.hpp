// One pool of threads for all kernels. Knows nothing of what runs on it.
//
// It isn't OpenMP's, so it doesn't share (or fight over) torch's; idle workers spin for some
// microseconds and then sleep, so that between steps the cores belong to the API process.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

namespace cenote {

// Upper bound on threads, callers included.
constexpr int kMaxThreads = 256;

void set_num_threads(int count);
// What a call from this thread may use: 1 where it computes alone, and inside a task.
int num_threads();
// Whether this thread computes alone from now on, so that several callers run side by side.
void set_alone(bool alone);

// Threads that compute alone wait at their next gate as long as anybody holds them, but never long:
// whoever holds them all the time leaves them a share.
void hold_alone(bool hold);
void pass_gate();

namespace detail {
using TaskFn = void (*)(void* context, int64_t index, int worker);
void run_tasks(int64_t count, TaskFn task, void* context);
}  // namespace detail

// Calls `task(index, worker)` for every index below `count`, on the caller (worker 0) and the pool's
// threads, whoever is free taking the next index; returns when all are done. Tasks must not throw.
// Calls from several threads take turns; a call from inside a task runs on the spot.
template <class Task>
void parallel_for(int64_t count, Task&& task) {
  using Body = std::remove_reference_t<Task>;
  detail::run_tasks(
      count,
      [](void* context, int64_t index, int worker) {
        (*static_cast<Body*>(context))(index, worker);
      },
      const_cast<void*>(static_cast<const void*>(&task)));
}

}  // namespace cenote
