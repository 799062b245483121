// Operations on rows of activations, one text for all levels; included after a level's simd_*.h.
#pragma once

namespace folio::cpu {
namespace {

void quantize_rows(const float* x, std::size_t x_stride, int rows, int columns, const QuantizedRows& out) {
  const std::size_t stride = out.depth / kQuantGroup;
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
    for (std::size_t g = 0; g < static_cast<std::size_t>(columns / kQuantGroup); ++g) {
      const Vec a = load(x + r * x_stride + g * kQuantGroup);
      const Vec b = load(x + r * x_stride + g * kQuantGroup + 16);
      const float largest = max(max(abs(a), abs(b)));
      const bool zero = !(largest >= 1e-30F);  // or so near that 127 / largest may be no number
      const float scale = zero ? 0.0F : largest / 127.0F;
      const Vec inverse = set1(zero ? 0.0F : 127.0F / largest);
      std::int32_t first_sum;
      const std::int32_t sum =
          store_int8(out.q + r * out.depth + g * kQuantGroup, mul(a, inverse), mul(b, inverse), first_sum);
      out.groups[r * stride + g] = {scale, scale * static_cast<float>(sum), sum, first_sum};
    }
  }
}

void rms_norm(const float* x, std::size_t x_stride, const float* weight, float eps, int rows, int columns, float* out,
              std::size_t out_stride) {
  for (int r = 0; r < rows; ++r) {
    const float* row = x + static_cast<std::size_t>(r) * x_stride;
    float* to = out + static_cast<std::size_t>(r) * out_stride;
    Vec squares = set1(0.0F);
    int i = 0;
    for (; i + 16 <= columns; i += 16) {
      const Vec v = load(row + i);
      squares = fma(v, v, squares);
    }
    if (i < columns) {
      const Vec v = load_first(row + i, columns - i);
      squares = fma(v, v, squares);
    }
    const Vec factor = set1(1.0F / __builtin_sqrtf(sum(squares) / static_cast<float>(columns) + eps));
    for (i = 0; i + 16 <= columns; i += 16) store(to + i, mul(mul(load(row + i), factor), load(weight + i)));
    if (i < columns) {
      const int n = columns - i;
      store_first(to + i, mul(mul(load_first(row + i, n), factor), load_first(weight + i, n)), n);
    }
  }
}

void rope(float* head, const float* cosines, const float* sines, int rotary_dim, bool interleaved) {
  const int half = rotary_dim / 2;
  if (interleaved) {
    for (int i = 0; i < half; ++i) {
      const float a = head[2 * i];
      const float b = head[2 * i + 1];
      head[2 * i] = a * cosines[i] - b * sines[i];
      head[2 * i + 1] = a * sines[i] + b * cosines[i];
    }
    return;
  }
  for (int i = 0; i < half; i += 16) {
    const int n = half - i < 16 ? half - i : 16;
    const Vec a = load_first(head + i, n);
    const Vec b = load_first(head + half + i, n);
    const Vec c = load_first(cosines + i, n);
    const Vec s = load_first(sines + i, n);
    store_first(head + i, sub(mul(a, c), mul(b, s)), n);
    store_first(head + half + i, add(mul(a, s), mul(b, c)), n);
  }
}

// 1 / (1 + e^-x). The exponent is held where 2^ is finite; beyond, the result is a subnormal away from 0.
inline Vec sigmoid(Vec x) {
  const Vec one = set1(1.0F);
  return div(one, add(one, exp2(min(mul(x, set1(-1.4426950408889634F)), set1(126.0F)))));
}
inline Vec silu(Vec x) {
  return mul(x, sigmoid(x));
}
// x/2 (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). Source: Hendrycks, Gimpel, arXiv:1606.08415.
inline Vec gelu(Vec x) {
  const Vec cubic = mul(mul(x, x), mul(x, set1(0.044715F)));
  return mul(x, sigmoid(mul(add(x, cubic), set1(2.0F * 0.7978845608028654F))));
}

template <Vec (*kActivation)(Vec)>
void gate(const float* g, const float* up, float* out, std::size_t n) {
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) store(out + i, mul(kActivation(load(g + i)), load(up + i)));
  if (i < n) {
    const int rest = static_cast<int>(n - i);
    store_first(out + i, mul(kActivation(load_first(g + i, rest)), load_first(up + i, rest)), rest);
  }
}

void add_rows(const float* x, float* inout, std::size_t n) {
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) store(inout + i, add(load(inout + i), load(x + i)));
  for (; i < n; ++i) inout[i] += x[i];
}

void scale_rows(const float* x, float factor, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = x[i] * factor;
}

