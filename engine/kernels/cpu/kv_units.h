// Reading the KV cache, one text for all levels; included after a level's simd_*.h. A unit is one vector load: 16 lanes
// (tokens of K, dims of V) of kPack elements that lie side by side (dims of K, tokens of V; see kv_cache.h). part<J>
// gives element J of every lane as floats, exactly; an int8 element is its integer, its scale is applied by the caller.
#pragma once

namespace folio::cpu {
namespace {

template <class T>  // float, Half
struct KvUnit {
  static constexpr int kPack = 1;
  static constexpr bool kScaled = false;
  Vec elements;
  static inline KvUnit keys(const T* p) { return {load(p)}; }
  static inline KvUnit values(const T* p) { return {load(p)}; }
  template <int J>
  inline Vec part() const {
    return elements;
  }
};

template <>
struct KvUnit<BFloat16> {
  static constexpr int kPack = 2;
  static constexpr bool kScaled = false;
  Bytes bytes;
  static inline KvUnit keys(const BFloat16* p) { return {load_bytes(reinterpret_cast<const std::uint8_t*>(p))}; }
  static inline KvUnit values(const BFloat16* p) { return keys(p); }
  template <int J>
  inline Vec part() const {
    return bf16_of<J>(bytes);
  }
};

template <>
struct KvUnit<std::int8_t> {
  static constexpr int kPack = 4;
  static constexpr bool kScaled = true;
  Bytes bytes;
  static inline KvUnit keys(const std::int8_t* p) { return {flip_top_bits(values(p).bytes)}; }  // stored as q + 128
  static inline KvUnit values(const std::int8_t* p) { return {load_bytes(reinterpret_cast<const std::uint8_t*>(p))}; }
  template <int J>
  inline Vec part() const {
    return int8_of<J>(bytes);
  }
};

}  // namespace
}  // namespace folio::cpu
