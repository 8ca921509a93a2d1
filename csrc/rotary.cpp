// Rotary position embedding in place, inside the packed projection. Knows nothing of how the tables
// of cosines and sines were scaled.
#include "rows.hpp"
#include "varlen.hpp"

namespace cenote::CENOTE_ISA {
namespace {

// Pairs (i, i + half).
template <class T>
CENOTE_INLINE void rotate_halves(T* x, const float* cos, const float* sin, int64_t half) {
  rows::each_vector(half, [&](int64_t i, int64_t n) {
    const Vec a = load_up_to(x + i, n), b = load_up_to(x + half + i, n);
    const Vec c = load_up_to(cos + i, n), s = load_up_to(sin + i, n);
    store_up_to(x + i, fnma(b, s, a * c), n);
    store_up_to(x + half + i, fma(a, s, b * c), n);
  });
}

// Pairs (2i, 2i + 1).
template <class T>
CENOTE_INLINE void rotate_neighbours(T* x, const float* cos, const float* sin, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = to_float(x[2 * i]), b = to_float(x[2 * i + 1]);
    assign(x[2 * i], a * cos[i] - b * sin[i]);
    assign(x[2 * i + 1], b * cos[i] + a * sin[i]);
  }
}

template <class T>
void rotate_rows(const RotaryArgs& args, int64_t begin, int64_t end) {
  const int64_t half = args.rotary_dim / 2;
  for (int64_t t = begin; t < end; ++t) {
    const float* cos = args.cos + args.positions[t] * half;
    const float* sin = args.sin + args.positions[t] * half;
    T* head = static_cast<T*>(args.x) + t * args.row_stride;
    for (int64_t h = 0; h < args.heads; ++h, head += args.head_dim) {
      if (args.interleaved) {
        rotate_neighbours(head, cos, sin, half);
      } else {
        rotate_halves(head, cos, sin, half);
      }
    }
  }
}

}  // namespace

void rotary(const RotaryArgs& args) {
  rows::in_parallel(args.tokens, args.heads * args.head_dim, [&](int64_t begin, int64_t end) {
    if (args.dtype == DType::f32) {
      rotate_rows<float>(args, begin, end);
    } else {
      rotate_rows<bf16>(args, begin, end);
    }
  });
}

}  // namespace cenote::CENOTE_ISA
