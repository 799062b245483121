#include "server/http/json_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace folio {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string refusal(std::string_view text) {
  const auto parsed = parse_json_object(text);
  EXPECT_FALSE(parsed.ok()) << text;
  if (parsed) return "";
  EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
  return parsed.error().message;
}

TEST(ParseJson, TakesObjectsOnly) {
  EXPECT_TRUE(parse_json_object(R"({"a": [1, {"b": null}], "c": "\ud83d\ude00"})"));
  for (const char* text : {"[]", "1", "\"text\"", "null"}) EXPECT_EQ(refusal(text), "body: must be a JSON object");
}

TEST(ParseJson, NamesThePlaceOfASyntaxError) {
  EXPECT_THAT(refusal(""), StartsWith("body: not valid JSON at byte "));
  EXPECT_THAT(refusal(R"({"temperature": NaN})"), StartsWith("temperature: not valid JSON at byte "));
  EXPECT_THAT(refusal(R"({"prompt": "a", "n": 1,})"), StartsWith("body: not valid JSON at byte "));
  EXPECT_THAT(refusal(R"({"stop": ["a"], x})"), StartsWith("body: not valid JSON at byte "));
  EXPECT_THAT(refusal(R"({"temperature": Infinity})"), StartsWith("temperature: "));
  EXPECT_THAT(refusal(R"({"messages": [{"role": "user"}, {"role": oops}]})"), StartsWith("messages[1].role: "));
  EXPECT_THAT(refusal(R"({"stop": ["a", b]})"), StartsWith("stop[1]: "));
  EXPECT_THAT(refusal(R"({"n": 1} trailing)"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(R"({"n": 1,})"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(R"({"n": 01})"), HasSubstr("not valid JSON"));
}

TEST(ParseJson, NothingIsPassedOverAfterANul) {
  using namespace std::string_literals;
  EXPECT_EQ(refusal("{\"n\": 1}\0"s), "body: not valid JSON at byte 9");
  EXPECT_EQ(refusal("{\"n\": 1}\0 and more"s), "body: not valid JSON at byte 9");
  EXPECT_TRUE(parse_json_object(R"({"prompt": "\u0000"})"));
}

TEST(ParseJson, NumbersBeyondADoubleAreNamed) {
  EXPECT_EQ(refusal(R"({"temperature": 1e999})"), "temperature: the number is too large");
  EXPECT_EQ(refusal(R"({"a": {"b": [0, -1e400]}})"), "a.b[1]: the number is too large");
}

TEST(ParseJson, AKeyGivenTwiceIsNamed) {
  EXPECT_EQ(refusal(R"({"n": 1, "n": 1})"), "n: given twice");
  EXPECT_EQ(refusal(R"({"messages": [{}, {"role": "a", "role": "b"}]})"), "messages[1].role: given twice");
}

TEST(ParseJson, TextMustBeUtf8) {
  for (const char* bad : {"\xE6\xAD", "\xFF\xFE", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xC4\xE3\xBA\xC3"}) {
    EXPECT_EQ(refusal(std::string("{\"prompt\": \"") + bad + "\"}"), "body: not valid UTF-8 at byte 12");
  }
  EXPECT_EQ(refusal("\xEF\xBB\xBF{}"), "body: begins with a byte-order mark");
  for (const char* bad : {"\\ud83d", "\\ude00\\ud83d", "\\ud83d\\u0041"}) {
    EXPECT_THAT(refusal(std::string("{\"prompt\": \"") + bad + "\"}"), StartsWith("prompt: not valid JSON"));
  }
}

TEST(ParseJson, DepthAndNumberOfValuesAreBounded) {
  const auto nested = [](std::size_t levels) {
    return R"({"a": )" + std::string(levels - 1, '[') + std::string(levels - 1, ']') + "}";
  };
  EXPECT_TRUE(parse_json_object(nested(kMaxJsonDepth)));
  EXPECT_THAT(refusal(nested(kMaxJsonDepth + 1)), HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(refusal(R"({"a": )" + std::string(1'000'000, '[')), HasSubstr("nested deeper than 64 levels"));
  std::string many = R"({"prompt": [0)";
  for (std::size_t i = 0; i < kMaxJsonValues; ++i) many += ",0";
  EXPECT_THAT(refusal(many + "]}"), HasSubstr("more than 524288 values"));
}

TEST(ParseJson, NamesInComplaintsAreCut) {
  const std::string long_key(100'000, 'k');
  EXPECT_LT(refusal("{\"" + long_key + "\": oops}").size(), 300U);
  std::string path = "{";
  for (int i = 0; i < 60; ++i) path += "\"" + std::string(60, 'p') + "\": {";
  EXPECT_LT(refusal(path).size(), 400U);
}

TEST(ObjectReader, NullIsNotGiven) {
  const nlohmann::json object = {{"a", nullptr}};
  ObjectReader in(object);
  EXPECT_FALSE(in.text("a"));
  EXPECT_FALSE(in.boolean("b"));
  EXPECT_FALSE(in.finish());
}

TEST(ObjectReader, KeepsTheFirstComplaint) {
  const nlohmann::json object = {{"a", 1}, {"b", "x"}};
  ObjectReader in(object, "outer.");
  EXPECT_FALSE(in.text("a"));
  EXPECT_FALSE(in.number("b"));
  EXPECT_EQ(in.finish()->message, "outer.a: must be a string");
}

TEST(ObjectReader, RefusesWhatNobodyAskedFor) {
  const nlohmann::json object = {{"a", 1}, {std::string(1000, 'z'), 1}};
  ObjectReader in(object);
  EXPECT_EQ(in.integer("a", 0, 9), 1);
  const auto error = in.finish();
  ASSERT_TRUE(error);
  EXPECT_THAT(error->message, HasSubstr("zzz...: not a field of this call"));
  EXPECT_LT(error->message.size(), 150U);
}

TEST(ObjectReader, WholeNumbers) {
  const nlohmann::json object = nlohmann::json::parse(
      R"({"one": 1.0, "half": 0.5, "text": "1", "yes": true, "huge": 18446744073709551616, "big": 18446744073709551615})");
  const auto read = [&](const char* name) {
    ObjectReader in(object);
    return in.integer(name, -5, 5);
  };
  EXPECT_EQ(read("one"), 1);
  for (const char* name : {"half", "text", "yes", "huge", "big"}) EXPECT_FALSE(read(name)) << name;
  ObjectReader in(object);
  EXPECT_EQ(in.seed("big"), 18446744073709551615U);
}

}  // namespace
}  // namespace folio
