#include "server/chunk_renderer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/server/byte_tokenizer.h"

namespace folio {
namespace {

using ::testing::ElementsAre;

const std::string kReplacement = "\xEF\xBF\xBD";

SampledToken sampled(TokenId id) {
  SampledToken token;
  token.id = id;
  return token;
}

OutputDelta delta(std::int32_t index, std::vector<TokenId> ids, std::string bytes,
                  FinishReason finish = FinishReason::kNone) {
  OutputDelta out;
  out.index = index;
  for (const TokenId id : ids) out.tokens.push_back(sampled(id));
  out.bytes = std::move(bytes);
  out.finish = finish;
  return out;
}

class ChunkRendererTest : public ::testing::Test {
 protected:
  ChunkRenderer make(std::int32_t n = 1, bool logprobs = false) {
    return {tokenizer_, {.id = 7, .seed = 42, .n = n, .logprobs = logprobs, .stop = {"END", "##"}}};
  }
  static TokenStream::Taken taken(OutputDelta output) {
    TokenStream::Taken out;
    out.outputs.push_back(std::move(output));
    return out;
  }

  test::ByteTokenizer tokenizer_;
  v1::GenerateChunk chunk_;
};

TEST_F(ChunkRendererTest, TextWaitsForWholeCharactersButIdsDoNot) {
  ChunkRenderer renderer = make();
  const struct {
    TokenId id;
    const char* bytes;
    const char* text;
  } steps[] = {{test::kHalfEmoji, "\xF0\x9F", ""}, {0xA6, "\xA6", ""}, {0x99, "\x99", "\xF0\x9F\xA6\x99"}};
  for (const auto& step : steps) {
    renderer.add(taken(delta(0, {step.id}, step.bytes)));
    ASSERT_TRUE(renderer.next(chunk_));
    EXPECT_THAT(chunk_.outputs(0).tokens(), ElementsAre(step.id));
    EXPECT_EQ(chunk_.outputs(0).text(), step.text);
    EXPECT_FALSE(renderer.next(chunk_));
  }
}

TEST_F(ChunkRendererTest, DanglingBytesBecomeOneReplacementAtTheEnd) {
  ChunkRenderer renderer = make();
  renderer.add(taken(delta(0, {test::kHalfEmoji}, "\xF0\x9F", FinishReason::kLength)));
  ASSERT_TRUE(renderer.next(chunk_));
  EXPECT_EQ(chunk_.outputs(0).text(), kReplacement);
  EXPECT_EQ(chunk_.outputs(0).finish_reason(), v1::FINISH_REASON_LENGTH);
}

TEST_F(ChunkRendererTest, IndicesHoldTheirOwnBytes) {
  ChunkRenderer renderer = make(2);
  renderer.add(taken(delta(0, {test::kHalfEmoji}, "\xF0\x9F")));
  renderer.add(taken(delta(1, {'x'}, "x")));
  renderer.add(taken(delta(0, {0xA6, 0x99}, "\xA6\x99")));
  ASSERT_TRUE(renderer.next(chunk_));
  ASSERT_EQ(chunk_.outputs_size(), 2);
  EXPECT_EQ(chunk_.outputs(0).text(), "\xF0\x9F\xA6\x99");
  EXPECT_EQ(chunk_.outputs(1).text(), "x");
}

TEST_F(ChunkRendererTest, PromptInfoFirstUsageAndSeedLast) {
  ChunkRenderer renderer = make();
  TokenStream::Taken first;
  first.prompt = Usage{.prompt_tokens = 5, .cached_tokens = 2, .output_tokens = 0};
  renderer.add(std::move(first));
  ASSERT_TRUE(renderer.next(chunk_));
  EXPECT_EQ(chunk_.prompt_info().id(), 7U);
  EXPECT_EQ(chunk_.prompt_info().num_tokens(), 5);
  EXPECT_EQ(chunk_.prompt_info().cached_tokens(), 2);
  EXPECT_FALSE(chunk_.has_usage());

  TokenStream::Taken last = taken(delta(0, {test::kEnd}, "", FinishReason::kStopToken));
  last.outputs[0].stop_token = test::kEnd;
  last.end =
      StreamEnd{.usage = {.prompt_tokens = 5, .cached_tokens = 2, .output_tokens = 1}, .timings = {}, .error = {}};
  renderer.add(std::move(last));
  ASSERT_TRUE(renderer.next(chunk_));
  EXPECT_FALSE(chunk_.has_prompt_info());
  EXPECT_EQ(chunk_.outputs(0).stop_token(), test::kEnd);
  EXPECT_EQ(chunk_.usage().output_tokens(), 1);
  EXPECT_EQ(chunk_.seed(), 42U);
  EXPECT_FALSE(renderer.next(chunk_));
  EXPECT_TRUE(renderer.ended());
  EXPECT_FALSE(renderer.error());
}

TEST_F(ChunkRendererTest, TheStopStringThatMatchedIsNamed) {
  ChunkRenderer renderer = make();
  TokenStream::Taken last = taken(delta(0, {'#'}, "", FinishReason::kStopString));
  last.outputs[0].stop_index = 1;
  renderer.add(std::move(last));
  ASSERT_TRUE(renderer.next(chunk_));
  EXPECT_EQ(chunk_.outputs(0).stop_string(), "##");
}

TEST_F(ChunkRendererTest, AnErrorBeforeAnythingGivesNoChunk) {
  ChunkRenderer renderer = make();
  TokenStream::Taken end;
  end.end = StreamEnd{.usage = {}, .timings = {}, .error = Error{ErrorCode::kDeadlineExceeded, "late"}};
  renderer.add(std::move(end));
  EXPECT_FALSE(renderer.next(chunk_));
  ASSERT_TRUE(renderer.ended());
  EXPECT_EQ(renderer.error()->code, ErrorCode::kDeadlineExceeded);
}

TEST_F(ChunkRendererTest, LogprobsCarryTheTokensOwnBytes) {
  ChunkRenderer renderer = make(1, true);
  OutputDelta output = delta(0, {test::kHalfEmoji}, "\xF0\x9F");
  output.tokens[0].logprob = -0.5F;
  output.tokens[0].top = {{'x', -0.25F}, {test::kHalfEmoji, -0.5F}};
  renderer.add(taken(std::move(output)));
  ASSERT_TRUE(renderer.next(chunk_));
  const v1::TokenLogprob& entry = chunk_.outputs(0).logprobs(0);
  EXPECT_EQ(entry.piece(), "\xF0\x9F");
  EXPECT_EQ(entry.logprob(), -0.5F);
  ASSERT_EQ(entry.top_size(), 2);
  EXPECT_EQ(entry.top(0).piece(), "x");
}

// A reader that slept finds more than a message may hold: several chunks, nothing lost, finish reason in the last.
TEST_F(ChunkRendererTest, ManyTokensBecomeBoundedChunks) {
  ChunkRenderer renderer = make(1, true);
  std::vector<TokenId> ids;
  std::string bytes;
  for (int i = 0; i < 8000; ++i) {
    ids.push_back(0xC3 + i % 2 * (0xA9 - 0xC3));  // the two bytes of U+00E9 in turn
    bytes += static_cast<char>(ids.back());
  }
  OutputDelta output = delta(0, ids, bytes, FinishReason::kLength);
  for (SampledToken& token : output.tokens) token.top.assign(20, {test::kHello, -1.0F});
  TokenStream::Taken all = taken(std::move(output));
  all.end = StreamEnd{};
  renderer.add(std::move(all));
  v1::GenerateResponse whole;
  int num_chunks = 0;
  while (renderer.next(chunk_)) {
    EXPECT_LT(chunk_.ByteSizeLong(), std::size_t{256} << 10U);
    EXPECT_EQ(whole.outputs_size() > 0 ? whole.outputs(0).finish_reason() : v1::FINISH_REASON_UNSPECIFIED,
              v1::FINISH_REASON_UNSPECIFIED);
    join_chunk(chunk_, whole);
    ++num_chunks;
  }
  EXPECT_GT(num_chunks, 4);
  EXPECT_TRUE(renderer.ended());
  EXPECT_EQ(whole.outputs(0).tokens_size(), 8000);
  EXPECT_EQ(whole.outputs(0).logprobs_size(), 8000);
  EXPECT_EQ(whole.outputs(0).text(), bytes);
  EXPECT_EQ(whole.outputs(0).finish_reason(), v1::FINISH_REASON_LENGTH);
}

}  // namespace
}  // namespace folio
