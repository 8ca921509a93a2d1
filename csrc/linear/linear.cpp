// The two fused operations on packed weights, for one level: split over threads, block by block.
//
// Many rows: a task takes a block of rows through the whole operation, so that what lies between
// (packed rows, the wide activation of an MLP, rows waiting for their norm) stays in its L2 cache.
// Few rows: the rows are packed once and tasks take columns, so that every thread streams its own
// part of the weights; that takes one round of tasks per stage.
#include "../threads.hpp"
#include "finish.hpp"
#include "pack.hpp"
#include "peak.hpp"

namespace cenote::CENOTE_ISA {
namespace {

// Below this many multiply-adds, waking a thread costs more than it brings.
constexpr int64_t kTinyWork = 200'000;
// From this many rows per thread on, blocks of rows beat columns.
constexpr int64_t kRowsPerThread = 48;
// What a block's own data may take of the L2 cache; the weights stream through the rest.
constexpr int64_t kBlockBytes = 512 << 10;

struct Input {
  const void* x;
  DType dtype;
  int64_t stride;
  int64_t features;
  const NormArgs* norm;

  void read(int64_t row, int64_t padded, float* to) const {
    if (dtype == DType::f32) {
      read_row(static_cast<const float*>(x) + row * stride, features, padded, to);
    } else {
      read_row(static_cast<const bf16*>(x) + row * stride, features, padded, to);
    }
    if (norm) rows::normalise_into(to, features, *norm, to);
  }
};

// Packs rows [first, last) of the block, which begins at `offset` in the input.
template <class E>
void pack_rows(const Input& input, int64_t offset, const PackedRows<E>& block, int64_t first,
               int64_t last, float* buffer) {
  block.each_row(first, last, [&](int64_t row, char* to) {
    input.read(offset + row, block.padded_features(), buffer);
    pack_row<E>(buffer, block, row, to);
  });
  if (last == block.tiling.rows) block.clear_padding_rows();
}

// Multiplies a block with the panels [first, last) and, if `gap` isn't zero, also with the panels
// `gap` behind each; hands every finished tile and its partner (or null) to `sink`.
//
// Tiles take turns at a panel, so that its weights come from far away only once. An engine that is
// quicker than the L2 cache (E::kPassBytes) takes a panel in several passes over its inputs, each
// short enough for the L1 cache, and fetches the next pass's weights meanwhile.
template <class E>
class Multiplier {
 public:
  Multiplier(const PackedRows<E>& block, const PackedWeight& weight)
      : block_(block),
        panels_(static_cast<const char*>(weight.panels)),
        panel_bytes_(static_cast<int64_t>(weight.panel_bytes)),
        at_once_(block.tiling.tiles ? E::panels_for(block.tiling.size(0)) : 1) {}

  template <class Sink>
  void run(int64_t first, int64_t last, int64_t gap, const Sink& sink) {
    for (int64_t t = 0; t < block_.tiling.tiles; t += kGroup) {
      const Group group{t, std::min(t + kGroup, block_.tiling.tiles)};
      for (int64_t p = first; p < last;) {
        const int count = p + at_once_ <= last ? at_once_ : 1;
        if (gap) products(group, p + gap, count, p, words_[1], [](const Tile&) {});
        products(group, p, count, p + gap + count, words_[0], [&](const Tile& one) {
          if (!gap) return sink(one, nullptr);
          const Tile other = tile(group, one.index, p + gap, count, words_[1]);
          sink(one, &other);
        });
        p += count;
      }
    }
  }

 private:
  using Dot = typename E::Dot;
  static constexpr int64_t kGroup = 8;
  static constexpr int64_t kTileBytes = E::kTileRows * kPanel * 4;
  static constexpr int64_t kChunkWeights = kChunkSteps<Dot> * kPanel * 4;

  struct Group {
    int64_t first, end;
    int64_t size() const { return end - first; }
  };

  Tile tile(const Group& group, int64_t index, int64_t panel, int count, char* words) const {
    return {words + (index - group.first) * kTileBytes,
            block_.tiling.size(index),
            count * kPanel,
            index,
            block_.tiling.start(index),
            panel * kPanel};
  }

