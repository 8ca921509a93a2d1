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

  // The second product's inputs that the panels [first, last) of the first one are.
  template <class E>
  Slice slice(const PackedRows<E>& middle, int64_t first, int64_t last, char* kept) const {
    const int64_t before = first * kPanel / kChunk<typename E::Dot>;
    const int64_t left = PackedRows<E>::chunks_of(down.in_features) - before;
    return {before, std::min(middle.chunks, left), kept, first == 0, last == up_panels};
  }
};

// How rows are shared out, and how many panels of the middle are made at a time.
struct MlpBlocks {
  Plan plan;
  int64_t slice_panels;
};

// The middle is made in slices where that lets a block have more rows: then the weights, which come
// from far away, are fetched less often.
template <class E>
MlpBlocks blocks_for(int64_t rows, const MlpPlan& mlp) {
  using Dot = typename E::Dot;
  const int64_t wide = mlp.down.in_features;
  const int64_t work =
      rows * (mlp.up.in_features * mlp.up.out_features + wide * mlp.down.out_features);
  const int64_t middle_bytes = PackedRows<E>::chunks_of(wide) * kChunkBytes +
                               (kQuantised<Dot> ? wide * int64_t(sizeof(float)) : 0);
  const Plan whole = plan_for<E>(rows, work, middle_bytes);
  if constexpr (E::kSlicePanels > 0) {
    const int64_t slice_bytes = PackedRows<E>::chunks_of(mlp.up.in_features) * kChunkBytes +
                                E::kSlicePanels * kPanel * int64_t(sizeof(bf16)) +
                                mlp.down.packed_columns * int64_t(sizeof(float));
    const Plan sliced = plan_for<E>(rows, work, slice_bytes, E::kSlicedBytes);
    if (sliced.rows_each > whole.rows_each) return {sliced, E::kSlicePanels};
  }
  return {whole, mlp.up_panels};
}

// A block's rows through both products, its middle made `slice_panels` at a time.
template <class E>
void mlp_block(const Input& input, const MlpPlan& mlp, const Result& result, int64_t slice_panels,
               int64_t offset, int64_t count) {
  const int64_t wide = std::min(mlp.down.in_features, slice_panels * kPanel);
  const size_t kept_bytes =
      slice_panels < mlp.up_panels ? Slice::kept_bytes<E>(count, mlp.down) : 0;
  Scratch& scratch = worker_scratch();
  scratch.reset(packed_bytes<E>(count, input.features) + buffer_bytes<E>(input.features) +
                Middle<E>::bytes(count, wide, slice_panels * kPanel) + kCacheLine +
                result.row_bytes(count) + kept_bytes);
  const PackedRows<E> block(scratch, count, input.features);
  float* buffer = scratch.take<float>(block.padded_features());
  pack_rows<E>(input, offset, block, 0, count, buffer);
  Middle<E> middle(scratch, count, wide, slice_panels * kPanel);
  float* out_rows = result.rows_for(offset, scratch, count);
  char* kept = scratch.take<char>(kept_bytes);
  middle.clear_padding(0, count);
  for (int64_t first = 0; first < mlp.up_panels; first += slice_panels) {
    const int64_t last = std::min(first + slice_panels, mlp.up_panels);
    middle.first_column = first * kPanel;
    multiply<E>(block, mlp.up, first, last, mlp.gap, {0, block.chunks},
                mlp.tiles<E>(middle, block));
    middle.quantise_rows(0, count);
    multiply_into<E>(result, middle.packed, mlp.down,
                     mlp.slice<E>(middle.packed, first, last, kept), 0, mlp.down.panel_count, offset,
                     out_rows);
  }
  result.normalise_rows(offset, out_rows, 0, count);
}

template <class E>
void mlp_by_rows(const Input& input, const MlpPlan& mlp, const Result& result, int64_t rows,
                 const MlpBlocks& blocks) {
  parallel_for(blocks.plan.blocks, [&](int64_t i, int) {
    const int64_t offset = i * blocks.plan.rows_each;
    mlp_block<E>(input, mlp, result, blocks.slice_panels, offset,
                 std::min(blocks.plan.rows_each, rows - offset));
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
    multiply<E>(block, mlp.up, first, last, mlp.gap, {0, block.chunks},
                mlp.tiles<E>(middle, block));
  });
  if constexpr (kQuantised<typename E::Dot>) {
    over_rows(rows, wide,
              [&](int64_t first, int64_t last) { middle.quantise_rows(first, last); });
  }
  over_columns(mlp.down.panel_count, [&](int64_t first, int64_t last) {
    multiply_into<E>(result, middle.packed, mlp.down, {0, middle.packed.chunks}, first, last, 0,
                     out_rows);
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
  const MlpBlocks blocks = blocks_for<E>(args.rows, mlp);
  if (blocks.plan.blocks) {
    mlp_by_rows<E>(input, mlp, result, args.rows, blocks);
  } else {
    mlp_by_columns<E>(input, mlp, result, args.rows);
  }
}

}  // namespace cenote::CENOTE_ISA
