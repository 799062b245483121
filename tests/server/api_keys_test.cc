// The file of API keys: what it says of a caller, every way in which it can be wrong, and reading it again.
#include "server/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "server/config_error.h"
#include "tests/support/temp_folder.h"

namespace folio {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// printf %s KEY | sha256sum, for the keys alpha, beta and the empty one.
const std::string kAlpha = "8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8";
const std::string kBeta = "f44e64e75f3948e9f73f8dfa94721c4ce8cbb4f265c4790c702b2d41cfbf2753";
const std::string kEmpty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

class ApiKeysTest : public ::testing::Test {
 protected:
  std::string write(const std::string& text) { return path_ = folder_.write("keys.toml", text); }
  std::string failure(const std::string& text) {
    try {
      const ApiKeys keys(write(text));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "taken";
  }
  static std::string key(const std::string& name, const std::string& digest, const std::string& more = "") {
    return "[keys." + name + "]\nsha256 = \"" + digest + "\"\n" + more;
  }

  testing::TempFolder folder_;
  std::string path_;
};

TEST_F(ApiKeysTest, WithoutAFileEverybodyMayDoEverything) {
  const ApiKeys keys;
  EXPECT_FALSE(keys.required());
  const auto caller = keys.authorize({});
  ASSERT_TRUE(caller);
  EXPECT_FALSE(caller->tenant);
  EXPECT_FALSE(caller->highest_priority);
  EXPECT_TRUE(caller->admin);
  EXPECT_TRUE(caller->share_prefix);
}

TEST_F(ApiKeysTest, AKeyIsItsCaller) {
  const ApiKeys keys(write(key("a", kAlpha) + key("\"b b\"", kBeta,
                                                  "tenant = \"gold\"\nhighest_priority = -7\nadmin = true\n"
                                                  "share_prefix = true\n")));
  EXPECT_TRUE(keys.required());
  EXPECT_EQ(keys.size(), 2U);
  const auto plain = keys.find("alpha");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->tenant, "a");
  EXPECT_EQ(plain->highest_priority, 0);
  EXPECT_FALSE(plain->admin);
  EXPECT_FALSE(plain->share_prefix);
  const auto full = keys.find("beta");
  ASSERT_TRUE(full);
  EXPECT_EQ(full->tenant, "gold");
  EXPECT_EQ(full->highest_priority, -7);
  EXPECT_TRUE(full->admin);
  EXPECT_TRUE(full->share_prefix);
}

// A09
TEST_F(ApiKeysTest, NothingElseIsAKey) {
  const ApiKeys keys(write(key("a", kAlpha)));
  for (const char* bearer : {"", " ", "Alpha", "alpha ", " alpha", "alph", "alphaa", "beta", kAlpha.c_str(), "a"}) {
    EXPECT_FALSE(keys.find(bearer)) << bearer;
  }
  EXPECT_FALSE(keys.find(std::string("alpha\0", 6)));
  EXPECT_FALSE(keys.find(std::string(1 << 20, 'x')));
  using Headers = std::vector<std::string_view>;
  for (const Headers& headers :
       {Headers{}, Headers{""}, Headers{"Bearer"}, Headers{"Bearer "}, Headers{"alpha"}, Headers{"Basic alpha"},
        Headers{"Bearer alpha "}, Headers{"Bearer  alpha"}, Headers{"Bearer\talpha"}, Headers{"Beareralpha"},
        Headers{"Bearer alpha", "Bearer alpha"}, Headers{"Bearer alpha", "Bearer beta"}}) {
    EXPECT_FALSE(keys.authorize(headers)) << headers.size();
  }
  for (const char* header : {"Bearer alpha", "bearer alpha", "BEARER alpha"}) EXPECT_TRUE(keys.authorize({header}));
}

// One for "none was given", one for "not known": they say nothing of what was given or of what would be right.
TEST_F(ApiKeysTest, RefusalsHaveTwoWordings) {
  const ApiKeys keys(write(key("a", kAlpha)));
  std::set<std::string> none, unknown;
  for (const char* header : {"", "Bearer", "Bearer ", "Basic alpha"}) {
    const auto refused = keys.authorize({header});
    EXPECT_EQ(refused.error().code, ErrorCode::kUnauthenticated);
    none.insert(refused.error().message);
  }
  for (const std::string& bearer : {std::string("alphb"), std::string("x"), std::string(5000, 'a')}) {
    const auto refused = keys.find(bearer);
    EXPECT_EQ(refused.error().code, ErrorCode::kUnauthenticated);
    unknown.insert(refused.error().message);
  }
  EXPECT_EQ(none, std::set<std::string>{"authorization: an API key is needed: Bearer KEY"});
  EXPECT_EQ(unknown, std::set<std::string>{"authorization: the API key is not known"});
}

TEST_F(ApiKeysTest, EveryErrorNamesFileAndLine) {
  const struct {
    std::string text;
    std::string message;  // after the path
  } cases[] = {
      {"", ": api-key-file: no [keys.NAME] in it: nobody could call"},
      {"[keys]\n", ":1: keys: empty: nobody could call"},
      {"keys = 3\n", ":1: keys: expected tables [keys.NAME], not an integer"},
      {"[keys\n", ":1: not TOML: "},
      {key("a", kAlpha) + "[tenants.a]\n", ":3: unknown key \"tenants\": keys are in tables [keys.NAME]"},
      {"[keys]\na = 3\n", ":2: keys.\"a\": expected a table with sha256, not an integer"},
      {"\n[keys.a]\n", ":2: keys.\"a\": sha256 is missing"},
      {"[keys.a]\nsha256 = 5\n", ":2: keys.\"a\".sha256: expected a string, not an integer"},
      {key("a", "alpha"), ":2: keys.\"a\".sha256: is not 64 hexadecimal digits: printf %s KEY | sha256sum"},
      {key("a", kAlpha.substr(1)), ":2: keys.\"a\".sha256: is not 64 hexadecimal digits"},
      {key("a", "g" + kAlpha.substr(1)), ":2: keys.\"a\".sha256: is not 64 hexadecimal digits"},
      {key("a", ""), ":2: keys.\"a\".sha256: is not 64 hexadecimal digits"},
      {key("a", kEmpty), ":2: keys.\"a\".sha256: is the hash of an empty key"},
      {key("a", kAlpha) + key("b", kAlpha), ":4: keys.\"b\".sha256: the same key as in line 2"},
      {key("a", kAlpha, "tenant = 4\n"), ":3: keys.\"a\".tenant: expected a string, not an integer"},
      {key("a", kAlpha, "tenant = \"" + std::string(257, 't') + "\"\n"),
       ":3: keys.\"a\".tenant: 257 bytes, at most 256"},
      {key(std::string(257, 'n'), kAlpha), ": a name has at most 256 bytes"},
      {key("a", kAlpha, "highest_priority = 1.5\n"),
       ":3: keys.\"a\".highest_priority: expected an integer, not a number with a fraction"},
      {key("a", kAlpha, "highest_priority = 2147483648\n"),
       ":3: keys.\"a\".highest_priority: 2147483648 is not a 32-bit number"},
      {key("a", kAlpha, "admin = \"yes\"\n"), ":3: keys.\"a\".admin: expected true or false, not a string"},
      {key("a", kAlpha, "share_prefix = 1\n"), ":3: keys.\"a\".share_prefix: expected true or false, not an integer"},
      {key("a", kAlpha, "key = \"alpha\"\n"), ":3: keys.\"a\": unknown key \"key\""},
      {std::string((1 << 20) + 1, '#'), ": api-key-file: is larger than 1048576 bytes"},
  };
  for (const auto& c : cases) EXPECT_THAT(failure(c.text), HasSubstr(c.message));
  EXPECT_THAT(failure(""), HasSubstr(path_ + ": "));
  EXPECT_THROW(ApiKeys("/no/such/keys.toml"), ConfigError);
  EXPECT_THROW(ApiKeys("/tmp"), ConfigError);
}

TEST_F(ApiKeysTest, WhatStandsInPlaceOfAHashIsNotRepeated) {
  EXPECT_THAT(failure(key("a", "sk-secret-in-clear")), Not(HasSubstr("secret")));
}

TEST_F(ApiKeysTest, AtMostSoManyKeys) {
  const auto file_of = [](std::size_t count) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) {
      std::string digits = std::to_string(100'000 + i);
      text += key("k" + digits, digits + kAlpha.substr(digits.size()));
    }
    return text;
  };
  EXPECT_EQ(ApiKeys(write(file_of(ApiKeys::kMaxKeys))).size(), ApiKeys::kMaxKeys);
  EXPECT_THAT(failure(file_of(ApiKeys::kMaxKeys + 1)), HasSubstr("api-key-file: 4097 keys, at most 4096 are taken"));
}

TEST_F(ApiKeysTest, AWrongFileKeepsTheOldKeys) {
  ApiKeys keys(write(key("a", kAlpha)));
  write(key("b", kBeta));
  ::testing::internal::CaptureStderr();
  keys.reload();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("info: " + path_ + ": 1 API keys"));
  EXPECT_FALSE(keys.find("alpha"));
  EXPECT_TRUE(keys.find("beta"));
  write(key("a", kAlpha) + key("c", "oops"));
  ::testing::internal::CaptureStderr();
  keys.reload();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("error: " + path_ + ":4: keys.\"c\".sha256: is not 64"));
  EXPECT_THAT(log, HasSubstr("the API keys stay as they were"));
  EXPECT_FALSE(keys.find("alpha"));
  EXPECT_TRUE(keys.find("beta"));
}

}  // namespace
}  // namespace folio
