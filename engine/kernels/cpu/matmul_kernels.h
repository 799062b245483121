// Matmul over weight panels (panel_format.h), one text for all levels; included after a level's simd_*.h.
//
// Each output element is one chain over K in one order, whatever the tile, the row count or the thread: for integer
// weights
//   acc = 0;  for each group g in order:  acc = fma(float(dot_g), w_scale_g * x_scale_g, acc)
//                                         acc = fma(w_min_g, x_scale_g * x_sum_g, acc)        where the format has a
//                                         minimum
// with dot_g exact in 32-bit integers, over the weights of a scale (32; Q6_K: 16); for float weights acc = fma(w_k,
// x_k, acc) over k in order.
#pragma once

namespace folio::cpu {
namespace {

// A tile is R rows by P vectors of 16 columns; `vector` is the first one's place in the panel.
template <int R, int P>
inline void store_tile(const MatmulArgs& a, Vec (&acc)[R][P], int panel, int vector, int row) {
  for (int p = 0; p < P; ++p) {
    const int column = panel * kPanelColumns + (vector + p) * kVectorColumns;
    const int n = a.columns - column < kVectorColumns ? a.columns - column : kVectorColumns;
    for (int r = 0; n > 0 && r < R; ++r) {
      float* out = a.out + static_cast<std::size_t>(row - a.first_row + r) * a.out_stride + (column - a.first_column);
      Vec y = acc[r][p];
      if (n == kVectorColumns) {
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

// The next panel is brought into the second-level cache while this one is used: the distance covers the memory's
// latency. The tiles of a panel share the work evenly, so that the memory is asked all the time and never faster than
// it answers.
struct Ahead {
  const std::uint8_t* next;  // null: nothing to ask for
  int wait;                  // stretches of K until this tile's next turn
  int tiles;

  // Before steps [begin, end) of K are used: the same steps of the next panel, kBytes each.
  template <std::size_t kBytes>
  inline void ask(int begin, int end) {
    if (next == nullptr || --wait >= 0) return;
    wait = tiles - 1;
    const std::uint8_t* last = next + static_cast<std::size_t>(end) * kBytes;
    for (const std::uint8_t* at = next + static_cast<std::size_t>(begin) * kBytes; at < last; at += 64) {
      __builtin_prefetch(at, 0, 2);
    }
  }
};

// Steps of K between two questions: few enough to come evenly, enough to leave the inner loop alone.
constexpr int kStretch = 2;

template <class Weight>
struct FloatPanels {
  template <int R, int P>
  static inline void tile(const MatmulArgs& a, int panel, int vector, int row, Ahead ahead) {
    Vec acc[R][P];
    for (int r = 0; r < R; ++r) {
      for (int p = 0; p < P; ++p) acc[r][p] = set1(0.0F);
    }
    const auto depth = static_cast<std::size_t>(a.depth);
    const float* x = a.x + static_cast<std::size_t>(row) * depth;
    const auto* weights = reinterpret_cast<const Weight*>(a.panels + static_cast<std::size_t>(panel) * a.panel_bytes) +
                          vector * kVectorColumns;
    for (int first = 0; first < a.depth; first += 4 * kStretch) {
      const int end = first + 4 * kStretch < a.depth ? first + 4 * kStretch : a.depth;
      ahead.ask<kPanelColumns * sizeof(Weight)>(first, end);
      for (auto k = static_cast<std::size_t>(first); k < static_cast<std::size_t>(end); ++k) {
        Vec w[P];
        for (int p = 0; p < P; ++p) w[p] = load(weights + k * kPanelColumns + p * kVectorColumns);
        for (int r = 0; r < R; ++r) {
          const Vec xk = set1(x[static_cast<std::size_t>(r) * depth + k]);
          for (int p = 0; p < P; ++p) acc[r][p] = fma(w[p], xk, acc[r][p]);
        }
      }
    }
    store_tile(a, acc, panel, vector, row);
  }
};

// Steps J and J + 4 of a group: 4 integers of K for 16 columns each.
template <int kBits, int J>
inline void load_steps(const std::uint8_t* group, Bytes& low, Bytes& high) {
  if constexpr (kBits == 8) {
    low = load_bytes(group + 64 * J);
    high = load_bytes(group + 64 * (J + 4));
    return;
  }
  const Bytes nibbles = load_bytes(group + 64 * J);
  low = low_nibbles(nibbles);
  high = high_nibbles(nibbles);
  if constexpr (kBits == 5) {
    const Bytes fifth = load_bytes(group + 256);
    low = or_masked<16>(low, shift_bits<4 - J>(fifth));
    high = or_masked<16>(high, shift_bits<-J>(fifth));
  }
  if constexpr (kBits == 6) {
    low = or_masked<48>(low, shift_bits<4 - 2 * J>(load_bytes(group + 256)));
    high = or_masked<48>(high, shift_bits<4 - 2 * J>(load_bytes(group + 320)));
  }
}

template <int kBytes>
struct ScaleOfBytes {
  using Type = float;
};
template <>
struct ScaleOfBytes<2> {
  using Type = Half;
};

// The loops over a tile are unrolled early: g++ 12 otherwise writes the accumulators' start to the stack in each group.
template <PanelFormat kFormat>
struct IntegerPanels {
  static constexpr PanelShape kShape = kPanelShapes[static_cast<int>(kFormat)];
  static constexpr int kScales = kQuantGroup / kShape.group;  // scales of a group of 32: 1 or 2
  // Of the next panel, a group of K. (Of a last chunk that is half used half its lines are asked for.)
  static constexpr std::size_t kAheadBytes = kShape.chunk_bytes() / kChunkGroups;
  using Scale = typename ScaleOfBytes<kShape.scale_bytes>::Type;

  static inline Ints dot(Ints acc, Bytes w, const std::int8_t* x) {
    std::int32_t four;
    __builtin_memcpy(&four, x, 4);
    return kShape.bits < 8 ? dot4_small(acc, w, four) : dot4(acc, w, four);
  }

  static inline Ints start_of(std::int32_t sum) {
    if constexpr (kShape.has_min) return set1(0);
    if constexpr (kShape.bits == 8) return start_eight(set1(sum));
    return minus_shifted<kShape.zero_bits>(set1(sum));
  }

  template <int J, int R, int P>
  static inline void add_steps(const std::uint8_t* group, const std::int8_t* x, std::size_t depth,
                               Ints (&low_dots)[R][P], Ints (&high_dots)[R][P]) {
    Bytes low[P];
    Bytes high[P];
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      load_steps<kShape.bits, J>(group + static_cast<std::size_t>(p) * kShape.vector_bytes(), low[p], high[p]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const std::int8_t* xr = x + static_cast<std::size_t>(r) * depth + 4 * J;
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) low_dots[r][p] = dot(low_dots[r][p], low[p], xr);
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) high_dots[r][p] = dot(high_dots[r][p], high[p], xr + 16);
    }
  }

  // dots[h][r][p]: the exact integer sums of the group's part h.
  template <int R, int P>
  static inline void group_dots(const QuantizedRows& x, int row, int g, const std::uint8_t* group,
                                Ints (&dots)[kScales][R][P]) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const QuantGroup& info =
          x.groups[static_cast<std::size_t>(row + r) * (x.depth / kQuantGroup) + static_cast<std::size_t>(g)];
#pragma GCC unroll 8
      for (int h = 0; h < kScales; ++h) {
        const std::int32_t sum = kScales == 1 ? info.sum : h == 0 ? info.first_sum : info.sum - info.first_sum;
        const Ints start = start_of(sum);
#pragma GCC unroll 8
        for (int p = 0; p < P; ++p) dots[h][r][p] = start;
      }
    }
    const std::int8_t* q = x.q + static_cast<std::size_t>(row) * x.depth + g * kQuantGroup;
    add_steps<0>(group, q, x.depth, dots[0], dots[kScales - 1]);
    add_steps<1>(group, q, x.depth, dots[0], dots[kScales - 1]);
    add_steps<2>(group, q, x.depth, dots[0], dots[kScales - 1]);
    add_steps<3>(group, q, x.depth, dots[0], dots[kScales - 1]);
  }

  // Group g of K into the accumulators; `chunk`: of the tile's first vector.
  template <int R, int P>
  static inline void add_group(const QuantizedRows& x, int row, int g, const std::uint8_t* chunk, Vec (&acc)[R][P]) {
    const std::size_t groups = x.depth / kQuantGroup;
    const QuantGroup* infos = x.groups + static_cast<std::size_t>(row) * groups + static_cast<std::size_t>(g);
    const auto in_chunk = static_cast<std::size_t>(g % kChunkGroups);
    Ints dots[kScales][R][P];
    group_dots(x, row, g, chunk + in_chunk * kShape.group_bytes(), dots);
#pragma GCC unroll 8
    for (int h = 0; h < kScales; ++h) {
      const std::size_t at = (in_chunk * kScales + static_cast<std::size_t>(h)) * kVectorColumns * sizeof(Scale);
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        const std::uint8_t* scales =
            chunk + static_cast<std::size_t>(p) * kShape.vector_bytes() + kShape.scales_at() + at;
        const Vec w = load(reinterpret_cast<const Scale*>(scales));
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const Vec scale = mul(w, set1(infos[static_cast<std::size_t>(r) * groups].scale));
          acc[r][p] = fma(to_float(dots[h][r][p]), scale, acc[r][p]);
        }
        if (kShape.has_min) {
          const Vec m = load(reinterpret_cast<const Scale*>(scales + kShape.scales_bytes()));
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r) {
            acc[r][p] = fma(m, set1(infos[static_cast<std::size_t>(r) * groups].offset), acc[r][p]);
          }
        }
      }
    }
  }

  template <int R, int P>
  static void tile(const MatmulArgs& a, int panel, int vector, int row, Ahead ahead) {
    Vec acc[R][P];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) acc[r][p] = set1(0.0F);
    }
    const QuantizedRows& x = a.quantized;
    const int groups = a.depth / kQuantGroup;
    const std::uint8_t* weights = a.panels + static_cast<std::size_t>(panel) * a.panel_bytes +
                                  static_cast<std::size_t>(vector) * kShape.vector_bytes();
    for (int first = 0; first < groups; first += kStretch) {
      const int end = first + kStretch < groups ? first + kStretch : groups;
      ahead.ask<kAheadBytes>(first, end);
      for (int g = first; g < end; ++g) {
        add_group(x, row, g, weights + static_cast<std::size_t>(g / kChunkGroups) * kShape.chunk_bytes(), acc);
      }
    }
    store_tile(a, acc, panel, vector, row);
  }
};

