// Broken and crafted files: each gives one error that names the file, the thing and the place; none crashes, waits or
// takes memory beyond the file's own size. Runs under AddressSanitizer and UndefinedBehaviorSanitizer too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <stdexcept>

#include "engine/gguf/gguf_file.h"
#include "tests/engine/gguf/largest_allocation.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_folder.h"

namespace folio {
namespace {

using ::testing::AllOf;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::raw;
using testing::TensorRecord;

constexpr std::uint64_t kHuge = std::uint64_t{1} << 60;

class GgufHostile : public ::testing::Test {
 protected:
  std::string error_of_bytes(const std::string& bytes) const {
    try {
      const GgufFile file(folder_.write("bad.gguf", bytes));
    } catch (const std::runtime_error& error) {  // GgufError, or MappedFile's for an empty file
      EXPECT_THAT(error.what(), HasSubstr("bad.gguf: "));
      return error.what();
    }
    return "no error";
  }
  // A file that is good but for what `spoil` does to it.
  std::string error_of(const std::function<void(GgufWriter&)>& spoil) const {
    GgufWriter writer;
    writer.add_string("general.architecture", "llama");
    writer.add_uint32("llama.block_count", 2);
    writer.add_tensor("first", {32, 4}, TensorType::kQ4_1, std::string(80, 'x'));
    writer.add_tensor("second", {16}, TensorType::kF32, std::string(64, 'y'));
    EXPECT_EQ(error_of_bytes(writer.bytes()), "no error");
    spoil(writer);
    return error_of_bytes(writer.bytes());
  }
  std::string error_of_first(const std::function<void(TensorRecord&)>& spoil) const {
    return error_of([&](GgufWriter& writer) { spoil(writer.tensor("first")); });
  }
  std::string error_of_value(GgufType type, const std::string& value) const {
    return error_of([&](GgufWriter& writer) { writer.add("odd", type, value); });
  }
  testing::TempFolder folder_;
};

TEST_F(GgufHostile, NotAGgufFile) {
  EXPECT_THAT(error_of_bytes(""), HasSubstr("is empty"));
  EXPECT_THAT(error_of_bytes("GG"), HasSubstr("not a GGUF file: it begins with \"GG\""));
  EXPECT_THAT(error_of_bytes("\x7F\x45LF-and-more"), HasSubstr("not a GGUF file: it begins with \"\\x7fELF\""));
  EXPECT_THAT(error_of_bytes("hello, I am a text file"), HasSubstr("begins with \"hell\""));
  for (const char* magic : {"GGML", "lmgg", "tjgg", "fmgg", "algg"}) {
    EXPECT_THAT(error_of([&](GgufWriter& writer) { writer.magic = magic; }), HasSubstr("older GGML format")) << magic;
  }
  EXPECT_THAT(error_of_bytes("GGUF\3\0"), HasSubstr("the file ends inside its version"));
}

TEST_F(GgufHostile, Versions) {
  for (const std::uint32_t version : {0U, 1U, 4U, 5U, 0xFFFF'FFFFU}) {
    EXPECT_THAT(error_of([&](GgufWriter& writer) { writer.version = version; }),
                HasSubstr("has version " + std::to_string(version) + "; versions 2 and 3 are read"));
  }
  for (const std::uint32_t version : {2U, 3U}) {
    EXPECT_THAT(error_of([&](GgufWriter& writer) { writer.version = __builtin_bswap32(version); }),
                HasSubstr("big-endian"));
  }
}

TEST_F(GgufHostile, CountsAreHeldAgainstTheFile) {
  testing::forget_allocations();
  for (const std::uint64_t count : {std::uint64_t{10'000}, kHuge, ~std::uint64_t{0}}) {
    EXPECT_THAT(error_of([&](GgufWriter& writer) { writer.claimed_num_keys = count; }),
                AllOf(HasSubstr("number of metadata keys is " + std::to_string(count)), HasSubstr("(at byte 16)")));
    EXPECT_THAT(error_of([&](GgufWriter& writer) { writer.claimed_num_tensors = count; }),
                AllOf(HasSubstr("number of tensors is " + std::to_string(count)), HasSubstr("(at byte 8)")));
    EXPECT_THAT(error_of_value(GgufType::kString, raw(count)), HasSubstr("key \"odd\": string length is"));
    for (const GgufType type : {GgufType::kUint8, GgufType::kFloat64, GgufType::kString, GgufType::kArray}) {
      EXPECT_THAT(error_of_value(GgufType::kArray, GgufWriter::array(type, count, "")),
                  HasSubstr("key \"odd\": array's length is " + std::to_string(count)));
    }
    EXPECT_THAT(error_of_first([&](TensorRecord& first) { first.claimed_name_length = count; }),
                HasSubstr("name length is " + std::to_string(count)));
  }
  EXPECT_LT(testing::largest_allocation(), 64U << 10);
}

TEST_F(GgufHostile, Keys) {
  EXPECT_THAT(error_of([](GgufWriter& writer) { writer.add_bool("", true); }), HasSubstr("key 2 has no name"));
  EXPECT_THAT(error_of([](GgufWriter& writer) { writer.add_bool("llama.block_count", true); }),
              HasSubstr("key \"llama.block_count\": is there twice"));
  EXPECT_EQ(error_of([](GgufWriter& writer) { writer.add_bool(std::string(65'535, 'k'), true); }), "no error");
  EXPECT_THAT(error_of([](GgufWriter& writer) { writer.add_bool(std::string(65'536, 'k'), true); }),
              HasSubstr("key length is 65536, at most 65535"));
  EXPECT_THAT(error_of_value(static_cast<GgufType>(13), ""), HasSubstr("value type is unknown: 13"));
  EXPECT_THAT(error_of_value(GgufType::kBool, "\2"), HasSubstr("a bool is 0 or 1, not 2"));
  EXPECT_THAT(error_of_value(GgufType::kArray, GgufWriter::array(GgufType::kBool, 3, std::string_view("\0\1\2", 3))),
              HasSubstr("a bool is 0 or 1"));
  EXPECT_THAT(error_of_value(GgufType::kArray, GgufWriter::array(static_cast<GgufType>(99), 0, "")),
              HasSubstr("element type is unknown: 99"));
}

TEST_F(GgufHostile, BytesOfNamesCannotForgeAMessage) {
  const std::string error = error_of(
      [](GgufWriter& writer) { writer.add("a\nb\x1b[31m\xC3\xA9" + std::string(1000, 'z'), GgufType::kBool, "\2"); });
  EXPECT_THAT(error, HasSubstr("key \"a\\x0ab\\x1b[31m\\xc3\\xa9zzz"));
  EXPECT_LT(error.size(), 300U);
}

TEST_F(GgufHostile, NestingHasALimit) {
  std::string value = GgufWriter::array(GgufType::kUint8, 1, "x");
  for (int depth = 2; depth <= 4; ++depth) value = GgufWriter::array(GgufType::kArray, 1, value);
  EXPECT_EQ(error_of_value(GgufType::kArray, value), "no error");
  EXPECT_THAT(error_of_value(GgufType::kArray, GgufWriter::array(GgufType::kArray, 1, value)),
              HasSubstr("nested more than 4 deep"));
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += raw(GgufType::kArray) + raw(std::uint64_t{1});
  EXPECT_THAT(error_of_value(GgufType::kArray, deep), HasSubstr("nested more than 4 deep"));
}

TEST_F(GgufHostile, Alignments) {
  for (const std::uint32_t alignment : {0U, 1U, 3U, 4U, 33U, 48U, 1U << 21, 1U << 30, 0xFFFF'FFFFU}) {
    EXPECT_THAT(error_of([&](GgufWriter& writer) { writer.add_uint32("general.alignment", alignment); }),
                HasSubstr("key \"general.alignment\": is " + std::to_string(alignment) + "; a power of two"));
  }
  EXPECT_THAT(error_of([](GgufWriter& writer) { writer.add_string("general.alignment", "32"); }),
              HasSubstr("key \"general.alignment\": is the string \"32\", expected an integer"));
}

TEST_F(GgufHostile, TensorShapes) {
  for (const std::uint32_t num_dims : {0U, 5U, 9U, 0xFFFF'FFFFU}) {
    EXPECT_THAT(error_of_first([&](TensorRecord& first) { first.claimed_num_dims = num_dims; }),
                HasSubstr("tensor \"first\": has " + std::to_string(num_dims) + " dimensions"));
  }
  EXPECT_THAT(error_of_first([](TensorRecord& first) { first.shape = {32, 0}; }), HasSubstr("dimension 1 is 0"));
  EXPECT_THAT(error_of_first([](TensorRecord& first) { first.shape = {std::uint64_t{1} << 63}; }),
              HasSubstr("multiply to more than 2^63"));
  const std::uint64_t wraps = (std::uint64_t{1} << 42) + 32;
  EXPECT_THAT(error_of_first([&](TensorRecord& first) {
                first.shape = {wraps, wraps, wraps, wraps};
              }),
              HasSubstr("multiply to more than 2^63"));
  EXPECT_THAT(error_of_first([](TensorRecord& first) {
                first.shape = {32, std::uint64_t{1} << 57};
              }),
              HasSubstr("ends outside the file"));
  EXPECT_THAT(error_of_first([](TensorRecord& first) {
                first.type = static_cast<std::uint32_t>(TensorType::kF32);
                first.shape = {std::uint64_t{1} << 62};
              }),
              HasSubstr("more bytes than a file can"));
}

TEST_F(GgufHostile, TensorTypes) {
  const auto error_of_type = [&](std::uint32_t type) {
    return error_of_first([&](TensorRecord& first) { first.type = type; });
  };
  EXPECT_THAT(error_of_type(4), HasSubstr("tensor \"first\": has type 4 (Q4_2, removed), which folio does not read"));
  EXPECT_THAT(error_of_type(5), HasSubstr("type 5 (Q4_3, removed)"));
  EXPECT_THAT(error_of_type(31), HasSubstr("type 31 (Q4_0_4_4, removed)"));
  EXPECT_THAT(error_of_type(36), HasSubstr("type 36 (IQ4_NL_4_4, removed)"));
  EXPECT_THAT(error_of_type(39), HasSubstr("type 39 (MXFP4)"));
  EXPECT_THAT(error_of_type(10), HasSubstr("type 10 (Q2_K)"));
  EXPECT_THAT(error_of_type(255), HasSubstr("type 255 (unknown)"));
  EXPECT_THAT(error_of_type(0xFFFF'FFFF), HasSubstr("type 4294967295 (unknown)"));
  EXPECT_THAT(error_of_first([](TensorRecord& first) {
                first.shape = {576, 4};
                first.type = 12;
              }),
              HasSubstr("has rows of 576, no multiple of the 256 values in a block of its type Q4_K"));
}

TEST_F(GgufHostile, TensorPlaces) {
  const auto error_of_offset = [&](std::uint64_t offset) {
    return error_of_first([&](TensorRecord& first) { first.claimed_offset = offset; });
  };
  EXPECT_THAT(error_of_offset(std::uint64_t{1} << 63), HasSubstr("ends outside the file"));
  EXPECT_THAT(error_of_offset(~std::uint64_t{0} - 31), HasSubstr("ends outside the file"));
  EXPECT_THAT(error_of_offset(8), HasSubstr("its offset 8 is no multiple of the alignment 32"));
  EXPECT_THAT(error_of([](GgufWriter& writer) { writer.tensor("second").claimed_offset = 0; }),
              HasSubstr("lies over that of tensor"));
  EXPECT_THAT(error_of_offset(64), HasSubstr("tensor \"second\": its data lies over that of tensor \"first\""));
  EXPECT_THAT(
      error_of([](GgufWriter& writer) { writer.add_tensor("first", {8}, TensorType::kF32, std::string(32, 0)); }),
      HasSubstr("tensor \"first\": is there twice"));
  EXPECT_THAT(error_of([](GgufWriter& writer) { writer.tensor("second").name = ""; }),
              HasSubstr("tensor: number 1 has no name"));
  EXPECT_THAT(error_of([](GgufWriter& writer) { writer.tensor("second").name = std::string(129, 'n'); }),
              HasSubstr("name length is 129, at most 128"));
}

// A model file on disk that is spoilt and mended in place.
class GgufSpoilt : public ::testing::Test {
 protected:
  GgufSpoilt() : whole_(testing::read_file("tests/reference/tiny_models/llama-mha.gguf")) {
    path_ = folder_.write("model.gguf", whole_);
    const GgufFile good(path_);
    // The first key's characters stand after magic, version, two counts and their own length.
    const char* base = good.keys().front().data() - 32;
    data_start_ = static_cast<std::size_t>(reinterpret_cast<const char*>(good.tensors().front().data.data()) - base);
  }
  // True when the file opens; then everything in it is looked at. Only a runtime_error may come out.
  bool opens() const {
    try {
      const GgufFile file(path_);
      look_at(file);
      return true;
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), HasSubstr("model.gguf: "));
      return false;
    }
  }
  static void look_at(const GgufFile& file) {
    for (const GgufTensor& tensor : file.tensors()) {
      const TensorTypeInfo& info = tensor_type_info(tensor.type);
      ASSERT_EQ(tensor.row_length() % info.block_elements, 0U);
      std::vector<float> block(info.block_elements);
      dequantize(tensor.type, tensor.data.first(info.block_bytes), block);
      dequantize(tensor.type, tensor.data.last(info.block_bytes), block);
      ASSERT_EQ(file.find_tensor(tensor.name), &tensor);
    }
    for (const std::string_view key : file.keys()) {
      ASSERT_TRUE(file.has(key));
      try {
        const GgufArray& array = file.get_array(key);
        if (array.size == 0) continue;
        array.int_at(array.size - 1);
        array.float_at(array.size - 1);
        ASSERT_EQ(array.strings.size(), array.element_type == GgufType::kString ? array.size : 0);
      } catch (const GgufError&) {  // not an array
      }
    }
  }
  testing::TempFolder folder_;
  std::string whole_;
  std::string path_;
  std::size_t data_start_ = 0;
};

// Every length of the header, and some inside the data.
TEST_F(GgufSpoilt, TruncatedAnywhere) {
  ASSERT_TRUE(opens());
  const auto cut = [&](std::size_t size) {
    std::filesystem::resize_file(path_, size);
    EXPECT_FALSE(opens()) << size;
  };
  cut(whole_.size() - 1);
  for (std::size_t size = whole_.size() - 1000; size > data_start_; size -= std::min<std::size_t>(size, 4099))
    cut(size);
  for (std::size_t size = data_start_ + 1; size-- > 0;) cut(size);
}

// Bytes and bits changed in the header, with a fixed seed. Most changes break nothing (a letter of a token).
TEST_F(GgufSpoilt, FlippedAnywhere) {
  std::mt19937_64 random(20'000);
  std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
  const auto put = [&](std::size_t at, char byte) {
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte);
    file.flush();
  };
  int opened = 0;
  constexpr int kFlips = 20'000;
  for (int flip = 0; flip < kFlips; ++flip) {
    const std::size_t at = random() % data_start_;
    const auto old = static_cast<unsigned char>(whole_[at]);
    put(at, static_cast<char>(flip % 2 == 0 ? random() : old ^ (1U << random() % 8)));
    opened += opens() ? 1 : 0;
    put(at, static_cast<char>(old));
  }
  EXPECT_GT(opened, kFlips / 100);
  EXPECT_LT(opened, kFlips * 99 / 100);
}

}  // namespace
}  // namespace folio
