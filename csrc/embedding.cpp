// The sum of a token's table rows (word, position, token type) and the norm that follows it. Indices
// have been checked by the binding; this file knows nothing of vocabularies.
#include "memory.hpp"
#include "rows.hpp"
#include "varlen.hpp"

namespace cenote::CENOTE_ISA {
namespace {

template <class T>
const T* table_row(const void* table, int64_t index, int64_t hidden) {
  return table ? static_cast<const T*>(table) + index * hidden : nullptr;
}

template <class T>
void embed(const EmbeddingArgs& args, int64_t begin, int64_t end) {
  const int64_t hidden = args.hidden;
  Scratch& scratch = worker_scratch();
  scratch.reset(hidden * sizeof(float) + kCacheLine);
  float* const buffer = scratch.take<float>(hidden);
  const Vec scale = set1(args.scale);
  for (int64_t t = begin; t < end; ++t) {
    const T* word = table_row<T>(args.words, args.ids[t], hidden);
    const T* place =
        table_row<T>(args.position_table, args.positions ? args.positions[t] : 0, hidden);
    const T* type = table_row<T>(args.type_table, args.types ? args.types[t] : 0, hidden);
    const rows::Outputs out = {
        args.out_f32 ? args.out_f32 + t * hidden : nullptr,
        args.out_bf16 ? static_cast<bf16*>(args.out_bf16) + t * hidden : nullptr};
    rows::each_vector(hidden, [&](int64_t i, int64_t n) {
      Vec sum = load_up_to(word + i, n) * scale;
      if (type) sum = sum + load_up_to(type + i, n);
      if (place) sum = sum + load_up_to(place + i, n);
      if (args.normed) {
        store_up_to(buffer + i, sum, n);
      } else {
        out.write(i, n, sum);
      }
    });
    if (!args.normed) continue;
    rows::normalise(buffer, hidden, args.norm,
                    [&](int64_t i, int64_t n, Vec y) { out.write(i, n, y); });
  }
}

}  // namespace

void embedding(const EmbeddingArgs& args) {
  rows::in_parallel(args.tokens, args.hidden, [&](int64_t begin, int64_t end) {
    if (args.dtype == DType::f32) {
      embed<float>(args, begin, end);
    } else {
      embed<bf16>(args, begin, end);
    }
  });
}

}  // namespace cenote::CENOTE_ISA
