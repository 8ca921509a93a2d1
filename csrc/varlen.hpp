// The argument structs of the kernels that work on a pack of sequences of any lengths, and the table
// of their entry points, filled once per level. `_native.pyi` says what each argument means.
#pragma once

#include <cstdint>

#include "kernels.hpp"

namespace cenote {

// Strides are in elements, from one token's row to the next; heads lie side by side in a row.
struct AttentionArgs {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  DType dtype = DType::f32;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, out_stride = 0;
  const int32_t* cu_seqlens_q = nullptr;
  const int32_t* cu_seqlens_k = nullptr;
  int64_t sequences = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1;
  bool causal = false;
  int64_t window_left = -1, window_right = -1;  // -1: unlimited
  float softcap = 0;                            // 0: none
  const float* alibi_slopes = nullptr;          // [heads]
  const float* bias = nullptr;                  // [heads, bias_size, bias_size]
  int64_t bias_size = 0;
  const uint8_t* key_mask = nullptr;  // per packed key
  // Vectors of distances, [distance_count, heads · head_dim] of `dtype`, either may be null.
  const void* distance_keys = nullptr;     // queries meet these
  const void* distance_queries = nullptr;  // keys meet these
  int64_t distance_count = 0;
  const int32_t* distance_rows = nullptr;  // of query - key, from 1 - distance_size up
  int64_t distance_size = 0;               // 0: no such terms
};

// out = norm(x + residual); the sum itself goes to `sum_out`. All outputs are optional.
struct RowNormArgs {
  NormArgs norm;
  const void* x = nullptr;
  DType x_dtype = DType::f32;
  int64_t rows = 0, columns = 0;
  const float* residual = nullptr;
  float* sum_out = nullptr;
  float* out_f32 = nullptr;
  void* out_bf16 = nullptr;
};

// Norms each head's slice of a strided row in place.
struct HeadNormArgs {
  NormArgs norm;
  void* x = nullptr;
  DType dtype = DType::f32;
  int64_t row_stride = 0, rows = 0, heads = 0, head_dim = 0;
};

struct EmbeddingArgs {
  const int32_t* ids = nullptr;
  int64_t tokens = 0, hidden = 0;
  DType dtype = DType::f32;  // of the tables
  const void* words = nullptr;
  const void* position_table = nullptr;
  const int32_t* positions = nullptr;
  const void* type_table = nullptr;
  const int32_t* types = nullptr;  // null: type 0
  float scale = 1;                 // of the word's row
  bool normed = false;
  NormArgs norm;
  float* out_f32 = nullptr;
  void* out_bf16 = nullptr;
};

struct RotaryArgs {
  void* x = nullptr;
  DType dtype = DType::f32;
  int64_t row_stride = 0, tokens = 0, heads = 0, head_dim = 0, rotary_dim = 0;
  const float* cos = nullptr;  // [positions, rotary_dim / 2]
  const float* sin = nullptr;
  const int32_t* positions = nullptr;
  bool interleaved = false;
};

enum class Pooling : int { cls = 0, last = 1, mean = 2, max = 3, mean_sqrt_len = 4, weighted_mean = 5 };

struct PoolArgs {
  Pooling method = Pooling::mean;
  const void* x = nullptr;
  DType dtype = DType::f32;
  int64_t row_stride = 0, hidden = 0;
  const int32_t* cu_seqlens = nullptr;
  int64_t sequences = 0;
  const int32_t* skip = nullptr;  // leading tokens left out, per sequence
  float* out = nullptr;
  bool normalize = false;
};

struct NormalizeArgs {
  const float* x = nullptr;
  float* out = nullptr;
  int64_t rows = 0, columns = 0;
};

// Query i is compared with the documents ranges[2i] … ranges[2i + 1] - 1; results follow each other
// in that order.
struct MaxSimArgs {
  const void* queries = nullptr;
  const int32_t* cu_queries = nullptr;
  int64_t query_count = 0;
  const void* documents = nullptr;
  const int32_t* cu_documents = nullptr;
  const int32_t* ranges = nullptr;
  int64_t dim = 0;
  DType dtype = DType::f32;
  float* scores = nullptr;
  int32_t* best_row = nullptr;   // per (query, document): one entry per query token, or null
  float* best_score = nullptr;  // the same shape, or null
};

struct VarlenKernels {
  void (*attention)(const AttentionArgs&);
  void (*row_norm)(const RowNormArgs&);
  void (*head_norm)(const HeadNormArgs&);
  void (*embedding)(const EmbeddingArgs&);
  void (*rotary)(const RotaryArgs&);
  void (*pool)(const PoolArgs&);
  void (*normalize)(const NormalizeArgs&);
  void (*maxsim)(const MaxSimArgs&);
};

}  // namespace cenote
