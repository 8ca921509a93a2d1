// The two fused operations on packed weights, for one level: split over threads, block by block.
//
// Many rows: a task takes a block of rows through the whole operation, so that what lies between
// (packed rows, the wide activation of an MLP, rows waiting for their norm) stays in its L2 cache.
// Few rows: the rows are packed once and tasks take columns, so that every thread streams its own
// part of the weights; that takes one round of tasks per stage.
#include "mlp.hpp"
#include "pack.hpp"
#include "peak.hpp"

namespace cenote::CENOTE_ISA {
namespace {

template <class Call>
auto by_kind(WeightKind kind, const Call& call) {
  switch (kind) {
    case WeightKind::bf16: return call(std::integral_constant<WeightKind, WeightKind::bf16>{});
    case WeightKind::int8: return call(std::integral_constant<WeightKind, WeightKind::int8>{});
    default: return call(std::integral_constant<WeightKind, WeightKind::f32>{});
  }
}

void pack(PackedWeight& weight, const void* source, DType dtype, const float* bias) {
  by_kind(weight.kind, [&](auto kind) {
    using Dot = typename Engine<decltype(kind)::value>::Dot;
    if (dtype == DType::f32) {
      pack_weight<Dot>(weight, static_cast<const float*>(source), bias);
    } else {
      pack_weight<Dot>(weight, static_cast<const bf16*>(source), bias);
    }
  });
}

void linear(const LinearArgs& args) {
  if (args.rows == 0) return;
  by_kind(args.weight->kind, [&](auto kind) { linear_of<decltype(kind)::value>(args); });
}

void mlp(const MlpArgs& args) {
  if (args.rows == 0) return;
  by_kind(args.up->kind, [&](auto kind) { mlp_of<decltype(kind)::value>(args); });
}

double peak(WeightKind kind, double seconds) {
  return by_kind(kind, [&](auto k) { return measure_peak<Engine<decltype(k)::value>>(seconds); });
}

}  // namespace

extern const LinearKernels linear_kernels;
const LinearKernels linear_kernels = {pack, linear, mlp, peak,
                                      CENOTE_LEVEL >= CENOTE_LEVEL_AMX ? 512 : 256};

}  // namespace cenote::CENOTE_ISA
