// One vector per sequence out of its tokens' rows, accumulated in float32. Knows nothing of heads
// (dense layers, classifiers) that follow.
#include "rows.hpp"
#include "varlen.hpp"

namespace cenote::CENOTE_ISA {
namespace {

constexpr int kStripe = 8;              // vectors of columns that are summed in one go
constexpr int64_t kRowsInPartial = 64;  // partial sums keep the rounding error of long texts small

struct Sequence {
  int64_t first, length, skip;
  int64_t kept() const { return length - skip; }
};

Sequence sequence(const PoolArgs& args, int64_t s) {
  const int64_t first = args.cu_seqlens[s], length = args.cu_seqlens[s + 1] - first;
  const int64_t skip = args.skip ? args.skip[s] : 0;
  return {first, length, skip < 0 ? 0 : skip < length ? skip : length};
}

// What the weighted sum of the kept rows is divided by.
double divisor(Pooling method, const Sequence& seq) {
  const double kept = static_cast<double>(seq.kept());
  if (method == Pooling::mean_sqrt_len) return __builtin_sqrt(kept);
  if (method == Pooling::weighted_mean) return kept * (seq.skip + 1 + seq.length) / 2;
  return kept;
}

// Adds `weight(row) · x` for the kept rows, for `width` ≤ kStripe vectors of columns.
template <class T, class Weight>
void sum_rows(const T* x, int64_t stride, const Sequence& seq, int64_t columns, float factor,
              Weight weight, float* out) {
  Vec total[kStripe];
  for (Vec& t : total) t = zero();
  for (int64_t start = seq.skip; start < seq.length; start += kRowsInPartial) {
    const int64_t end = start + kRowsInPartial < seq.length ? start + kRowsInPartial : seq.length;
    Vec partial[kStripe];
    for (Vec& p : partial) p = zero();
    for (int64_t r = start; r < end; ++r) {
      const Vec w = set1(weight(r));
      for (int64_t i = 0; i * kLanes < columns; ++i) {
        partial[i] = fma(load_up_to(x + r * stride + i * kLanes, columns - i * kLanes), w, partial[i]);
      }
    }
    for (int i = 0; i < kStripe; ++i) total[i] = total[i] + partial[i];
  }
  for (int64_t i = 0; i * kLanes < columns; ++i) {
    store_up_to(out + i * kLanes, total[i] * set1(factor), columns - i * kLanes);
  }
}

template <class T>
void max_rows(const T* x, int64_t stride, const Sequence& seq, int64_t columns, float* out) {
  for (int64_t i = 0; i < columns; i += kLanes) {
    Vec top = load_up_to(x + seq.skip * stride + i, columns - i);
    for (int64_t r = seq.skip + 1; r < seq.length; ++r) {
      top = max(top, load_up_to(x + r * stride + i, columns - i));
    }
    store_up_to(out + i, top, columns - i);
  }
}

template <class T>
void copy_row(const T* x, int64_t columns, float* out) {
  rows::each_vector(columns, [&](int64_t i, int64_t n) { store_up_to(out + i, load_up_to(x + i, n), n); });
}

// One stripe of one sequence: `x` and `out` point at its first column.
template <class T>
void pool_stripe(Pooling method, const Sequence& seq, const T* x, int64_t stride, int64_t columns,
                 float* out) {
  const float factor = static_cast<float>(1 / divisor(method, seq));
  switch (method) {
    case Pooling::cls:
      return copy_row(x, columns, out);
    case Pooling::last:
      return copy_row(x + (seq.length - 1) * stride, columns, out);
    case Pooling::max:
      return max_rows(x, stride, seq, columns, out);
    case Pooling::weighted_mean:
      return sum_rows(x, stride, seq, columns, factor,
                      [](int64_t row) { return static_cast<float>(row + 1); }, out);
    case Pooling::mean:
    case Pooling::mean_sqrt_len:
      return sum_rows(x, stride, seq, columns, factor, [](int64_t) { return 1.0f; }, out);
  }
}

bool nothing_to_pool(Pooling method, const Sequence& seq) {
  const bool one_row = method == Pooling::cls || method == Pooling::last;
  return (one_row ? seq.length : seq.kept()) == 0;
}

template <class T>
void pool_rows(const PoolArgs& args) {
  constexpr int64_t kColumns = kStripe * kLanes;
  const int64_t stripes = (args.hidden + kColumns - 1) / kColumns;
  const int64_t tokens = args.sequences ? args.cu_seqlens[args.sequences] - args.cu_seqlens[0] : 0;
  const int64_t units = args.sequences * stripes;
  const int64_t elements_each = units ? tokens * args.hidden / units : 0;
  rows::in_parallel(units, elements_each, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t s = unit / stripes, column = unit % stripes * kColumns;
      const int64_t columns = args.hidden - column < kColumns ? args.hidden - column : kColumns;
      const Sequence seq = sequence(args, s);
      float* out = args.out + s * args.hidden + column;
      if (nothing_to_pool(args.method, seq)) {
        for (int64_t i = 0; i < columns; ++i) out[i] = 0;
        continue;
      }
      const T* x = static_cast<const T*>(args.x) + seq.first * args.row_stride + column;
      pool_stripe(args.method, seq, x, args.row_stride, columns, out);
    }
  });
}

}  // namespace

void normalize(const NormalizeArgs& args);  // norm.cpp

void pool(const PoolArgs& args) {
  if (args.dtype == DType::f32) {
    pool_rows<float>(args);
  } else {
    pool_rows<bf16>(args);
  }
  if (args.normalize) normalize({args.out, args.out, args.sequences, args.hidden});
}

}  // namespace cenote::CENOTE_ISA