template <class Panels, int P>
inline void tile_of(const MatmulArgs& a, int panel, int vector, int row, int count, Ahead ahead) {
  static_assert(kMatmulRows <= 4);
  switch (count) {
    case 1:
      Panels::template tile<1, P>(a, panel, vector, row, ahead);
      break;
    case 2:
      Panels::template tile<2, P>(a, panel, vector, row, ahead);
      break;
    case 3:
      if constexpr (kMatmulRows > 2) Panels::template tile<3, P>(a, panel, vector, row, ahead);
      break;
    case 4:
      if constexpr (kMatmulRows > 3) Panels::template tile<4, P>(a, panel, vector, row, ahead);
      break;
    default:
      break;
  }
}

// Rows are cut into tiles of nearly the same height: 5 rows are 3 and 2, as a tile of 1 unpacks as much as one of 4.
template <class Panels>
void matmul(const MatmulArgs& a, int panel_begin, int panel_end, int row_begin, int row_end,
            const std::uint8_t* after) {
  const int rows = row_end - row_begin;
  const int tiles = (rows + kMatmulRows - 1) / kMatmulRows;
  if (tiles == 0) return;
  const int height = rows / tiles;
  const int taller = rows % tiles;
  for (int panel = panel_begin; panel < panel_end; ++panel) {
    const std::uint8_t* next =
        panel + 1 < panel_end ? a.panels + static_cast<std::size_t>(panel + 1) * a.panel_bytes : after;
    int turn = 0;
    const int turns = tiles * (kPanelColumns / kVectorColumns / kMatmulVectors);
    for (int vector = 0; vector < kPanelColumns / kVectorColumns; vector += kMatmulVectors) {
      int row = row_begin;
      for (int i = 0; i < tiles; ++i) {
        const int count = height + (i < taller ? 1 : 0);
        tile_of<Panels, kMatmulVectors>(a, panel, vector, row, count, {next, turn++, turns});
        row += count;
      }
    }
  }
}

}  // namespace
}  // namespace folio::cpu
