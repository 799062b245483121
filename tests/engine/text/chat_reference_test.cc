// Templates of published models, rendered by another implementation. Their texts belong to their publishers and are not
// part of this repository: the file is looked for beside it.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/text/chat_template.h"
#include "tests/engine/text/fake_tokenizer.h"

namespace folio {
namespace {

using Json = nlohmann::ordered_json;

std::string reference_path() {
  const char* shared = std::getenv("FOLIO_SHARED");
  return std::string(shared != nullptr ? shared : "../shared") + "/reference/chat_template.json";
}

ChatInput input_of(const Json& example) {
  ChatInput input;
  for (const Json& message : example["messages"]) {
    const Json calls = message.value("tool_calls", Json());
    input.messages.push_back({message["role"], message["content"], message.value("name", ""),
                              calls.is_null() ? "" : calls.dump(), message.value("tool_call_id", "")});
  }
  if (!example["tools"].is_null()) input.tools_json = example["tools"].dump();
  input.template_args_json = example["extra_variables"].dump();
  input.add_generation_prompt = example["add_generation_prompt"];
  return input;
}

FakeTokenizer tokenizer_of(const Json& family) {
  std::vector<std::string> controls = {"<|im_start|>",         "<|im_end|>", "<|eot_id|>", "<|start_header_id|>",
                                       "<end_of_turn>",        "<|end|>",    "[INST]",     "</s>",
                                       "<|END_OF_TURN_TOKEN|>"};
  for (const char* name : {"bos_token", "eos_token"}) {
    const std::string spelling = family[name];
    if (!spelling.empty() && std::count(controls.begin(), controls.end(), spelling) == 0) controls.push_back(spelling);
  }
  return FakeTokenizer(controls, family["bos_token"], family["eos_token"]);
}

// Exactly the reference's text; for an error the template's own words. Conversations without messages are ours to
// refuse.
void check(const Json& example, const ChatTemplate& chat, const FakeTokenizer& tokenizer) {
  const auto rendered = chat.render(input_of(example));
  if (example["messages"].empty()) {
    EXPECT_EQ(rendered.error().message, "messages: must hold at least one message");
  } else if (example.contains("rendered")) {
    ASSERT_TRUE(rendered.ok()) << rendered.error().message;
    EXPECT_EQ(rendered->text, example["rendered"].get<std::string>());
    EXPECT_EQ(tokenizer.text_of(rendered->tokens), rendered->text);
  } else {
    ASSERT_FALSE(rendered.ok()) << rendered->text;
    EXPECT_EQ(rendered.error().code, ErrorCode::kInvalidArgument);
    if (example["error"]["kind"] == "raise_exception") {
      EXPECT_EQ(rendered.error().message,
                "messages: refused by the chat template: " + example["error"]["message"].get<std::string>());
    }
  }
}

TEST(ChatReference, EveryCaseOfEveryTemplate) {
  std::ifstream file(reference_path());
  if (!file.is_open())
    GTEST_SKIP() << "no " << reference_path() << " here (third-party templates; FOLIO_SHARED names its folder)";
  const Json reference = Json::parse(file);
  std::size_t num_cases = 0;
  double render_ms = 0;
  for (const Json& family : reference["templates"]) {
    const FakeTokenizer tokenizer = tokenizer_of(family);
    const std::string stamp = reference["strftime_now"].get<std::string>().substr(0, 19);
    const ChatTemplate chat(family["template"], tokenizer, {.python = "/usr/bin/python3", .now = stamp});
    ASSERT_TRUE(chat.available()) << family["template_file"] << chat.error();
    const auto start = std::chrono::steady_clock::now();
    for (const Json& example : family["cases"]) {
      SCOPED_TRACE(family["template_file"].get<std::string>() + " " + example["name"].get<std::string>());
      check(example, chat, tokenizer);
      ++num_cases;
    }
    render_ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }
  EXPECT_GE(num_cases, 220U);
  std::printf("%zu cases, %.2f ms each\n", num_cases, render_ms / static_cast<double>(num_cases));
}

}  // namespace
}  // namespace folio
