// Matmul over weight panels (packed_matrix.h), one text for all levels; included after a level's simd_*.h.
//
// Each output element is one chain over K in one order, whatever the tile, the row count or the thread: for integer
// weights
//   acc = 0;  for each group g in order:  acc = fma(float(dot_g), w_scale_g * x_scale_g, acc)
//                                         acc = fma(w_min_g, x_scale_g * x_sum_g, acc)        where the format has a
//                                         minimum
// with dot_g exact in 32-bit integers; for float weights acc = fma(w_k, x_k, acc) over k in order.
#pragma once

namespace folio::cpu {
namespace {

template <int R, int P>
inline void store_tile(const MatmulArgs& a, Vec (&acc)[R][P], int panel, int row) {
  for (int p = 0; p < P; ++p) {
    const int column = (panel + p) * kPanelColumns;
    const int n = a.columns - column < kPanelColumns ? a.columns - column : kPanelColumns;
    for (int r = 0; r < R; ++r) {
      float* out = a.out + static_cast<std::size_t>(row + r) * a.out_stride + column;
      Vec y = acc[r][p];
      if (n == kPanelColumns) {
        if (a.bias != nullptr) y = add(y, load(a.bias + column));
        if (a.add) y = add(load(out), y);
        store(out, y);
      } else {
        if (a.bias != nullptr) y = add(y, load_first(a.bias + column, n));
        if (a.add) y = add(load_first(out, n), y);
        store_first(out, y, n);
      }
    }
  }
}

// Weight: the panel's float type. Panels are [k][16].
template <class Weight, int R, int P>
inline void float_tile(const MatmulArgs& a, int panel, int row) {
  Vec acc[R][P];
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < P; ++p) acc[r][p] = set1(0.0F);
  }
  const auto depth = static_cast<std::size_t>(a.depth);
  const float* x = a.x + static_cast<std::size_t>(row) * depth;
  const std::uint8_t* base = a.panels + static_cast<std::size_t>(panel) * a.panel_bytes;
  for (std::size_t k = 0; k < depth; ++k) {
    Vec w[P];
    for (int p = 0; p < P; ++p) {
      w[p] =
          load(reinterpret_cast<const Weight*>(base + static_cast<std::size_t>(p) * a.panel_bytes) + k * kPanelColumns);
    }
    for (int r = 0; r < R; ++r) {
      const Vec xk = set1(x[static_cast<std::size_t>(r) * depth + k]);
      for (int p = 0; p < P; ++p) acc[r][p] = fma(w[p], xk, acc[r][p]);
    }
  }
  store_tile(a, acc, panel, row);
}

// kBits: 4 or 8 bits an integer. kGroup: weights to a scale, 32 or 16. Scale: Half or float. kMin: the format has a
// minimum. kSmall: integers of at most 7 bits.
template <int kBits, int kGroup, class Scale, bool kMin, bool kSmall>
struct IntegerPanels {
  static constexpr int kGroupBytes = kGroup * kPanelColumns * kBits / 8;

  static inline Ints dot(Ints acc, Bytes w, std::int32_t x) { return kSmall ? dot4_small(acc, w, x) : dot4(acc, w, x); }

  // One group of P panels and R rows: exact integer sums, started at -zero_point * sum(x).
  template <int R, int P>
  static inline void group_dots(const MatmulArgs& a, const std::uint8_t* quants, const std::int8_t* x,
                                Ints (&dots)[R][P]) {
    const auto depth = static_cast<std::size_t>(a.depth);
    constexpr int kStep = kBits == 4 ? 8 : 4;  // weights of a column in one 64-byte load
    for (int j = 0; j < kGroup / kStep; ++j) {
      Bytes low[P];
      Bytes high[P];
      for (int p = 0; p < P; ++p) {
        const Bytes w = load_bytes(quants + static_cast<std::size_t>(p) * a.panel_bytes + 64 * j);
        low[p] = kBits == 4 ? low_nibbles(w) : w;
        if (kBits == 4) high[p] = high_nibbles(w);
      }
      for (int r = 0; r < R; ++r) {
        const std::int8_t* xr = x + static_cast<std::size_t>(r) * depth + 4 * j;
        std::int32_t four;
        __builtin_memcpy(&four, xr, 4);
        for (int p = 0; p < P; ++p) dots[r][p] = dot(dots[r][p], low[p], four);
        if (kBits == 4) {  // the high nibbles hold the group's upper half
          __builtin_memcpy(&four, xr + kGroup / 2, 4);
          for (int p = 0; p < P; ++p) dots[r][p] = dot(dots[r][p], high[p], four);
        }
      }
    }
  }

