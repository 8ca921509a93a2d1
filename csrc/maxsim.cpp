// Late interaction: for each token of a query its best match in a document, summed. Knows nothing of
// where token vectors come from.
//
// Query tokens lie across the lanes and document rows are broadcast as they lie in the pack, so the
// maximum is taken in registers: no score is ever stored. Each document is scored by one thread.
#include <cmath>
#include <type_traits>

#include "memory.hpp"
#include "threads.hpp"
#include "tile.hpp"
#include "varlen.hpp"

namespace cenote::CENOTE_ISA {
namespace {

constexpr int kWide = 2;                // vectors of query tokens in a panel
constexpr int64_t kPanelTokens = kWide * kLanes;
constexpr int64_t kChunkRows = 64;      // document rows that stay in the L1 cache for all panels

// A query's place in the prepared panels and in the results.
struct Query {
  int64_t tokens;
  int64_t panels;        // of kWide vectors, the last one of 1 if that is enough
  int64_t first_panel;   // offset in floats
  int64_t first_pair;    // index of its first (query, document) pair
  int64_t first_match;   // index of that pair's first query token in best_row, best_score
  int64_t first_document;
};

struct Prepared {
  Query* queries;
  float* panels;
  int64_t pairs;
  int64_t most_tokens;
};

template <class T, class Dot>
Prepared prepare(const MaxSimArgs& args) {
  const int64_t steps = args.dim / Dot::kDepth, count = args.query_count;
  int64_t panels = 0;
  for (int64_t i = 0; i < count; ++i) {
    panels += (args.cu_queries[i + 1] - args.cu_queries[i] + kPanelTokens - 1) / kPanelTokens;
  }
  Scratch& scratch = shared_scratch();
  scratch.reset(count * sizeof(Query) + panels * steps * kPanelTokens * sizeof(float) +
                2 * kCacheLine);
  Prepared prepared = {scratch.take<Query>(count),
                       scratch.take<float>(panels * steps * kPanelTokens), 0, 0};
  int64_t offset = 0, matches = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = args.cu_queries[i], tokens = args.cu_queries[i + 1] - first;
    const int64_t documents = at_least(args.ranges[2 * i + 1] - args.ranges[2 * i], 0);
    prepared.queries[i] = {tokens,         (tokens + kPanelTokens - 1) / kPanelTokens,
                           offset,         prepared.pairs,
                           matches,        args.ranges[2 * i]};
    const T* rows = static_cast<const T*>(args.queries) + first * args.dim;
    for (int64_t t = 0; t < tokens; t += kPanelTokens, offset += steps * kPanelTokens) {
      const int64_t here = tokens - t;
      if (here > kLanes) {
        pack_columns<Dot, 2>(rows + t * args.dim, args.dim, here, steps, prepared.panels + offset);
      } else {
        pack_columns<Dot, 1>(rows + t * args.dim, args.dim, here, steps, prepared.panels + offset);
      }
    }
    prepared.pairs += documents;
    matches += documents * tokens;
    prepared.most_tokens = at_least(prepared.most_tokens, tokens);
  }
  return prepared;
}

// The best score so far of each query token, and the row that it was found in.
struct Best {
  float* score;
  float* row;  // as floats (exact up to 2^24 rows); null if not wanted
};

// Documents are read once and mostly from main memory. They are asked for a few tiles ahead, across
// the ends of chunks and documents; asking for what lies behind the last one does no harm.
constexpr int64_t kRowsAhead = 32;

CENOTE_INLINE void fetch(const char* from, int64_t bytes) {
  for (int64_t b = 0; b < bytes; b += int64_t{kCacheLine}) __builtin_prefetch(from + b, 0, 3);
}

template <class Dot, int C, bool kRows>
void match_panel(const char* rows, int64_t row_bytes, int64_t count, int64_t first_row,
                 const float* panel, int64_t steps, const Best& best) {
  Vec top[C], where[C];
  for (int c = 0; c < C; ++c) {
    top[c] = load(best.score + c * kLanes);
    if (kRows) where[c] = load(best.row + c * kLanes);
  }
  in_tiles<kTileSums / C>(0, count, [&]<int R>(int64_t row) {
    fetch(rows + (row + kRowsAhead) * row_bytes, R * row_bytes);
    Vec sums[R][C];
    clear(sums);
    multiply<Dot>(rows + row * row_bytes, row_bytes, kWordBytes, panel, steps, sums);
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C; ++c) {
        if (kRows) {
          const Vec index = set1(static_cast<float>(first_row + row + r));
          where[c] = select(top[c] < sums[r][c], index, where[c]);
        }
        top[c] = max(top[c], sums[r][c]);
      }
    }
  });
  for (int c = 0; c < C; ++c) {
    store(best.score + c * kLanes, top[c]);
    if (kRows) store(best.row + c * kLanes, where[c]);
  }
}

