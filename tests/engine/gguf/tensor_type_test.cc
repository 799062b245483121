#include "engine/gguf/tensor_type.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace folio {
namespace {

std::uint32_t bits(float f) {
  return std::bit_cast<std::uint32_t>(f);
}

std::vector<float> dequantized(TensorType type, const std::string& data, std::size_t count) {
  std::vector<float> out(count);
  dequantize(type, std::as_bytes(std::span(data)), out);
  return out;
}

void append_half(std::string& to, float value) {
  const std::uint16_t half = float_to_half(value);
  to.append(reinterpret_cast<const char*>(&half), 2);
}

TEST(TensorType, NamesOfReadAndRefusedIds) {
  ASSERT_NE(find_tensor_type(3), nullptr);
  EXPECT_STREQ(find_tensor_type(3)->name, "Q4_1");
  EXPECT_EQ(tensor_type_info(TensorType::kQ6_K).block_bytes, 210U);
  for (const std::uint32_t id : {4U, 5U, 9U, 10U, 24U, 31U, 36U, 39U, 40U, 255U, 999U, 0xFFFF'FFFFU}) {
    EXPECT_EQ(find_tensor_type(id), nullptr) << id;
  }
  EXPECT_EQ(tensor_type_name(4), "Q4_2, removed");
  EXPECT_EQ(tensor_type_name(20), "IQ4_NL");
  EXPECT_EQ(tensor_type_name(33), "Q4_0_8_8, removed");
  EXPECT_EQ(tensor_type_name(39), "MXFP4");
  EXPECT_EQ(tensor_type_name(42), "unknown");
  EXPECT_EQ(tensor_type_name(0xFFFF'FFFF), "unknown");
  for (std::uint32_t id = 0; id < 256; ++id) {
    if (const TensorTypeInfo* info = find_tensor_type(id)) {
      EXPECT_EQ(tensor_type_name(id), info->name);
    }
  }
}

TEST(Dequantize, EqualsTheReferenceToTheBit) {
  const auto index = nlohmann::json::parse(testing::read_file("tests/reference/quant_formats.json"));
  const std::string data = testing::read_file("tests/reference/quant_formats.bin");
  std::set<std::uint32_t> seen;
  for (const auto& entry : index.at("entries")) {
    const TensorTypeInfo* info = find_tensor_type(entry.at("ggml_type_id"));
    if (info == nullptr) continue;
    seen.insert(entry.at("ggml_type_id").get<std::uint32_t>());
    EXPECT_EQ(entry.at("type"), info->name);
    EXPECT_EQ(entry.at("block_elements"), info->block_elements);
    EXPECT_EQ(entry.at("block_bytes"), info->block_bytes);
    const std::size_t count = entry.at("elements");
    const auto got = dequantized(info->type, data.substr(entry.at("bytes_offset"), entry.at("bytes_length")), count);
    std::vector<float> wanted(count);
    std::memcpy(wanted.data(), data.data() + entry.at("values_offset").get<std::size_t>(), count * sizeof(float));
    for (std::size_t i = 0; i < count; ++i) {
      // Compared as floats: a zero's sign depends on the order of a product with a zero scale.
      ASSERT_EQ(got[i], wanted[i]) << info->name << ' ' << entry.at("vector") << ' ' << i;
    }
  }
  EXPECT_EQ(seen.size(), 10U) << "every format but F32 has entries";
}

TEST(Dequantize, F32IsACopyFromAnyAddress) {
  std::string data = "x";
  const float values[] = {1.5F, -0.0F, 3e-45F, std::numeric_limits<float>::infinity()};
  data.append(reinterpret_cast<const char*>(values), sizeof values);
  std::vector<float> out(4);
  dequantize(TensorType::kF32, std::as_bytes(std::span(data)).subspan(1), out);
  EXPECT_EQ(std::memcmp(out.data(), values, sizeof values), 0);
}

// A 4-bit block with a minimum has four bytes before its values, one without has two.
TEST(Dequantize, Q4_1HasAScaleAndAMinimum) {
  for (const float minimum : {-3.5F, 0.0F, 2.0F}) {
    for (const float scale : {0.25F, 0.0F, -1.0F, 0x1p-24F}) {
      std::string block;
      append_half(block, scale);
      append_half(block, minimum);
      for (int j = 0; j < 16; ++j) block += static_cast<char>(j | (15 - j) << 4);
      const auto out = dequantized(TensorType::kQ4_1, block, 32);
      for (int j = 0; j < 16; ++j) {
        EXPECT_EQ(out[static_cast<std::size_t>(j)], static_cast<float>(j) * scale + minimum);
        EXPECT_EQ(out[static_cast<std::size_t>(j + 16)], static_cast<float>(15 - j) * scale + minimum);
      }
    }
  }
}

TEST(Dequantize, InfiniteScaleDoesNotCrash) {
  std::string block;
  append_half(block, std::numeric_limits<float>::infinity());
  block.append(32, '\x01');
  EXPECT_EQ(dequantized(TensorType::kQ8_0, block, 32)[5], std::numeric_limits<float>::infinity());
}

TEST(DequantizeDeathTest, OnlyWholeBlocksThatAreThere) {
  std::vector<std::byte> data(40);
  std::vector<float> out(64);
  EXPECT_DEATH(dequantize(TensorType::kQ4_1, data, std::span(out).first(31)), "whole blocks");
  EXPECT_DEATH(dequantize(TensorType::kQ4_1, std::span(data).first(39), out), "holds the blocks");
  dequantize(TensorType::kQ4_1, data, out);
}

TEST(Half, EveryPatternComesBack) {
  for (std::uint32_t pattern = 0; pattern < 0x1'0000; ++pattern) {
    const auto half = static_cast<std::uint16_t>(pattern);
    const float value = half_to_float(half);
    const int exponent = static_cast<int>(pattern >> 10 & 31);
    const int fraction = static_cast<int>(pattern & 1023);
    if (exponent == 31 && fraction != 0) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_EQ(float_to_half(value), half | 0x200);
      continue;
    }
    double wanted = exponent == 0    ? std::ldexp(fraction, -24)
                    : exponent == 31 ? std::numeric_limits<double>::infinity()
                                     : std::ldexp(1024 + fraction, exponent - 25);
    if ((pattern & 0x8000) != 0) wanted = -wanted;
    ASSERT_EQ(static_cast<double>(value), wanted) << pattern;
    ASSERT_EQ(std::signbit(value), std::signbit(wanted)) << pattern;
    ASSERT_EQ(float_to_half(value), half) << pattern;
  }
}

// Between two neighbours the nearer wins, in the middle the even one.
TEST(Half, RoundsToNearestEven) {
  for (std::uint32_t pattern = 0; pattern < 0x7BFF; ++pattern) {
    const float low = half_to_float(static_cast<std::uint16_t>(pattern));
    const float high = half_to_float(static_cast<std::uint16_t>(pattern + 1));
    const float middle = low + (high - low) / 2;
    const std::uint32_t even = pattern % 2 == 0 ? pattern : pattern + 1;
    ASSERT_EQ(float_to_half(middle), even) << pattern;
    ASSERT_EQ(float_to_half(std::nextafter(middle, 0.0F)), pattern);
    ASSERT_EQ(float_to_half(std::nextafter(middle, high)), pattern + 1);
    ASSERT_EQ(float_to_half(-middle), even | 0x8000U);
  }
  EXPECT_EQ(float_to_half(65504.0F), 0x7BFF);
  EXPECT_EQ(float_to_half(std::nextafter(65520.0F, 0.0F)), 0x7BFF);
  EXPECT_EQ(float_to_half(65520.0F), 0x7C00);
  EXPECT_EQ(float_to_half(-3e38F), 0xFC00);
  EXPECT_EQ(float_to_half(1e-30F), 0);
  EXPECT_EQ(float_to_half(-1e-45F), 0x8000);
}

TEST(BFloat16, IsTheUpperHalf) {
  EXPECT_EQ(bits(bfloat16_to_float(0x3F80)), bits(1.0F));
  EXPECT_EQ(bits(bfloat16_to_float(0x8001)), 0x8001'0000U);
}

}  // namespace
}  // namespace folio