  template <int R, int P>
  static inline void tile(const MatmulArgs& a, int panel, int row) {
    Vec acc[R][P];
    for (int r = 0; r < R; ++r) {
      for (int p = 0; p < P; ++p) acc[r][p] = set1(0.0F);
    }
    const auto depth = static_cast<std::size_t>(a.depth);
    const std::uint8_t* base = a.panels + static_cast<std::size_t>(panel) * a.panel_bytes;
    const std::int8_t* x = a.quantized.q + static_cast<std::size_t>(row) * depth;
    const float* x_scales = a.quantized.scales + static_cast<std::size_t>(row) * (depth / kQuantGroup);
    const std::int32_t* x_sums = a.quantized.sums + static_cast<std::size_t>(row) * (depth / 16);
    const int num_groups = a.depth / kGroup;
    for (int g = 0; g < num_groups; ++g) {
      Ints dots[R][P];
      float scale[R];
      std::int32_t sums[R];
      for (int r = 0; r < R; ++r) {
        const std::int32_t* s = x_sums + static_cast<std::size_t>(r) * (depth / 16) + g * (kGroup / 16);
        sums[r] = kGroup == 32 ? s[0] + s[1] : s[0];
        scale[r] = x_scales[static_cast<std::size_t>(r) * (depth / kQuantGroup) +
                            static_cast<std::size_t>(g * kGroup / kQuantGroup)];
        const Ints start = set1(kMin ? 0 : -a.zero_point * sums[r]);
        for (int p = 0; p < P; ++p) dots[r][p] = start;
      }
      group_dots(a, base + static_cast<std::size_t>(g) * kGroupBytes, x + g * kGroup, dots);
      for (int p = 0; p < P; ++p) {
        const std::uint8_t* at = base + static_cast<std::size_t>(p) * a.panel_bytes;
        const Vec w = load(reinterpret_cast<const Scale*>(at + a.scale_offset) + g * kPanelColumns);
        for (int r = 0; r < R; ++r) acc[r][p] = fma(to_float(dots[r][p]), mul(w, set1(scale[r])), acc[r][p]);
        if (kMin) {
          const Vec m = load(reinterpret_cast<const Scale*>(at + a.min_offset) + g * kPanelColumns);
          for (int r = 0; r < R; ++r) acc[r][p] = fma(m, set1(scale[r] * static_cast<float>(sums[r])), acc[r][p]);
        }
      }
    }
    store_tile(a, acc, panel, row);
  }
};

template <class Weight>
struct FloatPanels {
  template <int R, int P>
  static inline void tile(const MatmulArgs& a, int panel, int row) {
    float_tile<Weight, R, P>(a, panel, row);
  }
};

template <class Panels, int P>
inline void remaining_rows(const MatmulArgs& a, int panel, int row, int count) {
  static_assert(kMatmulRows <= 6);
  switch (count) {
    case 1:
      Panels::template tile<1, P>(a, panel, row);
      break;
    case 2:
      if constexpr (kMatmulRows > 2) Panels::template tile<2, P>(a, panel, row);
      break;
    case 3:
      if constexpr (kMatmulRows > 3) Panels::template tile<3, P>(a, panel, row);
      break;
    case 4:
      if constexpr (kMatmulRows > 4) Panels::template tile<4, P>(a, panel, row);
      break;
    case 5:
      if constexpr (kMatmulRows > 5) Panels::template tile<5, P>(a, panel, row);
      break;
    default:
      break;
  }
}

template <class Panels, int P>
inline void panel_rows(const MatmulArgs& a, int panel, int row_begin, int row_end) {
  int row = row_begin;
  for (; row + kMatmulRows <= row_end; row += kMatmulRows) Panels::template tile<kMatmulRows, P>(a, panel, row);
  remaining_rows<Panels, P>(a, panel, row, row_end - row);
}

template <class Panels>
void matmul(const MatmulArgs& a, int panel_begin, int panel_end, int row_begin, int row_end) {
  int panel = panel_begin;
  if (row_end - row_begin == 1) {
    for (; panel + kDecodePanels <= panel_end; panel += kDecodePanels) {
      Panels::template tile<1, kDecodePanels>(a, panel, row_begin);
    }
  }
  for (; panel + kMatmulPanels <= panel_end; panel += kMatmulPanels) {
    panel_rows<Panels, kMatmulPanels>(a, panel, row_begin, row_end);
  }
  for (; panel < panel_end; ++panel) panel_rows<Panels, 1>(a, panel, row_begin, row_end);
}

}  // namespace
}  // namespace folio::cpu
