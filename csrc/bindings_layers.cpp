// Python's view of whole layers. Checks what a wrong call would turn into a crash.
#include <algorithm>

#include "bindings_norm.hpp"
#include "layers.hpp"

using namespace nanobind::literals;

namespace cenote {
namespace {

class LayerStack {
 public:
  LayerStack(int64_t width, int dtype) : width_(width), dtype_(checked_dtype(dtype)) {}

  void add(const PackedWeight& qkv, const PackedWeight& out, const PackedWeight& up,
           const PackedWeight& down, const Norm* attention_pre, const Norm* attention_post,
           const Norm* mlp_pre, const Norm* mlp_post, bool adds_behind, const Norm* query_norm,
           const Norm* key_norm, int activation, int gated, int64_t heads,
           int64_t kv_heads, int64_t head_dim, float scale, bool causal, int64_t window_left,
           int64_t window_right, float softcap, int64_t rotary_dim, Address cos, Address sin,
           int64_t max_positions, bool interleaved, int64_t kept) {
    Layer layer;
    layer.qkv = &qkv;
    layer.out = &out;
    layer.up = &up;
    layer.down = &down;
    layer.attention_pre = args_of(attention_pre, width_);
    layer.attention_post = args_of(attention_post, width_);
    layer.mlp_pre = args_of(mlp_pre, width_);
    layer.mlp_post = args_of(mlp_post, width_);
    require(!adds_behind || (attention_post && mlp_post), "there is no norm to add behind");
    layer.adds_behind = adds_behind;
    require(!query_norm == !key_norm, "heads of queries and keys are normed both or not at all");
    layer.query_norm = args_of(query_norm, head_dim);
    layer.key_norm = args_of(key_norm, head_dim);
    layer.activation = checked_activation(activation);
    layer.gate = checked_gate(gated, up, down);
    require(qkv.in_features == width_ && out.out_features == width_ && up.in_features == width_ &&
                down.out_features == width_,
            "a layer's weights don't fit the width of its rows");
    require(qkv.out_features == (heads + 2 * kv_heads) * head_dim &&
                out.in_features == heads * head_dim,
            "a layer's weights don't fit its heads");
    require(!qkv.halves && !out.halves, "only an MLP's up matrix may be packed in halves");
    check_heads(heads, kv_heads, head_dim, scale);
    layer.attention.heads = heads;
    layer.attention.kv_heads = kv_heads;
    layer.attention.head_dim = head_dim;
    layer.attention.scale = scale;
    layer.attention.causal = causal;
    layer.attention.window_left = window_left;
    layer.attention.window_right = window_right;
    layer.attention.softcap = softcap;
    check_rotary(rotary_dim, head_dim);
    layer.rotary.rotary_dim = rotary_dim;
    layer.rotary.cos = pointer<float>(cos);
    layer.rotary.sin = pointer<float>(sin);
    layer.rotary.interleaved = interleaved;
    if (cos) max_positions_ = std::min(max_positions_, max_positions);
    layer.kept = kept;
    layers_.push_back(layer);
  }

  void run(Address hidden, Address cu_seqlens, int64_t sequences, Address positions,
           Address alibi_slopes, Address bias, int64_t bias_size, Address key_mask,
           Address kept, int64_t kept_layers, int64_t kept_slots, int64_t kept_width, Address written,
           Address key_slots, Address key_cu_seqlens, Address joined, Address read_rows,
           Address read_cu_seqlens, bool read_trailing, Address out) const {
    require(!layers_.empty(), "a stack has at least one layer");
    LayersArgs args;
    args.hidden = pointer<float>(hidden);
    args.cu_seqlens = pointer<int32_t>(cu_seqlens);
    args.sequences = sequences;
    args.dtype = dtype_;
    args.positions = pointer<int32_t>(positions);
    args.alibi_slopes = pointer<float>(alibi_slopes);
    args.bias = pointer<float>(bias);
    args.bias_size = bias_size;
    args.key_mask = pointer<uint8_t>(key_mask);
    check_offsets(args.cu_seqlens, sequences, "cu_seqlens must not decrease");
    for (int64_t s = 0; bias && s < sequences; ++s) {
      require(args.cu_seqlens[s + 1] - args.cu_seqlens[s] <= bias_size,
              "bias: a sequence is longer than bias_size");
    }
    if (max_positions_ < kAnyPosition) {
      require(positions, "rotary layers need positions");
      const int32_t first = args.cu_seqlens[0];
      check_indices(args.positions + first, args.cu_seqlens[sequences] - first, max_positions_,
                    "a position is outside its table");
    }
    if (kept) {
      const int64_t row_bytes = kept_width * (dtype_ == DType::f32 ? 4 : 2);
      args.kept = {pointer<char>(kept),      row_bytes,
                   kept_slots * row_bytes,   pointer<int64_t>(written),
                   pointer<int64_t>(key_slots), pointer<int32_t>(key_cu_seqlens),
                   pointer<uint8_t>(joined)};
      check_kept(args, kept_layers, kept_slots, kept_width);
    }
    if (read_rows) {
      args.read = {pointer<int64_t>(read_rows), pointer<int32_t>(read_cu_seqlens), read_trailing,
                   pointer<float>(out)};
      check_read(args);
    }
    without_gil([&] { run_layers(layers_, args); });
  }

