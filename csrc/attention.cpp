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
#include <cmath>
#include <cstdint>
#include <cstring>

#include "attention_products.hpp"
#include "memory.hpp"
#include "threads.hpp"
#include "varlen.hpp"

namespace cenote::CENOTE_ISA {
namespace {

constexpr int64_t kGroupRows = 256;  // query rows that share one gathering of their keys
constexpr int64_t kBlockKeys = 128;  // a block's scores, keys and values stay in the L1 cache
constexpr int64_t kWidest = 2;       // vectors of queries in a tile
constexpr float kLog2e = 1.44269504f;
// A running maximum from before any key was seen: finite, so that no difference of infinities arises.
constexpr float kNothingSeen = -1e30f;
constexpr int64_t kNoLimit = int64_t{1} << 30;

using namespace attending;

struct Sequence {
  int64_t first_query, queries, first_key, keys;
  int64_t shift() const { return keys - queries; }  // position of the first query among the keys
};

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
};

// What is the same for the whole call.
struct Plan {
  const AttentionArgs& args;
  int64_t key_step;  // runs of keys start at multiples of this
  int64_t left, right;

  Plan(const AttentionArgs& a, int64_t step)
      : args(a),
        key_step(step),
        left(a.window_left < 0 ? kNoLimit : a.window_left),
        right(a.causal ? 0 : a.window_right < 0 ? kNoLimit : a.window_right) {}

  Sequence sequence(int64_t s) const {
    const int32_t* q = args.cu_seqlens_q + s;
    const int32_t* k = args.cu_seqlens_k + s;
    return {q[0], int64_t{q[1]} - q[0], k[0], int64_t{k[1]} - k[0]};
  }

