#include "layers.hpp"

#include <algorithm>

#include "memory.hpp"
#include "threads.hpp"

namespace cenote {
namespace {

// So many rows' activations fit an L2 cache beside the weights in use, and products of fewer would
// be slower.
constexpr int64_t kGroupRows = 256;
// A thread keeps no more memory than this from call to call.
constexpr size_t kKeptBytes = size_t{32} << 20;

int64_t width_of(const Layer& layer) { return layer.out->out_features; }
int64_t context_width(const Layer& layer) { return layer.out->in_features; }

// Sequences side by side in the pack.
struct Group {
  int64_t first, end;
};

// One group's way through the layers, on the thread that made it or on all.
class Journey {
 public:
  Journey(const std::vector<Layer>& layers, int64_t count, const LayersArgs& args, Group group)
      : layers_(layers),
        count_(count),
        args_(args),
        sequences_(group.end - group.first),
        offset_(args.cu_seqlens[group.first]),
        rows_(args.cu_seqlens[group.end] - offset_),
        element_(args.dtype == DType::f32 ? 4 : 2) {
    int64_t wide = 0, context = 0;
    for (int64_t i = 0; i < count; ++i) {
      wide = std::max(wide, layers[i].qkv->out_features);
      context = std::max(context, context_width(layers[i]));
    }
    hidden_ = args.hidden + offset_ * width_of(layers[0]);
    // Alone, a thread takes long sequences' rows piece by piece where they don't need each other.
    piece_ = num_threads() == 1 ? std::min(rows_, kGroupRows) : rows_;
    const size_t bytes = rows_ * (wide + context) * element_ +
                         piece_ * width_of(layers[0]) * sizeof(float) +
                         (sequences_ + 1) * sizeof(int32_t) + 4 * kCacheLine;
    static thread_local Scratch kept;
    Scratch& scratch = bytes <= kKeptBytes ? kept : large_;
    scratch.reset(bytes);
    qkv_ = scratch.take<char>(rows_ * wide * element_);
    context_ = scratch.take<char>(rows_ * context * element_);
    middle_ = scratch.take<float>(piece_ * width_of(layers[0]));
    cu_seqlens_ = scratch.take<int32_t>(sequences_ + 1);
    for (int64_t i = 0; i <= sequences_; ++i) {
      cu_seqlens_[i] = args.cu_seqlens[group.first + i] - static_cast<int32_t>(offset_);
    }
  }

  void run() const {
    each_piece([&](int64_t first, int64_t rows) { project(layers_[0], first, rows); });
    for (int64_t i = 0; i < count_; ++i) {
      const Layer& layer = layers_[i];
      if (layer.rotary.cos) rotate(layer);
      attend(layer);
      // Nobody reads this layer's queries, keys and values any more: the next ones take their place.
      each_piece([&](int64_t first, int64_t rows) {
        finish(layer, first, rows);
        if (i + 1 < count_) project(layers_[i + 1], first, rows);
      });
    }
  }

 private:
  template <class Task>
  void each_piece(const Task& task) const {
    for (int64_t first = 0; first < rows_; first += piece_) {
      task(first, std::min(piece_, rows_ - first));
    }
  }

  void project(const Layer& layer, int64_t first, int64_t rows) const {
    const int64_t width = width_of(layer);
    LinearArgs product;
    product.x = hidden_ + first * width;
    product.x_stride = width;
    product.rows = rows;
    product.weight = layer.qkv;
    product.out = qkv_ + first * layer.qkv->out_features * element_;
    product.out_dtype = args_.dtype;
    product.pre_norm = layer.attention_pre;
    layer.qkv->kernels->linear(product);
  }

  void rotate(const Layer& layer) const {
    RotaryArgs rotary = layer.rotary;
    rotary.x = qkv_;
    rotary.dtype = args_.dtype;
    rotary.row_stride = layer.qkv->out_features;
    rotary.tokens = rows_;
    rotary.heads = layer.attention.heads + layer.attention.kv_heads;
    rotary.head_dim = layer.attention.head_dim;
    rotary.positions = args_.positions + offset_;
    kernels().varlen->rotary(rotary);
  }

  void attend(const Layer& layer) const {
    AttentionArgs attention = layer.attention;
    const int64_t query_bytes = context_width(layer) * element_;
    attention.q = qkv_;
    attention.k = qkv_ + query_bytes;
    attention.v = qkv_ + query_bytes + attention.kv_heads * attention.head_dim * element_;
    attention.out = context_;
    attention.dtype = args_.dtype;
    attention.q_stride = attention.k_stride = attention.v_stride = layer.qkv->out_features;
    attention.out_stride = context_width(layer);
    attention.cu_seqlens_q = attention.cu_seqlens_k = cu_seqlens_;
    attention.sequences = sequences_;
    attention.alibi_slopes = args_.alibi_slopes;
    attention.bias = args_.bias;
    attention.bias_size = args_.bias_size;
    attention.key_mask = args_.key_mask ? args_.key_mask + offset_ : nullptr;
    kernels().varlen->attention(attention);
  }

  // All that comes after the attention, row by row.
  void finish(const Layer& layer, int64_t first, int64_t rows) const {
    const int64_t width = width_of(layer);
    LinearArgs product;
    product.x = context_ + first * context_width(layer) * element_;
    product.x_dtype = args_.dtype;
    product.x_stride = context_width(layer);
    product.rows = rows;
    product.weight = layer.out;
    product.out = middle_;
    product.residual = hidden_ + first * width;
    product.post_norm = layer.attention_post;
    layer.out->kernels->linear(product);
    MlpArgs mlp;
    mlp.x = middle_;
    mlp.x_stride = width;
    mlp.rows = rows;
    mlp.up = layer.up;
    mlp.down = layer.down;
    mlp.out = hidden_ + first * width;
    mlp.activation = layer.activation;
    mlp.gate = layer.gate;
    mlp.pre_norm = layer.mlp_pre;
    mlp.residual = middle_;
    mlp.post_norm = layer.mlp_post;
    layer.up->kernels->mlp(mlp);
  }

  const std::vector<Layer>& layers_;
  int64_t count_;
  const LayersArgs& args_;
  int64_t sequences_, offset_, rows_, element_, piece_;
  float* hidden_;
  char* qkv_;
  char* context_;
  float* middle_;  // one piece's rows between attention and MLP
  int32_t* cu_seqlens_;
  Scratch large_;
};

// Neighbours together, up to `most` rows unless one sequence has more.
std::vector<Group> groups_of(const LayersArgs& args, int64_t most) {
  std::vector<Group> groups;
  for (int64_t s = 0; s < args.sequences; ++s) {
    const int32_t end = args.cu_seqlens[s + 1];
    if (groups.empty() || end - args.cu_seqlens[groups.back().first] > most) {
      groups.push_back({s, s});
    }
    groups.back().end = s + 1;
  }
  return groups;
}

}  // namespace

void run_layers(const std::vector<Layer>& layers, int64_t count, const LayersArgs& args) {
  if (args.sequences == 0) return;
  const std::vector<Group> groups = groups_of(args, kGroupRows);
  const int64_t all = static_cast<int64_t>(groups.size());
  // As many groups as come out even; the rest shares all threads product by product.
  const int64_t even = all / num_threads() * num_threads();
  // From the end: in a pack sorted by length the longest sequences, which nobody should wait for.
  parallel_for(even, [&](int64_t i, int) {
    Journey(layers, count, args, groups[even - 1 - i]).run();
  });
  if (even < all) Journey(layers, count, args, {groups[even].first, groups.back().end}).run();
}

}  // namespace cenote
