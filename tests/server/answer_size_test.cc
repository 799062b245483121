#include "server/answer_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace folio {
namespace {

using ::testing::HasSubstr;

v1::GenerateChunk chunk_of(std::size_t num_bytes) {
  v1::GenerateChunk chunk;
  chunk.add_outputs()->set_text(std::string(num_bytes, 'x'));
  return chunk;
}

TEST(AnswerSize, TheLimitIsInTheMessage) {
  EXPECT_FALSE(check_answer_size(kMaxAnswerBytes, ""));
  const auto refused = check_answer_size(kMaxAnswerBytes + 1, "do less");
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(refused->retry_after_ms, 0) << "the same again would be refused again";
  EXPECT_THAT(refused->message, HasSubstr("16777216 bytes"));
  EXPECT_THAT(refused->message, HasSubstr("do less"));
}

// What counts is the whole, not the chunks, each of which has numbers of its own.
TEST(AnswerSize, ManySmallChunksCountWhatTheyJoinTo) {
  JoinedAnswer answer;
  const v1::GenerateChunk one = chunk_of(1);
  std::size_t sum = 0;
  for (int i = 0; i < 4'000'000; ++i) {
    ASSERT_FALSE(answer.add(one)) << i;
    sum += one.ByteSizeLong();
  }
  EXPECT_GT(sum, kMaxAnswerBytes);
  EXPECT_LT(answer.whole().ByteSizeLong(), kMaxAnswerBytes);
}

TEST(AnswerSize, TheChunkThatIsTooMuchIsRefused) {
  JoinedAnswer answer;
  const std::size_t part = 1 << 20;
  for (int i = 0; i < 15; ++i) ASSERT_FALSE(answer.add(chunk_of(part)));
  EXPECT_FALSE(answer.add(chunk_of(part - 1000)));
  EXPECT_THAT(answer.add(chunk_of(1000))->message, HasSubstr("stream it"));
}

}  // namespace
}  // namespace folio
