// Disentangled attention's terms: the products of a query, and of a key, with the vector of their
// distance. Knows nothing of softmax, masks or threads.
//
// Many distances share a vector, so products are made with each vector that occurs and then looked
// up: for keys once for a head, for queries once for a tile.
#pragma once

#include <cstdint>

#include "attention_plan.hpp"
#include "attention_products.hpp"
#include "attention_scores.hpp"
#include "memory.hpp"
#include "varlen.hpp"

namespace cenote::CENOTE_ISA::attending {

constexpr int64_t kPanelRows = kWidest * kLanes;  // vectors of distances that meet the keys at once

// A thread's memory for one head of one sequence. Distances are query - key, from 1 - keys up.
struct DistanceWork {
  int32_t* rows = nullptr;     // by distance: its vector, counted among those that occur
  int32_t* columns = nullptr;  // by distance: where `by_key` has its product with the first key
  char* vectors = nullptr;     // those that queries meet, gathered
  float* panel = nullptr;      // some of those that keys meet
  float* by_query = nullptr;   // [vectors][width of the tile]
  float* by_key = nullptr;     // [panel][keys][kPanelRows]

  // A tile that isn't full looks behind the last distance.
  static int64_t distances(int64_t keys) { return 2 * keys - 1 + kPanelRows; }

  // Calls `piece(member, elements)` for each member.
  template <class Products, class Piece>
  void each(const AttentionArgs& args, int64_t most_keys, Piece&& piece) {
    const int64_t panels = (args.distance_count + kPanelRows - 1) / kPanelRows;
    const int64_t padded = round_up(most_keys, Products::kKeyStep);
    piece(rows, distances(args.distance_size));
    piece(columns, distances(args.distance_size));
    piece(vectors, Products::gathered_bytes(args.distance_count, args.head_dim));
    piece(panel, args.head_dim * kPanelRows);
    piece(by_query, panels * kPanelRows * kPanelRows);
    piece(by_key, panels * padded * kPanelRows);
  }
};

template <class Products>
size_t distance_bytes(const AttentionArgs& args, int64_t most_keys) {
  size_t bytes = 0;
  DistanceWork().each<Products>(args, most_keys, [&]<class T>(T*, int64_t count) {
    bytes += round_up(count * sizeof(T), kCacheLine);
  });
  return bytes;
}

template <class Products>
DistanceWork distance_work(const AttentionArgs& args, int64_t most_keys, Scratch& scratch) {
  DistanceWork work;
  work.each<Products>(args, most_keys, [&]<class T>(T*& member, int64_t count) {
    member = scratch.take<T>(count);
  });
  return work;
}

// What one head of one sequence looks up.
struct Distances {
  Rows vectors = {nullptr, 0};  // those that queries meet; no data: none
  int64_t count = 0;            // of the vectors that occur
  int64_t origin = 0;           // the place of distance 0
  int64_t first_key = 0;
  bool by_key = false;
};

// Fills the tables of where to look, for keys of which `padded` are multiplied. Returns the rows of
// the vectors that occur.
inline Span map_distances(const AttentionArgs& args, int64_t keys, int64_t padded,
                          const DistanceWork& work) {
  const int32_t* row = args.distance_rows + args.distance_size - keys;
  const int64_t count = 2 * keys - 1;
  Span used = {row[0], row[0] + 1};
  for (int64_t i = 1; i < count; ++i) {
    used = {at_most(used.begin, row[i]), at_least(used.end, row[i] + 1)};
  }
  for (int64_t i = 0; i < DistanceWork::distances(keys); ++i) {
    const int64_t at = i < count ? row[i] - used.begin : 0;
    const int64_t panel = at / kPanelRows;
    work.rows[i] = static_cast<int32_t>(at);
    work.columns[i] = static_cast<int32_t>((panel * padded - panel) * kPanelRows + at);
  }
  return used;
}

// Prepares head `h` of a sequence with `keys` keys, of which the `visible` are gathered.
template <class T, class Products>
Distances distances_of(const AttentionArgs& args, int64_t h, int64_t keys, const Keys& gathered,
                       Span visible, const DistanceWork& work) {
  using Dot = typename Products::Dot;
  if (visible.size() == 0) return {};
  const int64_t stride = args.heads * args.head_dim;
  const int64_t padded = round_up(visible.size(), Products::kKeyStep);
  const Span used = map_distances(args, keys, padded, work);
  Distances found;
  found.count = used.size();
  found.origin = keys - 1;
  found.first_key = visible.begin;
  found.by_key = args.distance_queries != nullptr;
  const int64_t start = used.begin * stride + h * args.head_dim;
  if (args.distance_keys) {
    const T* rows = static_cast<const T*>(args.distance_keys) + start;
    found.vectors =
        Products::gather_rows(rows, stride, used.size(), args.head_dim, false, work.vectors);
  }
  for (int64_t row = 0; found.by_key && row < used.size(); row += kPanelRows) {
    const T* rows = static_cast<const T*>(args.distance_queries) + start + row * stride;
    pack_columns<Dot, kWidest>(rows, stride, at_most(kPanelRows, used.size() - row),
                               args.head_dim / Dot::kDepth, work.panel);
    Products::template score<kWidest>(gathered, visible, work.panel, args.head_dim,
                                      work.by_key + row * padded);
  }
  return found;
}

// Makes the products of a tile's queries, given as their panel, with the vectors that they meet.
template <class Products, int C>
void meet_queries(const Distances& distances, const AttentionArgs& args, const float* queries,
                  const DistanceWork& work) {
  if (!distances.vectors.data) return;
  const Keys rows = {distances.vectors, {nullptr, 0}, 0};
  Products::template score<C>(rows, {0, distances.count}, queries, args.head_dim, work.by_query);
}

template <int C>
void add_distances(const Distances& distances, Span block, int64_t first_position,
                   const DistanceWork& work, float* scores) {
  const IntV lanes = __builtin_convertvector(lane_index().v, IntV);
  for (int64_t key = block.begin; key < block.end; ++key) {
    const float* by_key = work.by_key + (key - distances.first_key) * kPanelRows;
    for (int c = 0; c < C; ++c) {
      const int64_t at = distances.origin + first_position + c * kLanes - key;
      float* to = scores + ((key - block.begin) * C + c) * kLanes;
      Vec sum = load(to);
      if (distances.vectors.data) {
        const IntV index = load_words(work.rows + at) * (C * kLanes) + (lanes + c * kLanes);
        sum = sum + gather(work.by_query, index);
      }
      if (distances.by_key) sum = sum + gather(by_key, load_words(work.columns + at));
      store(to, sum);
    }
  }
}

}  // namespace cenote::CENOTE_ISA::attending
