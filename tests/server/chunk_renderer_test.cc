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

// ---- the prompt

TokenStream::Taken prompt_of(std::size_t num_tokens, std::size_t num_top) {
  TokenStream::Taken out;
  out.prompt = Usage{.prompt_tokens = static_cast<std::int64_t>(num_tokens)};
  for (std::size_t i = 0; i < num_tokens; ++i) {
    out.prompt_logprobs.push_back({i % 2 == 0 ? test::kHello : test::kHalfEmoji, i == 0 ? 0.0F : -0.25F, {}});
    if (i > 0) out.prompt_logprobs.back().top.assign(num_top, {test::kHello, -0.25F});
  }
  return out;
}

TEST_F(ChunkRendererTest, TheFirstTokenOfAPromptHasNoLogprob) {
  ChunkRenderer renderer = make();
  renderer.add(prompt_of(3, 1));
  ASSERT_TRUE(renderer.next(chunk_));
  ASSERT_EQ(chunk_.prompt_info().logprobs_size(), 3);
  EXPECT_EQ(chunk_.prompt_info().logprobs(0).piece(), "hello");
  EXPECT_FALSE(chunk_.prompt_info().logprobs(0).has_logprob());
  EXPECT_EQ(chunk_.prompt_info().logprobs(0).top_size(), 0);
  EXPECT_TRUE(chunk_.prompt_info().logprobs(1).has_logprob());
  EXPECT_EQ(chunk_.prompt_info().logprobs(2).logprob(), -0.25F);
  EXPECT_EQ(chunk_.prompt_info().logprobs(2).top(0).token(), test::kHello);
}

// Steps tell it in parts, a reader may be slow: bounded chunks, nothing twice, all of it before the first output.
TEST_F(ChunkRendererTest, APromptsLogprobsComeInBoundedChunksBeforeTheOutput) {
  ChunkRenderer renderer = make();
  constexpr std::size_t kNumTokens = 6000;
  TokenStream::Taken all = prompt_of(kNumTokens, 20);
  v1::GenerateResponse whole;
  int num_chunks = 0;
  const auto read = [&] {
    while (renderer.next(chunk_)) {
      EXPECT_LT(chunk_.ByteSizeLong(), std::size_t{1} << 20U);
      EXPECT_TRUE(!chunk_.has_prompt_info() || whole.outputs_size() == 0);
      if (chunk_.has_prompt_info()) {
        EXPECT_EQ(chunk_.prompt_info().id(), 7U);
        EXPECT_EQ(chunk_.prompt_info().num_tokens(), static_cast<std::int64_t>(kNumTokens));
      }
      join_chunk(chunk_, whole);
      ++num_chunks;
    }
  };
  TokenStream::Taken first;
  first.prompt = all.prompt;
  for (std::size_t i = 0; i < 500; ++i) first.prompt_logprobs.push_back(all.prompt_logprobs[i]);
  renderer.add(std::move(first));
  read();
  EXPECT_EQ(whole.prompt_info().logprobs_size(), 500);
  EXPECT_FALSE(renderer.has_more());
  TokenStream::Taken rest = taken(delta(0, {'x'}, "x", FinishReason::kLength));
  for (std::size_t i = 500; i < kNumTokens; ++i) rest.prompt_logprobs.push_back(all.prompt_logprobs[i]);
  rest.end = StreamEnd{};
  renderer.add(std::move(rest));
  EXPECT_TRUE(renderer.has_more());
  read();
  EXPECT_TRUE(renderer.ended());
  EXPECT_GT(num_chunks, 5);
  ASSERT_EQ(whole.prompt_info().logprobs_size(), static_cast<int>(kNumTokens));
  EXPECT_EQ(whole.prompt_info().num_tokens(), static_cast<std::int64_t>(kNumTokens));
  for (int i = 0; i < whole.prompt_info().logprobs_size(); ++i) {
    ASSERT_EQ(whole.prompt_info().logprobs(i).has_logprob(), i > 0);
    ASSERT_EQ(whole.prompt_info().logprobs(i).token(), i % 2 == 0 ? test::kHello : test::kHalfEmoji);
  }
  EXPECT_EQ(whole.outputs(0).text(), "x");
}

