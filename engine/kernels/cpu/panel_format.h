// How weights lie in memory for the CPU matmul. Data only, no code: the level files include it.
//
// A panel is 32 output columns, two vectors of 16. Integer formats: along K a panel is a row of chunks of 64 weights a
// column (the last may be half used), so that it is read as one stream; a chunk is its first vector, then its second:
//   integers  of two groups of 32 weights. A group is 8 steps of 4 weights; a step of a column is 4 bytes, of a vector
//             64: what VNNI eats in one go.
//               8 bits: [8 steps][16 columns][4]
//               4 bits: [4][16 columns][4]: step j in the low nibbles, step j + 4 in the high ones
//               5 bits: the same, then [16 columns][4] bytes: bit j is the fifth bit of step j
//               6 bits: the 4-bit part, then two such planes: bits 2j, 2j + 1 are the upper two of step j (of j + 4 in
//                       the second)
//   scales    [64 / weights of a scale][16 columns]   f16 where the file's are (the product stays exact), else f32
//   minima    the same, where the format has them
// Stored integers are unsigned: w = scale * (u - zero_point) or scale * u + minimum, bit for bit the file's values.
// Float formats: [k][32 columns] in the file's own precision. Columns past the matrix are zero.
#pragma once
#include <cstddef>
#include <cstdint>

namespace folio::cpu {

inline constexpr int kVectorColumns = 16;
inline constexpr int kPanelColumns = 32;  // outputs of a weight panel: as many as the activations of a scale
inline constexpr int kQuantGroup = 32;    // activations that share a scale
inline constexpr int kChunkGroups = 2;    // groups of kQuantGroup weights in a chunk

enum class PanelFormat : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kU4Half,      // 4-bit integers, f16 scale     (Q4_0)
  kU4HalfMin,   // and f16 minimum               (Q4_1)
  kU4FloatMin,  // f32 scale and minimum         (Q4_K)
  kU5Half,      //                               (Q5_0)
  kU5HalfMin,   //                               (Q5_1)
  kU5FloatMin,  //                               (Q5_K)
  kU6Float16,   // f32 scale for 16 integers     (Q6_K)
  kU8Half,      //                               (Q8_0)
  kCount
};

struct PanelShape {
  int bits;         // of a stored integer, or of a float
  int group;        // weights to a scale; 0: a float format
  int scale_bytes;  // of a scale and of a minimum
  bool has_min;
  int zero_bits;  // zero_point = 2^zero_bits, where there is no minimum

  constexpr std::size_t group_bytes() const {
    return static_cast<std::size_t>(kQuantGroup * kVectorColumns * bits / 8);
  }
  constexpr std::size_t scales_at() const { return kChunkGroups * group_bytes(); }  // in a vector's part of a chunk
  constexpr std::size_t scales_bytes() const {
    return static_cast<std::size_t>(kChunkGroups * kQuantGroup / group * kVectorColumns * scale_bytes);
  }
  constexpr std::size_t minima_at() const { return scales_at() + scales_bytes(); }
  constexpr std::size_t vector_bytes() const { return minima_at() + (has_min ? scales_bytes() : 0); }
  constexpr std::size_t chunk_bytes() const { return 2 * vector_bytes(); }
};

inline constexpr PanelShape kPanelShapes[static_cast<int>(PanelFormat::kCount)] = {
    {32, 0, 0, false, 0}, {16, 0, 0, false, 0}, {16, 0, 0, false, 0}, {4, 32, 2, false, 3},
    {4, 32, 2, true, 0},  {4, 32, 4, true, 0},  {5, 32, 2, false, 4}, {5, 32, 2, true, 0},
    {5, 32, 4, true, 0},  {6, 16, 4, false, 5}, {8, 32, 2, false, 7},
};

}  // namespace folio::cpu
