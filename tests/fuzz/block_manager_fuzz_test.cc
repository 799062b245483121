// The fuzz target's own function on its corpus and on random bytes, in every build: so that it cannot rot.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace folio {
namespace {

TEST(BlockManagerFuzz, TheCorpusIsWithoutAFault) {
  int num_inputs = 0;
  for (const auto& file : std::filesystem::directory_iterator("tests/fuzz/corpus/block_manager")) {
    std::ifstream in(file.path(), std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
    SCOPED_TRACE(file.path().string());
    ASSERT_FALSE(bytes.empty());
    ASSERT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()), 0);
    ++num_inputs;
  }
  EXPECT_GE(num_inputs, 10);
}

TEST(BlockManagerFuzz, RandomBytesOfAnyLengthAreHistoriesWithoutAFault) {
  std::mt19937_64 random(1);
  for (std::size_t size = 0; size < 1000; ++size) {
    std::vector<std::uint8_t> bytes(size);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
    ASSERT_EQ(LLVMFuzzerTestOneInput(bytes.data(), bytes.size()), 0);
  }
}

}  // namespace
}  // namespace folio
