// Groups of sequences, one after another or side by side, each from the first layer to the last.
#include "layers.hpp"

#include <algorithm>

#include "copy_rows.hpp"
#include "layer_groups.hpp"
#include "memory.hpp"
#include "threads.hpp"

namespace cenote {
namespace {

// A thread keeps no more memory than this from call to call.
constexpr size_t kLastingBytes = size_t{32} << 20;

int64_t width_of(const Layer& layer) { return layer.out->out_features; }
int64_t context_width(const Layer& layer) { return layer.out->in_features; }
int64_t kv_width(const Layer& layer) { return layer.qkv->out_features - context_width(layer); }

// Rows between an attention and the next one: where they come from and go to.
struct Rows {
  const char* context;
  const float* residual;
  float* out;
  int64_t count;
};

// One group's way through the layers, on the thread that made it or on all.
class Journey {
 public:
  Journey(const std::vector<Layer>& layers, const LayersArgs& args, Group group)
      : layers_(layers),
        args_(args),
        sequences_(group.end - group.first),
        offset_(args.cu_seqlens[group.first]),
        rows_(group.rows),
        width_(width_of(layers[0])),
        element_(args.dtype == DType::f32 ? 4 : 2) {
    int64_t wide = 0, context = 0, kv = 0;
    for (const Layer& layer : layers) {
      wide = std::max(wide, qkv_stride(layer));
      context = std::max(context, context_width(layer));
      kv = std::max(kv, kv_width(layer));
    }
    const KeptKeys& kept = args.kept;
    first_key_ = kept.read ? kept.read_cu_seqlens[group.first] : 0;
    key_count_ = kept.read ? kept.read_cu_seqlens[group.end] - first_key_ : 0;
    const ReadRows& read = args.read;
    const int64_t read_first = read.rows ? read.cu_seqlens[group.first] : 0;
    read_count_ = read.rows ? read.cu_seqlens[group.end] - read_first : 0;
    // Alone, a thread takes long sequences' rows piece by piece where they don't need each other.
    piece_ = num_threads() == 1 ? std::min(rows_, kernels().linear->group_rows) : rows_;
    const int64_t context_rows = rows_ + read_count_;
    const size_t bytes =
        (rows_ * wide + context_rows * context + key_count_ * kv) * element_ +
        (piece_ + read_count_) * width_ * sizeof(float) +
        3 * (sequences_ + 1) * sizeof(int32_t) + read_count_ * sizeof(int64_t) + 9 * kCacheLine;
    static thread_local Scratch lasting;
    Scratch& scratch = bytes <= kLastingBytes ? lasting : large_;
    scratch.reset(bytes);
    qkv_ = scratch.take<char>(rows_ * wide * element_);
    context_ = scratch.take<char>(rows_ * context * element_);
    read_context_ = scratch.take<char>(read_count_ * context * element_);
    middle_ = scratch.take<float>(piece_ * width_);
    read_hidden_ = scratch.take<float>(read_count_ * width_);
    cu_seqlens_ = bounds(args.cu_seqlens, group, scratch);
    if (kept.read) {
      keys_ = scratch.take<char>(key_count_ * kv * element_);
      key_cu_seqlens_ = bounds(kept.read_cu_seqlens, group, scratch);
    }
    hidden_ = args.hidden + offset_ * width_;
    if (!read.rows) return;
    read_cu_seqlens_ = bounds(read.cu_seqlens, group, scratch);
    read_rows_ = scratch.take<int64_t>(read_count_);
    for (int64_t i = 0; i < read_count_; ++i) read_rows_[i] = read.rows[read_first + i] - offset_;
    read_out_ = read.out + read_first * width_;
  }

  void run() const {
    each_piece(rows_, [&](int64_t first, int64_t rows) { project(layers_[0], first, rows); });
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      const Layer* next = i + 1 < layers_.size() ? &layers_[i + 1] : nullptr;
      if (layer.query_norm) norm_heads(layer);
      if (layer.rotary.cos) rotate(layer);
      if (args_.kept.rows && layer.kept >= 0) keep(layer);
      if (args_.read.rows && !next) return finish_read(layer);
      attend(layer, qkv_, qkv_stride(layer), cu_seqlens_, context_);
      // Nobody reads this layer's queries, keys and values any more: the next ones take their place.
      each_piece(rows_, [&](int64_t first, int64_t rows) {
        float* hidden = hidden_ + first * width_;
        finish(layer, {context_at(layer, context_, first), hidden, hidden, rows});
        if (next) project(*next, first, rows);
      });
    }
  }

