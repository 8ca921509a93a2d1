// LayerNorm and RMSNorm over rows, with the residual sum in front, and over each head's slice of a
// row; L2 normalisation. Knows nothing of layers.
#include "memory.hpp"
#include "rows.hpp"
#include "varlen.hpp"

namespace cenote::CENOTE_ISA {
namespace {

using rows::each_vector;

template <class T>
void norm_rows(const RowNormArgs& args, int64_t begin, int64_t end) {
  const int64_t columns = args.columns;
  Scratch& scratch = worker_scratch();
  scratch.reset(columns * sizeof(float) + kCacheLine);
  float* const buffer = scratch.take<float>(columns);
  for (int64_t r = begin; r < end; ++r) {
    const int64_t at = r * columns;
    const T* x = static_cast<const T*>(args.x) + at;
    const rows::Outputs out = {args.out_f32 ? args.out_f32 + at : nullptr,
                               args.out_bf16 ? static_cast<bf16*>(args.out_bf16) + at : nullptr};
    const auto write = [&](int64_t i, int64_t n, Vec y) { out.write(i, n, y); };
    if (!args.residual && !args.sum_out) {
      rows::normalise(x, columns, args.norm, write);
      continue;
    }
    float* sum = args.sum_out ? args.sum_out + at : buffer;
    each_vector(columns, [&](int64_t i, int64_t n) {
      const Vec value = load_up_to(x + i, n);
      store_up_to(sum + i, args.residual ? value + load_up_to(args.residual + at + i, n) : value, n);
    });
    rows::normalise(sum, columns, args.norm, write);
  }
}

template <class T>
void norm_heads(const HeadNormArgs& args, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    T* head = static_cast<T*>(args.x) + r * args.row_stride;
    for (int64_t h = 0; h < args.heads; ++h, head += args.head_dim) {
      rows::normalise_into(head, args.head_dim, args.norm, head);
    }
  }
}

void normalize_row(const float* x, float* out, int64_t columns) {
  constexpr float kSmallestLength = 1e-12f;
  const float length = __builtin_sqrtf(rows::sum_over(columns, [&](int64_t i, int64_t n) {
    const Vec value = load_up_to(x + i, n);
    return value * value;
  }));
  const Vec divisor = set1(length > kSmallestLength ? length : kSmallestLength);
  each_vector(columns, [&](int64_t i, int64_t n) {
    store_up_to(out + i, load_up_to(x + i, n) / divisor, n);
  });
}

}  // namespace

void row_norm(const RowNormArgs& args) {
  rows::in_parallel(args.rows, args.columns, [&](int64_t begin, int64_t end) {
    if (args.x_dtype == DType::f32) {
      norm_rows<float>(args, begin, end);
    } else {
      norm_rows<bf16>(args, begin, end);
    }
  });
}

void head_norm(const HeadNormArgs& args) {
  rows::in_parallel(args.rows, args.heads * args.head_dim, [&](int64_t begin, int64_t end) {
    if (args.dtype == DType::f32) {
      norm_heads<float>(args, begin, end);
    } else {
      norm_heads<bf16>(args, begin, end);
    }
  });
}

void normalize(const NormalizeArgs& args) {
  rows::in_parallel(args.rows, args.columns, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      normalize_row(args.x + r * args.columns, args.out + r * args.columns, args.columns);
    }
  });
}

}  // namespace cenote::CENOTE_ISA
