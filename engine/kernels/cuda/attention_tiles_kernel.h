// Attention of a tile of rows, (token, query head) packed: row r of an item is token r / group, head r % group of the
// item's KV head, so that K and V are read once for all of them. One CTA for an item and KV head. Its warps own 16 rows
// each and walk all keys of the item, which stream through shared memory, FlashAttention-2's way (see attention_mma.h).
// Chunks of prompts, prefixes that many sequences share, and with fold_keys everything.
//
// Keys are walked in tiles counted from position 0. With fold_keys each run of so many keys is reduced alone and then
// added to the row's output so far, which stays in `out`; merge_partials adds by the same operations, so that a row's
// bits are the same whether one CTA walks all runs or each has its own.
#pragma once
#include "engine/kernels/cuda/attention_mma.h"

namespace folio::cuda {

template <KvElement kElement, int kDim>
struct TilesShape {
  static constexpr int kRows = attention_tile_rows(kDim);
  static constexpr int kThreads = kRows / kWarpRows * kWarpSize;
  static constexpr int kKeys = kDim > 128 ? 16 : 64;  // the output of a wide head leaves few registers for scores
  static constexpr int kSlots = kDim > 128 ? 4 : 3;
  static constexpr int kPitch = kHasScales<kElement> ? kStoredRowBytes<kElement, kDim> : kMmaPitch<kDim>;
  static constexpr int kRuns = kKeys / kRun;
  using Ring = KvRing<kElement, kDim, kPitch, kKeys, kKeys, kThreads / kRuns, kSlots>;
  static constexpr int kQueryBytes = kRows * kMmaPitch<kDim>;
  static constexpr int kConvertedBytes = kHasScales<kElement> ? kKeys * kMmaPitch<kDim> : 0;
  static constexpr int kSharedBytes = kQueryBytes + kSlots * Ring::kSlotBytes + kConvertedBytes;
  static_assert(kFoldKeys % kKeys == 0);
};

template <KvElement kElement, int kDim>
class TilesCta {
 public:
  using Shape = TilesShape<kElement, kDim>;
  using Mma = typename KvType<kElement>::Mma;
  using Ring = typename Shape::Ring;
  static constexpr int kKeys = Shape::kKeys;

  FOLIO_DEVICE TilesCta(const AttentionWork& work, const AttentionItem& item, int kv_head)
      : work_(work), item_(item), kv_head_(kv_head), group_(work.group()) {}

  FOLIO_DEVICE void run() {
    SharedArena arena;
    char* all_queries = arena.take<char>(Shape::kQueryBytes);
    char* slots = arena.take<char>(Shape::kSlots * Ring::kSlotBytes);
    converted_ = arena.take<char>(Shape::kConvertedBytes);
    const int first_tile = item_.key_begin / kKeys;
    const int end_tile = (item_.key_end + kKeys - 1) / kKeys;
    Ring ring(work_, item_, kv_head_, slots, first_tile * kKeys, warp() % Shape::kRuns,
              warp() / Shape::kRuns * kWarpSize + lane());
    ring.start();
    char* queries = all_queries + warp() * kWarpRows * kMmaPitch<kDim>;
    stage_queries(queries);
    sync_warp();
    const QueryFragments<Mma, kDim> fragments(queries);
    find_visible();
    WarpAttention<Mma, kDim, kKeys> attention;
    for (int tile = first_tile; tile < end_tile; ++tile) {
      const int first_key = tile * kKeys;
      const bool is_seen = is_seen_by_warp(first_key);
      const char* keys = next_matrix(ring, first_key);
      if (is_seen) {
        attention.score(fragments, keys);
        attention.weigh(first_key, visible_);
      }
      const char* values = next_matrix(ring, first_key);
      if (is_seen) attention.add_values(values);
      const bool is_last = tile + 1 == end_tile;
      if (is_last || (work_.fold_keys > 0 && (first_key + kKeys) % work_.fold_keys == 0)) {
        write(attention, is_last);
        attention.reset();
      }
    }
    wait_copies<0>();
  }

 private:
  static FOLIO_DEVICE int lane() { return static_cast<int>(threadIdx.x) % kWarpSize; }
  static FOLIO_DEVICE int warp() { return static_cast<int>(threadIdx.x) / kWarpSize; }
  FOLIO_DEVICE int num_rows() const { return item_.num_rows * group_; }
  FOLIO_DEVICE int token_of(int row) const { return work_.rows[item_.first_row + row / group_]; }
  FOLIO_DEVICE int head_of(int row) const { return kv_head_ * group_ + row % group_; }

  // This warp's rows; zeros past the item's.
  FOLIO_DEVICE void stage_queries(char* to) const {
    for (int i = 0; i < kWarpRows; ++i) {
      const int row = warp() * kWarpRows + i;
      const float* from = row < num_rows() ? work_.q + work_.row_offset(token_of(row), head_of(row)) : nullptr;
      for (int piece = lane(); piece < kDim / 8; piece += kWarpSize) {
        uint4 packed{0, 0, 0, 0};
        if (from != nullptr && piece * 8 < work_.head_dim) {
          const auto low = bits_as<float4>(load_16(from + piece * 8));
          const auto high = bits_as<float4>(load_16(from + piece * 8 + 4));
          packed = {pack<Mma>(low.x, low.y), pack<Mma>(low.z, low.w), pack<Mma>(high.x, high.y),
                    pack<Mma>(high.z, high.w)};
        }
        store_16(to + i * kMmaPitch<kDim> + piece * 16, packed);
      }
    }
  }

