// Requests in, answers out, in process. Also run under the thread sanitizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "tests/server/generation_fixture.h"

namespace folio {
namespace {

using test::GenerationTest;
using ::testing::HasSubstr;

TEST_F(GenerationTest, TextInTextOut) {
  const auto call = start(greedy("xa", 5));
  EXPECT_FALSE(call->wait());
  const v1::GenerateResponse whole = call->whole();
  ASSERT_EQ(whole.outputs_size(), 1);
  EXPECT_EQ(whole.outputs(0).text(), "bcdef");
  EXPECT_EQ(whole.outputs(0).finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(whole.prompt_info().num_tokens(), 2);
  EXPECT_GT(whole.prompt_info().id(), 0U);
  EXPECT_EQ(whole.usage().prompt_tokens(), 2);
  EXPECT_EQ(whole.usage().output_tokens(), 5);
  EXPECT_GE(whole.timings().peak_blocks(), 1);
  EXPECT_TRUE(whole.has_seed());
}

TEST_F(GenerationTest, StopStringsAndStopTokensSayWhatMatched) {
  auto request = greedy("a", 20);
  request.mutable_stopping()->add_stop("ef");
  const auto stopped = start(request);
  EXPECT_FALSE(stopped->wait());
  EXPECT_EQ(stopped->whole().outputs(0).text(), "bcd");
  EXPECT_EQ(stopped->whole().outputs(0).stop_string(), "ef");

  request = greedy("a", 20);
  request.mutable_stopping()->add_stop_token_ids('d');
  const auto ended = start(request);
  EXPECT_FALSE(ended->wait());
  EXPECT_EQ(ended->whole().outputs(0).text(), "bc");
  EXPECT_EQ(ended->whole().outputs(0).stop_token(), 'd');
  EXPECT_EQ(ended->whole().usage().output_tokens(), 3);
}

// S06: a tail that only looks like the beginning of a stop string comes out at the end, once.
TEST_F(GenerationTest, AHeldTailIsReleasedAtTheEnd) {
  auto request = greedy("a", 5);
  request.mutable_stopping()->add_stop("def@@");
  const auto call = start(request);
  EXPECT_FALSE(call->wait());
  EXPECT_EQ(call->whole().outputs(0).text(), "bcdef");
}

TEST_F(GenerationTest, TokenIdPromptsAreTakenAsTheyAre) {
  v1::GenerateRequest request = greedy("", 2);
  for (const TokenId id : {test::kBos, TokenId{'k'}}) request.mutable_tokens()->add_ids(id);
  const auto call = start(request);
  EXPECT_FALSE(call->wait());
  EXPECT_EQ(call->whole().outputs(0).text(), "lm");
  EXPECT_EQ(call->whole().usage().prompt_tokens(), 2);
}

TEST_F(GenerationTest, ParseSpecialIsASwitch) {
  v1::GenerateRequest request = greedy("a<|im_end|>", 1);
  const auto plain = start(request);
  EXPECT_FALSE(plain->wait());
  EXPECT_EQ(plain->whole().usage().prompt_tokens(), 11);
  request.set_parse_special(true);
  request.set_add_special(true);
  const auto parsed = start(request);
  EXPECT_FALSE(parsed->wait());
  EXPECT_EQ(parsed->whole().usage().prompt_tokens(), 3);
}

TEST_F(GenerationTest, EmptyAndBadPromptsAreRefusedByName) {
  EXPECT_THAT(refusal(greedy("", 1)).message, HasSubstr("prompt"));
  EXPECT_THAT(refusal(v1::GenerateRequest()).message, HasSubstr("prompt: not set"));
  v1::GenerateRequest ids;
  ids.mutable_tokens();
  EXPECT_THAT(refusal(ids).message, HasSubstr("prompt: no token ids"));
  for (const TokenId id : {-1, test::kVocabSize, 2'000'000'000}) {
    ids.mutable_tokens()->clear_ids();
    ids.mutable_tokens()->add_ids(id);
    const Error error = refusal(ids);
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.message, HasSubstr(std::to_string(id)));
  }
}

TEST_F(GenerationTest, APromptThatCannotFitIsRefusedWithTheNumbers) {
  const Error error = refusal(greedy(std::string(600, 'x'), 1));
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("600"));
  EXPECT_THAT(error.message, HasSubstr("512"));
}

// The tokenizer is held, so an answer means that it was not asked. Its longest piece has 10 bytes.
TEST_F(GenerationTest, ATextThatCannotFitByItsSizeIsRefusedUntokenised) {
  tokenizer_.hold(true);
  const Error error = refusal(greedy(std::string(5121, 'x'), 1));
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  for (const char* part : {"prompt: 5121 bytes", "limit of 5120", "512 tokens"}) {
    EXPECT_THAT(error.message, HasSubstr(part));
  }
  tokenizer_.hold(false);
  EXPECT_THAT(refusal(greedy(std::string(5120, 'x'), 1)).message, HasSubstr("5120 tokens"));
}

TEST_F(GenerationTest, AChatThatCannotFitByItsSizeIsRefusedUntokenised) {
  const ChatTemplate shows("{{ messages[0].content }}", tokenizer_);
  ASSERT_TRUE(shows.available()) << shows.error();
  const Generation generation(engine_, tokenizer_, shows, clock_, generation_options());
  v1::ChatRequest chat;
  v1::ChatMessage& message = *chat.add_messages();
  message.set_role("user");
  message.set_content(std::string(5121, 'x'));
  tokenizer_.hold(true);
  const auto refused = generation.prompt_ids(chat);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("longer than 5120 bytes"));
  tokenizer_.hold(false);
  message.set_content(std::string(5120, 'x'));
  EXPECT_EQ(generation.prompt_ids(chat)->size(), 5120U);
}

TEST_F(GenerationTest, ChatWithoutATemplateIsAFailedPrecondition) {
  v1::ChatRequest request;
  request.add_messages()->set_role("user");
  EXPECT_EQ(refusal(request).code, ErrorCode::kFailedPrecondition);
}

TEST_F(GenerationTest, SeedsAreReportedAndReproduce) {
  v1::GenerateRequest request;
  request.set_text("a");
  request.mutable_sampling()->set_temperature(5);
  request.mutable_stopping()->set_max_tokens(16);
  request.mutable_stopping()->set_ignore_eos(true);
  const auto first = start(request);
  const auto second = start(request);
  EXPECT_FALSE(first->wait());
  EXPECT_FALSE(second->wait());
  const v1::GenerateResponse one = first->whole();
  EXPECT_NE(one.seed(), second->whole().seed());
  EXPECT_LT(one.seed(), 1ULL << 53U);

  request.mutable_sampling()->set_seed(one.seed());
  const auto again = start(request);
  EXPECT_FALSE(again->wait());
  EXPECT_EQ(again->whole().seed(), one.seed());
  EXPECT_EQ(again->whole().outputs(0).SerializeAsString(), one.outputs(0).SerializeAsString());
}

TEST_F(GenerationTest, SeveralAnswersEndEachByItself) {
  v1::GenerateRequest request = greedy("abc", 17);
  request.set_n(4);
  request.set_logprobs(2);
  const auto call = start(request);
  EXPECT_FALSE(call->wait());
  const v1::GenerateResponse whole = call->whole();
  ASSERT_EQ(whole.outputs_size(), 4);
  for (const v1::Output& output : whole.outputs()) {
    EXPECT_EQ(output.text(), "defghijklmnopqrst");
    EXPECT_EQ(output.finish_reason(), v1::FINISH_REASON_LENGTH);
    ASSERT_EQ(output.logprobs_size(), 17);
    EXPECT_EQ(output.logprobs(0).top_size(), 2);
    EXPECT_EQ(output.logprobs(0).top(0).token(), output.tokens(0));
  }
  EXPECT_EQ(whole.usage().prompt_tokens(), 3);
  EXPECT_EQ(whole.usage().output_tokens(), 68);
}

// ---- the prompt in the answer

TEST_F(GenerationTest, EchoIsThePromptsTextInFrontOfEachAnswer) {
  auto request = greedy("h\xC3\xA9 xa", 4);
  request.set_echo(true);
  request.set_n(3);
  request.mutable_stopping()->add_stop("xa");  // of the output alone
  const auto call = start(request);
  EXPECT_FALSE(call->wait());
  const v1::GenerateResponse whole = call->whole();
  for (const v1::Output& output : whole.outputs()) {
    EXPECT_EQ(output.text(), "h\xC3\xA9 xabcde");
    EXPECT_EQ(output.tokens_size(), 4);
    EXPECT_EQ(output.finish_reason(), v1::FINISH_REASON_LENGTH);
  }
  EXPECT_EQ(whole.usage().output_tokens(), 12);
}

TEST_F(GenerationTest, EchoLeavesOutWhatIsNoText) {
  v1::GenerateRequest request = greedy("", 1);
  for (const TokenId id : {test::kBos, TokenId{'k'}, test::kUnknown}) request.mutable_tokens()->add_ids(id);
  request.set_echo(true);
  const auto call = start(request);
  EXPECT_FALSE(call->wait());
  EXPECT_EQ(call->whole().outputs(0).text(), "ka");
  request.set_skip_special(false);
  const auto spelled = start(request);
  EXPECT_FALSE(spelled->wait());
  EXPECT_EQ(spelled->whole().outputs(0).text(), "<s>k<unk>a");
}

// The text rule, prompts that end inside of a character too: with echo it is the text of prompt and output together,
// without it that less the prompt's.
TEST_F(GenerationTest, TheTextIsThatOfPromptAndOutputLessThePrompts) {
  const struct {
    std::vector<TokenId> prompt;
    std::vector<TokenId> output;
    std::string text;
  } cases[] = {
      {{'x', test::kHalfEmoji}, {0xA6, 0x99, 'y'}, "\xF0\x9F\xA6\x99y"},
      {{'x', test::kHalfEmoji, 0xA6}, {0x99}, "\xF0\x9F\xA6\x99"},
      {{'x', test::kHalfEmoji}, {'y'}, "y"},
      {{'x', test::kHalfEmoji}, {0xA6}, ""},
      {{'x', test::kHalfEmoji, test::kUnknown}, {0xA6, 0x99}, "\xF0\x9F\xA6\x99"},
      {{'x', 0xE2, 0x82}, {test::kHalfEmoji}, "\xEF\xBF\xBD"},
      {{'x'}, {0xA6}, "\xEF\xBF\xBD"},
      {{test::kBos}, {' ', 'a'}, " a"},
      {{' ', test::kHello}, {' ', test::kHello}, " hello"},
  };
  for (const auto& c : cases) {
    std::map<TokenId, TokenId> script;
    for (std::size_t i = 0; i < c.output.size(); ++i) script[i == 0 ? c.prompt.back() : c.output[i - 1]] = c.output[i];
    model_.set_script(script);
    v1::GenerateRequest request = greedy("", static_cast<std::int64_t>(c.output.size()));
    request.mutable_tokens()->mutable_ids()->Add(c.prompt.begin(), c.prompt.end());
    const auto plain = start(request);
    EXPECT_FALSE(plain->wait());
    const v1::Output output = plain->whole().outputs(0);
    ASSERT_TRUE(std::ranges::equal(output.tokens(), c.output)) << "the script holds";
    EXPECT_EQ(output.text(), c.text);
    request.set_echo(true);
    const auto echoed = start(request);
    EXPECT_FALSE(echoed->wait());
    v1::DetokenizeRequest both;
    both.mutable_tokens()->Add(c.prompt.begin(), c.prompt.end());
    both.mutable_tokens()->Add(c.output.begin(), c.output.end());
    EXPECT_EQ(echoed->whole().outputs(0).text(), generation_.detokenize(both)->text());
  }
}

TEST_F(GenerationTest, PromptLogprobsAreThereForEachToken) {
  auto request = greedy("xabz" + std::string(100, 'q'), 2);  // several steps of 64 tokens
  request.set_prompt_logprobs(2);
  request.set_n(2);
  const auto call = start(request);
  EXPECT_FALSE(call->wait());
  const v1::PromptInfo info = call->whole().prompt_info();
  EXPECT_EQ(info.num_tokens(), 104);
  EXPECT_EQ(info.cached_tokens(), 0);
  ASSERT_EQ(info.logprobs_size(), 104);
  EXPECT_FALSE(info.logprobs(0).has_logprob());
  for (int i = 1; i < 104; ++i) {
    const v1::TokenLogprob& entry = info.logprobs(i);
    EXPECT_EQ(entry.token(), request.text()[static_cast<std::size_t>(i)]);
    EXPECT_EQ(entry.top_size(), 2);
    const TokenId best = model_.next_token(request.text()[static_cast<std::size_t>(i - 1)]);
    EXPECT_EQ(entry.top(0).token(), best);
    EXPECT_EQ(entry.token() == best, entry.logprob() == entry.top(0).logprob());
    EXPECT_LT(entry.logprob(), 0);
  }
  EXPECT_EQ(call->whole().outputs(1).text(), "rs");
}

TEST_F(GenerationTest, APromptAloneIsScoredAndEchoed) {
  auto request = greedy("abc", 0);
  request.set_prompt_logprobs(0);
  request.set_echo(true);
  request.set_n(2);
  const auto call = start(request);
  EXPECT_FALSE(call->wait());
  const v1::GenerateResponse whole = call->whole();
  EXPECT_EQ(whole.prompt_info().logprobs_size(), 3);
  ASSERT_EQ(whole.outputs_size(), 2);
  for (const v1::Output& output : whole.outputs()) {
    EXPECT_EQ(output.text(), "abc");
    EXPECT_EQ(output.tokens_size(), 0);
    EXPECT_EQ(output.finish_reason(), v1::FINISH_REASON_LENGTH);
  }
  EXPECT_EQ(whole.usage().output_tokens(), 0);
  auto full = greedy(std::string(512, 'x'), 0);
  const auto filled = start(full);
  EXPECT_FALSE(filled->wait()) << "it may fill the context";
  full.mutable_stopping()->set_max_tokens(1);
  EXPECT_THAT(refusal(full).message, HasSubstr("512"));
}

TEST_F(GenerationTest, TokenizeAndDetokenize) {
  v1::TokenizeRequest in;
  in.set_text("a\xC3\xA9");
  const auto ids = generation_.tokenize(in);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->tokens_size(), 3);
  EXPECT_EQ(ids->pieces(1), "\xC3");
  v1::DetokenizeRequest back;
  *back.mutable_tokens() = ids->tokens();
  back.add_tokens(test::kEnd);
  back.add_tokens(test::kUnknown);
  back.add_tokens(test::kHalfEmoji);
  const auto text = generation_.detokenize(back);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->bytes(), "a\xC3\xA9\xF0\x9F");
  EXPECT_EQ(text->text(), "a\xC3\xA9\xEF\xBF\xBD");
  back.set_skip_special(false);
  EXPECT_EQ(generation_.detokenize(back)->bytes(), "a\xC3\xA9<|im_end|><unk>\xF0\x9F");
  back.add_tokens(-1);
  EXPECT_EQ(generation_.detokenize(back).error().code, ErrorCode::kInvalidArgument);
  in.set_model("other");
  EXPECT_EQ(generation_.tokenize(in).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace folio
