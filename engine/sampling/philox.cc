#include "engine/sampling/philox.h"

#include "engine/sampling/sampler.h"

namespace folio {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t first = std::uint64_t{0xD251'1F53} * counter[0];
    const std::uint64_t second = std::uint64_t{0xCD9E'8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(second),
               static_cast<std::uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(first)};
    key[0] += 0x9E37'79B9;
    key[1] += 0xBB67'AE85;
  }
  return counter;
}

double uniform_random(std::uint64_t seed, std::int32_t sequence_index, std::int64_t position) {
  const auto at = static_cast<std::uint64_t>(position);
  const std::array<std::uint32_t, 4> bits =
      philox4x32({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32),
                  static_cast<std::uint32_t>(sequence_index), 0},
                 {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const std::uint64_t both = std::uint64_t{bits[0]} << 32 | bits[1];
  return static_cast<double>(both >> 11) * 0x1p-53;
}

}  // namespace folio
