#include "server/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "engine/text/detokenizer.h"

namespace folio {
namespace {

using ::testing::HasSubstr;
using Edit = std::function<void(v1::GenerateRequest&)>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
const RequestLimits kLimits{"tiny", 100, 8};

Result<CheckedOptions> check(const Edit& edit) {
  v1::GenerateRequest request;
  edit(request);
  return check_options(request, kLimits);
}

void expect_refused(const Edit& edit, const std::string& field, const std::string& detail) {
  const auto result = check(edit);
  ASSERT_FALSE(result.ok()) << field;
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(result.error().message, HasSubstr(field));
  EXPECT_THAT(result.error().message, HasSubstr(detail));
}

TEST(Validation, DefaultsAreTheDocumentedOnes) {
  const auto result = check([](auto&) {});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->sampling.temperature, 1);
  EXPECT_EQ(result->sampling.top_k, 0);
  EXPECT_EQ(result->sampling.top_p, 1);
  EXPECT_EQ(result->sampling.repetition_penalty, 1);
  EXPECT_EQ(result->sampling.num_logprobs, -1);
  EXPECT_EQ(result->stopping.max_tokens, StoppingParams::kNoLimit);
  EXPECT_EQ(result->n, 1);
  EXPECT_FALSE(result->has_seed);
  EXPECT_TRUE(result->skip_special);
}

TEST(Validation, FloatsOutOfRangeAreNamed) {
  using Set = std::function<void(v1::SamplingOptions&, float)>;
  const struct {
    const char* field;
    Set set;
    std::vector<float> bad;
    std::vector<float> good;
  } cases[] = {
      {"sampling.temperature", [](auto& s, float v) { s.set_temperature(v); }, {-0.1F, 100.5F}, {0, 0.7F, 100}},
      {"sampling.top_p", [](auto& s, float v) { s.set_top_p(v); }, {0, 1.0001F, -1}, {1e-6F, 0.5F, 1}},
      {"sampling.min_p", [](auto& s, float v) { s.set_min_p(v); }, {1, 2, -0.5F}, {0, 0.99F}},
      {"sampling.repetition_penalty",
       [](auto& s, float v) { s.set_repetition_penalty(v); },
       {0, -1, 1e9F},
       {1e-9F, 100}},
      {"sampling.presence_penalty", [](auto& s, float v) { s.set_presence_penalty(v); }, {1e9F, -1e9F}, {-100, 100}},
      {"sampling.frequency_penalty", [](auto& s, float v) { s.set_frequency_penalty(v); }, {1e9F, -1e9F}, {-100, 100}},
      {"sampling.logit_bias[5]",
       [](auto& s, float v) { (*s.mutable_logit_bias())[5] = v; },
       {1e9F, -1001},
       {-1000, 1000}},
  };
  for (const auto& c : cases) {
    std::vector<float> bad = c.bad;
    bad.insert(bad.end(), {kNan, kInf, -kInf});
    for (const float value : bad) {
      expect_refused([&](auto& r) { c.set(*r.mutable_sampling(), value); }, c.field, "is not in");
    }
    for (const float value : c.good) {
      EXPECT_TRUE(check([&](auto& r) { c.set(*r.mutable_sampling(), value); }).ok()) << c.field << " " << value;
    }
  }
}

TEST(Validation, TheNumberIsInTheMessage) {
  expect_refused([](auto& r) { r.mutable_sampling()->set_top_p(1.5F); }, "sampling.top_p", "1.5 is not in (0, 1]");
  expect_refused([](auto& r) { r.set_n(9); }, "n", "9 is not in [0, 8]");
}

TEST(Validation, TopKOutsideTheVocabularyIsOff) {
  for (const std::int32_t k : {-1, 0, 101, 9'999'999, std::numeric_limits<std::int32_t>::min()}) {
    const auto result = check([k](auto& r) { r.mutable_sampling()->set_top_k(k); });
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->sampling.top_k, 0) << k;
  }
  EXPECT_EQ(check([](auto& r) { r.mutable_sampling()->set_top_k(100); })->sampling.top_k, 100);
}

TEST(Validation, TokenIdsAreCheckedAgainstTheVocabulary) {
  for (const TokenId id : {-1, 100, std::numeric_limits<TokenId>::max()}) {
    const std::string text = std::to_string(id);
    expect_refused([id](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[id] = 1; }, "sampling.logit_bias",
                   text);
    expect_refused([id](auto& r) { r.mutable_stopping()->add_stop_token_ids(id); }, "stopping.stop_token_ids[0]", text);
  }
  EXPECT_FALSE(check_token_ids("ids", std::vector<TokenId>{0, 99}, 100));
  EXPECT_THAT(check_token_ids("ids", std::vector<TokenId>{0, 100}, 100)->message, HasSubstr("ids[1]: token id 100"));
}

TEST(Validation, BiasIsSortedById) {
  const auto result = check([](auto& r) {
    for (const TokenId id : {9, 3, 50}) (*r.mutable_sampling()->mutable_logit_bias())[id] = 1;
  });
  ASSERT_TRUE(result.ok());
  const std::vector<std::pair<TokenId, float>> sorted{{3, 1}, {9, 1}, {50, 1}};
  EXPECT_EQ(result->sampling.logit_bias, sorted);
}

