// Python's view of the varlen kernels. Checks what a wrong call would turn into a crash (sizes,
// offsets, table indices); that the addresses are right is the caller's business.
#include <nanobind/stl/string.h>

#include <string>

#include "checks.hpp"
#include "varlen.hpp"

using namespace nanobind::literals;

namespace cenote {
namespace {

// Calls the current level's kernel without the GIL.
template <class Args>
void run(void (*VarlenKernels::*kernel)(const Args&), const Args& args) {
  const auto call = kernels().varlen->*kernel;
  without_gil([&] { call(args); });
}

// What depends on a position is at least as large as the longest sequence.
void check_sizes(const AttentionArgs& args) {
  for (int64_t s = 0; s < args.sequences; ++s) {
    const int32_t keys = args.cu_seqlens_k[s + 1] - args.cu_seqlens_k[s];
    const int32_t queries = args.cu_seqlens_q[s + 1] - args.cu_seqlens_q[s];
    require(!args.bias || (keys <= args.bias_size && queries <= keys),
            "bias: a sequence is longer than bias_size");
    require(!args.distance_size || (keys <= args.distance_size && queries <= keys),
            "distances: a sequence is longer than distance_size");
  }
  if (!args.distance_size) return;
  require(args.heads == args.kv_heads, "distances: heads must be kv_heads");
  check_indices(args.distance_rows, 2 * args.distance_size - 1, args.distance_count,
                "a distance's row is outside its table");
}

void attention(Address q, Address k, Address v, Address out, int dtype, int64_t q_stride,
               int64_t k_stride, int64_t v_stride, int64_t out_stride, Address cu_seqlens,
               int64_t sequences, int64_t heads, int64_t kv_heads, int64_t head_dim, float scale,
               Address cu_seqlens_k, bool causal, int64_t window_left, int64_t window_right,
               float softcap, Address alibi_slopes, Address bias, int64_t bias_size,
               Address key_mask, Address distance_keys, Address distance_queries,
               int64_t distance_count, Address distance_rows, int64_t distance_size) {
  check_heads(heads, kv_heads, head_dim, scale);
  AttentionArgs args;
  args.q = pointer<void>(q);
  args.k = pointer<void>(k);
  args.v = pointer<void>(v);
  args.out = pointer<void>(out);
  args.dtype = checked_dtype(dtype);
  args.q_stride = q_stride;
  args.k_stride = k_stride;
  args.v_stride = v_stride;
  args.out_stride = out_stride;
  args.cu_seqlens_q = pointer<int32_t>(cu_seqlens);
  args.cu_seqlens_k = cu_seqlens_k ? pointer<int32_t>(cu_seqlens_k) : args.cu_seqlens_q;
  args.sequences = sequences;
  args.heads = heads;
  args.kv_heads = kv_heads;
  args.head_dim = head_dim;
  args.scale = scale;
  args.causal = causal;
  args.window_left = window_left;
  args.window_right = window_right;
  args.softcap = softcap;
  args.alibi_slopes = pointer<float>(alibi_slopes);
  args.bias = pointer<float>(bias);
  args.bias_size = bias_size;
  args.key_mask = pointer<uint8_t>(key_mask);
  check_offsets(args.cu_seqlens_q, sequences, "cu_seqlens must not decrease");
  check_offsets(args.cu_seqlens_k, sequences, "cu_seqlens_k must not decrease");
  args.distance_keys = pointer<void>(distance_keys);
  args.distance_queries = pointer<void>(distance_queries);
  args.distance_count = distance_count;
  args.distance_rows = pointer<int32_t>(distance_rows);
  args.distance_size = distance_size;
  check_sizes(args);
  run(&VarlenKernels::attention, args);
}

void row_norm(NormKind kind, Address x, int x_dtype, int64_t rows, int64_t columns, Address weight,
              Address bias, float eps, Address residual, Address sum_out, Address out_f32,
              Address out_bf16) {
  require(columns > 0, "a row needs at least one column");
  RowNormArgs args;
  args.norm = {kind, pointer<float>(weight), pointer<float>(bias), eps};
  args.x = pointer<void>(x);
  args.x_dtype = checked_dtype(x_dtype);
  args.rows = rows;
  args.columns = columns;
  args.residual = pointer<float>(residual);
  args.sum_out = pointer<float>(sum_out);
  args.out_f32 = pointer<float>(out_f32);
  args.out_bf16 = pointer<void>(out_bf16);
  run(&VarlenKernels::row_norm, args);
}

NormKind norm_kind(const std::string& name) {
  require(name == "layer" || name == "rms", "norm must be layer or rms");
  return name == "layer" ? NormKind::layer : NormKind::rms;
}

void head_norm(const std::string& kind, Address x, int dtype, int64_t row_stride, int64_t rows,
               int64_t heads, int64_t head_dim, Address weight, Address bias, float eps) {
  require(head_dim > 0, "a head needs at least one column");
  HeadNormArgs args;
  args.norm = {norm_kind(kind), pointer<float>(weight), pointer<float>(bias), eps};
  args.x = pointer<void>(x);
  args.dtype = checked_dtype(dtype);
  args.row_stride = row_stride;
  args.rows = rows;
  args.heads = heads;
  args.head_dim = head_dim;
  run(&VarlenKernels::head_norm, args);
}

void embedding(Address ids, int64_t tokens, int64_t hidden, int dtype, Address words,
               int64_t vocab_size, Address position_table, int64_t max_positions,
               Address positions, Address type_table, int64_t type_count, Address types, float scale,
               const std::string& norm, Address norm_weight, Address norm_bias, float eps,
               Address out_f32, Address out_bf16) {
  require(hidden > 0, "an embedding needs at least one column");
  require(!position_table || positions, "a position table needs positions");
  EmbeddingArgs args;
  args.ids = pointer<int32_t>(ids);
  args.tokens = tokens;
  args.hidden = hidden;
  args.dtype = checked_dtype(dtype);
  args.words = pointer<void>(words);
  args.position_table = pointer<void>(position_table);
  args.positions = pointer<int32_t>(positions);
  args.type_table = pointer<void>(type_table);
  args.types = pointer<int32_t>(types);
  args.scale = scale;
  args.normed = norm != "none";
  if (args.normed) {
    args.norm = {norm_kind(norm), pointer<float>(norm_weight), pointer<float>(norm_bias), eps};
  }
  args.out_f32 = pointer<float>(out_f32);
  args.out_bf16 = pointer<void>(out_bf16);
  check_indices(args.ids, tokens, vocab_size, "a token id is outside the vocabulary");
  if (position_table) {
    check_indices(args.positions, tokens, max_positions, "a position is outside its table");
  }
  if (type_table && types) {
    check_indices(args.types, tokens, type_count, "a token type is outside its table");
  }
  run(&VarlenKernels::embedding, args);
}

void rotary(Address x, int dtype, int64_t row_stride, int64_t tokens, int64_t heads,
            int64_t head_dim, int64_t rotary_dim, Address cos, Address sin, int64_t max_positions,
            Address positions, bool interleaved) {
  check_rotary(rotary_dim, head_dim);
  RotaryArgs args;
  args.x = pointer<void>(x);
  args.dtype = checked_dtype(dtype);
  args.row_stride = row_stride;
  args.tokens = tokens;
  args.heads = heads;
  args.head_dim = head_dim;
  args.rotary_dim = rotary_dim;
  args.cos = pointer<float>(cos);
  args.sin = pointer<float>(sin);
  args.positions = pointer<int32_t>(positions);
  args.interleaved = interleaved;
  check_indices(args.positions, tokens, max_positions, "a position is outside its table");
  run(&VarlenKernels::rotary, args);
}

Pooling pooling_named(const std::string& name) {
  constexpr const char* kNames[] = {"cls", "last", "mean", "max", "mean_sqrt_len", "weighted_mean"};
  for (int i = 0; i < 6; ++i) {
    if (name == kNames[i]) return static_cast<Pooling>(i);
  }
  throw std::invalid_argument("no pooling method is called '" + name + "'");
}

void pool(const std::string& method, Address x, int dtype, int64_t row_stride, int64_t hidden,
          Address cu_seqlens, int64_t sequences, Address out, Address skip, bool normalize) {
  PoolArgs args;
  args.method = pooling_named(method);
  args.x = pointer<void>(x);
  args.dtype = checked_dtype(dtype);
  args.row_stride = row_stride;
  args.hidden = hidden;
  args.cu_seqlens = pointer<int32_t>(cu_seqlens);
  args.sequences = sequences;
  args.skip = pointer<int32_t>(skip);
  args.out = pointer<float>(out);
  args.normalize = normalize;
  require(hidden > 0, "a row needs at least one column");
  check_offsets(args.cu_seqlens, sequences, "cu_seqlens must not decrease");
  run(&VarlenKernels::pool, args);
}

void l2_normalize(Address x, Address out, int64_t rows, int64_t columns) {
  run(&VarlenKernels::normalize, {pointer<float>(x), pointer<float>(out), rows, columns});
}

void maxsim(Address queries, Address cu_queries, int64_t query_count, Address documents,
            Address cu_documents, Address ranges, int64_t dim, int dtype, Address scores,
            Address best_row, Address best_score) {
  MaxSimArgs args;
  args.queries = pointer<void>(queries);
  args.cu_queries = pointer<int32_t>(cu_queries);
  args.query_count = query_count;
  args.documents = pointer<void>(documents);
  args.cu_documents = pointer<int32_t>(cu_documents);
  args.ranges = pointer<int32_t>(ranges);
  args.dim = dim;
  args.dtype = checked_dtype(dtype);
  args.scores = pointer<float>(scores);
  args.best_row = pointer<int32_t>(best_row);
  args.best_score = pointer<float>(best_score);
  require(dim > 0 && (args.dtype == DType::f32 || dim % 2 == 0), "dim must be positive, even for BF16");
  check_offsets(args.cu_queries, query_count, "cu_queries must not decrease");
  for (int64_t i = 0; i < query_count; ++i) {
    const int32_t first = args.ranges[2 * i], last = args.ranges[2 * i + 1];
    require(0 <= first && first <= last, "a range of documents must not be reversed");
    if (first < last) {
      check_offsets(args.cu_documents + first, last - first, "cu_documents must not decrease");
    }
  }
  run(&VarlenKernels::maxsim, args);
}

}  // namespace
}  // namespace cenote

