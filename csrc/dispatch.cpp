// Chooses the instruction-set level: what is built, what the processor and the system allow, what
// the user asks for, and whether the level's products agree with plain loops.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <vector>
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "dispatch.hpp"
#include "varlen.hpp"

// CENOTE_LINEAR_LEVELS and CENOTE_VARLEN_LEVELS list what the build has: L(generic) L(avx2) ...
#define L(name)                              \
  namespace cenote::name {                   \
  extern const LinearKernels linear_kernels; \
  }
CENOTE_LINEAR_LEVELS
#undef L
#define L(name)                              \
  namespace cenote::name {                   \
  extern const VarlenKernels varlen_kernels; \
  }
CENOTE_VARLEN_LEVELS
#undef L

namespace cenote {

PackedWeight::~PackedWeight() {
  for (void* memory : {panels, static_cast<void*>(bias), static_cast<void*>(scales),
                       static_cast<void*>(column_sums)}) {
    std::free(memory);
  }
}

namespace {

// --- the processor -------------------------------------------------------------------------------

#if defined(__x86_64__)
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool has_avx512_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }

bool has_avx512_bf16() {
  return has_avx512_vnni() && __builtin_cpu_supports("avx512bf16") &&
         __builtin_cpu_supports("avx512vbmi");
}

// The tile unit's state is large, so Linux wants to be asked before a process may use it.
bool has_amx() {
  if (!has_avx512_bf16()) return false;
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25;
  if ((d & (kBf16 | kTile | kInt8)) != (kBf16 | kTile | kInt8)) return false;
#if defined(__linux__)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#else
bool has_avx2() { return false; }
bool has_avx512() { return false; }
bool has_avx512_vnni() { return false; }
bool has_avx512_bf16() { return false; }
bool has_amx() { return false; }
#endif

bool always() { return true; }

// --- the levels ----------------------------------------------------------------------------------

struct Level {
  const char* name;
  int rank;
  bool (*runs_here)();
  bool automatic;
};

constexpr Level kLevels[] = {
    {"amx", CENOTE_LEVEL_AMX, has_amx, true},
    {"avx512_bf16", CENOTE_LEVEL_AVX512_BF16, has_avx512_bf16, true},
    {"avx512_vnni", CENOTE_LEVEL_AVX512_VNNI, has_avx512_vnni, true},
    {"avx512", CENOTE_LEVEL_AVX512, has_avx512, true},
    {"avx2", CENOTE_LEVEL_AVX2, has_avx2, true},
    {"generic", CENOTE_LEVEL_GENERIC, always, true},
    {"amx_emulated", CENOTE_LEVEL_AMX, has_avx512_bf16, false},
};
constexpr int kLevelCount = sizeof(kLevels) / sizeof(kLevels[0]);

const LinearKernels* linear_of(const char* name) {
#define L(level) \
  if (std::strcmp(name, #level) == 0) return &level::linear_kernels;
  CENOTE_LINEAR_LEVELS
#undef L
  return nullptr;
}

// Levels that differ only in their products share the kernels of the next lower one.
const VarlenKernels* varlen_of(const Level& wanted) {
  for (const Level& level : kLevels) {
    const bool same = std::strcmp(level.name, wanted.name) == 0;
    if (!same && (level.rank >= wanted.rank || !level.automatic)) continue;
#define L(name_) \
  if (std::strcmp(level.name, #name_) == 0) return &name_::varlen_kernels;
    CENOTE_VARLEN_LEVELS
#undef L
  }
  return nullptr;
}

// --- self check ----------------------------------------------------------------------------------

float noise(uint32_t& state) {
  state = state * 1664525u + 1013904223u;
  return static_cast<float>(state >> 8) / 8388608.0f - 1.0f;
}

// One small product against plain loops; small enough to stay on the calling thread.
bool product_agrees(const LinearKernels& level, WeightKind kind, int rows) {
  constexpr int kIn = 71, kOut = 39;
  uint32_t state = 7;
  std::vector<float> x(rows * kIn), w(kOut * kIn), bias(kOut), y(rows * kOut);
  for (auto* values : {&x, &w, &bias}) {
    for (float& value : *values) value = noise(state);
  }
  PackedWeight weight;
  weight.kernels = &level;
  weight.kind = kind;
  weight.out_features = kOut;
  weight.in_features = kIn;
  level.pack(weight, w.data(), DType::f32, bias.data());
  LinearArgs args;
  args.x = x.data();
  args.x_stride = kIn;
  args.rows = rows;
  args.weight = &weight;
  args.out = y.data();
  level.linear(args);
  // Rounding errors of 71 products of numbers below 1, several times the expected size.
  const double bound = kind == WeightKind::f32 ? 1e-4 : kind == WeightKind::bf16 ? 0.08 : 0.25;
  for (int r = 0; r < rows; ++r) {
    for (int n = 0; n < kOut; ++n) {
      double sum = bias[n];
      for (int k = 0; k < kIn; ++k) sum += double(x[r * kIn + k]) * w[n * kIn + k];
      if (!(std::fabs(sum - y[r * kOut + n]) < bound)) return false;
    }
  }
  return true;
}

bool products_agree(const LinearKernels& level) {
  for (WeightKind kind : {WeightKind::f32, WeightKind::bf16, WeightKind::int8}) {
    for (int rows : {1, 5, 33}) {
      if (!product_agrees(level, kind, rows)) return false;
    }
  }
  return true;
}

// --- the choice ----------------------------------------------------------------------------------

class Dispatcher {
 public:
  static Dispatcher& get() {
    static Dispatcher* dispatcher = new Dispatcher;  // outlives every static destructor
    return *dispatcher;
  }

  const Kernels& current() const { return *current_.load(std::memory_order_acquire); }

  void set(const std::string& name) {
    std::lock_guard lock(mutex_);
    choose(name);
  }

  std::string report() {
    std::lock_guard lock(mutex_);
    std::string text;
    for (int i = 0; i < kLevelCount; ++i) {
      text += std::string(kLevels[i].name) + ": " + state_of(i) + "\n";
    }
    return text;
  }

  std::vector<std::string> usable_names() {
    std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (int i = 0; i < kLevelCount; ++i) {
      if (status(i).empty()) names.push_back(kLevels[i].name);
    }
    return names;
  }

 private:
  Dispatcher() {
    for (int i = 0; i < kLevelCount; ++i) {
      const Level& level = kLevels[i];
      tables_[i] = {level.name, level.rank, linear_of(level.name), varlen_of(level)};
    }
    const char* wish = std::getenv("CENOTE_ISA");
    if (wish && *wish) {
      choose(wish);
      return;
    }
    for (int i = 0; i < kLevelCount && !current_; ++i) {
      if (kLevels[i].automatic && status(i).empty()) current_ = &tables_[i];
    }
    if (!current_) throw std::runtime_error("no kernel level passes its self check");
  }

  void choose(const std::string& name) {
    for (int i = 0; i < kLevelCount; ++i) {
      if (name != kLevels[i].name) continue;
      if (!status(i).empty()) throw std::invalid_argument(name + ": " + status(i));
      current_ = &tables_[i];
      return;
    }
    throw std::invalid_argument("CENOTE_ISA: no level is called '" + name + "'");
  }

  // Empty if the level can be used, else why not. The check runs once per level.
  const std::string& status(int i) {
    if (tried_[i]) return why_not_[i];
    tried_[i] = true;
    if (!tables_[i].linear) {
      why_not_[i] = "not built";
    } else if (!kLevels[i].runs_here()) {
      why_not_[i] = "not supported by this machine";
    } else if (!products_agree(*tables_[i].linear)) {
      why_not_[i] = "failed its self check";
    }
    return why_not_[i];
  }

  std::string state_of(int i) {
    if (&tables_[i] == current_) return "in use";
    return status(i).empty() ? "usable" : status(i);
  }

  std::mutex mutex_;
  Kernels tables_[kLevelCount] = {};
  bool tried_[kLevelCount] = {};
  std::string why_not_[kLevelCount];
  std::atomic<const Kernels*> current_{nullptr};
};

}  // namespace

const Kernels& kernels() { return Dispatcher::get().current(); }
const char* isa_name() { return kernels().name; }
std::string isa_report() { return Dispatcher::get().report(); }
std::vector<std::string> isa_levels() { return Dispatcher::get().usable_names(); }
void set_isa(const std::string& name) { Dispatcher::get().set(name); }

}  // namespace cenote