 private:
  // From row to row of queries, keys and values: an odd number of cache lines, or else the 32 rows of a
  // panel's results would share a few of the L1 cache's sets.
  int64_t qkv_stride(const Layer& layer) const {
    const int64_t lines = round_up(layer.qkv->out_features * element_, kCacheLine) / kCacheLine;
    return (lines | 1) * kCacheLine / element_;
  }

  // A group's part of running sums, from 0.
  int32_t* bounds(const int32_t* sums, Group group, Scratch& scratch) const {
    int32_t* from_zero = scratch.take<int32_t>(sequences_ + 1);
    for (int64_t i = 0; i <= sequences_; ++i) {
      from_zero[i] = sums[group.first + i] - sums[group.first];
    }
    return from_zero;
  }

  template <class Task>
  void each_piece(int64_t rows, const Task& task) const {
    for (int64_t first = 0; first < rows; first += piece_) {
      pass_gate();
      task(first, std::min(piece_, rows - first));
    }
  }

  char* context_at(const Layer& layer, char* context, int64_t row) const {
    return context + row * context_width(layer) * element_;
  }

  void project(const Layer& layer, int64_t first, int64_t rows) const {
    LinearArgs product;
    product.x = hidden_ + first * width_;
    product.x_stride = width_;
    product.rows = rows;
    product.weight = layer.qkv;
    product.out = qkv_ + first * qkv_stride(layer) * element_;
    product.out_stride = qkv_stride(layer);
    product.out_dtype = args_.dtype;
    product.pre_norm = layer.attention_pre;
    layer.qkv->kernels->linear(product);
  }

  void norm_heads(const Layer& layer) const {
    const AttentionArgs& shape = layer.attention;
    HeadNormArgs heads;
    heads.x = qkv_;
    heads.dtype = args_.dtype;
    heads.row_stride = qkv_stride(layer);
    heads.rows = rows_;
    heads.head_dim = shape.head_dim;
    heads.heads = shape.heads;
    heads.norm = *layer.query_norm;
    kernels().varlen->head_norm(heads);
    heads.x = qkv_ + context_width(layer) * element_;
    heads.heads = shape.kv_heads;
    heads.norm = *layer.key_norm;
    kernels().varlen->head_norm(heads);
  }

  // Puts the group's keys and values into their slots, and takes out all that it attends to.
  void keep(const Layer& layer) const {
    const KeptKeys& kept = args_.kept;
    char* rows = kept.rows + layer.kept * kept.layer_bytes;
    const int64_t bytes = kv_width(layer) * element_;
    copy_rows({qkv_ + context_width(layer) * element_, qkv_stride(layer) * element_},
              {rows, kept.row_bytes, kept.written + offset_}, rows_, bytes);
    if (!kept.read) return;
    copy_rows({rows, kept.row_bytes, kept.read + first_key_}, {keys_, bytes}, key_count_, bytes);
  }

  void rotate(const Layer& layer) const {
    RotaryArgs rotary = layer.rotary;
    rotary.x = qkv_;
    rotary.dtype = args_.dtype;
    rotary.row_stride = qkv_stride(layer);
    rotary.tokens = rows_;
    rotary.heads = layer.attention.heads + layer.attention.kv_heads;
    rotary.head_dim = layer.attention.head_dim;
    rotary.positions = args_.positions + offset_;
    kernels().varlen->rotary(rotary);
  }

  // Attention of `queries`, which have bounds of their own, to all keys.
  void attend(const Layer& layer, const char* queries, int64_t stride, const int32_t* cu_seqlens,
              char* context) const {
    pass_gate();
    AttentionArgs attention = layer.attention;
    const int64_t query_bytes = context_width(layer) * element_;
    const bool in_slots = args_.kept.read && layer.kept >= 0;
    const char* keys = in_slots ? keys_ : qkv_ + query_bytes;
    attention.q = queries;
    attention.k = keys;
    attention.v = keys + attention.kv_heads * attention.head_dim * element_;
    attention.out = context;
    attention.dtype = args_.dtype;
    attention.q_stride = stride;
    attention.k_stride = attention.v_stride = in_slots ? kv_width(layer) : qkv_stride(layer);
    attention.out_stride = context_width(layer);
    attention.cu_seqlens_q = cu_seqlens;
    attention.cu_seqlens_k = in_slots ? key_cu_seqlens_ : cu_seqlens_;
    attention.sequences = sequences_;
    attention.alibi_slopes = args_.alibi_slopes;
    attention.bias = args_.bias;
    attention.bias_size = args_.bias_size;
    attention.key_mask = args_.key_mask ? args_.key_mask + offset_ : nullptr;
    kernels().varlen->attention(attention);
  }

