// How attention's work is laid out: which keys a query sees, and what a piece of work costs. Knows
// nothing of products or scores.
#pragma once

#include <cstdint>

#include "attention_products.hpp"
#include "memory.hpp"
#include "varlen.hpp"

namespace cenote::CENOTE_ISA::attending {

constexpr int64_t kGroupRows = 256;  // query rows that share one gathering of their keys
constexpr int64_t kWidest = 2;       // vectors of queries in a tile
constexpr int64_t kNoLimit = int64_t{1} << 30;

struct Sequence {
  int64_t first_query, queries, first_key, keys;
  int64_t shift() const { return keys - queries; }  // position of the first query among the keys
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

// Proportional to the time that one head's group of query rows takes.
inline int64_t cost(const Plan& plan, const Sequence& seq, Span queries) {
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

inline Costs count_costs(const Plan& plan) {
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

}  // namespace cenote::CENOTE_ISA::attending