TEST(Validation, StoppingLimits) {
  EXPECT_EQ(check([](auto& r) { r.mutable_stopping()->set_max_tokens(0); })->stopping.max_tokens, 0);
  expect_refused([](auto& r) { r.mutable_stopping()->set_max_tokens(-5); }, "stopping.max_tokens", "-5");
  expect_refused([](auto& r) { r.mutable_stopping()->set_min_tokens(-1); }, "stopping.min_tokens", "-1");
  expect_refused(
      [](auto& r) {
        r.mutable_stopping()->set_max_tokens(3);
        r.mutable_stopping()->set_min_tokens(4);
      },
      "stopping.min_tokens", "max_tokens");
  expect_refused([](auto& r) { r.mutable_stopping()->add_stop(""); }, "stopping.stop[0]", "empty");
  expect_refused([](auto& r) { r.mutable_stopping()->add_stop(std::string(1025, 'x')); }, "stopping.stop[0]", "1025");
  expect_refused(
      [](auto& r) {
        for (int i = 0; i < 65; ++i) r.mutable_stopping()->add_stop("x");
      },
      "stopping.stop", "65");
  const auto all = [](int count) {
    return [count](auto& r) {
      for (int i = 0; i < count; ++i) r.mutable_stopping()->add_stop(std::string(512, 'x'));
    };
  };
  EXPECT_TRUE(check(all(16)).ok());
  expect_refused(all(17), "stopping.stop", "8704 bytes together, at most 8192");
}

TEST(Validation, LogprobsAndCounts) {
  for (const std::int32_t n : {-1, 21, 49153}) {
    expect_refused([n](auto& r) { r.set_logprobs(n); }, "logprobs", std::to_string(n));
  }
  EXPECT_EQ(check([](auto& r) { r.set_logprobs(0); })->sampling.num_logprobs, 0);
  EXPECT_EQ(check([](auto& r) { r.set_logprobs(20); })->sampling.num_logprobs, 20);
  expect_refused([](auto& r) { r.set_n(-1); }, "n", "-1");
  expect_refused([](auto& r) { r.set_request_id(std::string(257, 'x')); }, "request_id", "257");
}

TEST(Validation, PromptLogprobsAndEcho) {
  EXPECT_EQ(check([](auto&) {})->sampling.num_prompt_logprobs, -1);
  EXPECT_FALSE(check([](auto&) {})->echo);
  for (const std::int32_t n : {-1, 21, 49153}) {
    expect_refused([n](auto& r) { r.set_prompt_logprobs(n); }, "prompt_logprobs", std::to_string(n));
  }
  EXPECT_EQ(check([](auto& r) { r.set_prompt_logprobs(0); })->sampling.num_prompt_logprobs, 0);
  v1::ChatRequest chat;
  chat.set_echo(true);
  chat.set_prompt_logprobs(20);
  const auto result = check_options(chat, kLimits);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->echo);
  EXPECT_EQ(result->sampling.num_prompt_logprobs, 20);
}

TEST(Validation, TenantAndCache) {
  const auto plain = check([](auto&) {});
  EXPECT_EQ(plain->tenant, "");
  EXPECT_EQ(plain->cache.salt, "");
  EXPECT_FALSE(plain->cache.bypass);
  EXPECT_EQ(plain->cache.pin_ms, 0);
  const auto result = check([](auto& r) {
    r.set_tenant(std::string(256, 't'));
    r.mutable_cache()->set_salt(std::string(256, 's'));
    r.mutable_cache()->set_pin_ms(std::numeric_limits<std::uint32_t>::max());
  });
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->tenant, std::string(256, 't'));
  EXPECT_EQ(result->cache.salt, std::string(256, 's'));
  EXPECT_EQ(result->cache.pin_ms, std::numeric_limits<std::uint32_t>::max());
  expect_refused([](auto& r) { r.set_tenant(std::string(257, 't')); }, "tenant", "257 bytes, at most 256");
  expect_refused([](auto& r) { r.mutable_cache()->set_salt(std::string(257, 's')); }, "cache.salt", "257 bytes");
}

TEST(Validation, PinAndBypassContradictEachOther) {
  const auto result = check([](auto& r) {
    r.mutable_cache()->set_bypass(true);
    r.mutable_cache()->set_salt("s");
  });
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->cache.bypass);
  expect_refused(
      [](auto& r) {
        r.mutable_cache()->set_bypass(true);
        r.mutable_cache()->set_pin_ms(1);
      },
      "cache.pin_ms", "not together with cache.bypass");
}

TEST(Validation, AnUnknownModelIsNotFoundAndItsNameIsCutAtACharacter) {
  const std::string character = "\xE6\xBC\xA2";
  std::string name;
  for (int i = 0; i < 33'334; ++i) name.append(character);
  const auto result = check([&](auto& r) { r.set_model(name); });
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kNotFound);
  EXPECT_LT(result.error().message.size(), 200U);
  EXPECT_TRUE(is_valid_utf8(result.error().message));
  EXPECT_TRUE(check([](auto& r) { r.set_model("tiny"); }).ok());
}

TEST(Validation, QuotedTextIsAlwaysValid) {
  EXPECT_EQ(quoted("plain"), "\"plain\"");
  EXPECT_TRUE(is_valid_utf8(quoted("\xFF\xFE bad")));
}

}  // namespace
}  // namespace folio