  // The group's products with `count` panels, each handed to `done`; `next_panel` comes after them.
  template <class Done>
  void products(const Group& group, int64_t panel, int count, int64_t next_panel, char* words,
                const Done& done) const {
    const bool one_pass = E::kPassBytes == 0 || group.size() == 1;
    const int64_t passes = one_pass ? 1 : divide_up(block_.chunks * kChunkWeights, E::kPassBytes);
    const char* weights = panels_ + panel * panel_bytes_;
    for (int64_t pass = 0; pass < passes; ++pass) {
      const int64_t from = block_.chunks * pass / passes;
      const int64_t to = block_.chunks * (pass + 1) / passes;
      const bool last = pass + 1 == passes;
      const char* next = last ? panels_ + next_panel * panel_bytes_ : weights + to * kChunkWeights;
      // Each tile fetches its share of what comes next.
      const int lines = one_pass ? 0 : static_cast<int>(kChunkWeights / 64 / group.size());
      for (int64_t t = group.first; t < group.end; ++t) {
        const Tile sums = tile(group, t, panel, count, words);
        E::multiply(sums.rows, count,
                    {block_.tile(t) + from * block_.kChunkStride, weights + from * kChunkWeights,
                     panel_bytes_, to - from, sums.words, pass > 0, next, lines});
        next += lines * (to - from) * 64;
        if (last) done(sums);
      }
    }
  }

  const PackedRows<E>& block_;
  const char* panels_;
  int64_t panel_bytes_;
  int at_once_;
  [[no_unique_address]] typename E::Session session_;
  alignas(64) char words_[2][kGroup * kTileBytes];
};

template <class E, class Sink>
void multiply(const PackedRows<E>& block, const PackedWeight& weight, int64_t first, int64_t last,
              int64_t gap, const Sink& sink) {
  Multiplier<E>(block, weight).run(first, last, gap, sink);
}

// Where the rows of a product go: [rows][columns] of T, or float32 first if a norm follows.
struct Result {
  void* out;
  DType dtype;
  int64_t columns;
  Activation activation;
  const float* residual;
  const NormArgs* norm;

  bool needs_rows() const { return norm && dtype != DType::f32; }
  size_t row_bytes(int64_t rows) const {
    return needs_rows() ? round_up(rows * columns * sizeof(float), kCacheLine) : 0;
  }
  // The float32 rows that the norm reads: the output itself where it can hold them.
  float* rows_for(int64_t offset, Scratch& scratch, int64_t rows) const {
    if (needs_rows()) return scratch.take<float>(rows * columns);
    return static_cast<float*>(out) + offset * columns;
  }
  const float* residual_at(int64_t offset) const {
    return residual ? residual + offset * columns : nullptr;
  }

  template <class E>
  void write(const Tile& tile, const PackedRows<E>& block, const PackedWeight& weight,
             int64_t offset, float* rows) const {
    using Dot = typename E::Dot;
    if (dtype == DType::f32 || norm) {
      const Output<float> to{rows, residual_at(offset), columns};
      to.template write<Dot>(tile, weight, block.scales, activation);
    } else {
      const Output<bf16> to{static_cast<bf16*>(out) + offset * columns, residual_at(offset),
                            columns};
      to.template write<Dot>(tile, weight, block.scales, activation);
    }
  }

  void normalise_rows(int64_t offset, const float* rows, int64_t first, int64_t last) const {
    if (!norm) return;
    for (int64_t r = first; r < last; ++r) {
      const float* row = rows + r * columns;
      const int64_t at = (offset + r) * columns;
      if (dtype == DType::f32) {
        rows::normalise_into(row, columns, *norm, static_cast<float*>(out) + at);
      } else {
        rows::normalise_into(row, columns, *norm, static_cast<bf16*>(out) + at);
      }
    }
  }
};

// --- how rows and columns are shared out ---------------------------------------------------------

struct Plan {
  int64_t blocks;  // 0: columns are shared out instead
  int64_t rows_each;

