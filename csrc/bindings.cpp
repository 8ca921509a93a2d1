// The Python module: levels, threads and copies here, each group of kernels in a file of its own.
#include "bindings.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "checks.hpp"
#include "copy_rows.hpp"
#include "dispatch.hpp"
#include "threads.hpp"

using namespace nanobind::literals;

namespace {

void copy_rows(Address source, int64_t source_stride, Address target, int64_t target_stride,
               int64_t count, int64_t row_bytes, Address source_rows, int64_t source_count,
               Address target_rows, int64_t target_count) {
  const cenote::RowTable from{pointer<char>(source), source_stride, pointer<int64_t>(source_rows)};
  const cenote::RowTable to{pointer<char>(target), target_stride, pointer<int64_t>(target_rows)};
  const char* outside = "a row is outside its table";
  if (from.rows) cenote::check_indices(from.rows, count, source_count, outside);
  if (to.rows) cenote::check_indices(to.rows, count, target_count, outside);
  without_gil([&] { cenote::copy_rows(from, to, count, row_bytes); });
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "Cenote's CPU kernels: addresses and sizes in, nothing out. See _native.pyi.";

  m.def("isa", [] { return std::string(cenote::isa_name()); }, "The level in use.");
  m.def("isa_report", cenote::isa_report, "One line per level: in use, usable, or why not.");
  m.def("isa_levels", cenote::isa_levels, "The levels that can be used here, best first.");
  m.def("set_isa", cenote::set_isa, "name"_a,
        "Use another level from now on; what is packed already keeps its own.");
  m.def("set_num_threads", cenote::set_num_threads, "count"_a);
  m.def("num_threads", cenote::num_threads);
  m.def("set_alone", cenote::set_alone, "alone"_a,
        "Whether the kernels that this thread calls use no other threads from now on.");

  m.def("hold_alone", cenote::hold_alone, "hold"_a,
        "Threads that compute alone wait at their next gate until nobody holds them.");
  m.def("pass_gate", [] { without_gil(cenote::pass_gate); });

  m.def("copy_rows", copy_rows, "source"_a, "source_stride"_a, "target"_a, "target_stride"_a,
        "count"_a, "row_bytes"_a, nb::kw_only(), "source_rows"_a = 0, "source_count"_a = 0,
        "target_rows"_a = 0, "target_count"_a = 0);

  bind_layers(m);
  bind_linear(m);
  bind_varlen(m);
}