TEST_F(ChunkRendererTest, TheEchoIsInFrontOfEachIndex) {
  ChunkRenderer renderer(tokenizer_, {.id = 7, .seed = 42, .n = 2, .prompt = "say \xF0\x9F", .echo = true});
  renderer.add(taken(delta(0, {0xA6, 0x99}, "\xA6\x99!")));
  ASSERT_TRUE(renderer.next(chunk_));
  EXPECT_EQ(chunk_.outputs(0).text(), "say \xF0\x9F\xA6\x99!");
  EXPECT_THAT(chunk_.outputs(0).tokens(), ElementsAre(0xA6, 0x99));
  renderer.add(taken(delta(1, {'x'}, "x")));
  renderer.add(taken(delta(0, {'y'}, "y", FinishReason::kLength)));
  renderer.add(taken(delta(1, {}, "", FinishReason::kCancelled)));
  ASSERT_TRUE(renderer.next(chunk_));
  EXPECT_EQ(chunk_.outputs(0).text(), "say " + kReplacement + "x");
  EXPECT_EQ(chunk_.outputs(1).text(), "y") << "once";
}

TEST_F(ChunkRendererTest, AnIndexThatGaveNothingEchoesToo) {
  ChunkRenderer renderer(tokenizer_, {.id = 7, .seed = 42, .n = 1, .prompt = "say \xF0", .echo = true});
  renderer.add(taken(delta(0, {}, "", FinishReason::kLength)));
  ASSERT_TRUE(renderer.next(chunk_));
  EXPECT_EQ(chunk_.outputs(0).text(), "say " + kReplacement);
  EXPECT_EQ(chunk_.outputs(0).finish_reason(), v1::FINISH_REASON_LENGTH);
}

TEST_F(ChunkRendererTest, WithoutEchoTheTextGoesOnWhereThePromptEnded) {
  ChunkRenderer renderer(tokenizer_, {.id = 7, .seed = 42, .n = 2, .prompt = "y \xF0\x9F"});
  renderer.add(taken(delta(0, {0xA6, 0x99}, "\xA6\x99!")));
  renderer.add(taken(delta(1, {'x'}, "x")));
  ASSERT_TRUE(renderer.next(chunk_));
  EXPECT_EQ(chunk_.outputs(0).text(), "\xF0\x9F\xA6\x99!");
  EXPECT_EQ(chunk_.outputs(1).text(), "x");
}

// A byte that is no text becomes three: chunks are bounded by what goes out.
TEST_F(ChunkRendererTest, ALongEchoComesInBoundedChunks) {
  for (const char byte : {'a', '\xFF'}) {
    constexpr std::size_t kNumBytes = 3'000'000;
    ChunkRenderer renderer(tokenizer_,
                           {.id = 7, .seed = 42, .n = 2, .prompt = std::string(kNumBytes, byte), .echo = true});
    renderer.add(taken(delta(0, {'x'}, "x", FinishReason::kLength)));
    renderer.add(taken(delta(1, {'y'}, "y", FinishReason::kLength)));
    v1::GenerateResponse whole;
    while (renderer.next(chunk_)) {
      EXPECT_LT(chunk_.ByteSizeLong(), std::size_t{1} << 20U);
      join_chunk(chunk_, whole);
    }
    const std::size_t echoed = byte == 'a' ? kNumBytes : 3 * kNumBytes;
    ASSERT_EQ(whole.outputs_size(), 2);
    EXPECT_EQ(whole.outputs(0).text().size(), echoed + 1);
    EXPECT_EQ(whole.outputs(1).text().size(), echoed + 1);
    EXPECT_EQ(whole.outputs(1).text().back(), 'y');
  }
}

}  // namespace
}  // namespace folio
