// The rate of a level's product instructions when every operand is in a register: the limit that a
// kernel's share is told of. Knows nothing of memory.
#pragma once

#include <chrono>

#include "engine.hpp"

namespace cenote::CENOTE_ISA {

constexpr int kSums = kRegisters == 32 ? 24 : 10;

// Independent chains of products. Their operands come from memory that the compiler knows nothing
// of, or it would fold chains that look alike.
template <class Dot>
void register_products(int rounds) {
  using Accumulator = typename Dot::Accumulator;
  alignas(64) char memory[(kSums + 1) * sizeof(Accumulator)] = {};
  asm volatile("" ::"r"(memory) : "memory");
  Accumulator sums[kSums];
#pragma GCC unroll 24
  for (int s = 0; s < kSums; ++s) {
    std::memcpy(&sums[s], memory + s * sizeof(Accumulator), sizeof(Accumulator));
  }
  const auto row = Dot::row(memory + kSums * sizeof(Accumulator));
  const auto columns = Dot::columns(memory + kSums * sizeof(Accumulator));
  for (int i = 0; i < rounds; ++i) {
#pragma GCC unroll 24
    for (int s = 0; s < kSums; ++s) sums[s] = Dot::add(sums[s], row, columns);
  }
#pragma GCC unroll 24
  for (int s = 0; s < kSums; ++s) {
    std::memcpy(memory + s * sizeof(Accumulator), &sums[s], sizeof(Accumulator));
  }
  asm volatile("" ::"r"(memory) : "memory");
}

template <class E>
struct RegisterLoop {
  static double run(int rounds) {
    using Dot = typename E::Dot;
    register_products<Dot>(rounds);
    return 2.0 * rounds * kSums * kLanes * Dot::kDepth;
  }
};

#if CENOTE_LEVEL >= CENOTE_LEVEL_AMX
template <class Dot>
struct RegisterLoop<TileEngine<Dot>> {
  static double run(int rounds) {
    amx::Session session;
    amx::zero<0>();
    amx::zero<1>();
    amx::zero<2>();
    amx::zero<3>();
    amx::zero<4>();
    amx::zero<5>();
    amx::zero<6>();
    amx::zero<7>();
    for (int i = 0; i < rounds; ++i) {
      TileEngine<Dot>::template dot<0, 4, 6>();
      TileEngine<Dot>::template dot<1, 4, 7>();
      TileEngine<Dot>::template dot<2, 5, 6>();
      TileEngine<Dot>::template dot<3, 5, 7>();
    }
    return 2.0 * rounds * 4 * 16 * 16 * 16 * Dot::kDepth;
  }
};
#endif

template <class E>
double measure_peak(double seconds) {
  using Clock = std::chrono::steady_clock;
  RegisterLoop<E>::run(1000);
  double operations = 0;
  const auto start = Clock::now();
  double elapsed = 0;
  do {
    operations += RegisterLoop<E>::run(2000);
    elapsed = std::chrono::duration<double>(Clock::now() - start).count();
  } while (elapsed < seconds);
  return operations / elapsed;
}

}  // namespace cenote::CENOTE_ISA