 private:
  static void check_read(const LayersArgs& args) {
    const ReadRows& read = args.read;
    require(read.cu_seqlens && read.out, "rows that are read need their bounds and a place");
    check_offsets(read.cu_seqlens, args.sequences, "read_cu_seqlens must not decrease");
    for (int64_t s = 0; s < args.sequences; ++s) {
      for (int32_t i = read.cu_seqlens[s]; i < read.cu_seqlens[s + 1]; ++i) {
        if (read.rows[i] < args.cu_seqlens[s] || read.rows[i] >= args.cu_seqlens[s + 1]) {
          throw std::out_of_range("a row that is read is not in its sequence");
        }
      }
    }
  }

  void check_kept(const LayersArgs& args, int64_t layers, int64_t slots, int64_t width) const {
    const KeptKeys& kept = args.kept;
    for (const Layer& layer : layers_) {
      if (layer.kept < 0) continue;
      require(layer.kept < layers && 2 * layer.attention.kv_heads * layer.attention.head_dim == width,
              "what is kept has no such layer, or rows of another width");
    }
    require(kept.written, "rows that are kept need their slots");
    const int32_t first = args.cu_seqlens[0];
    check_indices(kept.written + first, args.cu_seqlens[args.sequences] - first, slots, kNoSlot);
    if (!kept.read) return;
    require(kept.read_cu_seqlens && !args.key_mask, "keys in slots need bounds, and none is hidden");
    check_offsets(kept.read_cu_seqlens, args.sequences, "key_cu_seqlens must not decrease");
    for (int64_t s = 0; s < args.sequences; ++s) {
      require(kept.read_cu_seqlens[s + 1] - kept.read_cu_seqlens[s] >=
                  args.cu_seqlens[s + 1] - args.cu_seqlens[s],
              "a sequence has fewer keys than queries");
    }
    check_indices(kept.read, kept.read_cu_seqlens[args.sequences], slots, kNoSlot);
  }

  static constexpr const char* kNoSlot = "there is no such slot";
  static constexpr int64_t kAnyPosition = int64_t{1} << 40;

  int64_t width_;
  DType dtype_;
  std::vector<Layer> layers_;
  int64_t max_positions_ = kAnyPosition;  // of the shortest rotary table
};

}  // namespace
}  // namespace cenote

void bind_layers(nb::module_& m) {
  using cenote::LayerStack;
  nb::class_<LayerStack>(m, "LayerStack", "Layers that run one after another in one call.")
      .def(nb::init<int64_t, int>(), "width"_a, "dtype"_a)
      .def("add", &LayerStack::add, "qkv"_a, "out"_a, "up"_a, "down"_a, nb::kw_only(),
           "attention_pre"_a.none() = nb::none(), "attention_post"_a.none() = nb::none(),
           "mlp_pre"_a.none() = nb::none(), "mlp_post"_a.none() = nb::none(),
           "adds_behind"_a = false, "query_norm"_a.none() = nb::none(), "key_norm"_a.none() = nb::none(), "activation"_a,
           "gated"_a = 0, "heads"_a, "kv_heads"_a, "head_dim"_a, "scale"_a, "causal"_a = false,
           "window_left"_a = -1, "window_right"_a = -1, "softcap"_a = 0.0f, "rotary_dim"_a = 0,
           "cos"_a = 0, "sin"_a = 0, "max_positions"_a = 0, "interleaved"_a = false,
           "kept"_a = -1, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>(),
           nb::keep_alive<1, 5>(), nb::keep_alive<1, 6>(), nb::keep_alive<1, 7>(),
           nb::keep_alive<1, 8>(), nb::keep_alive<1, 9>(), nb::keep_alive<1, 11>(),
           nb::keep_alive<1, 12>())
      .def("run", &LayerStack::run, "hidden"_a, "cu_seqlens"_a, "sequences"_a,
           nb::kw_only(), "positions"_a = 0, "alibi_slopes"_a = 0, "bias"_a = 0, "bias_size"_a = 0,
           "key_mask"_a = 0, "kept"_a = 0, "kept_layers"_a = 0, "kept_slots"_a = 0,
           "kept_width"_a = 0, "written"_a = 0, "key_slots"_a = 0, "key_cu_seqlens"_a = 0,
           "joined"_a = 0, "read_rows"_a = 0, "read_cu_seqlens"_a = 0, "read_trailing"_a = false,
           "out"_a = 0);
}