  // Keys that any of these queries sees, and perhaps a few before them.
  Span visible(const Sequence& seq, Span queries) const {
    const int64_t end = seq.shift() + queries.end + right;
    const int64_t begin = at_least(seq.shift() + queries.begin - left, 0) / key_step * key_step;
    const int64_t limit = at_most(at_least(end, 0), seq.keys);
    return {at_most(begin, limit), limit};
  }
};

// --- scores -------------------------------------------------------------------------------------

// The passes below change scores [keys][C · kLanes] in place; logits are in units of log 2.

template <int C>
void cap(float* scores, int64_t keys, float softcap) {
  const Vec limit = set1(softcap * kLog2e), inverse = set1(1 / (softcap * kLog2e));
  for (int64_t i = 0; i < keys * C; ++i) {
    float* at = scores + i * kLanes;
    store(at, limit * tanh(load(at) * inverse));
  }
}

// `bias` points at the row of the tile's first query, at the block's first key.
template <int C>
void add_bias(float* scores, int64_t keys, const float* bias, int64_t stride, int64_t rows) {
  for (int c = 0; c < C; ++c) {
    const int64_t here = at_most(at_least(rows - c * kLanes, 0), kLanes);
    for (int64_t key = 0; key < keys; key += kLanes) {
      Vec values[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        values[i] = i < here ? load_up_to(bias + (c * kLanes + i) * stride + key, keys - key) : zero();
      }
      transpose(values);
      const int64_t count = at_most(kLanes, keys - key);
      for (int64_t i = 0; i < count; ++i) {
        float* at = scores + ((key + i) * C + c) * kLanes;
        store(at, fma(values[i], set1(kLog2e), load(at)));
      }
    }
  }
}

template <int C>
void positions(int64_t first, Vec (&position)[C]) {
  for (int c = 0; c < C; ++c) {
    position[c] = set1(static_cast<float>(first + c * kLanes)) + lane_index();
  }
}

template <int C>
void add_alibi(float* scores, Span block, int64_t first_position, float slope) {
  Vec position[C];
  positions(first_position, position);
  const Vec factor = set1(slope * kLog2e);
  for (int64_t key = block.begin; key < block.end; ++key) {
    for (int c = 0; c < C; ++c) {
      float* at = scores + ((key - block.begin) * C + c) * kLanes;
      store(at, fnma(factor, abs(set1(static_cast<float>(key)) - position[c]), load(at)));
    }
  }
}

template <int C>
void hide_outside(float* scores, Span block, int64_t first_position, int64_t left, int64_t right) {
  Vec position[C];
  positions(first_position, position);
  const Vec before = set1(-static_cast<float>(left)), after = set1(static_cast<float>(right));
  for (int64_t key = block.begin; key < block.end; ++key) {
    for (int c = 0; c < C; ++c) {
      float* at = scores + ((key - block.begin) * C + c) * kLanes;
      const Vec distance = set1(static_cast<float>(key)) - position[c];
      store(at, select(distance < before | after < distance, set1(-INFINITY), load(at)));
    }
  }
}

template <int C>
void hide_masked(float* scores, int64_t keys, const uint8_t* mask) {
  for (int64_t key = 0; key < keys; ++key) {
    if (mask[key]) continue;
    for (int c = 0; c < C; ++c) store(scores + (key * C + c) * kLanes, set1(-INFINITY));
  }
}

template <int C, class T>
void adjust(const Plan& plan, const Head<T>& head, const Sequence& seq, Span queries, Span block,
            float* scores) {
  const AttentionArgs& args = plan.args;
  const int64_t position = seq.shift() + queries.begin;
  const int64_t last = seq.shift() + queries.end - 1;
  if (args.softcap > 0) cap<C>(scores, block.size(), args.softcap);
  if (head.bias) {
    add_bias<C>(scores, block.size(), head.bias + position * args.bias_size + block.begin,
                args.bias_size, queries.size());
  }
  if (args.alibi_slopes) add_alibi<C>(scores, block, position, head.slope);
  if (block.end - 1 > position + plan.right || block.begin < last - plan.left) {
    hide_outside<C>(scores, block, position, plan.left, plan.right);
  }
  if (head.key_mask) hide_masked<C>(scores, block.size(), head.key_mask + block.begin);
}

// --- softmax and output -------------------------------------------------------------------------

// The running maximum, the sum of weights relative to it, and what earlier blocks must be multiplied
// by since the last change of the maximum.
template <int C>
struct Running {
  Vec maximum[C], sum[C], correction[C];
};

template <int C>
void raise_maximum(const float* scores, int64_t keys, Running<C>& running) {
  for (int c = 0; c < C; ++c) {
    Vec even = running.maximum[c], odd = even;
    int64_t key = 0;
    for (; key + 2 <= keys; key += 2) {
      even = max(even, load(scores + (key * C + c) * kLanes));
      odd = max(odd, load(scores + ((key + 1) * C + c) * kLanes));
    }
    if (key < keys) even = max(even, load(scores + (key * C + c) * kLanes));
    const Vec maximum = max(even, odd);
    running.correction[c] = exp2(running.maximum[c] - maximum);
    running.maximum[c] = maximum;
  }
}

// Turns scores into weights in place. With pairs, the words of two keys take the place of one.
template <class Dot, int C>
void weigh(float* scores, int64_t keys, Running<C>& running) {
  Vec sums[2][C];
  clear(sums);
  for (int64_t key = 0; key < keys; key += 2) {
    for (int c = 0; c < C; ++c) {
      float* even = scores + (key * C + c) * kLanes;
      float* odd = even + C * kLanes;
      const bool both = key + 1 < keys;
      if constexpr (Dot::kDepth == 2) {
        const Vec a = exp2_coarse(load(even) - running.maximum[c]);
        const Vec b = both ? exp2_coarse(load(odd) - running.maximum[c]) : zero();
        sums[0][c] = sums[0][c] + a;
        sums[1][c] = sums[1][c] + b;
        store(scores + (key / 2 * C + c) * kLanes, Dot::pair(a, b));
      } else {
        const Vec a = exp2(load(even) - running.maximum[c]);
        store(even, a);
        sums[0][c] = sums[0][c] + a;
        if (!both) continue;
        const Vec b = exp2(load(odd) - running.maximum[c]);
        store(odd, b);
        sums[1][c] = sums[1][c] + b;
      }
    }
  }
  for (int c = 0; c < C; ++c) {
    running.sum[c] = fma(running.sum[c], running.correction[c], sums[0][c] + sums[1][c]);
  }
}

template <int C, class T>
void write(const float* output, int64_t head_dim, const Running<C>& running, T* out, int64_t stride,
           int64_t rows) {
  for (int c = 0; c < C; ++c) {
    const Vec sum = running.sum[c];
    const Vec factor = select(zero() < sum, set1(1) / sum, zero());
    const int64_t here = at_most(at_least(rows - c * kLanes, 0), kLanes);
    for (int64_t d = 0; d < head_dim; d += kLanes) {
      Vec values[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        values[i] = d + i < head_dim ? load(output + ((d + i) * C + c) * kLanes) * factor : zero();
      }
      transpose(values);
      for (int64_t i = 0; i < here; ++i) {
        store_up_to(out + (c * kLanes + i) * stride + d, values[i], head_dim - d);
      }
    }
  }
}

// --- tiles, groups, threads ---------------------------------------------------------------------

template <class T, class Products, int C>
void attend_tile(const Plan& plan, const Head<T>& head, const Sequence& seq, const Keys& keys,
                 Span queries, const Workspace& work) {
  using Dot = typename Products::Dot;
  const AttentionArgs& args = plan.args;
  pack_columns<Dot, C>(head.q + queries.begin * args.q_stride, args.q_stride, queries.size(),
                       args.head_dim / Dot::kDepth, work.queries);
  std::memset(work.output, 0, args.head_dim * C * kLanes * sizeof(float));
  Running<C> running;
  for (int c = 0; c < C; ++c) {
    running.maximum[c] = set1(kNothingSeen);
    running.sum[c] = zero();
  }
  const Span visible = plan.visible(seq, queries);
  for (int64_t start = visible.begin / kBlockKeys * kBlockKeys; start < visible.end;
       start += kBlockKeys) {
    const Span block = {at_least(start, visible.begin), at_most(start + kBlockKeys, visible.end)};
    Products::template score<C>(keys, block, work.queries, args.head_dim, args.scale * kLog2e,
                                work.scores);
    adjust<C>(plan, head, seq, queries, block, work.scores);
    raise_maximum(work.scores, block.size(), running);
    weigh<Dot>(work.scores, block.size(), running);
    Products::template add_values<C>(keys, block, work.scores, args.head_dim, running.correction,
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

// Asks for the rows that the next head will read: they lie far apart, so the hardware, which looks
// for neighbours, doesn't.
template <class T>
void fetch(const T* rows, int64_t stride, Span span, int64_t columns) {
  const int64_t end = at_most(span.end, span.begin + kGroupRows);
  for (int64_t i = span.begin; i < end; ++i) {
    for (int64_t d = 0; d < columns; d += kCacheLine / sizeof(T)) {
      __builtin_prefetch(rows + i * stride + d, 0, 2);
    }
  }
}

template <class T>
void fetch_group(const Plan& plan, const Sequence& seq, int64_t h, Span queries) {
  const AttentionArgs& args = plan.args;
  const Head<T> head = head_of<T>(args, seq, h);
  const Span visible = plan.visible(seq, queries);
  fetch(head.q, args.q_stride, queries, args.head_dim);
  fetch(head.keys.k, args.k_stride, visible, args.head_dim);
  fetch(head.keys.v, args.v_stride, visible, args.head_dim);
}

template <class T>
void fetch_next(const Plan& plan, int64_t s, const Sequence& seq, int64_t h, Span queries) {
  if (h + 1 < plan.args.heads) {
    fetch_group<T>(plan, seq, h + 1, queries);
  } else if (s + 1 < plan.args.sequences) {
    const Sequence next = plan.sequence(s + 1);
    fetch_group<T>(plan, next, 0, {0, at_most(next.queries, kGroupRows)});
  }
}

// What a workspace holds, for the next query head that reads the same keys.
struct Gathered {
  const void* source = nullptr;
  Span span = {0, 0};
  Keys keys = {};
};

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
                                 work.values)};
  }
  const Keys& keys = gathered.keys;
  for (int64_t q = queries.begin; q < queries.end; q += kWidest * kLanes) {
    const Span tile = {q, at_most(q + kWidest * kLanes, queries.end)};
    if (tile.size() > kLanes) {
      attend_tile<T, Products, 2>(plan, head, seq, keys, tile, work);
    } else {
      attend_tile<T, Products, 1>(plan, head, seq, keys, tile, work);
    }
  }
}

