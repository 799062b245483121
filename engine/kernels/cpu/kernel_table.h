// What a CPU level provides: plain functions over plain arrays, chosen once at start. A level is its exact feature set:
//   scalar       x86-64-v2, plain C++ (the compiler may use SSE)
//   avx2         AVX2, FMA, F16C
//   avx512       AVX-512 F, BW, DQ, VL, VNNI
//   avx512bf16   and AVX512_BF16: everything of avx512 but attention over bf16 K and V
// All levels run the same templates (matmul_kernels.h, attention_kernels.h, row_kernels.h) over their own vector type
// (simd_*.h), so an operation has one text, and one order of sums, whatever the level.
#pragma once
#include <cstddef>
#include <cstdint>

#include "engine/kernels/cpu/panel_format.h"
#include "engine/kernels/kv_type.h"

namespace folio::cpu {

struct Half {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

inline constexpr int kPartition = 256;  // keys reduced alone before partitions merge in order; a multiple of any group
inline constexpr int kPartitionGroups = kPartition / 16;

// 32 quantised activations of a row: x ~ q * scale. Side by side, since a group is written and read as one.
struct QuantGroup {
  float scale;
  float offset;            // scale * sum: what a weight minimum multiplies
  std::int32_t sum;        // of the q's
  std::int32_t first_sum;  // of the first 16
};

// Rows quantised to int8. A view: pointers to the first row's first group.
struct QuantizedRows {
  std::size_t depth;   // from one row's q to the next; a multiple of 32
  std::int8_t* q;      // [rows][depth]
  QuantGroup* groups;  // [rows][depth / 32]
};

// One weight matrix against rows of activations: out[row][column] = sum over k of x[row][k] * w[column][k].
struct MatmulArgs {
  // Weights: panels of 32 columns (panel_format.h).
  const std::uint8_t* panels;
  std::size_t panel_bytes;  // from one panel to the next
  std::int32_t depth;       // K
  std::int32_t columns;     // N, without padding
  // Activations: the quantised rows for integer weights, the floats for float weights.
  QuantizedRows quantized;
  const float* x;  // [rows][depth]
  // Result.
  float* out;  // [rows][out_stride]
  std::size_t out_stride;
  std::int32_t first_row;  // what out[0] is: 0, 0 for whole matrices
  std::int32_t first_column;
  const float* bias;  // [columns] or null
  bool add;           // out += instead of out =
};
// `after`: weights to ask the memory for while the last panel is used, or null.
using MatmulFn = void (*)(const MatmulArgs& args, int panel_begin, int panel_end, int row_begin, int row_end,
                          const std::uint8_t* after);

// What a worker will walk next, for the second-level cache: a kernel asks for as many bytes of it as it walks of its
// own. Never changes a result.
struct FetchAhead {
  const std::byte* const* segment;  // the groups' keys and values, by turns
  const std::byte* const* end;
  int segment_bytes;      // of elements
  int scales_at;          // inside a segment, a line that goes with its end; 0 if there is none
  int offset;             // asked for, of *segment
  const std::byte* idle;  // asked for instead when nothing is left: a group that is in the cache
};

// A query row as the kernel of a KV type wants it takes at most this much.
inline constexpr std::size_t query_bytes(int head_dim) {
  return 64 + 4 * static_cast<std::size_t>((head_dim + 15) / 16 * 16);
}
using PrepareQueryFn = void (*)(const float* q, int head_dim, std::byte* to);

// One (kv head, partition of keys) against some query rows. Keys come in groups of 16 tokens.
struct PartitionArgs {
  int num_rows;
  int head_dim;
  int padded_dim;                  // of V rows and acc rows
  const std::byte* queries;        // [num_rows][query_bytes]: prepared, scaled by log2(e) * attention scale before
  const std::int32_t* first_key;   // [num_rows] first visible key, counted from position 0
  const std::int32_t* end_key;     // [num_rows] one past the last visible key
  std::int32_t partition_start;    // position of the partition's first key
  int group_begin, group_end;      // key groups to walk, of the partition's 16
  const std::byte* const* groups;  // [16][2] -> a group's keys and its values, as kv_cache.h says
  std::size_t key_scales_at;       // inside a group: its 16 scales, for a type that has them
  std::size_t value_scales_at;
  FetchAhead* ahead;
  // Result per row: maximum score, sum of 2^(score - maximum), and the sum of V weighted so. A row that sees no key of
  // the partition has maximum -inf and is to be skipped.
  float* maximum;  // [num_rows]
  float* sum;      // [num_rows]
  float* acc;      // [num_rows][padded_dim]

  const std::byte* query(int row) const { return queries + static_cast<std::size_t>(row) * query_bytes(head_dim); }
  const std::byte* keys(int group) const { return groups[2 * group]; }
  const std::byte* values(int group) const { return groups[2 * group + 1]; }
};

using AttendFn = void (*)(const PartitionArgs& args);

// Where one token's K and V of one head go: its 16-token group in the cache (kv_cache.h) and its lane there.
struct KvSlot {
  std::byte* keys;
  std::byte* values;
  std::size_t key_scales_at;  // inside the group, for a type that has scales
  std::size_t value_scales_at;
  int padded_dim;  // of V
  int lane;        // token of the group, 0 to 15
};
using WriteKvFn = void (*)(const float* k, const float* v, int head_dim, const KvSlot& slot);

struct KernelTable {
  const char* name;
  MatmulFn matmul[static_cast<int>(PanelFormat::kCount)];
  // `columns` (a multiple of 32) of each row, into the same columns from out's first on.
  void (*quantize_rows)(const float* x, std::size_t x_stride, int rows, int columns, const QuantizedRows& out);
  // out = x / rms(x) * weight, per row.
  void (*rms_norm)(const float* x, std::size_t x_stride, const float* weight, float eps, int rows, int columns,
                   float* out, std::size_t out_stride);
  // In place on one head's vector: pairs (2i, 2i+1) or (i, i + rotary/2); cosines and sines [rotary / 2].
  void (*rope)(float* head, const float* cosines, const float* sines, int rotary_dim, bool interleaved);
  // out = act(gate) * up
  void (*gate_silu)(const float* gate, const float* up, float* out, std::size_t n);
  void (*gate_gelu)(const float* gate, const float* up, float* out, std::size_t n);  // tanh form
  void (*add)(const float* x, float* inout, std::size_t n);
  void (*scale)(const float* x, float factor, float* out, std::size_t n);
  // By KvType. What is written is finite, whatever comes: clamped to what the type holds. Bytes of other lanes are not
  // touched, so that tokens of one group may be written at the same time.
  WriteKvFn write_kv[static_cast<int>(KvType::kCount)];
  PrepareQueryFn prepare_query[static_cast<int>(KvType::kCount)];
  AttendFn attend[static_cast<int>(KvType::kCount)];
  // Merges a partition's result into the running one, in order: the first is copied, a skipped one changes nothing.
  void (*merge)(int rows, int padded_dim, const float* maximum, const float* sum, const float* acc, float* to_maximum,
                float* to_sum, float* to_acc);
  void (*finish)(const float* acc, float sum, int head_dim, float* out);  // out = acc / sum
};

const KernelTable& scalar_kernels();
const KernelTable& avx2_kernels();
const KernelTable& avx512_kernels();
KernelTable avx512bf16_kernels();  // a copy: avx512's table with attention over bf16 exchanged

}  // namespace folio::cpu