  Plan(int64_t rows, int64_t multiply_adds, int64_t bytes_per_row, int64_t tile_rows) {
    const int64_t threads = multiply_adds < kTinyWork ? 1 : num_threads();
    if (threads > 1 && rows < kRowsPerThread * threads) {
      blocks = rows_each = 0;
      return;
    }
    const int64_t fitting = kBlockBytes / std::max<int64_t>(1, bytes_per_row) / tile_rows;
    const int64_t limit = std::clamp<int64_t>(fitting, 2, 8) * tile_rows;
    blocks = divide_up(rows, limit);
    if (blocks < 8 * threads) blocks = divide_up(blocks, threads) * threads;
    rows_each = divide_up(rows, blocks);
    blocks = divide_up(rows, rows_each);
  }
};

// Runs `task(first, last)` over pieces of `count` panels.
template <class Task>
void over_columns(int64_t count, const Task& task) {
  const int64_t pieces = std::min<int64_t>(divide_up(count, 4), 3 * num_threads());
  parallel_for(pieces, [&](int64_t i, int) {
    task(count * i / pieces, count * (i + 1) / pieces);
  });
}

// The same over rows, for the cheap stages before and after a product.
template <class Task>
void over_rows(int64_t rows, int64_t features, const Task& task) {
  const int64_t pieces =
      std::clamp<int64_t>(rows * features / 8192, 1, std::min<int64_t>(rows, num_threads()));
  parallel_for(pieces, [&](int64_t i, int) { task(rows * i / pieces, rows * (i + 1) / pieces); });
}

template <class E>
void pack_all(const Input& input, const PackedRows<E>& block) {
  over_rows(block.tiling.rows, input.features, [&](int64_t first, int64_t last) {
    Scratch& scratch = worker_scratch();
    scratch.reset(block.padded_features() * sizeof(float));
    pack_rows<E>(input, 0, block, first, last, scratch.take<float>(block.padded_features()));
  });
}



template <class E>
size_t packed_bytes(int64_t rows, int64_t features) {
  return PackedRows<E>::bytes(rows, features) + kCacheLine;
}

template <class E>
size_t buffer_bytes(int64_t features) {
  return PackedRows<E>::chunks_of(features) * kChunk<typename E::Dot> * sizeof(float) + kCacheLine;
}

// --- linear --------------------------------------------------------------------------------------

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
    multiply<E>(block, weight, 0, weight.panel_count, 0, [&](const Tile& tile, const Tile*) {
      result.write<E>(tile, block, weight, offset, out_rows);
    });
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
    multiply<E>(block, weight, first, last, 0, [&](const Tile& tile, const Tile*) {
      result.write<E>(tile, block, weight, 0, out_rows);
    });
  });
  if (!result.norm) return;
  over_rows(rows, result.columns, [&](int64_t first, int64_t last) {
    result.normalise_rows(0, out_rows, first, last);
  });
}

template <WeightKind kKind>
void linear_of(const LinearArgs& args) {
  using E = Engine<kKind>;
  const PackedWeight& weight = *args.weight;
  const Input input{args.x, args.x_dtype, args.x_stride, weight.in_features, args.pre_norm};
  const Result result{args.out,      args.out_dtype, weight.out_features,
                      args.activation, args.residual,  args.post_norm};
  const int64_t bytes_per_row =
      PackedRows<E>::chunks_of(weight.in_features) * kChunkBytes +
      (args.post_norm ? weight.out_features * int64_t(sizeof(float)) : 0);
  const Plan plan(args.rows, args.rows * weight.in_features * weight.out_features, bytes_per_row,
                  E::kTileRows);
  if (plan.blocks) {
    linear_by_rows<E>(input, weight, result, args.rows, plan);
  } else {
    linear_by_columns<E>(input, weight, result, args.rows);
  }
}

// --- mlp -----------------------------------------------------------------------------------------

// The activation between the two products. Rows that will be quantised must be complete first, so
// they wait as float32; others are written straight into the packed form.
template <class E>
class Middle {
 public:
  using Dot = typename E::Dot;

  static size_t bytes(int64_t rows, int64_t features, int64_t packed_columns) {
    const size_t waiting = kQuantised<Dot> ? rows * stride_for(features, packed_columns) : 0;
    return packed_bytes<E>(rows, features) + waiting * sizeof(float);
  }

  Middle(Scratch& scratch, int64_t rows, int64_t features, int64_t packed_columns,
         Activation activation, Gate gate)
      : packed(scratch, rows, features),
        features_(features),
        stride_(stride_for(features, packed_columns)),
        activation_(activation),
        gate_(gate) {
    if constexpr (kQuantised<Dot>) waiting_ = scratch.take<float>(rows * stride_);
  }

  // Columns that the first product doesn't reach must be zeros for the second.
  void clear_padding(int64_t first, int64_t last) const {
    packed.each_row(first, last, [&](int64_t row, char* to) {
      if constexpr (kQuantised<Dot>) {
        std::fill(waiting_ + row * stride_ + features_, waiting_ + (row + 1) * stride_, 0.0f);
      } else {
        std::memset(to + (packed.chunks - 1) * packed.kChunkStride, 0, kChunkBytes);
      }
    });
    if (last == packed.tiling.rows) packed.clear_padding_rows();
  }

  void write(const Tile& tile, const Tile* other, const PackedWeight& up,
             const float* row_scales) const {
    if (!other) {
      finish<Dot>(tile, up, row_scales, activation_,
                  [&](int r, int c, Vec x) { put(tile, r, c, x); });
      return;
    }
    const bool first_acts = gate_ == Gate::first;
    finish_in_place<Dot>(*other, up, row_scales, first_acts ? Activation::none : activation_);
    finish<Dot>(tile, up, row_scales, first_acts ? activation_ : Activation::none,
                [&](int r, int c, Vec x) { put(tile, r, c, x * load(other->at(r, c))); });
  }

