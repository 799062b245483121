#include "engine/kernels/cuda/rope_kv.h"

#include "base/check.h"
#include "engine/kernels/cuda/row_device.h"

namespace folio::cuda {
namespace {

constexpr int kAngleThreads = 128;
constexpr int kHeadWarps = 4;  // heads of a CTA

// In double, by Taylor's series over [-pi/4, pi/4] (what they leave out is below 3e-18), without the tables in memory
// that a library wants for far arguments.
FOLIO_DEVICE float2 cosine_sine(float angle) {
  const auto x = static_cast<double>(angle);
  const double quarters = rint(x * 0x1.45f306dc9c883p-1);  // 2 / pi
  // pi / 2 in two parts: the first product and difference are exact.
  double r = fma(-quarters, 0x1.921fb54442d18p0, x);
  r = fma(-quarters, 0x1.1a62633145c07p-54, r);
  const double square = r * r;
  double cosine = 1.0;
  double sine = 1.0;
  // Horner's scheme from the last term: 1 - x^2 / (1 2) (1 - x^2 / (3 4) ( ... ))
  for (int i = 8; i >= 1; --i) {
    cosine = fma(-square * (1.0 / ((2 * i - 1) * (2 * i))), cosine, 1.0);
    sine = fma(-square * (1.0 / ((2 * i) * (2 * i + 1))), sine, 1.0);
  }
  sine *= r;
  const auto quadrant = static_cast<std::int64_t>(quarters) & 3;
  const double c = (quadrant & 1) == 0 ? cosine : sine;
  const double s = (quadrant & 1) == 0 ? sine : cosine;
  return {static_cast<float>(quadrant == 1 || quadrant == 2 ? -c : c), static_cast<float>(quadrant >= 2 ? -s : s)};
}

struct AnglesWork {
  RopeAngles angles;
  std::int64_t count = 0;
};

FOLIO_KERNEL(kAngleThreads) make_angles_kernel(AnglesWork work) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kAngleThreads + threadIdx.x;
  if (at < work.count) {
    const RopeAngles& angles = work.angles;
    const auto position = static_cast<float>(angles.positions[at / angles.num_pairs]);
    angles.angles[at] = cosine_sine(position * angles.inverse_frequencies[at % angles.num_pairs]);
  }
}

FOLIO_DEVICE float clamp(float value, float bound) {
  const float raised = value > -bound ? value : -bound;
  return raised < bound ? raised : bound;
}
FOLIO_DEVICE float4 clamp(float4 a, float bound) {
  return {clamp(a.x, bound), clamp(a.y, bound), clamp(a.z, bound), clamp(a.w, bound)};
}

FOLIO_DEVICE std::uint32_t to_fp8(float4 value, float steps) {
  const auto byte = [steps](float x) {
    return static_cast<int>(__nv_cvt_float_to_fp8(x * steps, __NV_SATFINITE, __NV_E4M3));
  };
  return pack_bytes(byte(value.x), byte(value.y), byte(value.z), byte(value.w));
}

// A warp's head on its way: [stored_dim] in shared memory, zeros from `dim` on, from load_head() on.
struct Head {
  float* values;
  std::int32_t dim;
  std::int32_t stored_dim;  // in the cache
  int lane;
};

// Reads a head; returns what a norm multiplies it by.
FOLIO_DEVICE float load_head(const Head& head, const float* from, const DeviceNorm& norm) {
  float squares = 0.0F;
  for (int d = 4 * head.lane; d < head.dim; d += 4 * kWarpSize) {
    const float4 value = load_floats(from + d);
    squares = add_squares(value, squares);
    store_floats(head.values + d, value);
  }
  for (int d = head.dim + 4 * head.lane; d < head.stored_dim; d += 4 * kWarpSize) {
    store_floats(head.values + d, {0.0F, 0.0F, 0.0F, 0.0F});
  }
  sync_warp();
  if (norm.weight == nullptr) return 1.0F;
  return 1.0F / sqrtf(sum_over_lanes(squares) / static_cast<float>(head.dim) + norm.epsilon);
}

FOLIO_DEVICE void norm_and_rotate(const Head& head, const RopeWriteKv& work, const float2* angles, float factor,
                                  const float* weight) {
  const auto normed = [&](int d, float value) { return weight != nullptr ? value * factor * weight[d] : value; };
  const int half = work.rotary_dim / 2;
  for (int i = head.lane; i < half; i += kWarpSize) {
    const float2 angle = angles[i];
    if (work.interleaved) {
      float2* pairs = reinterpret_cast<float2*>(head.values);
      const float2 pair = pairs[i];  // 8 bytes at once: no bank is asked twice
      const float a = normed(2 * i, pair.x);
      const float b = normed(2 * i + 1, pair.y);
      pairs[i] = {a * angle.x - b * angle.y, a * angle.y + b * angle.x};
    } else {
      const float a = normed(i, head.values[i]);
      const float b = normed(i + half, head.values[i + half]);
      head.values[i] = a * angle.x - b * angle.y;
      head.values[i + half] = a * angle.y + b * angle.x;
    }
  }
  for (int d = work.rotary_dim + head.lane; d < head.dim; d += kWarpSize) head.values[d] = normed(d, head.values[d]);
  sync_warp();
}

// A head into its row of the cache, `scale` its place where the type has one.
FOLIO_DEVICE void write_row(const Head& head, KvElement element, char* row, float* scale) {
  constexpr float kLargestHalf = 65504.0F;
  constexpr float kLargestBf16 = 3.0e38F;  // rounds to a finite value
  const bool bytes = element == KvElement::kInt8 || element == KvElement::kFp8;
  const float bound = element == KvElement::kBF16 ? kLargestBf16 : kLargestHalf;
  float steps = 0.0F;
  if (bytes) {
    float largest = 0.0F;
    for (int d = 4 * head.lane; d < head.dim; d += 4 * kWarpSize) {
      largest = fmaxf(largest, largest_magnitude(clamp(load_floats(head.values + d), bound)));
    }
    largest = max_over_lanes(largest);
    const float row_scale = largest < 1e-30F ? 0.0F : largest / (element == KvElement::kInt8 ? 127.0F : 448.0F);
    steps = row_scale > 0.0F ? 1.0F / row_scale : 0.0F;
    if (head.lane == 0) *scale = row_scale;
  }
  for (int d = 4 * head.lane; d < head.stored_dim; d += 4 * kWarpSize) {
    const float4 value = clamp(load_floats(head.values + d), bound);
    if (element == KvElement::kF16) *reinterpret_cast<uint2*>(row + 2 * d) = to_f16(value);
    if (element == KvElement::kBF16) *reinterpret_cast<uint2*>(row + 2 * d) = to_bf16(value);
    if (element == KvElement::kInt8) *reinterpret_cast<std::uint32_t*>(row + d) = to_int8(value, steps);
    if (element == KvElement::kFp8) *reinterpret_cast<std::uint32_t*>(row + d) = to_fp8(value, steps);
  }
}

FOLIO_DEVICE void do_query(const Head& head, const RopeWriteKv& work, const float2* angles, float* q) {
  const float factor = load_head(head, q, work.q_norm);
  norm_and_rotate(head, work, angles, factor, work.q_norm.weight);
  for (int d = 4 * head.lane; d < head.dim; d += 4 * kWarpSize) {
    store_floats(q + d, multiply(load_floats(head.values + d), work.query_scale));
  }
}

// Head `which` of the token's keys, then of its values, into its slot.
FOLIO_DEVICE void do_key_or_value(const Head& head, const RopeWriteKv& work, const float2* angles, std::size_t token,
                                  std::int32_t which, std::int32_t slot) {
  const KvLayout& layout = work.layout;
  const bool is_key = which < layout.num_kv_heads;
  const std::int32_t kv_head = which % layout.num_kv_heads;
  const std::size_t row = token * static_cast<std::size_t>(layout.num_kv_heads) + static_cast<std::size_t>(kv_head);
  const float* from = (is_key ? work.k : work.v) + row * static_cast<std::size_t>(head.dim);
  const float factor = load_head(head, from, is_key ? work.k_norm : DeviceNorm{});
  if (is_key) norm_and_rotate(head, work, angles, factor, work.k_norm.weight);
  char* to = static_cast<char*>(work.cache) + layout.head_offset(work.layer, slot / layout.block_size, kv_head);
  const std::int32_t offset = slot % layout.block_size;
  write_row(head, layout.element, to + (is_key ? layout.key_row(offset) : layout.value_row(offset)),
            reinterpret_cast<float*>(to + (is_key ? layout.key_scale(offset) : layout.value_scale(offset))));
}

// One warp a head: of the token's queries, then its keys, then its values.
FOLIO_KERNEL(kHeadWarps* kWarpSize) rope_write_kv_kernel(RopeWriteKv work) {
  const std::int32_t dim = work.head_dim;
  const std::int32_t stored_dim = work.layout.head_dim;
  SharedArena arena;
  float* shared = arena.take<float>(kHeadWarps * stored_dim);
  const auto warp = static_cast<std::int32_t>(threadIdx.x / kWarpSize);
  const Head head{shared + warp * stored_dim, dim, stored_dim, static_cast<int>(threadIdx.x % kWarpSize)};
  const auto token = static_cast<std::size_t>(blockIdx.x);
  const float2* angles = work.angles + token * static_cast<std::size_t>(work.rotary_dim / 2);
  const std::int32_t which = static_cast<std::int32_t>(blockIdx.y) * kHeadWarps + warp;
  const std::int32_t slot = work.slots[token];
  if (which < work.num_heads) {
    const std::size_t row = token * static_cast<std::size_t>(work.num_heads) + static_cast<std::size_t>(which);
    do_query(head, work, angles, work.q + row * static_cast<std::size_t>(dim));
  } else if (which < work.num_heads + 2 * work.layout.num_kv_heads && slot >= 0) {
    do_key_or_value(head, work, angles, token, which - work.num_heads, slot);
  }
}

}  // namespace

