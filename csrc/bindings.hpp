// What the binding files share. Addresses are plain integers: making them from `tensor.data_ptr()`
// costs nothing, and the module needs neither torch nor a buffer protocol.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace nb = nanobind;

using Address = uintptr_t;

template <class T>
T* pointer(Address address) {
  return reinterpret_cast<T*>(address);
}

void bind_linear(nb::module_& m);
void bind_varlen(nb::module_& m);
