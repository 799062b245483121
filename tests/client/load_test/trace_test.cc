#include "client/load_test/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "tests/support/temp_folder.h"

namespace folio::client {
namespace {

using ::testing::HasSubstr;

std::vector<TraceEntry> read(const std::string& text) {
  const testing::TempFolder folder;
  return read_trace(folder.write("trace.jsonl", text));
}

TEST(Trace, PromptsLengthsPrefixesAndTimes) {
  const auto entries = read(R"({"at": 100.5, "prompt": "Once upon", "output_tokens": 4}

{"at": 101, "prompt_tokens": 30, "prefix": "support", "prefix_tokens": 20, "output_tokens": 5}
{"at": 101, "prompt_tokens": 30, "prefix": 7, "prefix_tokens": 30, "output_tokens": 6}
)");
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(entries[0].prompt, "Once upon");
  EXPECT_EQ(entries[0].at_s, 0);
  EXPECT_EQ(entries[0].output_tokens, 4);
  EXPECT_EQ(entries[1].at_s, 0.5);
  EXPECT_EQ(entries[1].prompt_tokens, 30);
  ASSERT_EQ(entries[1].shared.size(), 1U);
  EXPECT_EQ(entries[1].shared[0].id, "support");
  EXPECT_EQ(entries[1].shared[0].tokens, 20);
  EXPECT_EQ(entries[2].shared[0].id, "7");
  EXPECT_EQ(entries[2].at_s, 0.5);
}

TEST(Trace, MooncakesBlocks) {
  const auto entries =
      read(R"({"timestamp": 27482, "input_length": 1100, "output_length": 52, "hash_ids": [46, 47, 2353]}
{"timestamp": 30535, "input_length": 500, "output_length": 26, "hash_ids": [46]})");
  ASSERT_EQ(entries.size(), 2U);
  ASSERT_EQ(entries[0].shared.size(), 3U);
  EXPECT_EQ(entries[0].shared[1].id, "47");
  EXPECT_EQ(entries[0].shared[1].tokens, 512);
  EXPECT_EQ(entries[0].shared[2].tokens, 76);
  EXPECT_EQ(entries[1].shared[0].tokens, 500);
  EXPECT_NEAR(*entries[1].at_s, 3.053, 1e-9);
}

TEST(Trace, FaultsNameFileLineAndField) {
  const std::string good = R"({"prompt_tokens": 3, "output_tokens": 4})";
  const std::pair<std::string, const char*> faults[] = {
      {"{", "is not JSON"},
      {"[1]", "is not a JSON object"},
      {R"({"prompt": "x"})", "output_tokens: is missing"},
      {R"({"output_tokens": 3})", "prompt: is missing, and so is prompt_tokens"},
      {R"({"prompt": "", "output_tokens": 3})", R"(prompt: "" is not a text)"},
      {R"({"prompt": 5, "output_tokens": 3})", "prompt: 5 is not a text"},
      {R"({"prompt_tokens": 0, "output_tokens": 3})", "prompt_tokens: 0 is not a whole number in [1, 10000000]"},
      {R"({"prompt_tokens": 1.5, "output_tokens": 3})", "prompt_tokens: 1.5 is not"},
      {R"({"prompt_tokens": 1e30, "output_tokens": 3})", "prompt_tokens: 1e+30 is not"},
      {R"({"prompt_tokens": 3, "output_tokens": "4"})", R"(output_tokens: "4" is not)"},
      {R"({"prompt_tokens": 3, "output_token": 4})", "output_token: is not one of at, prompt, prompt_tokens"},
      {R"({"prompt_tokens": 3, "output_tokens": 4, "prefix": "a"})", "prefix_tokens: is missing"},
      {R"({"prompt_tokens": 3, "output_tokens": 4, "prefix_tokens": 2})", "prefix: is missing"},
      {R"({"prompt_tokens": 3, "output_tokens": 4, "prefix": [], "prefix_tokens": 2})", "prefix: [] is neither"},
      {R"({"prompt_tokens": 3, "output_tokens": 4, "prefix": "a", "prefix_tokens": 9})",
       "prefix_tokens: 9 is more than the prompt's 3"},
      {R"({"prompt": "x", "output_tokens": 4, "prefix": "a"})", "prefix: goes with a length"},
      {R"({"at": -1, "prompt_tokens": 3, "output_tokens": 4})", "at: -1 is not a number in [0, 10000000.0]"},
      {R"({"at": 1e308, "prompt_tokens": 3, "output_tokens": 4})", "at: 1e+308 is not a number in [0, "},
      {R"({"prompt_tokens": )" + std::string(100'000, '[') + std::string(100'000, ']') + R"(, "output_tokens": 4})",
       "is not JSON, or nested too deeply"},
      {std::string(R"({"prompt_tokens": 3, "output_tokens": 4})") + '\0' + "more", "is not JSON"},
      {R"({"at": 1, "prompt_tokens": 3, "output_tokens": 4})", "has a time, and the first line has none"},
      {R"({"input_length": 9, "output_length": 1, "hash_ids": [1, 2]})", "hash_ids: name more than the prompt's 9"},
      {R"({"input_length": 9, "output_length": 1, "hash_ids": 1})", "hash_ids: is not a list"},
  };
  for (const auto& [line, complaint] : faults) {
    try {
      read(good + "\n" + line + "\n");
      ADD_FAILURE() << line;
    } catch (const std::runtime_error& wrong) {
      EXPECT_THAT(wrong.what(), HasSubstr(std::string("/trace.jsonl:2: ") + complaint)) << line;
    }
  }
}

TEST(Trace, TimesDoNotGoBackAndAreOnEveryLineOrNone) {
  const std::string at = R"({"at": 5, "prompt_tokens": 3, "output_tokens": 4})";
  EXPECT_THROW(read(at + "\n" + R"({"prompt_tokens": 3, "output_tokens": 4})"), std::runtime_error);
  try {
    read(at + "\n" + at + "\n" + R"({"at": 4, "prompt_tokens": 3, "output_tokens": 4})");
    ADD_FAILURE();
  } catch (const std::runtime_error& wrong) {
    EXPECT_THAT(wrong.what(), HasSubstr(":3: its time is before that of the line above"));
  }
}

TEST(Trace, AFileThatIsMissingOrEmpty) {
  EXPECT_THROW(read(""), std::runtime_error);
  EXPECT_THROW(read("\n\n"), std::runtime_error);
  EXPECT_THROW(read_trace("/no/such/trace"), std::runtime_error);
}

TEST(Trace, AFolderIsNone) {
  try {
    read_trace("/");
    ADD_FAILURE();
  } catch (const std::runtime_error& wrong) {
    EXPECT_STREQ(wrong.what(), "/: is a directory");
  }
}

}  // namespace
}  // namespace folio::client
