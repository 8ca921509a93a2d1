// The Python module: levels and threads here, each group of kernels in a file of its own.
#include "bindings.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "dispatch.hpp"
#include "threads.hpp"

using namespace nanobind::literals;

NB_MODULE(_native, m) {
  m.doc() = "Cenote's CPU kernels: addresses and sizes in, nothing out. See _native.pyi.";

  m.def("isa", [] { return std::string(cenote::isa_name()); }, "The level in use.");
  m.def("isa_report", cenote::isa_report, "One line per level: in use, usable, or why not.");
  m.def("isa_levels", cenote::isa_levels, "The levels that can be used here, best first.");
  m.def("set_isa", cenote::set_isa, "name"_a,
        "Use another level from now on; what is packed already keeps its own.");
  m.def("set_num_threads", cenote::set_num_threads, "count"_a);
  m.def("num_threads", cenote::num_threads);

  bind_linear(m);
  bind_varlen(m);
}
