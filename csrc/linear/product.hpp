// One product with what is fused to it, by blocks of rows or by columns.
#pragma once

#include "input.hpp"
#include "result.hpp"
#include "sharing.hpp"

namespace cenote::CENOTE_ISA {

template <class E>
void pack_all(const Input& input, const PackedRows<E>& block) {
  over_rows(block.tiling.rows, input.features, [&](int64_t first, int64_t last) {
    Scratch& scratch = worker_scratch();
    scratch.reset(block.padded_features() * sizeof(float));
    pack_rows<E>(input, 0, block, first, last, scratch.take<float>(block.padded_features()));
  });
}

inline void normalise_all(const Result& result, float* out_rows, int64_t rows) {
  if (!result.norm) return;
  over_rows(rows, result.columns, [&](int64_t first, int64_t last) {
    result.normalise_rows(0, out_rows, first, last);
  });
}

template <class E>
void linear_by_rows(const Input& input, const PackedWeight& weight, const Result& result,
                    int64_t rows, const Plan& plan) {
  parallel_for(plan.blocks, [&](int64_t i, int) {
    const int64_t offset = i * plan.rows_each;
    const int64_t count = std::min(plan.rows_each, rows - offset);
    Scratch& scratch = worker_scratch();
    scratch.reset(packed_bytes<E>(count, input.features) + buffer_bytes<E>(input.features) +
                  result.row_bytes(count));
    const PackedRows<E> block(scratch, count, input.features);
    float* buffer = scratch.take<float>(block.padded_features());
    pack_rows<E>(input, offset, block, 0, count, buffer);
    float* out_rows = result.rows_for(offset, scratch, count);
    multiply_into<E>(result, block, weight, {0, block.chunks}, 0, weight.panel_count, offset,
                     out_rows);
    result.normalise_rows(offset, out_rows, 0, count);
  });
}

template <class E>
void linear_by_columns(const Input& input, const PackedWeight& weight, const Result& result,
                       int64_t rows) {
  Scratch& scratch = shared_scratch();
  scratch.reset(packed_bytes<E>(rows, input.features) + result.row_bytes(rows));
  const PackedRows<E> block(scratch, rows, input.features);
  float* out_rows = result.rows_for(0, scratch, rows);
  pack_all<E>(input, block);
  over_columns(weight.panel_count, [&](int64_t first, int64_t last) {
    multiply_into<E>(result, block, weight, {0, block.chunks}, first, last, 0, out_rows);
  });
  normalise_all(result, out_rows, rows);
}

template <WeightKind kKind>
void linear_of(const LinearArgs& args) {
  using E = Engine<kKind>;
  const PackedWeight& weight = *args.weight;
  const Input input{args.x, args.x_dtype, args.x_stride, weight.in_features, args.pre_norm};
  const Result result{args.out,      args.out_dtype, weight.out_features,
                      args.activation, args.residual,  args.post_norm, args.added, args.out_stride};
  const int64_t bytes_per_row =
      PackedRows<E>::chunks_of(weight.in_features) * kChunkBytes +
      (args.post_norm ? weight.out_features * int64_t(sizeof(float)) : 0);
  const int64_t work = args.rows * weight.in_features * weight.out_features;
  const Plan plan = plan_for<E>(args.rows, work, bytes_per_row);
  if (plan.blocks) {
    linear_by_rows<E>(input, weight, result, args.rows, plan);
  } else {
    linear_by_columns<E>(input, weight, result, args.rows);
  }
}

}  // namespace cenote::CENOTE_ISA
