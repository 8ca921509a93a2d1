// Whole layers of a transformer over a pack: attention, then an MLP, each with norms before or after
// it. Knows no model and no instruction set: it calls the kernels that the weights were packed for.
//
// Sequences go through all layers a few at a time, so that what lies between two products stays in
// the L2 cache; threads take such groups in turn and wait for each other only at the end.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels.hpp"
#include "varlen.hpp"

namespace cenote {

// x' = attention_post(out(attention(qkv(attention_pre(x)))) + x), then
// x" = mlp_post(mlp(mlp_pre(x')) + x'). Any norm may be null. If it adds behind, x and x' are added
// to what the post-norms give, which are both there.
struct Layer {
  const PackedWeight* qkv = nullptr;  // rows of queries, keys and values in this order
  const PackedWeight* out = nullptr;
  const PackedWeight* up = nullptr;
  const PackedWeight* down = nullptr;
  const NormArgs* attention_pre = nullptr;
  const NormArgs* attention_post = nullptr;
  const NormArgs* mlp_pre = nullptr;
  const NormArgs* mlp_post = nullptr;
  bool adds_behind = false;
  const NormArgs* query_norm = nullptr;  // of each head, before it is turned
  const NormArgs* key_norm = nullptr;
  Activation activation = Activation::none;
  Gate gate = Gate::none;
  AttentionArgs attention;  // heads and rules; the rows are filled in for each group
  RotaryArgs rotary;        // tables; none without `cos`
  int64_t kept = -1;        // its place in what outlives the call; none below 0
};

// Rows of the pack that are wanted of the last layer, ascending.
struct ReadRows {
  const int64_t* rows = nullptr;        // null: all of them, in place
  const int32_t* cu_seqlens = nullptr;  // bounds of each sequence's
  bool trailing = false;                // whether they are the last ones of their sequence
  float* out = nullptr;                 // [rows, width]
};

// Keys and values that outlive the call: a row for each token, by slot.
struct KeptKeys {
  char* rows = nullptr;  // null: nothing outlives it
  int64_t row_bytes = 0, layer_bytes = 0;
  const int64_t* written = nullptr;  // the slot of each row of the pack
  // Where each sequence's keys lie; null: in the pack, and nowhere else.
  const int64_t* read = nullptr;
  const int32_t* read_cu_seqlens = nullptr;
  const uint8_t* joined = nullptr;  // sequences that read what is written for the one before them
};

// What a batch brings along.
struct LayersArgs {
  float* hidden = nullptr;  // [tokens, width], in and out
  const int32_t* cu_seqlens = nullptr;
  int64_t sequences = 0;
  DType dtype = DType::f32;             // of what lies between two products
  const int32_t* positions = nullptr;   // for rotary layers
  const float* alibi_slopes = nullptr;  // these as in AttentionArgs
  const float* bias = nullptr;
  int64_t bias_size = 0;
  const uint8_t* key_mask = nullptr;  // none where keys are read by slot
  KeptKeys kept;
  ReadRows read;
};

// Runs the layers, at least one. A sequence's result doesn't depend, bit for bit, on the others or
// on the threads.
void run_layers(const std::vector<Layer>& layers, const LayersArgs& args);

}  // namespace cenote