  FOLIO_DEVICE void find_visible() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp() * kWarpRows + half * 8 + lane() / 4;
      visible_.first[half] = item_.key_end;
      visible_.last[half] = -1;
      if (row < num_rows()) {
        const int position = work_.positions[token_of(row)];
        const int first = work_.window > 0 ? position - work_.window + 1 : 0;
        visible_.first[half] = larger(first, item_.key_begin);
        visible_.last[half] = smaller(position, item_.key_end - 1);
      }
    }
  }

  // Whether any row sees a key of the tile: without one it would change nothing.
  FOLIO_DEVICE bool is_seen_by_warp(int first_key) const {
    const bool is_seen = (first_key <= visible_.last[0] && first_key + kKeys > visible_.first[0]) ||
                         (first_key <= visible_.last[1] && first_key + kKeys > visible_.first[1]);
    return vote(is_seen) != 0;
  }

  // The stream's next matrix, ready for ldmatrix.
  FOLIO_DEVICE const char* next_matrix(Ring& ring, int first_key) const {
    wait_copies<Shape::kSlots - 2>();
    sync_cta();  // it has landed for all, and nobody reads the matrix before it any more
    const char* slot = ring.next();
    if constexpr (!kHasScales<kElement>) {
      return slot;
    } else {
      convert_rows<kElement, kDim>(converted_, slot, Ring::scales(slot), kKeys, first_key, item_,
                                   static_cast<int>(threadIdx.x), Shape::kThreads);
      sync_cta();
      return converted_;
    }
  }

  // The rows' weighted sums since the last call; all lanes call.
  FOLIO_DEVICE void write(const WarpAttention<Mma, kDim, kKeys>& attention, bool is_last) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const SoftmaxState state = attention.state(half);
      const int row = warp() * kWarpRows + half * 8 + lane() / 4;
      const bool is_row = row < num_rows();
      if (item_.first_partial < 0) {
        add_to_out(attention, half, is_row ? work_.row_offset(token_of(row), head_of(row)) : 0, is_row, state, is_last);
      } else if (is_row) {
        write_partial(attention, half, item_.first_partial + row / group_, head_of(row), state);
      }
    }
    has_out_ = true;
  }

  FOLIO_DEVICE void write_partial(const WarpAttention<Mma, kDim, kKeys>& attention, int half, int partial, int head,
                                  SoftmaxState state) const {
    float* to = work_.partial_out + work_.partial_offset(partial, head) + lane() % 4 * 2;
#pragma unroll
    for (int column = 0; column < kDim / 8; ++column) {
      *reinterpret_cast<float2*>(to + column * 8) = attention.out(half, column);
    }
    if (lane() % 4 == 0) work_.partial_state[work_.state_offset(partial, head)] = {state.max, state.sum};
  }

  FOLIO_DEVICE void add_to_out(const WarpAttention<Mma, kDim, kKeys>& attention, int half, std::size_t offset,
                               bool is_row, SoftmaxState state, bool is_last) {
    float* to = work_.out + offset + lane() % 4 * 2;
    const FoldScales scales = fold_state(folded_[half], state);
    const float finish = is_last ? inverse_sum(folded_[half]) : 1.0F;
#pragma unroll
    for (int column = 0; column < kDim / 8; ++column) {
      auto* place = reinterpret_cast<float2*>(to + column * 8);
      const bool is_there = is_row && column * 8 < work_.head_dim;
      const float2 before = is_there && has_out_ ? *place : float2{0.0F, 0.0F};
      const float2 added = attention.out(half, column);
      if (is_there) *place = {scales.fold(before.x, added.x) * finish, scales.fold(before.y, added.y) * finish};
      if (column % 4 == 3) sync_warp();  // not more loads at a time than there are registers for
    }
  }

  const AttentionWork& work_;
  const AttentionItem item_;
  const int kv_head_;
  const int group_;
  char* converted_ = nullptr;
  VisibleKeys visible_;
  SoftmaxState folded_[2];  // with fold_keys: of the keys so far
  bool has_out_ = false;
};

template <KvElement kElement, int kDim>
FOLIO_KERNEL((TilesShape<kElement, kDim>::kThreads))
attend_tiles_kernel(AttentionWork work) {
  const int index = static_cast<int>(blockIdx.x) / work.layout.num_kv_heads;  // KV heads lie side by side in a block
  if (index >= work.counts[kCountTileItems]) return;
  TilesCta<kElement, kDim>(work, work.tile_items[index], static_cast<int>(blockIdx.x) % work.layout.num_kv_heads).run();
}

}  // namespace folio::cuda