void bind_varlen(nb::module_& m) {
  using namespace cenote;
  m.def("attention", cenote::attention, "q"_a, "k"_a, "v"_a, "out"_a, "dtype"_a, "q_stride"_a,
        "k_stride"_a, "v_stride"_a, "out_stride"_a, "cu_seqlens"_a, "sequences"_a, "heads"_a,
        "kv_heads"_a, "head_dim"_a, "scale"_a, nb::kw_only(), "cu_seqlens_k"_a = 0,
        "causal"_a = false, "window_left"_a = -1, "window_right"_a = -1, "softcap"_a = 0.0f,
        "alibi_slopes"_a = 0, "bias"_a = 0, "bias_size"_a = 0, "key_mask"_a = 0,
        "distance_keys"_a = 0, "distance_queries"_a = 0, "distance_count"_a = 0,
        "distance_rows"_a = 0, "distance_size"_a = 0);
  m.def(
      "layer_norm",
      [](Address x, int x_dtype, int64_t rows, int64_t columns, Address weight, Address bias,
         float eps, Address residual, Address sum_out, Address out_f32, Address out_bf16) {
        row_norm(NormKind::layer, x, x_dtype, rows, columns, weight, bias, eps, residual, sum_out,
                 out_f32, out_bf16);
      },
      "x"_a, "x_dtype"_a, "rows"_a, "columns"_a, "weight"_a, "bias"_a, "eps"_a, nb::kw_only(),
      "residual"_a = 0, "sum_out"_a = 0, "out_f32"_a = 0, "out_bf16"_a = 0);
  m.def(
      "rms_norm",
      [](Address x, int x_dtype, int64_t rows, int64_t columns, Address weight, float eps,
         Address residual, Address sum_out, Address out_f32, Address out_bf16) {
        row_norm(NormKind::rms, x, x_dtype, rows, columns, weight, 0, eps, residual, sum_out,
                 out_f32, out_bf16);
      },
      "x"_a, "x_dtype"_a, "rows"_a, "columns"_a, "weight"_a, "eps"_a, nb::kw_only(),
      "residual"_a = 0, "sum_out"_a = 0, "out_f32"_a = 0, "out_bf16"_a = 0);
  m.def("head_norm", head_norm, "kind"_a, "x"_a, "dtype"_a, "row_stride"_a, "rows"_a, "heads"_a,
        "head_dim"_a, "weight"_a, "bias"_a, "eps"_a);
  m.def("embedding", embedding, "ids"_a, "tokens"_a, "hidden"_a, "dtype"_a, "words"_a,
        "vocab_size"_a, nb::kw_only(), "position_table"_a = 0, "max_positions"_a = 0,
        "positions"_a = 0, "type_table"_a = 0, "type_count"_a = 0, "types"_a = 0, "scale"_a = 1.0f,
        "norm"_a = "none", "norm_weight"_a = 0, "norm_bias"_a = 0, "eps"_a = 0.0f, "out_f32"_a = 0,
        "out_bf16"_a = 0);
  m.def("rotary", rotary, "x"_a, "dtype"_a, "row_stride"_a, "tokens"_a, "heads"_a, "head_dim"_a,
        "rotary_dim"_a, "cos"_a, "sin"_a, "max_positions"_a, "positions"_a,
        "interleaved"_a = false);
  m.def("pool", pool, "method"_a, "x"_a, "dtype"_a, "row_stride"_a, "hidden"_a, "cu_seqlens"_a,
        "sequences"_a, "out"_a, nb::kw_only(), "skip"_a = 0, "normalize"_a = false);
  m.def("l2_normalize", l2_normalize, "x"_a, "out"_a, "rows"_a, "columns"_a);
  m.def("maxsim", maxsim, "queries"_a, "cu_queries"_a, "query_count"_a, "documents"_a,
        "cu_documents"_a, "ranges"_a, "dim"_a, "dtype"_a, "scores"_a, nb::kw_only(),
        "best_row"_a = 0, "best_score"_a = 0);
}
