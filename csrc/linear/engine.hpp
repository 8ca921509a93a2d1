// Which engine makes the innermost products of a kind of weights.
//
// Every element of the result is one chain of additions over the inputs in ascending order, whatever
// the size of the tile: that is why a row's result doesn't depend on the rows beside it.
#pragma once

#include "tile_engine.hpp"
#include "vector_engine.hpp"

namespace cenote::CENOTE_ISA {

template <WeightKind kKind>
struct EngineFor;

template <>
struct EngineFor<WeightKind::f32> {
  using type = VectorEngine<DotF32>;
};

#if CENOTE_LEVEL >= CENOTE_LEVEL_AMX
template <>
struct EngineFor<WeightKind::bf16> {
  using type = TileEngine<DotBf16>;
};
template <>
struct EngineFor<WeightKind::int8> {
  using type = TileEngine<DotInt8>;
};
#else
template <>
struct EngineFor<WeightKind::bf16> {
  using type = VectorEngine<DotBf16>;
};
template <>
struct EngineFor<WeightKind::int8> {
  using type = VectorEngine<DotInt8>;
};
#endif

template <WeightKind kKind>
using Engine = typename EngineFor<kKind>::type;

}  // namespace cenote::CENOTE_ISA
