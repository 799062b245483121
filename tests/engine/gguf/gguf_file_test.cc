#include "engine/gguf/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>

#include "tests/support/gguf_writer.h"
#include "tests/support/temp_folder.h"

namespace folio {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::raw;

class GgufFileTest : public ::testing::Test {
 protected:
  GgufFile open(const GgufWriter& writer) const { return GgufFile(folder_.write("t.gguf", writer.bytes())); }
  static std::string error_of(const std::function<void()>& body) {
    try {
      body();
    } catch (const GgufError& error) {
      return error.what();
    }
    return "no error";
  }
  testing::TempFolder folder_;
};

TEST_F(GgufFileTest, EveryMetadataType) {
  GgufWriter writer;
  writer.add("u8", GgufType::kUint8, raw(std::uint8_t{200}));
  writer.add("i8", GgufType::kInt8, raw(std::int8_t{-100}));
  writer.add("u16", GgufType::kUint16, raw(std::uint16_t{60'000}));
  writer.add("i16", GgufType::kInt16, raw(std::int16_t{-30'000}));
  writer.add_uint32("u32", 4'000'000'000);
  writer.add_int32("i32", -2'000'000'000);
  writer.add_uint64("u64", std::numeric_limits<std::uint64_t>::max());
  writer.add("i64", GgufType::kInt64, raw(std::numeric_limits<std::int64_t>::min()));
  writer.add_float32("f32", 0.1F);
  writer.add("f64", GgufType::kFloat64, raw(0.1));
  writer.add_bool("yes", true);
  writer.add_string("text", std::string_view("a\0b", 3));
  const GgufFile file = open(writer);
  EXPECT_EQ(file.version(), 3U);
  EXPECT_EQ(file.keys().size(), 12U);
  EXPECT_EQ(file.keys()[1], "i8");
  EXPECT_TRUE(file.has("u8"));
  EXPECT_FALSE(file.has("u9"));
  EXPECT_EQ(file.get_uint("u8"), 200U);
  EXPECT_EQ(file.find_int("i8"), -100);
  EXPECT_EQ(file.find_int("u16"), 60'000);
  EXPECT_EQ(file.find_int("i16"), -30'000);
  EXPECT_EQ(file.get_uint("u32"), 4'000'000'000U);
  EXPECT_EQ(file.find_int("i32"), -2'000'000'000);
  EXPECT_EQ(file.get_uint("u64"), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(file.find_int("i64"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(file.get_float("f32"), static_cast<double>(0.1F));
  EXPECT_EQ(file.get_float("f64"), 0.1);
  EXPECT_EQ(file.get_float("i16"), -30'000.0);
  EXPECT_EQ(file.find_bool("yes"), true);
  EXPECT_EQ(file.get_string("text"), std::string_view("a\0b", 3));
}

TEST_F(GgufFileTest, ArraysOfNumbers) {
  GgufWriter writer;
  writer.add("pad", GgufType::kUint8, raw(std::uint8_t{0}));  // so that the numbers below stand unaligned
  const std::int32_t ints[] = {-1, 0, 7};
  writer.add_int32_array("ints", ints);
  const float floats[] = {0.5F, -2.0F};
  writer.add_float32_array("floats", floats);
  writer.add("bools", GgufType::kArray, GgufWriter::array(GgufType::kBool, 2, std::string_view("\1\0", 2)));
  writer.add("big", GgufType::kArray,
             GgufWriter::array(GgufType::kUint64, 2, raw(std::uint64_t{5}) + raw(~std::uint64_t{0})));
  writer.add("bytes", GgufType::kArray, GgufWriter::array(GgufType::kInt8, 1, "\xFE"));
  writer.add("shorts", GgufType::kArray, GgufWriter::array(GgufType::kUint16, 1, "\xFE\xFF"));
  writer.add("none", GgufType::kArray, GgufWriter::array(GgufType::kFloat64, 0, ""));
  const GgufFile file = open(writer);
  const GgufArray& array = file.get_array("ints");
  EXPECT_EQ(array.size, 3U);
  EXPECT_EQ(array.int_at(0), -1);
  EXPECT_EQ(array.int_at(2), 7);
  EXPECT_EQ(array.float_at(2), 7.0);
  EXPECT_EQ(array.int_at(3), std::nullopt);
  EXPECT_EQ(file.get_array("floats").float_at(1), -2.0);
  EXPECT_EQ(file.get_array("floats").int_at(1), std::nullopt);
  EXPECT_EQ(file.get_array("floats").float_at(2), std::nullopt);
  EXPECT_EQ(file.get_array("bools").int_at(0), 1);
  EXPECT_EQ(file.get_array("bools").float_at(0), std::nullopt);
  EXPECT_EQ(file.get_array("big").int_at(0), 5);
  EXPECT_EQ(file.get_array("big").int_at(1), std::nullopt);
  EXPECT_EQ(file.get_array("big").float_at(1), 0x1p64);
  EXPECT_EQ(file.get_array("bytes").int_at(0), -2);
  EXPECT_EQ(file.get_array("shorts").int_at(0), 0xFFFE);
  EXPECT_EQ(file.get_array("none").float_at(0), std::nullopt);
}

TEST_F(GgufFileTest, ArraysOfStringsAndNestedArrays) {
  GgufWriter writer;
  const std::string words[] = {"one", "", "\xE2\x96\x81"};
  writer.add_string_array("words", words);
  const std::string inner = GgufWriter::array(GgufType::kString, 1, GgufWriter::string("x")) +
                            GgufWriter::array(GgufType::kUint16, 2, "abcd");
  writer.add("nested", GgufType::kArray, GgufWriter::array(GgufType::kArray, 2, inner));
  writer.add_bool("after", true);
  const GgufFile file = open(writer);
  EXPECT_THAT(file.get_array("words").strings, ElementsAre("one", "", "\xE2\x96\x81"));
  const GgufArray& nested = file.get_array("nested");
  EXPECT_EQ(nested.element_type, GgufType::kArray);
  EXPECT_EQ(nested.size, 2U);
  EXPECT_EQ(nested.bytes.size(), inner.size());
  EXPECT_EQ(std::memcmp(nested.bytes.data(), inner.data(), inner.size()), 0);
  EXPECT_EQ(nested.int_at(0), std::nullopt);
  EXPECT_EQ(file.find_bool("after"), true);
}

TEST_F(GgufFileTest, WrongTypesAreNamed) {
  GgufWriter writer;
  writer.add_string("text", "ab\n");
  writer.add_int32("negative", -1);
  writer.add_uint64("large", ~std::uint64_t{0});
  writer.add_float32("float", 1.5F);
  writer.add_int32_array("array", {});
  const GgufFile file = open(writer);
  EXPECT_THAT(error_of([&] { file.find_uint("text"); }),
              AllOf(HasSubstr("t.gguf"), HasSubstr("key \"text\": is the string \"ab\\x0a\", expected an integer")));
  EXPECT_THAT(error_of([&] { file.find_uint("negative"); }), HasSubstr("is -1, expected an integer of at least 0"));
  EXPECT_THAT(error_of([&] { file.find_int("large"); }), HasSubstr("is 18446744073709551615, expected a signed"));
  EXPECT_THAT(error_of([&] { file.find_uint("float"); }), HasSubstr("is the float 1.5"));
  EXPECT_THAT(error_of([&] { file.find_bool("large"); }), HasSubstr("expected a bool"));
  EXPECT_THAT(error_of([&] { file.find_float("text"); }), HasSubstr("expected a number"));
  EXPECT_THAT(error_of([&] { file.find_string("float"); }), HasSubstr("expected a string"));
  EXPECT_THAT(error_of([&] { file.find_string("array"); }), HasSubstr("is an array of 0 int32 values"));
  EXPECT_THAT(error_of([&] { file.find_array("text"); }), HasSubstr("expected an array"));
}

TEST_F(GgufFileTest, AbsentKeysAndTensors) {
  const GgufFile file = open(GgufWriter());
  EXPECT_EQ(file.find_uint("k"), std::nullopt);
  EXPECT_EQ(file.find_int("k"), std::nullopt);
  EXPECT_EQ(file.find_float("k"), std::nullopt);
  EXPECT_EQ(file.find_bool("k"), std::nullopt);
  EXPECT_EQ(file.find_string("k"), std::nullopt);
  EXPECT_EQ(file.find_array("k"), nullptr);
  EXPECT_EQ(file.find_tensor("k"), nullptr);
  EXPECT_THAT(error_of([&] { file.get_uint("k"); }), HasSubstr("key \"k\" is missing"));
  EXPECT_THAT(error_of([&] { file.get_float("k"); }), HasSubstr("missing"));
  EXPECT_THAT(error_of([&] { file.get_string("k"); }), HasSubstr("missing"));
  EXPECT_THAT(error_of([&] { file.get_array("k"); }), HasSubstr("missing"));
  EXPECT_THAT(error_of([&] { file.get_tensor("blk.7.attn_k.weight"); }),
              HasSubstr("missing tensor \"blk.7.attn_k.weight\""));
}

TEST_F(GgufFileTest, TensorsOfMixedTypes) {
  GgufWriter writer;
  const float values[] = {1, 2, 3, 4, 5, 6};
  writer.add_f32_tensor("f", {3, 2}, values);
  writer.add_tensor("q", {64, 1, 2}, TensorType::kQ5_0, std::string(88, 'q'));
  writer.add_tensor("four", {2, 1, 1, 1}, TensorType::kF16, "abcd");
  const GgufFile file = open(writer);
  ASSERT_EQ(file.tensors().size(), 3U);
  const GgufTensor& f = file.get_tensor("f");
  EXPECT_THAT(f.shape, ElementsAre(3U, 2U));
  EXPECT_EQ(f.row_length(), 3U);
  EXPECT_EQ(f.num_rows(), 2U);
  EXPECT_EQ(std::memcmp(f.data.data(), values, sizeof values), 0);
  EXPECT_EQ(file.get_tensor("q").num_rows(), 2U);
  EXPECT_EQ(file.get_tensor("q").data.size(), 88U);
  EXPECT_EQ(file.find_tensor("four")->type, TensorType::kF16);
  file.give_back(f);
  EXPECT_EQ(std::memcmp(f.data.data(), values, sizeof values), 0);
}

TEST_F(GgufFileTest, AlignmentAndVersion2) {
  for (const std::uint32_t alignment : {8U, 64U, 4096U}) {
    GgufWriter writer;
    writer.version = 2;
    writer.alignment = alignment;
    writer.add_uint32("general.alignment", alignment);
    writer.add_tensor("a", {1}, TensorType::kF16, "aa");
    writer.add_tensor("b", {1}, TensorType::kF16, "bb");
    const GgufFile file = open(writer);
    EXPECT_EQ(file.version(), 2U);
    EXPECT_EQ(file.alignment(), alignment);
    EXPECT_EQ(std::memcmp(file.get_tensor("b").data.data(), "bb", 2), 0);
  }
}

TEST_F(GgufFileTest, TinyModelsOpen) {
  for (const char* name : {"llama-mha", "llama-gqa-rope3", "qwen3", "gemma3"}) {
    const GgufFile file(std::string("tests/reference/tiny_models/") + name + ".gguf");
    EXPECT_FALSE(file.tensors().empty());
    EXPECT_EQ(file.get_tensor("token_embd.weight").num_rows(), file.get_array("tokenizer.ggml.tokens").strings.size());
  }
}

TEST_F(GgufFileTest, TheLargestVocabularyOpensQuickly) {
  const std::string path = "models/gemma-3-270m-q4_k_m.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not here: scripts/setup --model gemma3 gets it";
  const auto start = std::chrono::steady_clock::now();
  const GgufFile file(path);
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(file.get_array("tokenizer.ggml.tokens").strings.size(), 262'144U);
  EXPECT_EQ(file.get_string("general.architecture"), "gemma3");
  EXPECT_LT(took, std::chrono::seconds(2)) << "it takes some 10 ms; more only where the disk or the machine is busy";
}

}  // namespace
}  // namespace folio
