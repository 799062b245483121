#include "bench/both_ways.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/model/load_model.h"

namespace folio::bench {
namespace {

// Windows, grouped heads, as many heads of K and V as of queries, norms of heads; contexts below and above a partition
// of attention (256 keys), whole blocks and parts of one; every type of K and V, and more threads than one.
TEST(BothWays, SameIdsAndBits) {
  std::mt19937 random(3);
  for (const char* name : {"llama-mha", "llama-gqa-rope3", "qwen3", "gemma3"}) {
    const GgufFile file(std::string("tests/reference/tiny_models/") + name + ".gguf");
    for (const char* kv_dtype : {"f32", "f16", "bf16", "int8"}) {
      const LoadedModel loaded =
          load_model(file, {.num_threads = 2, .kv_dtype = kv_dtype, .block_size = 32, .kv_blocks = 12});
      for (const std::size_t length : {1U, 2U, 31U, 32U, 100U, 255U, 300U}) {
        std::vector<TokenId> prompt(length);
        for (TokenId& id : prompt) id = static_cast<TokenId>(random() % static_cast<unsigned>(loaded.info.vocab_size));
        const Generated with = generate_with_cache(*loaded.model, prompt, 12);
        const Generated without = generate_without_cache(*loaded.model, prompt, 12);
        EXPECT_EQ(difference(with, without), "") << name << ", " << kv_dtype << ", " << length;
        ASSERT_EQ(with.ids.size(), 12U);
        ASSERT_EQ(with.pass_ms.size(), 12U);
        EXPECT_NE(with.logprobs.front(), with.logprobs.back());
      }
    }
  }
}

TEST(BothWays, ADifferenceIsSeen) {
  const Generated a{{1, 2, 3}, {-0.5F, -1.5F, -2.5F}, {}};
  Generated b = a;
  EXPECT_EQ(difference(a, b), "");
  b.logprobs[2] = std::nextafter(b.logprobs[2], 0.0F);
  EXPECT_EQ(difference(a, b).substr(0, 8), "token 2:");
  b.ids[1] = 7;
  EXPECT_EQ(difference(a, b), "token 1: id 2 and 7");
  EXPECT_EQ(difference(a, {{1}, {-0.5F}, {}}), "token 1: only one way gave it");
}

}  // namespace
}  // namespace folio::bench