// Document rows as the product reads them.
template <class T, class Dot>
const char* readable(const T* rows, int64_t elements, float* buffer) {
  if constexpr (std::is_same_v<T, typename Dot::Element>) {
    return reinterpret_cast<const char*>(rows);
  } else {
    for (int64_t i = 0; i < elements; i += kLanes) {
      store_up_to(buffer + i, load_up_to(rows + i, elements - i), elements - i);
    }
    return reinterpret_cast<const char*>(buffer);
  }
}

template <class T, class Dot, bool kRows>
void match(const T* document, int64_t rows, const Query& query, const float* panels, int64_t dim,
           float* buffer, const Best& best) {
  const int64_t steps = dim / Dot::kDepth;
  for (int64_t start = 0; start < rows; start += kChunkRows) {
    const int64_t count = at_most(kChunkRows, rows - start);
    const char* chunk = readable<T, Dot>(document + start * dim, count * dim, buffer);
    for (int64_t p = 0; p < query.panels; ++p) {
      const int64_t token = p * kPanelTokens;
      const float* panel = panels + query.first_panel + p * steps * kPanelTokens;
      const Best here = {best.score + token, kRows ? best.row + token : nullptr};
      if (query.tokens - token > kLanes) {
        match_panel<Dot, 2, kRows>(chunk, steps * kWordBytes, count, start, panel, steps, here);
      } else {
        match_panel<Dot, 1, kRows>(chunk, steps * kWordBytes, count, start, panel, steps, here);
      }
    }
  }
}

void report(const MaxSimArgs& args, const Query& query, int64_t pair, bool empty, const Best& best) {
  float total = 0;
  for (int64_t t = 0; t < query.tokens && !empty; ++t) total += best.score[t];
  args.scores[pair] = total;
  const int64_t first = query.first_match + (pair - query.first_pair) * query.tokens;
  for (int64_t t = 0; t < query.tokens; ++t) {
    if (args.best_score) args.best_score[first + t] = empty ? 0 : best.score[t];
    if (args.best_row) args.best_row[first + t] = empty ? -1 : static_cast<int32_t>(best.row[t]);
  }
}

template <class T, class Dot>
void score_pairs(const MaxSimArgs& args, const Prepared& prepared, int64_t begin, int64_t end) {
  const int64_t padded = (prepared.most_tokens + kPanelTokens - 1) / kPanelTokens * kPanelTokens;
  Scratch& scratch = worker_scratch();
  scratch.reset((2 * padded + kChunkRows * args.dim) * sizeof(float) + 3 * kCacheLine);
  const Best best = {scratch.take<float>(padded), scratch.take<float>(padded)};
  float* const buffer = scratch.take<float>(kChunkRows * args.dim);
  int64_t i = 0;
  for (int64_t pair = begin; pair < end; ++pair) {
    while (i + 1 < args.query_count && prepared.queries[i + 1].first_pair <= pair) ++i;
    const Query& query = prepared.queries[i];
    const int32_t* cu = args.cu_documents + query.first_document + (pair - query.first_pair);
    const int64_t rows = int64_t{cu[1]} - cu[0];
    const T* document = static_cast<const T*>(args.documents) + cu[0] * args.dim;
    for (int64_t t = 0; t < padded; ++t) {
      best.score[t] = -INFINITY;
      best.row[t] = 0;
    }
    if (args.best_row) {
      match<T, Dot, true>(document, rows, query, prepared.panels, args.dim, buffer, best);
    } else {
      match<T, Dot, false>(document, rows, query, prepared.panels, args.dim, buffer, best);
    }
    report(args, query, pair, rows == 0, best);
  }
}

template <class T, class Dot>
void score_all(const MaxSimArgs& args) {
  constexpr int64_t kSharesEach = 16;  // documents differ in length
  const Prepared prepared = prepare<T, Dot>(args);
  const int64_t threads = num_threads();
  const int64_t shares = at_most(prepared.pairs, threads > 1 ? threads * kSharesEach : 1);
  parallel_for(shares, [&](int64_t share, int) {
    score_pairs<T, Dot>(args, prepared, prepared.pairs * share / shares,
                        prepared.pairs * (share + 1) / shares);
  });
}

}  // namespace

void maxsim(const MaxSimArgs& args) {
  if (args.dtype == DType::f32) {
    score_all<float, F32Dot>(args);
  } else {
    score_all<bf16, NativeBf16Dot>(args);
  }
}

}  // namespace cenote::CENOTE_ISA
