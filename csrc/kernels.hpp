// The seam between the bindings and the kernels: plain argument structs and one table of function
// pointers per instruction-set level. Knows nothing of Python, torch or how a kernel works.
//
// Every kernel source is compiled once per level with CENOTE_ISA set to that level's name, and puts
// what it defines into `namespace cenote::CENOTE_ISA`. The macro CENOTE_LEVEL holds the rank of the
// level as a number (see the CENOTE_LEVEL_* constants), for `#if CENOTE_LEVEL >= ...`.
#pragma once

#include <cstddef>
#include <cstdint>

#define CENOTE_LEVEL_GENERIC 0
#define CENOTE_LEVEL_AVX2 1
#define CENOTE_LEVEL_AVX512 2
#define CENOTE_LEVEL_AVX512_VNNI 3
#define CENOTE_LEVEL_AVX512_BF16 4
#define CENOTE_LEVEL_AMX 5

namespace cenote {

enum class DType : int { f32 = 0, bf16 = 1 };

enum class WeightKind : int { f32 = 0, bf16 = 1, int8 = 2 };

enum class Activation : int {
  none = 0,
  relu = 1,
  gelu_erf = 2,
  gelu_tanh = 3,
  silu = 4,
  tanh = 5,
  quick_gelu = 6,
};

enum class NormKind : int { layer = 0, rms = 1 };

// Which half of a doubled `up` product goes through the activation.
enum class Gate : int { none = 0, first = 1, second = 2 };

// Parameters of a LayerNorm or RMSNorm; `bias` may be null.
struct NormArgs {
  NormKind kind = NormKind::layer;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float eps = 1e-5f;
};

struct LinearKernels;  // what a level does with packed weights: defined below

// A matrix [out, in] repacked for one level's kernels. Filled by LinearKernels::pack.
struct PackedWeight {
  const LinearKernels* kernels = nullptr;
  const char* isa = "";
  WeightKind kind = WeightKind::f32;
  int64_t out_features = 0;
  int64_t in_features = 0;
  bool halves = false;  // each half of the outputs starts on a fresh panel (for gated MLPs)

  void* panels = nullptr;          // the weights, in the level's own order
  size_t panel_bytes = 0;
  float* bias = nullptr;           // per packed column, zero-padded
  float* scales = nullptr;         // int8: per packed column
  int32_t* column_sums = nullptr;  // int8: 128 × the sum of a packed column's weights
  int64_t packed_columns = 0;
  int64_t panel_count = 0;

  PackedWeight() = default;
  PackedWeight(const PackedWeight&) = delete;
  PackedWeight& operator=(const PackedWeight&) = delete;
  ~PackedWeight();
};

// y = norm_out(act(norm_in(x) · Wᵀ + b) + residual) + added; see _native.pyi for what may alias.
// `added`, float32 rows that aren't `out`, only with a norm and a float32 result.
struct LinearArgs {
  const void* x = nullptr;
  DType x_dtype = DType::f32;
  int64_t x_stride = 0;  // in elements
  int64_t rows = 0;
  const PackedWeight* weight = nullptr;
  void* out = nullptr;
  DType out_dtype = DType::f32;
  int64_t out_stride = 0;  // in elements; 0: rows side by side, as a norm needs them
  Activation activation = Activation::none;
  const NormArgs* pre_norm = nullptr;
  const float* residual = nullptr;
  const NormArgs* post_norm = nullptr;
  const float* added = nullptr;
};

// y = norm_out(down(act(up(norm_in(x)))) + residual) + added, gated or not.
struct MlpArgs {
  const void* x = nullptr;
  DType x_dtype = DType::f32;
  int64_t x_stride = 0;
  int64_t rows = 0;
  const PackedWeight* up = nullptr;
  const PackedWeight* down = nullptr;
  void* out = nullptr;
  DType out_dtype = DType::f32;
  Activation activation = Activation::none;
  Gate gate = Gate::none;
  const NormArgs* pre_norm = nullptr;
  const float* residual = nullptr;
  const NormArgs* post_norm = nullptr;
  const float* added = nullptr;
};

struct LinearKernels {
  // Fills `weight`, whose kind, sizes and `halves` are set already.
  void (*pack)(PackedWeight& weight, const void* source, DType dtype, const float* bias);
  void (*linear)(const LinearArgs& args);
  void (*mlp)(const MlpArgs& args);
  // One thread's rate in operations a second when every operand is in a register.
  double (*peak)(WeightKind kind, double seconds);
  // Rows that go through a whole layer together: fewer would fetch the weights too often, and the
  // activations of more wouldn't stay in the L2 cache.
  int64_t group_rows;
};

struct VarlenKernels;  // attention, norms, pooling, ...: defined in varlen.hpp

// Each level's namespace defines `linear_kernels` (linear/linear.cpp) and, in the levels that have
// them compiled, `varlen_kernels` (varlen.cpp); dispatch.cpp puts them together.

// One level: what the dispatcher chooses between.
struct Kernels {
  const char* name;
  int level;
  const LinearKernels* linear;
  const VarlenKernels* varlen;
};

// The level in use: the best that this processor runs and that passes its self check, or
// the one named by the environment variable CENOTE_ISA.
const Kernels& kernels();

}  // namespace cenote