// How a type is stored: what it is clamped to, and how many elements of a lane lie side by side.
template <class T>
struct StoredAs;
template <>
struct StoredAs<Half> {
  static constexpr float kBound = 65504.0F;
  static constexpr int kPack = 1;
};
template <>
struct StoredAs<float> {
  static constexpr float kBound = 3.0e38F;
  static constexpr int kPack = 1;
};
template <>
struct StoredAs<BFloat16> {
  static constexpr float kBound = 3.0e38F;  // rounds to a finite value
  static constexpr int kPack = 2;
};
template <>
struct StoredAs<std::int8_t> {
  static constexpr float kBound = 65504.0F;  // as f16: a row with a far outlier has no steps left for its other values
  static constexpr int kPack = 4;
};

// To nearest even; the value is finite.
inline void store(BFloat16* p, Vec x) {
  float lanes[16];
  store(lanes, x);
  for (int i = 0; i < 16; ++i) {
    const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, lanes[i]);
    p[i].bits = static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U);
  }
}

// One vector of 16 dims from `d`, of which the first n are the head's, into a token's lane of K and of V. K's dims are
// padded to kPack, V's to 16: the padding is what the vector holds there, 0.
template <int kPack, class T>
inline void scatter_keys(const T* dims, int d, int n, T* keys, int lane) {
  for (int i = 0; i < (n + kPack - 1) / kPack * kPack; ++i) {
    keys[(d + i) / kPack * kPack * 16 + lane * kPack + i % kPack] = dims[i];
  }
}
template <int kPack, class T>
inline void scatter_values(const T* dims, int d, int padded_dim, T* values, int lane) {
  T* row = values + lane / kPack * kPack * padded_dim + lane % kPack;
  for (int i = 0; i < 16; ++i) row[(d + i) * kPack] = dims[i];
}

template <class T>
void write_kv(const float* k, const float* v, int head_dim, const KvSlot& slot) {
  constexpr int kPack = StoredAs<T>::kPack;
  constexpr float kBound = StoredAs<T>::kBound;
  T dims[16];
  for (int d = 0; d < head_dim; d += 16) {
    const int n = head_dim - d < 16 ? head_dim - d : 16;
    store(dims, clamp(load_first(k + d, n), kBound));
    scatter_keys<kPack>(dims, d, n, reinterpret_cast<T*>(slot.keys), slot.lane);
    store(dims, clamp(load_first(v + d, n), kBound));
    scatter_values<kPack>(dims, d, slot.padded_dim, reinterpret_cast<T*>(slot.values), slot.lane);
  }
}

// A row's scale: its largest magnitude / 127. A row that is (nearly) zero has scale 0 and decodes to zeros.
inline float int8_scale(const float* row, int head_dim, float bound) {
  Vec largest = set1(0.0F);
  for (int d = 0; d < head_dim; d += 16) {
    const int n = head_dim - d < 16 ? head_dim - d : 16;
    largest = max(abs(clamp(load_first(row + d, n), bound)), largest);
  }
  const float most = max(largest);
  return most < 1e-30F ? 0.0F : most / 127.0F;
}

void write_kv_int8(const float* k, const float* v, int head_dim, const KvSlot& slot) {
  constexpr float kBound = StoredAs<std::int8_t>::kBound;
  constexpr int kPack = StoredAs<std::int8_t>::kPack;
  const float key_scale = int8_scale(k, head_dim, kBound);
  const float value_scale = int8_scale(v, head_dim, kBound);
  reinterpret_cast<float*>(slot.keys + slot.key_scales_at)[slot.lane] = key_scale;
  reinterpret_cast<float*>(slot.values + slot.value_scales_at)[slot.lane] = value_scale;
  const Vec key_steps = set1(key_scale > 0.0F ? 1.0F / key_scale : 0.0F);
  const Vec value_steps = set1(value_scale > 0.0F ? 1.0F / value_scale : 0.0F);
  std::int8_t dims[16];
  for (int d = 0; d < head_dim; d += 16) {
    const int n = head_dim - d < 16 ? head_dim - d : 16;
    store_int8(dims, mul(clamp(load_first(k + d, n), kBound), key_steps));
    for (std::int8_t& q : dims) q = static_cast<std::int8_t>(q ^ -128);  // as unsigned: q + 128
    scatter_keys<kPack>(dims, d, n, reinterpret_cast<std::int8_t*>(slot.keys), slot.lane);
    store_int8(dims, mul(clamp(load_first(v + d, n), kBound), value_steps));
    scatter_values<kPack>(dims, d, slot.padded_dim, reinterpret_cast<std::int8_t*>(slot.values), slot.lane);
  }
}

}  // namespace
}  // namespace folio::cpu
