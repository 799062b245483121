// Random numbers of a load test: one generator for each thing that is drawn, so that what a request asks for depends on
// the seed and its number alone, whichever is sent when.
#pragma once
#include <cstdint>
#include <random>
#include <string_view>

namespace folio::client {

// Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators": the finaliser of SplitMix64.
constexpr std::uint64_t mix_bits(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31U);
}

// FNV-1a: names become numbers, the same on every machine.
constexpr std::uint64_t hash_name(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  return hash;
}

// What the numbers are for: the third requests' lengths have nothing to do with the third prefix's tokens.
enum class Purpose : std::uint64_t { kRequest = 1, kPrefix, kArrivals, kSelfCheck };

inline std::mt19937_64 random_for(std::uint64_t seed, Purpose purpose, std::uint64_t number = 0) {
  return std::mt19937_64(mix_bits(mix_bits(mix_bits(seed) + static_cast<std::uint64_t>(purpose)) + number));
}

}  // namespace folio::client