  // All that comes after the attention, row by row.
  void finish(const Layer& layer, const Rows& rows) const {
    LinearArgs product;
    product.x = rows.context;
    product.x_dtype = args_.dtype;
    product.x_stride = context_width(layer);
    product.rows = rows.count;
    product.weight = layer.out;
    product.out = middle_;
    (layer.adds_behind ? product.added : product.residual) = rows.residual;
    product.post_norm = layer.attention_post;
    layer.out->kernels->linear(product);
    pass_gate();
    MlpArgs mlp;
    mlp.x = middle_;
    mlp.x_stride = width_;
    mlp.rows = rows.count;
    mlp.up = layer.up;
    mlp.down = layer.down;
    mlp.out = rows.out;
    mlp.activation = layer.activation;
    mlp.gate = layer.gate;
    mlp.pre_norm = layer.mlp_pre;
    (layer.adds_behind ? mlp.added : mlp.residual) = middle_;
    mlp.post_norm = layer.mlp_post;
    layer.up->kernels->mlp(mlp);
  }

  // The last layer, of the rows that are read. Attention takes queries for the last ones of their
  // sequence; where they aren't and that makes a difference, all run.
  void finish_read(const Layer& layer) const {
    const AttentionArgs& rules = layer.attention;
    const bool positional = rules.causal || rules.window_left >= 0 || rules.window_right >= 0 ||
                            args_.alibi_slopes || args_.bias;
    const int64_t bytes = context_width(layer) * element_;
    char* context = context_;
    if (args_.read.trailing || !positional) {
      gather(qkv_, qkv_stride(layer) * element_, bytes, read_context_);
      attend(layer, read_context_, context_width(layer), read_cu_seqlens_, context_);
    } else {
      attend(layer, qkv_, qkv_stride(layer), cu_seqlens_, context_);
      gather(context_, bytes, bytes, read_context_);
      context = read_context_;
    }
    gather(reinterpret_cast<char*>(hidden_), width_ * sizeof(float), width_ * sizeof(float),
           reinterpret_cast<char*>(read_hidden_));
    each_piece(read_count_, [&](int64_t first, int64_t rows) {
      finish(layer, {context_at(layer, context, first), read_hidden_ + first * width_,
                     read_out_ + first * width_, rows});
    });
  }

  // The first `bytes` of each row that is read, side by side.
  void gather(char* from, int64_t stride, int64_t bytes, char* to) const {
    copy_rows({from, stride, read_rows_}, {to, bytes}, read_count_, bytes);
  }

  const std::vector<Layer>& layers_;
  const LayersArgs& args_;
  int64_t sequences_, offset_, rows_, width_, element_, piece_, read_count_, first_key_, key_count_;
  float* hidden_;
  char* qkv_;
  char* context_;
  float* middle_;  // one piece's rows between attention and MLP
  int32_t* cu_seqlens_;
  char* keys_ = nullptr;  // and values, those of slots
  int32_t* key_cu_seqlens_ = nullptr;
  char* read_context_;
  float* read_hidden_;
  float* read_out_ = nullptr;
  int32_t* read_cu_seqlens_ = nullptr;
  int64_t* read_rows_ = nullptr;
  Scratch large_;
};

}  // namespace

void run_layers(const std::vector<Layer>& layers, const LayersArgs& args) {
  const std::vector<Group> groups =
      groups_of(args.cu_seqlens, args.sequences, args.kept.joined, kernels().linear->group_rows);
  const size_t shared = count_shared(groups, num_threads());
  const auto run = [&](size_t i) { Journey(layers, args, groups[i]).run(); };
  for (size_t i = 0; i < shared; ++i) run(i);
  parallel_for(static_cast<int64_t>(groups.size() - shared),
               [&](int64_t i, int) { run(shared + i); });
}

}  // namespace cenote
