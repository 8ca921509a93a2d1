// Python's view of packed weights and the two fused products. Checks what a wrong call would turn
// into a crash; everything else is the caller's.
#include <nanobind/stl/string.h>

#include <new>
#include <string>
#include <vector>

#include "bindings_norm.hpp"
#include "threads.hpp"

using namespace nanobind::literals;

namespace cenote {
namespace {

constexpr const char* kKindNames[] = {"f32", "bf16", "int8"};

WeightKind kind_named(const std::string& name) {
  for (int i = 0; i < 3; ++i) {
    if (name == kKindNames[i]) return static_cast<WeightKind>(i);
  }
  throw std::invalid_argument("weight kind must be f32, bf16 or int8, not '" + name + "'");
}

void make_weight(PackedWeight* weight, Address source, int dtype, int64_t out, int64_t in,
                 Address bias, const std::string& kind_name, bool halves) {
  require(out > 0 && in > 0, "a weight needs at least one input and one output");
  require(!halves || out % 2 == 0, "halves: the number of outputs must be even");
  const WeightKind kind = kind_named(kind_name);
  const DType source_dtype = checked_dtype(dtype);
  const Kernels& level = kernels();
  new (weight) PackedWeight;
  weight->kernels = level.linear;
  weight->isa = level.name;
  weight->kind = kind;
  weight->out_features = out;
  weight->in_features = in;
  weight->halves = halves;
  without_gil([&] {
    level.linear->pack(*weight, pointer<void>(source), source_dtype, pointer<float>(bias));
  });
}

int64_t bytes_of(const PackedWeight& weight) {
  const int64_t panels = weight.panel_count * static_cast<int64_t>(weight.panel_bytes);
  const int64_t vectors = weight.scales ? 3 : 1;
  return panels + vectors * weight.packed_columns * int64_t{sizeof(float)};
}

void linear(Address x, int x_dtype, int64_t rows, const PackedWeight& weight, Address out,
            int out_dtype, int activation, const Norm* pre_norm, Address residual,
            const Norm* post_norm, int64_t x_stride) {
  require(rows >= 0, "rows must not be negative");
  require(!weight.halves, "a weight packed in halves can only be an MLP's up matrix");
  LinearArgs args;
  args.x = pointer<void>(x);
  args.x_dtype = checked_dtype(x_dtype);
  args.x_stride = x_stride ? x_stride : weight.in_features;
  args.rows = rows;
  args.weight = &weight;
  args.out = pointer<void>(out);
  args.out_dtype = checked_dtype(out_dtype);
  args.activation = checked_activation(activation);
  args.pre_norm = args_of(pre_norm, weight.in_features);
  args.residual = pointer<float>(residual);
  args.post_norm = args_of(post_norm, weight.out_features);
  without_gil([&] { weight.kernels->linear(args); });
}

void mlp(Address x, int x_dtype, int64_t rows, const PackedWeight& up, const PackedWeight& down,
         Address out, int out_dtype, int activation, int gated, const Norm* pre_norm,
         Address residual, const Norm* post_norm, int64_t x_stride) {
  require(rows >= 0, "rows must not be negative");
  MlpArgs args;
  args.x = pointer<void>(x);
  args.x_dtype = checked_dtype(x_dtype);
  args.x_stride = x_stride ? x_stride : up.in_features;
  args.rows = rows;
  args.up = &up;
  args.down = &down;
  args.out = pointer<void>(out);
  args.out_dtype = checked_dtype(out_dtype);
  args.activation = checked_activation(activation);
  args.gate = checked_gate(gated, up, down);
  args.pre_norm = args_of(pre_norm, up.in_features);
  args.residual = pointer<float>(residual);
  args.post_norm = args_of(post_norm, down.out_features);
  without_gil([&] { up.kernels->mlp(args); });
}

double peak(const std::string& kind_name, double seconds) {
  const WeightKind kind = kind_named(kind_name);
  const LinearKernels& level = *kernels().linear;
  std::vector<double> rates(num_threads());
  without_gil([&] {
    parallel_for(num_threads(), [&](int64_t i, int) { rates[i] = level.peak(kind, seconds); });
  });
  double total = 0;
  for (double rate : rates) total += rate;
  return total;
}

}  // namespace
}  // namespace cenote

void bind_linear(nb::module_& m) {
  using namespace cenote;
  m.attr("F32") = static_cast<int>(DType::f32);
  m.attr("BF16") = static_cast<int>(DType::bf16);
  nb::dict activations;
  const char* names[] = {"none", "relu", "gelu_erf", "gelu_tanh", "silu", "tanh", "quick_gelu"};
  for (int i = 0; i < 7; ++i) activations[names[i]] = i;
  m.attr("ACTIVATIONS") = activations;

  nb::class_<PackedWeight>(m, "PackedWeight",
                           "A copy of a row-major [out, in] matrix in the current level's order.")
      .def("__init__", &make_weight, "weight"_a, "dtype"_a, "out_features"_a, "in_features"_a,
           "bias"_a = 0, "kind"_a = "bf16", "halves"_a = false)
      .def_ro("out_features", &PackedWeight::out_features)
      .def_ro("in_features", &PackedWeight::in_features)
      .def_prop_ro("kind",
                   [](const PackedWeight& w) { return kKindNames[static_cast<int>(w.kind)]; })
      .def_ro("isa", &PackedWeight::isa)
      .def_prop_ro("nbytes", &bytes_of);

  nb::class_<Norm>(m, "Norm", "A copy of a LayerNorm's or RMSNorm's float32 parameters.")
      .def(nb::init<const std::string&, Address, Address, int64_t, float>(), "kind"_a, "weight"_a,
           "bias"_a, "size"_a, "eps"_a)
      .def_prop_ro("size", &Norm::size);

  m.def("linear", &linear, "x"_a, "x_dtype"_a, "rows"_a, "weight"_a, "out"_a, "out_dtype"_a,
        "activation"_a = 0, "pre_norm"_a.none() = nb::none(), "residual"_a = 0,
        "post_norm"_a.none() = nb::none(), "x_stride"_a = 0,
        "out = post_norm(act(pre_norm(x) @ W.T + b) + residual)");
  m.def("mlp", &mlp, "x"_a, "x_dtype"_a, "rows"_a, "up"_a, "down"_a, "out"_a, "out_dtype"_a,
        "activation"_a, "gated"_a = 0, "pre_norm"_a.none() = nb::none(), "residual"_a = 0,
        "post_norm"_a.none() = nb::none(), "x_stride"_a = 0,
        "out = post_norm(down(act(up(pre_norm(x)))) + residual)");
  m.def("peak", &peak, "kind"_a, "seconds"_a = 0.2,
        "Operations a second on registers alone, over all threads.");
}
