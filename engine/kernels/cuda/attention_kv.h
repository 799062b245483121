// K and V on their way from the cache into an attention kernel: element types, and the ring of shared memory through
// which they stream.
#pragma once
#include <cstring>

#include "engine/kernels/cuda/attention_work.h"

namespace folio::cuda {

template <class To, class From>
FOLIO_DEVICE To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(static_cast<void*>(&to), &from, sizeof(To));
  return to;
}

// Two floats as a register of an mma operand.
template <class Mma>
FOLIO_DEVICE std::uint32_t pack(float low, float high);
template <>
FOLIO_DEVICE std::uint32_t pack<__half>(float low, float high) {
  return bits_as<std::uint32_t>(__floats2half2_rn(low, high));
}
template <>
FOLIO_DEVICE std::uint32_t pack<__nv_bfloat16>(float low, float high) {
  return bits_as<std::uint32_t>(__floats2bfloat162_rn(low, high));
}

// Pair: two stored elements. Mma: what the tensor cores multiply.
template <KvElement kElement>
struct KvType;
template <>
struct KvType<KvElement::kF16> {
  using Mma = __half;
  using Pair = std::uint32_t;
  static FOLIO_DEVICE float2 widen(Pair pair) { return __half22float2(bits_as<__half2>(pair)); }
};
template <>
struct KvType<KvElement::kBF16> {
  using Mma = __nv_bfloat16;
  using Pair = std::uint32_t;
  static FOLIO_DEVICE float2 widen(Pair pair) {
    return {bits_as<float>(pair << 16), bits_as<float>(pair & 0xffff0000U)};
  }
};
template <>
struct KvType<KvElement::kInt8> {
  using Mma = __half;
  using Pair = std::uint16_t;
  // 2^23 + 128 + x is a float whose last byte is x + 128: no conversion instruction, which would be slower.
  static FOLIO_DEVICE float2 widen(Pair pair) {
    const std::uint32_t biased = pair ^ 0x8080U;
    return {bits_as<float>(0x4b000000U | (biased & 0xffU)) - 8388736.0F,
            bits_as<float>(0x4b000000U | (biased >> 8)) - 8388736.0F};
  }
};
template <>
struct KvType<KvElement::kFp8> {
  using Mma = __half;
  using Pair = std::uint16_t;
  static FOLIO_DEVICE float2 widen(Pair pair) {  // one instruction from sm_89 on
    return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3)));
  }
};

template <KvElement kElement>
inline constexpr bool kHasScales = kElement == KvElement::kInt8 || kElement == KvElement::kFp8;

// A row of K or V as the cache has it, and as ldmatrix reads it: 16 bytes more, so that eight rows touch all banks.
template <KvElement kElement, int kDim>
inline constexpr int kStoredRowBytes = kDim * (kHasScales<kElement> ? 1 : 2);
template <int kDim>
inline constexpr int kMmaPitch = kDim * 2 + 16;

// The keys of a block that lie next to each other wherever they lie: what one table entry is asked for.
inline constexpr int kRun = 16;

// A stream of matrices, K of tile 0, V of tile 0, K of tile 1 ..., through a ring of slots. A slot: [kKeys][kPitch
// bytes], then the scales [kKeys] of types that have them. Keys outside the item are zeros, and nothing is read for
// them: not their table entry either. Every thread of those that share a ring copies its part of each matrix: the
// part-th of the kParts threads that copy run `run` of a tile.
//
//   ring.start();
//   for each matrix { wait_copies<kSlots - 2>(); a barrier of the sharers; slot = ring.next(); use the slot }
template <KvElement kElement, int kDim, int kPitch, int kKeys, int kStride, int kParts, int kSlots>
class KvRing {
 public:
  static constexpr int kRowBytes = kStoredRowBytes<kElement, kDim>;
  static constexpr int kSlotBytes = kKeys * kPitch + (kHasScales<kElement> ? kKeys * 4 : 0);

  // The ring's tiles begin at first_key, a multiple of kKeys, and every kStride keys after.
  FOLIO_DEVICE KvRing(const AttentionWork& work, const AttentionItem& item, int kv_head, char* slots, int first_key,
                      int run, int part)
      : cache_(work.cache + work.layout.head_offset(work.layer, 0, kv_head)),
        block_bytes_(work.layout.block_bytes_per_layer()),
        table_(work.block_ids + item.first_block),
        slots_(slots),
        block_size_(work.layout.block_size),
        key_begin_(item.key_begin),
        key_end_(item.key_end),
        key_(first_key + run * kRun),
        run_(run),
        part_(part) {}

