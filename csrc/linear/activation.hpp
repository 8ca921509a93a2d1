// Activations as the products' epilogues use them: exact ones for float32 products, and coarser,
// quicker ones where bfloat16 or int8 has cost more precision already. Knows single vectors only.
//
// On a tile unit an epilogue takes as long as the product itself, so every instruction counts here.
#pragma once

#include <type_traits>

#include "../kernels.hpp"
#include "../simd.hpp"

namespace cenote::CENOTE_ISA {

// 1 / x with a relative error of 2^-14.
CENOTE_INLINE Vec reciprocal_coarse(Vec x) {
#if CENOTE_LEVEL >= CENOTE_LEVEL_AVX512
  return {_mm512_rcp14_ps(x.v)};
#else
  return set1(1) / x;
#endif
}

// 1 / (1 + 2^-x), relative error 2e-4; exactly 0 where the power overflows.
CENOTE_INLINE Vec sigmoid2_coarse(Vec x) {
  return reciprocal_coarse(set1(1) + exp2_coarse(zero() - x));
}

constexpr float kLog2e = 1.44269504f;

// x · Φ(x) = max(x, 0) - |x| · Φ(-|x|); the second term, a bump that is nothing beyond 4, is a
// polynomial. Absolute error 1.3e-4.
CENOTE_INLINE Vec gelu_erf_coarse(Vec x) {
  constexpr float c[] = {0.496678261f, -0.370625265f, -0.081388998f, 0.176186089f,
                         -0.0761512497f, 0.0152396352f, -0.0014395214f, 4.86908756e-05f};
  const Vec z = min(set1(4), abs(x));
  return fnma(z, polynomial(c, z), relu(x));
}

CENOTE_INLINE Vec gelu_tanh_coarse(Vec x) {
  const Vec inner = fma(x * x, set1(0.0713548162726f * kLog2e), set1(1.5957691216057308f * kLog2e));
  return x * sigmoid2_coarse(x * inner);
}

// The function of one activation, `Coarse` or not.
template <Activation kActivation, bool kCoarse>
CENOTE_INLINE Vec activate(Vec x) {
  switch (kActivation) {
    case Activation::relu: return relu(x);
    case Activation::gelu_erf: return kCoarse ? gelu_erf_coarse(x) : gelu_erf(x);
    case Activation::gelu_tanh: return kCoarse ? gelu_tanh_coarse(x) : gelu_tanh(x);
    case Activation::silu: return kCoarse ? x * sigmoid2_coarse(x * set1(kLog2e)) : silu(x);
    case Activation::tanh: return tanh(x);
    case Activation::quick_gelu:
      return kCoarse ? x * sigmoid2_coarse(x * set1(1.702f * kLog2e))
                     : x * sigmoid(x * set1(1.702f));
    default: return x;
  }
}

// Calls `call` with the activation as a compile-time constant.
template <class Call>
CENOTE_INLINE void with_activation(Activation activation, const Call& call) {
  using A = Activation;
  switch (activation) {
    case A::none: return call(std::integral_constant<A, A::none>{});
    case A::relu: return call(std::integral_constant<A, A::relu>{});
    case A::gelu_erf: return call(std::integral_constant<A, A::gelu_erf>{});
    case A::gelu_tanh: return call(std::integral_constant<A, A::gelu_tanh>{});
    case A::silu: return call(std::integral_constant<A, A::silu>{});
    case A::tanh: return call(std::integral_constant<A, A::tanh>{});
    case A::quick_gelu: return call(std::integral_constant<A, A::quick_gelu>{});
  }
}

}  // namespace cenote::CENOTE_ISA