void make_angles(const RopeAngles& work, std::int32_t num_tokens, cudaStream_t stream) {
  const std::int64_t count = std::int64_t{num_tokens} * work.num_pairs;
  const dim3 grid(static_cast<unsigned>((count + kAngleThreads - 1) / kAngleThreads));
  launch("rotary angles", make_angles_kernel, {grid, kAngleThreads, 0, stream}, {work, count});
}

void rope_write_kv(const RopeWriteKv& work, std::int32_t num_tokens, cudaStream_t stream) {
  const KvLayout& layout = work.layout;
  FOLIO_CHECK(layout.head_dim % 16 == 0 && layout.head_dim <= kMaxRopeHeadDim, "a head size of the cache");
  FOLIO_CHECK(work.head_dim % 4 == 0 && work.head_dim <= layout.head_dim, "a head that fits into the cache's");
  FOLIO_CHECK(work.rotary_dim % 2 == 0 && work.rotary_dim <= work.head_dim, "a rotated part of a head");
  const int heads = work.num_heads + 2 * layout.num_kv_heads;
  const dim3 grid(static_cast<unsigned>(num_tokens), static_cast<unsigned>((heads + kHeadWarps - 1) / kHeadWarps));
  const std::size_t shared = sizeof(float) * static_cast<std::size_t>(kHeadWarps * layout.head_dim);
  launch("rope and K/V", rope_write_kv_kernel, {grid, kHeadWarps * kWarpSize, shared, stream}, work);
}

}  // namespace folio::cuda