  FOLIO_DEVICE void start() {
    find_block();
    for (int i = 0; i < kSlots - 1; ++i) copy_next();
  }
  FOLIO_DEVICE const char* next() {
    const char* landed = slots_ + reading_ * kSlotBytes;
    reading_ = reading_ + 1 == kSlots ? 0 : reading_ + 1;
    copy_next();
    return landed;
  }
  static FOLIO_DEVICE const float* scales(const char* slot) {
    return reinterpret_cast<const float*>(slot + kKeys * kPitch);
  }

 private:
  // Ahead of the copies that need it by a matrix, so that they do not wait for the table.
  FOLIO_DEVICE void find_block() {
    const bool wanted = key_ < key_end_ && key_ + kRun > key_begin_;
    const int index = key_ / block_size_;
    block_ = wanted ? table_[index] : 0;
    offset_ = key_ - index * block_size_;
  }

  FOLIO_DEVICE void copy_next() {
    const char* matrices = cache_ + static_cast<std::size_t>(block_) * block_bytes_;
    const int matrix_bytes = kRowBytes * block_size_;
    char* slot = slots_ + writing_ * kSlotBytes;
    if (key_ - run_ * kRun < key_end_) {  // the tile has keys; a run of it that has none becomes zeros
      copy_run(slot, matrices + (is_value_ ? matrix_bytes : 0) + offset_ * kRowBytes);
      if constexpr (kHasScales<kElement>) {
        copy_scales(slot, matrices + 2 * matrix_bytes + ((is_value_ ? block_size_ : 0) + offset_) * 4);
      }
    }
    commit_copies();
    writing_ = writing_ + 1 == kSlots ? 0 : writing_ + 1;
    if (is_value_) {
      key_ += kStride;
      find_block();
    }
    is_value_ = !is_value_;
  }

  FOLIO_DEVICE void copy_run(char* slot, const char* from) const {
    constexpr int kPieces = kRowBytes / 16;
    [[maybe_unused]] constexpr int kCopyUnroll = kDim > 128 ? 1 : 2;  // registers are for the output
#pragma unroll kCopyUnroll
    for (int piece = part_; piece < kRun * kPieces; piece += kParts) {
      const int row = piece / kPieces;
      const int column = piece % kPieces * 16;
      const int key = key_ + row;
      copy_16_async(slot + (run_ * kRun + row) * kPitch + column, from + row * kRowBytes + column,
                    key >= key_begin_ && key < key_end_);
    }
  }
  // Four at a time: those of keys outside the item that come along are not to be used.
  FOLIO_DEVICE void copy_scales(char* slot, const char* from) const {
    if (part_ >= kRun / 4) return;
    const int key = key_ + part_ * 4;
    copy_16_async(slot + kKeys * kPitch + run_ * kRun * 4 + part_ * 16, from + part_ * 16,
                  key + 4 > key_begin_ && key < key_end_);
  }

  const char* cache_;
  std::size_t block_bytes_;
  const std::int32_t* table_;
  char* slots_;
  int block_size_;
  int key_begin_, key_end_;
  int key_;  // the first of this thread's run in the matrix that is copied next
  int run_, part_;
  int block_ = 0, offset_ = 0;  // where that run lies
  int reading_ = 0, writing_ = 0;
  bool is_value_ = false;
};

// Stored rows of one byte an element, times their scales, as rows for ldmatrix. `first_key` is that of row 0.
template <KvElement kElement, int kDim>
FOLIO_DEVICE void convert_rows(char* to, const char* from, const float* scales, int num_rows, int first_key,
                               const AttentionItem& item, int thread, int threads) {
  constexpr int kPieces = kDim / 8;
  using Type = KvType<kElement>;
  [[maybe_unused]] constexpr int kUnroll = kDim > 128 ? 1 : 2;
#pragma unroll kUnroll
  for (int piece = thread; piece < num_rows * kPieces; piece += threads) {
    const int row = piece / kPieces;
    const int column = piece % kPieces * 8;
    const int key = first_key + row;
    const float scale = key >= item.key_begin && key < item.key_end ? scales[row] : 0.0F;
    const uint2 stored = *reinterpret_cast<const uint2*>(from + row * kStoredRowBytes<kElement, kDim> + column);
    const auto convert = [scale](std::uint32_t pair) {
      const float2 wide = Type::widen(static_cast<std::uint16_t>(pair));
      return pack<typename Type::Mma>(wide.x * scale, wide.y * scale);
    };
    store_16(to + row * kMmaPitch<kDim> + column * 2, {convert(stored.x & 0xffffU), convert(stored.x >> 16),
                                                       convert(stored.y & 0xffffU), convert(stored.y >> 16)});
  }
}

}  // namespace folio::cuda
