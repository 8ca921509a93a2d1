// What the binding files share. Addresses are plain integers: making them from `tensor.data_ptr()`
// costs nothing, and the module needs neither torch nor a buffer protocol.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <thread>
#if defined(__GLIBCXX__)
#include <cxxabi.h>
#endif

namespace nb = nanobind;

using Address = uintptr_t;

template <class T>
T* pointer(Address address) {
  return reinterpret_cast<T*>(address);
}

// Takes the GIL again. When the interpreter is ending, Python before 3.14 ends a daemon thread right
// here by unwinding its stack, which aborts the process if it comes across a C++ handler; such a
// thread sleeps until the process is gone instead.
inline void take_gil_back(PyThreadState* state) {
#if defined(__GLIBCXX__)
  try {
    PyEval_RestoreThread(state);
  } catch (abi::__forced_unwind&) {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
#else
  PyEval_RestoreThread(state);
#endif
}

// Runs `work` without the GIL.
template <class Work>
void without_gil(const Work& work) {
  PyThreadState* state = PyEval_SaveThread();
  std::exception_ptr error;
  try {
    work();
  } catch (...) {
    error = std::current_exception();
  }
  take_gil_back(state);
  if (error) std::rethrow_exception(error);
}

void bind_layers(nb::module_& m);
void bind_linear(nb::module_& m);
void bind_varlen(nb::module_& m);