  void quantise_rows(int64_t first, int64_t last) const {
    if constexpr (kQuantised<Dot>) {
      packed.each_row(first, last, [&](int64_t row, char* to) {
        pack_row<E>(waiting_ + row * stride_, packed, row, to);
      });
    }
  }

  const PackedRows<E> packed;

 private:
  static int64_t stride_for(int64_t features, int64_t packed_columns) {
    return std::max(packed_columns, PackedRows<E>::chunks_of(features) * kChunk<Dot>);
  }

  // The product's tiles are the packed rows' tiles: both split the same block.
  CENOTE_INLINE void put(const Tile& tile, int r, int c, Vec x) const {
    const int64_t column = tile.first_column + c;
    if (column >= limit()) return;
    if constexpr (kQuantised<Dot>) {
      store(waiting_ + (tile.first_row + r) * stride_ + column, x);
    } else {
      store_packed<E>(packed.tile(tile.index) + r * kChunkBytes, column, x);
    }
  }
  int64_t limit() const { return kQuantised<Dot> ? stride_ : packed.padded_features(); }

  int64_t features_;
  int64_t stride_;
  Activation activation_;
  Gate gate_;
  float* waiting_ = nullptr;
};

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
    const Middle<E> middle(scratch, count, wide, mlp.up_panels * kPanel, mlp.activation, mlp.gate);
    float* out_rows = result.rows_for(offset, scratch, count);
    middle.clear_padding(0, count);
    multiply<E>(block, mlp.up, 0, mlp.up_panels, mlp.gap,
                [&](const Tile& tile, const Tile* other) {
                  middle.write(tile, other, mlp.up, block.scales);
                });
    middle.quantise_rows(0, count);
    multiply<E>(middle.packed, mlp.down, 0, mlp.down.panel_count, 0,
                [&](const Tile& tile, const Tile*) {
                  result.write<E>(tile, middle.packed, mlp.down, offset, out_rows);
                });
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
  const Middle<E> middle(scratch, rows, wide, mlp.up_panels * kPanel, mlp.activation, mlp.gate);
  float* out_rows = result.rows_for(0, scratch, rows);
  pack_all<E>(input, block);
  middle.clear_padding(0, rows);
  over_columns(mlp.up_panels, [&](int64_t first, int64_t last) {
    multiply<E>(block, mlp.up, first, last, mlp.gap, [&](const Tile& tile, const Tile* other) {
      middle.write(tile, other, mlp.up, block.scales);
    });
  });
  if constexpr (kQuantised<typename E::Dot>) {
    over_rows(rows, wide,
              [&](int64_t first, int64_t last) { middle.quantise_rows(first, last); });
  }
  over_columns(mlp.down.panel_count, [&](int64_t first, int64_t last) {
    multiply<E>(middle.packed, mlp.down, first, last, 0, [&](const Tile& tile, const Tile*) {
      result.write<E>(tile, middle.packed, mlp.down, 0, out_rows);
    });
  });
  if (!result.norm) return;
  over_rows(rows, result.columns, [&](int64_t first, int64_t last) {
    result.normalise_rows(0, out_rows, first, last);
  });
}

template <WeightKind kKind>
void mlp_of(const MlpArgs& args) {
  using E = Engine<kKind>;
  const MlpPlan mlp(args);
  const Input input{args.x, args.x_dtype, args.x_stride, mlp.up.in_features, args.pre_norm};
  const Result result{args.out,         args.out_dtype, mlp.down.out_features,
                      Activation::none, args.residual,  args.post_norm};
  const int64_t wide = mlp.down.in_features;
  const int64_t bytes_per_row =
      PackedRows<E>::chunks_of(wide) * kChunkBytes +
      (kQuantised<typename E::Dot> ? wide * int64_t(sizeof(float)) : 0);
  const int64_t work = args.rows * (mlp.up.in_features * mlp.up.out_features +
                                    mlp.down.in_features * mlp.down.out_features);
  const Plan plan(args.rows, work, bytes_per_row, E::kTileRows);
  if (plan.blocks) {
    mlp_by_rows<E>(input, mlp, result, args.rows, plan);
  } else {
    mlp_by_columns<E>(input, mlp, result, args.rows);
  }
}

// --- the level's table ---------------------------------------------------------------------------

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
const LinearKernels linear_kernels = {pack, linear, mlp, peak};

}  // namespace cenote::CENOTE_ISA
