// The two products of an MLP in one go, by blocks of rows or by columns.
#pragma once

#include "middle.hpp"
#include "product.hpp"

namespace cenote::CENOTE_ISA {

struct MlpPlan {
  const PackedWeight& up;
  const PackedWeight& down;
  Activation activation;
  Gate gate;
  int64_t up_panels;  // of one half where gated
  int64_t gap;

  explicit MlpPlan(const MlpArgs& args)
      : up(*args.up), down(*args.down), activation(args.activation), gate(args.gate) {
    const int64_t panels = up.panel_count;
    up_panels = gate == Gate::none ? panels : panels / 2;
    gap = gate == Gate::none ? 0 : up_panels;
  }

  template <class E>
  MiddleTiles<E> tiles(const Middle<E>& middle, const PackedRows<E>& block) const {
    return {middle, block, up, activation, gate};
  }
};

template <class E>
void mlp_by_rows(const Input& input, const MlpPlan& mlp, const Result& result, int64_t rows,
                 const Plan& plan) {
  const int64_t wide = mlp.down.in_features;
  parallel_for(plan.blocks, [&](int64_t i, int) {
    const int64_t offset = i * plan.rows_each;
    const int64_t count = std::min(plan.rows_each, rows - offset);
    Scratch& scratch = worker_scratch();
    scratch.reset(packed_bytes<E>(count, input.features) + buffer_bytes<E>(input.features) +
                  Middle<E>::bytes(count, wide, mlp.up_panels * kPanel) + kCacheLine +
                  result.row_bytes(count));
    const PackedRows<E> block(scratch, count, input.features);
    float* buffer = scratch.take<float>(block.padded_features());
    pack_rows<E>(input, offset, block, 0, count, buffer);
    const Middle<E> middle(scratch, count, wide, mlp.up_panels * kPanel);
    float* out_rows = result.rows_for(offset, scratch, count);
    middle.clear_padding(0, count);
    multiply<E>(block, mlp.up, 0, mlp.up_panels, mlp.gap, mlp.tiles<E>(middle, block));
    middle.quantise_rows(0, count);
    multiply_into<E>(result, middle.packed, mlp.down, 0, mlp.down.panel_count, offset, out_rows);
    result.normalise_rows(offset, out_rows, 0, count);
  });
}

template <class E>
void mlp_by_columns(const Input& input, const MlpPlan& mlp, const Result& result, int64_t rows) {
  const int64_t wide = mlp.down.in_features;
  Scratch& scratch = shared_scratch();
  scratch.reset(packed_bytes<E>(rows, input.features) +
                Middle<E>::bytes(rows, wide, mlp.up_panels * kPanel) + kCacheLine +
                result.row_bytes(rows));
  const PackedRows<E> block(scratch, rows, input.features);
  const Middle<E> middle(scratch, rows, wide, mlp.up_panels * kPanel);
  float* out_rows = result.rows_for(0, scratch, rows);
  pack_all<E>(input, block);
  middle.clear_padding(0, rows);
  over_columns(mlp.up_panels, [&](int64_t first, int64_t last) {
    multiply<E>(block, mlp.up, first, last, mlp.gap, mlp.tiles<E>(middle, block));
  });
  if constexpr (kQuantised<typename E::Dot>) {
    over_rows(rows, wide,
              [&](int64_t first, int64_t last) { middle.quantise_rows(first, last); });
  }
  over_columns(mlp.down.panel_count, [&](int64_t first, int64_t last) {
    multiply_into<E>(result, middle.packed, mlp.down, first, last, 0, out_rows);
  });
  normalise_all(result, out_rows, rows);
}

template <WeightKind kKind>
void mlp_of(const MlpArgs& args) {
  using E = Engine<kKind>;
  const MlpPlan mlp(args);
  const Input input{args.x, args.x_dtype, args.x_stride, mlp.up.in_features, args.pre_norm};
  const Result result{args.out,         args.out_dtype, mlp.down.out_features,
                      Activation::none, args.residual,  args.post_norm, args.added};
  const int64_t wide = mlp.down.in_features;
  const int64_t bytes_per_row =
      PackedRows<E>::chunks_of(wide) * kChunkBytes +
      (kQuantised<typename E::Dot> ? wide * int64_t(sizeof(float)) : 0);
  const int64_t work = args.rows * (mlp.up.in_features * mlp.up.out_features +
                                    mlp.down.in_features * mlp.down.out_features);
  const Plan plan = plan_for<E>(args.rows, work, bytes_per_row);
  if (plan.blocks) {
    mlp_by_rows<E>(input, mlp, result, args.rows, plan);
  } else {
    mlp_by_columns<E>(input, mlp, result, args.rows);
  }
}

}  // namespace cenote::CENOTE_ISA
