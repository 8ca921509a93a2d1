// A block of packed rows times the panels of a weight, tile by tile; every finished tile goes to a
// sink. Knows nothing of threads, or of what a sink does with a tile.
#pragma once

#include "finish.hpp"

namespace cenote::CENOTE_ISA {

// Some of a weight's inputs, which are all that the block holds. Of products made in slices the sums
// are kept from one to the next, so that each stays one chain of additions.
struct Slice {
  int64_t first, chunks;  // of the weight
  char* kept = nullptr;   // [panel][tile of the block]
  bool begins = true, ends = true;

  template <class E>
  static size_t kept_bytes(int64_t rows, const PackedWeight& weight) {
    return weight.panel_count * Tiling<E>(rows).tiles * E::kTileRows * kPanel * 4;
  }
};

// Multiplies a block with panels and, if `gap` isn't zero, also with the panels `gap` behind each.
// Hands the rows [first, last) of a tile and its partner (or null) to `sink.take`, until all of them
// have been handed over; nothing before the last slice.
//
// A few tiles (E::kTurns) take turns at a panel, or at a part of it that stays in the L1 cache, so that
// its weights come from far away only once, and meanwhile fetch the weights that come next. Where a
// product leaves the vector units idle (E::kOverlaps), the tile before it is taken beside it.
template <class E, class Sink>
class Multiplier {
 public:
  Multiplier(const PackedRows<E>& block, const PackedWeight& weight, int64_t gap, const Slice& slice,
             const Sink& sink)
      : block_(block),
        slice_(slice),
        panels_(static_cast<const char*>(weight.panels)),
        panel_bytes_(static_cast<int64_t>(weight.panel_bytes)),
        gap_(gap),
        sink_(sink),
        at_once_(block.tiling.tiles ? E::panels_for(block.tiling.size(0)) : 1) {}

  void run(int64_t first, int64_t last) {
    for (int64_t t = 0; t < block_.tiling.tiles; t += E::kTurns) {
      run_group({t, std::min(t + E::kTurns, block_.tiling.tiles)}, first, last);
    }
    if (E::kOverlaps) take(this, 0, waiting_.rows);
  }

 private:
  using Dot = typename E::Dot;
  static constexpr int64_t kTileBytes = E::kTileRows * kPanel * 4;
  // From so many tiles on it pays that a panel's part stays in the L1 cache.
  static constexpr int64_t kReusing = 4;
  static constexpr int64_t kChunkWeights = kChunkSteps<Dot> * kPanel * 4;

  struct Group {
    int64_t first, end;
    int64_t size() const { return end - first; }
  };

  // Rows [first, last) of the tile that is complete, but not taken.
  static void take(const void* multiplier, int first, int last) {
    const Multiplier& self = *static_cast<const Multiplier*>(multiplier);
    if (first == last) return;
    self.sink_.take(self.waiting_, self.gap_ ? &self.partner_ : nullptr, {first, last});
  }

  // A tile and its partner share the tile before them.
  Beside beside(bool other) const {
    const int half = gap_ ? waiting_.rows / 2 : 0;
    return {take, this, other ? 0 : half, other ? half : waiting_.rows};
  }

  // Some of the slice's inputs.
  struct Part {
    int64_t first, chunks;
  };

  void run_group(const Group& group, int64_t first, int64_t last) {
    // Pairs were no faster for it: two sums begun for each tile.
    const int64_t parts = group.size() < kReusing || gap_ ? 1 : E::parts_of(slice_.chunks);
    const int64_t each = divide_up(slice_.chunks, parts);
    for (int64_t p = first; p < last;) {
      const int count = p + at_once_ <= last ? at_once_ : 1;
      int64_t at = 0;
      for (; at + each < slice_.chunks; at += each) begin_tiles(group, p, count, {at, each});
      complete_tiles(group, p, count, {at, slice_.chunks - at});
      p += count;
    }
  }

  void begin_tiles(const Group& group, int64_t panel, int count, const Part& part) {
    for (int64_t t = group.first; t < group.end; ++t) {
      product(group, tile(t, panel, count, false), part, {take, this, 0, 0});
    }
  }

  void complete_tiles(const Group& group, int64_t panel, int count, const Part& part) {
    for (int64_t t = group.first; t < group.end; ++t) {
      const Tile one = tile(t, panel, count, false), other = tile(t, panel + gap_, count, true);
      if (gap_) product(group, other, part, beside(true));
      product(group, one, part, beside(false));
      if (!slice_.ends) continue;
      waiting_ = one;
      partner_ = other;
      if (E::kOverlaps) {
        turn_ ^= 1;
      } else {
        take(this, 0, one.rows);
      }
    }
  }

  Tile tile(int64_t index, int64_t panel, int count, bool other) {
    return {words_[turn_][other],       block_.tiling.size(index), count * kPanel, index,
            block_.tiling.start(index), panel * kPanel};
  }

  void product(const Group& group, const Tile& tile, const Part& part, const Beside& beside) {
    const int64_t panel = tile.first_column / kPanel, count = tile.columns / kPanel;
    const char* weights =
        panels_ + panel * panel_bytes_ + (slice_.first + part.first) * kChunkWeights;
    // Each tile fetches its share of what comes next; one alone is through before it would help.
    const int64_t turn = tile.index - group.first;
    const int lines = group.size() == 1 ? 0 : static_cast<int>(kChunkWeights / 64 / group.size());
    const bool begins = part.first == 0, ends = part.first + part.chunks == slice_.chunks;
    const char* start = slice_.begins ? nullptr : kept(panel, tile.index);
    char* sums = slice_.ends ? tile.words : kept(panel, tile.index);
    const Operands operands = {block_.tile(tile.index) + part.first * PackedRows<E>::kChunkStride,
                               weights,
                               panel_bytes_,
                               part.chunks,
                               begins ? start : begun_[turn],
                               ends ? sums : begun_[turn],
                               weights + count * panel_bytes_ + turn * lines * part.chunks * 64,
                               lines};
    E::multiply(tile.rows, static_cast<int>(count), operands, beside);
  }

  char* kept(int64_t panel, int64_t tile) const {
    return slice_.kept + (panel * block_.tiling.tiles + tile) * kTileBytes;
  }

  const PackedRows<E>& block_;
  const Slice& slice_;
  const char* panels_;
  int64_t panel_bytes_;
  int64_t gap_;
  const Sink& sink_;
  int at_once_;
  int turn_ = 0;
  Tile waiting_ = {}, partner_ = {};
  [[no_unique_address]] typename E::Session session_;
  alignas(64) char words_[E::kOverlaps ? 2 : 1][2][kTileBytes];
  alignas(64) char begun_[E::kOverlaps ? E::kTurns : 1][kTileBytes];
};

template <class E, class Sink>
void multiply(const PackedRows<E>& block, const PackedWeight& weight, int64_t first, int64_t last,
              int64_t gap, const Slice& slice, const Sink& sink) {
  Multiplier<E, Sink>(block, weight, gap, slice, sink).run(first, last);
}

}  // namespace cenote::CENOTE_ISA