// Proportional to the time that one head's group of query rows takes.
int64_t cost(const Plan& plan, const Sequence& seq, Span queries) {
  constexpr int64_t kPerVector = 24;  // as many keys as the fixed work on a vector is worth
  const int64_t vectors = (queries.size() + kLanes - 1) / kLanes;
  return vectors * (plan.visible(seq, queries).size() + kPerVector);
}

template <class F>
void for_groups(const Sequence& seq, F&& f) {
  for (int64_t q = 0; q < seq.queries; q += kGroupRows) {
    f(Span{q, at_most(q + kGroupRows, seq.queries)});
  }
}

// Where the costs of the sequences end, and the longest run of keys that a group reads.
struct Costs {
  int64_t* ends;
  int64_t most_keys;
};

Costs count_costs(const Plan& plan) {
  shared_scratch().reset(plan.args.sequences * sizeof(int64_t));
  Costs costs = {shared_scratch().take<int64_t>(plan.args.sequences), 0};
  int64_t total = 0;
  for (int64_t s = 0; s < plan.args.sequences; ++s) {
    const Sequence seq = plan.sequence(s);
    for_groups(seq, [&](Span queries) {
      total += plan.args.heads * cost(plan, seq, queries);
      costs.most_keys = at_least(costs.most_keys, plan.visible(seq, queries).size());
    });
    costs.ends[s] = total;
  }
  return costs;
}

template <class Products>
Workspace workspace(const AttentionArgs& args, int64_t most_keys) {
  const int64_t width = kWidest * kLanes;
  const int64_t gathered = Products::gathered_bytes(most_keys, args.head_dim);
  Scratch& scratch = worker_scratch();
  scratch.reset((2 * args.head_dim + kBlockKeys) * width * sizeof(float) + 2 * gathered +
                5 * kCacheLine);
  Workspace work;
  work.queries = scratch.take<float>(args.head_dim * width);
  work.output = scratch.take<float>(args.head_dim * width);
  work.scores = scratch.take<float>(kBlockKeys * width);
  work.keys = scratch.take<char>(gathered);
  work.values = scratch.take<char>(gathered);
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
    for (int64_t h = 0; h < plan.args.heads; ++h) {
      for_groups(seq, [&](Span queries) {
        if (reached >= from && reached < to) {
          fetch_next<T>(plan, s, seq, h, queries);
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
