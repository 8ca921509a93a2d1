// Attention over a pack of sequences: one call for all sequences and heads, split over threads by
// cost. Knows nothing of projections, caches or which model it serves.
//
// Queries lie across the lanes. A tile is up to 2 · kLanes query rows of one head; for each block of
// keys it computes the scores [key][query], updates a running maximum and sum (all vertical, no
// sums across lanes), and adds the block's values to an output that is kept transposed until the
// end. So keys and values are only ever broadcast: rows are used as they lie in the pack, except
// that they are gathered once where several tiles read them, and that bfloat16 values are
// interleaved by pairs.
//
// A row's result depends on that row alone: blocks start at fixed key positions, a hidden key has
// the weight 0 exactly, and sums run in key order. So it is the same, bit for bit, in any pack, in
// any tile, on any number of threads, and when queries come in chunks.
#include <cstdint>
#include <cstring>

#include "attention_distances.hpp"
#include "attention_plan.hpp"
#include "attention_products.hpp"
#include "attention_scores.hpp"
#include "attention_softmax.hpp"
#include "attention_tiles.hpp"
#include "memory.hpp"
#include "threads.hpp"
#include "varlen.hpp"

namespace cenote::CENOTE_ISA {
namespace {

constexpr int64_t kBlockKeys = 128;  // a block's scores, keys and values stay in the L1 cache

using namespace attending;

// One head of one sequence: where its rows are.
template <class T>
struct Head {
  const T* q;
  Source<T> keys;
  T* out;
  const uint8_t* key_mask;
  const float* bias;
  float slope;
};

struct Workspace {
  float* queries;   // panel [steps][width]
  float* scores;    // [kBlockKeys][width]; then the probabilities, in place
  float* output;    // [head_dim][width]
  char* keys;       // gathered rows
  char* values;
  DistanceWork distances;
};

// Applies the terms and masks. Returns whether any score changed.
template <int C, class T>
bool adjust(const Plan& plan, const Head<T>& head, const Sequence& seq, Span queries, Span block,
            float* scores) {
  const AttentionArgs& args = plan.args;
  const Span at = {seq.shift() + queries.begin, seq.shift() + queries.end};
  if (args.softcap > 0) cap<C>(scores, block.size(), args.softcap / args.scale);
  if (head.bias) {
    add_bias<C>(scores, block.size(), head.bias + at.begin * args.bias_size + block.begin,
                args.bias_size, queries.size(), 1 / args.scale);
  }
  if (args.alibi_slopes) add_alibi<C>(scores, block, at.begin, head.slope / args.scale);
  const bool outside =
      block.end - 1 > at.begin + plan.right || block.begin < at.end - 1 - plan.left;
  if (outside) hide_outside<C>(scores, block, at, plan.left, plan.right);
  if (head.key_mask) hide_masked<C>(scores, block.size(), head.key_mask + block.begin);
  return outside || args.softcap > 0 || head.bias || args.alibi_slopes || head.key_mask;
}

// --- tiles, groups, threads ---------------------------------------------------------------------

// What a workspace holds, for the next query head that reads the same keys.
struct Gathered {
  const void* source = nullptr;
  Span span = {0, 0};
  Keys keys = {};
  Distances distances = {};
  bool near = true;  // scores so far were close enough together for `weigh_near`
};

// Fills `work.scores` with the scores of a block; returns whether terms or masks have changed them.
template <class Products, int C, class T>
bool score(const Plan& plan, const Head<T>& head, const Sequence& seq, const Gathered& gathered,
           Span queries, Span block, const Workspace& work) {
  const AttentionArgs& args = plan.args;
  Products::template score<C>(gathered.keys, block, work.queries, args.head_dim, work.scores);
  if (args.distance_size > 0) {
    add_distances<C>(gathered.distances, block, seq.shift() + queries.begin, work.distances,
                     work.scores);
  }
  return adjust<C>(plan, head, seq, queries, block, work.scores) || args.distance_size > 0;
}

// Leaves the block's weights in `work.scores`.
template <class Products, int C, class T>
void weigh_block(const Plan& plan, const Head<T>& head, const Sequence& seq, Gathered& gathered,
                 Span queries, Span block, const Workspace& work, Running<C>& running) {
  using Dot = typename Products::Dot;
  const float scale = plan.args.scale * kLog2e;
  const bool changed = score<Products, C>(plan, head, seq, gathered, queries, block, work);
  if constexpr (Powers<Dot>::kNear) {
    if (gathered.near) {
      const auto blind = [&](int c) {
        const int64_t first = seq.shift() + queries.begin + c * kLanes;
        return find_blind(block, first, plan.left, plan.right);
      };
      gathered.near = weigh_near<Dot>(work.scores, block.size(), scale, changed, blind, running);
      if (gathered.near) return;
      score<Products, C>(plan, head, seq, gathered, queries, block, work);
    }
  }
  weigh<Dot>(work.scores, block.size(), scale, running);
}

template <class T, class Products, int C>
void attend_tile(const Plan& plan, const Head<T>& head, const Sequence& seq, Gathered& gathered,
                 Span queries, const Workspace& work) {
  using Dot = typename Products::Dot;
  const AttentionArgs& args = plan.args;
  pack_columns<Dot, C>(head.q + queries.begin * args.q_stride, args.q_stride, queries.size(),
                       args.head_dim / Dot::kDepth, work.queries);
  meet_queries<Products, C>(gathered.distances, args, work.queries, work.distances);
  Running<C> running;
  const Span visible = plan.visible(seq, queries);
  if (visible.size() == 0) std::memset(work.output, 0, args.head_dim * C * kLanes * sizeof(float));
  for (int64_t start = visible.begin / kBlockKeys * kBlockKeys; start < visible.end;
       start += kBlockKeys) {
    const Span block = {at_least(start, visible.begin), at_most(start + kBlockKeys, visible.end)};
    weigh_block<Products, C>(plan, head, seq, gathered, queries, block, work, running);
    const Earlier<C> earlier = {block.begin == visible.begin,
                                running.corrected ? running.correction : nullptr};
    Products::template add_values<C>(gathered.keys, block, work.scores, args.head_dim, earlier,
                                     work.output);
  }
  write(work.output, args.head_dim, running, head.out + queries.begin * args.out_stride,
        args.out_stride, queries.size());
}

template <class T>
Head<T> head_of(const AttentionArgs& args, const Sequence& seq, int64_t h) {
  const int64_t column = h * args.head_dim;
  const int64_t key_column = h / (args.heads / args.kv_heads) * args.head_dim;
  return {static_cast<const T*>(args.q) + seq.first_query * args.q_stride + column,
          {static_cast<const T*>(args.k) + seq.first_key * args.k_stride + key_column,
           static_cast<const T*>(args.v) + seq.first_key * args.v_stride + key_column,
           args.k_stride, args.v_stride},
          static_cast<T*>(args.out) + seq.first_query * args.out_stride + column,
          args.key_mask ? args.key_mask + seq.first_key : nullptr,
          args.bias ? args.bias + h * args.bias_size * args.bias_size : nullptr,
          args.alibi_slopes ? args.alibi_slopes[h] : 0};
}

// Asks for the `part`-th of `parts` pieces of a sequence's rows. Whole rows in ascending order, so
// that the hardware, which looks for neighbours, joins in.
template <class T>
void fetch(const Plan& plan, const Sequence& seq, int64_t part, int64_t parts) {
  const AttentionArgs& args = plan.args;
  const auto rows = [&](const void* from, int64_t first, int64_t stride, int64_t count,
                        int64_t columns) {
    count = at_most(count, kGroupRows);  // more would push out what is in use
    for (int64_t i = count * part / parts; i < count * (part + 1) / parts; ++i) {
      const T* row = static_cast<const T*>(from) + (first + i) * stride;
      for (int64_t d = 0; d < columns; d += kCacheLine / sizeof(T)) {
        __builtin_prefetch(row + d, 0, 2);
      }
    }
  };
  rows(args.q, seq.first_query, args.q_stride, seq.queries, args.heads * args.head_dim);
  rows(args.k, seq.first_key, args.k_stride, seq.keys, args.kv_heads * args.head_dim);
  rows(args.v, seq.first_key, args.v_stride, seq.keys, args.kv_heads * args.head_dim);
}

template <class T, class Products>
void attend_group(const Plan& plan, const Sequence& seq, int64_t h, Span queries,
                  const Workspace& work, Gathered& gathered) {
  const Head<T> head = head_of<T>(plan.args, seq, h);
  const Span visible = plan.visible(seq, queries);
  if (gathered.source != head.keys.k || gathered.span.begin != visible.begin ||
      gathered.span.end != visible.end) {
    const bool once = queries.size() <= kWidest * kLanes;
    gathered = {head.keys.k, visible,
                Products::gather(head.keys, visible, plan.args.head_dim, once, work.keys,
                                 work.values),
                {}};
    if (plan.args.distance_size > 0) {
      gathered.distances = distances_of<T, Products>(plan.args, h, seq.keys, gathered.keys, visible,
                                                     work.distances);
    }
  }
  for (int64_t q = queries.begin; q < queries.end; q += kWidest * kLanes) {
    const Span tile = {q, at_most(q + kWidest * kLanes, queries.end)};
    if (tile.size() > kLanes) {
      attend_tile<T, Products, 2>(plan, head, seq, gathered, tile, work);
    } else {
      attend_tile<T, Products, 1>(plan, head, seq, gathered, tile, work);
    }
  }
}

template <class Products>
Workspace workspace(const AttentionArgs& args, int64_t most_keys) {
  const int64_t width = kWidest * kLanes;
  const int64_t gathered = Products::gathered_bytes(most_keys, args.head_dim);
  Scratch& scratch = worker_scratch();
  const bool by_distance = args.distance_size > 0;
  scratch.reset((2 * args.head_dim + kBlockKeys) * width * sizeof(float) + 2 * gathered +
                5 * kCacheLine + (by_distance ? distance_bytes<Products>(args, most_keys) : 0));
  Workspace work;
  work.queries = scratch.take<float>(args.head_dim * width);
  work.output = scratch.take<float>(args.head_dim * width);
  work.scores = scratch.take<float>(kBlockKeys * width);
  work.keys = scratch.take<char>(gathered);
  work.values = scratch.take<char>(gathered);
  if (by_distance) work.distances = distance_work<Products>(args, most_keys, scratch);
  return work;
}

// Runs the groups whose running cost starts within [from, to).
template <class T, class Products>
void run_share(const Plan& plan, const Costs& costs, int64_t from, int64_t to) {
  const Workspace work = workspace<Products>(plan.args, costs.most_keys);
  const typename Products::Session session;
  Gathered gathered;
  int64_t s = 0;
  for (int64_t high = plan.args.sequences; s < high;) {  // the first sequence that ends after `from`
    const int64_t middle = (s + high) / 2;
    if (costs.ends[middle] > from) {
      high = middle;
    } else {
      s = middle + 1;
    }
  }
  int64_t reached = s > 0 ? costs.ends[s - 1] : 0;
  for (; s < plan.args.sequences && reached < to; ++s) {
    const Sequence seq = plan.sequence(s);
    const bool has_next = s + 1 < plan.args.sequences && costs.ends[s + 1] <= to;
    const Sequence next = has_next ? plan.sequence(s + 1) : Sequence{};
    for (int64_t h = 0; h < plan.args.heads; ++h) {
      fetch<T>(plan, next, h, plan.args.heads);
      for_groups(seq, [&](Span queries) {
        if (reached >= from && reached < to) {
          attend_group<T, Products>(plan, seq, h, queries, work, gathered);
        }
        reached += cost(plan, seq, queries);
      });
    }
  }
}

template <class T, class Products>
void attend(const AttentionArgs& args) {
  constexpr int64_t kShares = 8;        // a thread: uneven progress is evened out
  constexpr int64_t kSmallest = 32768;  // cost × head_dim of a share that is worth its dispatch
  if (args.sequences == 0) return;
  const Plan plan(args, Products::kKeyStep);
  const Costs costs = count_costs(plan);
  const int64_t total = costs.ends[args.sequences - 1];
  const int64_t wanted = num_threads() > 1 ? num_threads() * kShares : 1;
  const int64_t shares = at_most(wanted, total * args.head_dim / kSmallest + 1);
  parallel_for(shares, [&](int64_t i, int) {
    run_share<T, Products>(plan, costs, total * i / shares, total * (i + 1) / shares);
  });
}

}  // namespace

void attention(const AttentionArgs& args) {
  if (args.dtype == DType::f32) return attend<float, VectorProducts<F32Dot>>(args);
#if CENOTE_LEVEL >= CENOTE_LEVEL_AMX && defined(__AVX512BF16__)
  if (args.head_dim % TileProducts::kKeyStep == 0) return attend<bf16, TileProducts>(args);
#endif
  attend<bf16, VectorProducts<NativeBf16Dot>>(args);
}

}  // namespace cenote::CENOTE_ISA
