// A block of packed rows times the panels of a weight, tile by tile; every finished tile goes to a
// sink. Knows nothing of threads, or of what a sink does with a tile.
#pragma once

#include "finish.hpp"

namespace cenote::CENOTE_ISA {

// Multiplies a block with the panels [first, last) and, if `gap` isn't zero, also with the panels
// `gap` behind each. Hands every finished tile and its partner (or null) to `sink.take`.
//
// Tiles take turns at a panel, so that its weights come from far away only once, and meanwhile fetch
// the weights that come next. An engine that is quicker than the L2 cache (E::kPassBytes) takes a
// panel in several passes over its inputs, each short enough for the L1 cache.
template <class E>
class Multiplier {
 public:
  Multiplier(const PackedRows<E>& block, const PackedWeight& weight)
      : block_(block),
        panels_(static_cast<const char*>(weight.panels)),
        panel_bytes_(static_cast<int64_t>(weight.panel_bytes)),
        at_once_(block.tiling.tiles ? E::panels_for(block.tiling.size(0)) : 1) {}

  template <class Sink>
  void run(int64_t first, int64_t last, int64_t gap, const Sink& sink) {
    for (int64_t t = 0; t < block_.tiling.tiles; t += kGroup) {
      const Group group{t, std::min(t + kGroup, block_.tiling.tiles)};
      for (int64_t p = first; p < last;) {
        const int count = p + at_once_ <= last ? at_once_ : 1;
        if (gap) products(group, p + gap, count, p, words_[1], [](const Tile&) {});
        const auto done = [&](const Tile& one) {
          if (!gap) return sink.take(one, nullptr);
          const Tile other = tile(group, one.index, p + gap, count, words_[1]);
          sink.take(one, &other);
        };
        products(group, p, count, p + gap + count, words_[0], done);
        p += count;
      }
    }
  }

 private:
  using Dot = typename E::Dot;
  static constexpr int64_t kGroup = 8;
  static constexpr int64_t kTileBytes = E::kTileRows * kPanel * 4;
  static constexpr int64_t kChunkWeights = kChunkSteps<Dot> * kPanel * 4;

  struct Group {
    int64_t first, end;
    int64_t size() const { return end - first; }
  };

  Tile tile(const Group& group, int64_t index, int64_t panel, int count, char* words) const {
    return {words + (index - group.first) * kTileBytes,
            block_.tiling.size(index),
            count * kPanel,
            index,
            block_.tiling.start(index),
            panel * kPanel};
  }

  // The group's products with `count` panels, each handed to `done`; `next_panel` comes after them.
  template <class Done>
  void products(const Group& group, int64_t panel, int count, int64_t next_panel, char* words,
                const Done& done) const {
    const bool one_pass = E::kPassBytes == 0 || group.size() == 1;
    const int64_t passes = one_pass ? 1 : divide_up(block_.chunks * kChunkWeights, E::kPassBytes);
    const char* weights = panels_ + panel * panel_bytes_;
    for (int64_t pass = 0; pass < passes; ++pass) {
      const int64_t from = block_.chunks * pass / passes;
      const int64_t to = block_.chunks * (pass + 1) / passes;
      const bool last = pass + 1 == passes;
      const char* next = last ? panels_ + next_panel * panel_bytes_ : weights + to * kChunkWeights;
      // Each tile fetches its share of what comes next; one alone is through before it would help.
      const int lines =
          group.size() == 1 ? 0 : static_cast<int>(kChunkWeights / 64 / group.size());
      for (int64_t t = group.first; t < group.end; ++t) {
        const Tile sums = tile(group, t, panel, count, words);
        E::multiply(sums.rows, count,
                    {block_.tile(t) + from * block_.kChunkStride, weights + from * kChunkWeights,
                     panel_bytes_, to - from, sums.words, pass > 0, next, lines});
        next += lines * (to - from) * 64;
        if (last) done(sums);
      }
    }
  }

  const PackedRows<E>& block_;
  const char* panels_;
  int64_t panel_bytes_;
  int at_once_;
  [[no_unique_address]] typename E::Session session_;
  alignas(64) char words_[2][kGroup * kTileBytes];
};

template <class E, class Sink>
void multiply(const PackedRows<E>& block, const PackedWeight& weight, int64_t first, int64_t last,
              int64_t gap, const Sink& sink) {
  Multiplier<E>(block, weight).run(first, last, gap, sink);
}

}  // namespace cenote::CENOTE_ISA
