#include "server/http/openai_response.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace folio {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

OpenAiForm form_of(OpenAiCall call) {
  OpenAiForm form;
  form.call = call;
  form.model = "tiny";
  form.id_prefix = "x-";
  form.created = 1700000000;
  return form;
}

v1::GenerateChunk first_chunk(std::string_view text) {
  v1::GenerateChunk chunk;
  chunk.mutable_prompt_info()->set_id(7);
  v1::Output& output = *chunk.add_outputs();
  output.set_text(std::string(text));
  return chunk;
}

v1::GenerateChunk last_chunk(std::string_view text, v1::FinishReason reason) {
  v1::GenerateChunk chunk;
  v1::Output& output = *chunk.add_outputs();
  output.set_text(std::string(text));
  output.set_finish_reason(reason);
  chunk.mutable_usage()->set_prompt_tokens(4);
  chunk.mutable_usage()->set_cached_tokens(3);
  chunk.mutable_usage()->set_output_tokens(2);
  chunk.set_seed(5);
  return chunk;
}

// The data of each event; the texts of a stream that is not well formed fail the test.
std::vector<std::string> events_of(std::string_view stream) {
  std::vector<std::string> out;
  while (!stream.empty()) {
    const std::size_t end = stream.find("\n\n");
    EXPECT_TRUE(stream.starts_with("data: "));
    EXPECT_NE(end, std::string_view::npos);
    if (end == std::string_view::npos || !stream.starts_with("data: ")) break;
    out.emplace_back(stream.substr(6, end - 6));
    EXPECT_EQ(out.back().find('\n'), std::string::npos);
    stream.remove_prefix(end + 2);
  }
  return out;
}

std::vector<json> render(OpenAiRenderer& renderer, const v1::GenerateChunk& chunk) {
  std::string stream;
  renderer.append_events(chunk, stream);
  std::vector<json> out;
  for (const std::string& event : events_of(stream)) out.push_back(json::parse(event));
  return out;
}

void add_logprob(v1::Output& output, std::string_view piece, float logprob,
                 const std::vector<std::pair<std::string, float>>& top) {
  v1::TokenLogprob& entry = *output.add_logprobs();
  entry.set_piece(std::string(piece));
  entry.set_logprob(logprob);
  for (const auto& [other, value] : top) {
    entry.add_top()->set_piece(other);
    entry.mutable_top()->rbegin()->set_logprob(value);
  }
}

TEST(CompletionStream, ChunksThenUsage) {
  OpenAiForm form = form_of(OpenAiCall::kCompletion);
  form.include_usage = true;
  OpenAiRenderer renderer(form);
  const auto first = render(renderer, first_chunk("Hel"));
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0], json::parse(R"({"id": "x-7", "object": "text_completion", "created": 1700000000, "model": "tiny",
    "choices": [{"index": 0, "text": "Hel", "logprobs": null, "finish_reason": null}], "usage": null})"));
  const auto last = render(renderer, last_chunk("lo", v1::FINISH_REASON_LENGTH));
  ASSERT_EQ(last.size(), 2U);
  EXPECT_EQ(last[0]["choices"], json::parse(R"([{"index": 0, "text": "lo", "logprobs": null,
    "finish_reason": "length", "stop_reason": null}])"));
  EXPECT_EQ(last[1], json::parse(R"({"id": "x-7", "object": "text_completion", "created": 1700000000, "model": "tiny",
    "choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6,
    "prompt_tokens_details": {"cached_tokens": 3}}, "seed": 5})"));
}

TEST(ChatStream, TheRoleComesOnceForEachIndex) {
  OpenAiRenderer renderer(form_of(OpenAiCall::kChat));
  v1::GenerateChunk chunk = first_chunk("");
  chunk.add_outputs()->set_index(1);
  chunk.mutable_outputs(1)->set_text("B");
  const auto first = render(renderer, chunk);
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(first[0]["choices"][0]["delta"], json::parse(R"({"role": "assistant", "content": ""})"));
  EXPECT_EQ(first[1]["choices"][0], json::parse(R"({"index": 1, "delta": {"role": "assistant", "content": "B"},
    "logprobs": null, "finish_reason": null})"));
  EXPECT_FALSE(first[0].contains("usage"));
  const auto second = render(renderer, first_chunk("A"));
  EXPECT_EQ(second.at(0)["choices"][0]["delta"], json::parse(R"({"content": "A"})"));
  const auto last = render(renderer, last_chunk("", v1::FINISH_REASON_STOP_TOKEN));
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(last[0]["choices"][0]["delta"], json::object());
  EXPECT_EQ(last[0]["choices"][0]["finish_reason"], "stop");
}

TEST(Stream, WhatTellsNothingIsNoEvent) {
  OpenAiRenderer renderer(form_of(OpenAiCall::kCompletion));
  EXPECT_TRUE(render(renderer, first_chunk("")).empty());  // bytes of a character that is not whole yet
  EXPECT_EQ(render(renderer, first_chunk("\xF0\x9F\xA6\x99")).at(0)["choices"][0]["text"], "\xF0\x9F\xA6\x99");
}

TEST(Stream, TextCannotForgeAnEvent) {
  OpenAiRenderer renderer(form_of(OpenAiCall::kCompletion));
  const std::string text = "\n\ndata: [DONE]\n\n\r\ndata: {}\n";
  const auto events = render(renderer, first_chunk(text));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0]["choices"][0]["text"], text);
}

TEST(Stream, TheEnd) {
  std::string out;
  OpenAiRenderer::append_end(nullptr, out);
  EXPECT_EQ(out, "data: [DONE]\n\n");
  out.clear();
  const Error error{ErrorCode::kInternal, "a step failed"};
  OpenAiRenderer::append_end(&error, out);
  const auto events = events_of(out);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(json::parse(events[0])["error"]["message"], "a step failed");
  EXPECT_EQ(events[1], "[DONE]");
}

TEST(Whole, Completion) {
  OpenAiRenderer renderer(form_of(OpenAiCall::kCompletion));
  v1::GenerateResponse response;
  response.mutable_prompt_info()->set_id(9);
  response.add_outputs()->set_text("a\"\\\n\x01\x7F");
  response.mutable_outputs(0)->set_finish_reason(v1::FINISH_REASON_STOP_STRING);
  response.mutable_outputs(0)->set_stop_string("END");
  response.set_seed(18446744073709551615U);
  const json whole = json::parse(renderer.whole(response));
  EXPECT_EQ(whole["id"], "x-9");
  EXPECT_EQ(whole["object"], "text_completion");
  EXPECT_EQ(whole["choices"][0]["text"], "a\"\\\n\x01\x7F");
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(whole["choices"][0]["stop_reason"], "END");
  EXPECT_EQ(whole["seed"], 18446744073709551615U);
}

TEST(Whole, Chat) {
  OpenAiRenderer renderer(form_of(OpenAiCall::kChat));
  v1::GenerateResponse response;
  for (int i = 0; i < 2; ++i) {
    v1::Output& output = *response.add_outputs();
    output.set_index(i);
    output.set_text(i == 0 ? "A" : "B");
    output.set_finish_reason(v1::FINISH_REASON_STOP_TOKEN);
    output.set_stop_token(2);
  }
  const json whole = json::parse(renderer.whole(response));
  EXPECT_EQ(whole["object"], "chat.completion");
  EXPECT_EQ(whole["choices"][1], json::parse(R"({"index": 1, "message": {"role": "assistant", "content": "B",
    "refusal": null}, "logprobs": null, "finish_reason": "stop", "stop_reason": 2})"));
}

TEST(FinishReasons, EachHasAName) {
  const std::pair<v1::FinishReason, const char*> cases[] = {
      {v1::FINISH_REASON_STOP_TOKEN, "stop"}, {v1::FINISH_REASON_STOP_STRING, "stop"},
      {v1::FINISH_REASON_LENGTH, "length"},   {v1::FINISH_REASON_DEADLINE, "length"},
      {v1::FINISH_REASON_CANCELLED, "abort"}, {v1::FINISH_REASON_ERROR, "error"},
  };
  for (const auto& [reason, name] : cases) {
    OpenAiRenderer renderer(form_of(OpenAiCall::kCompletion));
    EXPECT_EQ(render(renderer, last_chunk("", reason)).at(0)["choices"][0]["finish_reason"], name);
  }
}

TEST(Logprobs, OfACompletion) {
  OpenAiForm form = form_of(OpenAiCall::kCompletion);
  form.logprobs = true;
  OpenAiRenderer renderer(form);
  v1::GenerateChunk chunk = first_chunk("h\xC3\xA9");
  add_logprob(*chunk.mutable_outputs(0), "h", -0.5F, {{"h", -0.5F}, {"\xC3", -2.0F}});
  add_logprob(*chunk.mutable_outputs(0), "\xC3", -1.5F, {{"a", -1.0F}, {"a", -1.25F}});
  add_logprob(*chunk.mutable_outputs(0), "\xA9", 0.0F, {});
  const json logprobs = render(renderer, chunk).at(0)["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs, json::parse(R"({"tokens": ["h", "bytes:\\xc3", "bytes:\\xa9"], "token_logprobs": [-0.5, -1.5, 0],
    "top_logprobs": [{"h": -0.5, "bytes:\\xc3": -2}, {"a": -1, "bytes:\\xc3": -1.5}, {"bytes:\\xa9": 0}],
    "text_offset": [0, 1, 1]})"));
  // Offsets go on from chunk to chunk, in characters.
  v1::GenerateChunk next = first_chunk("!");
  add_logprob(*next.mutable_outputs(0), "!", -3.0F, {});
  EXPECT_EQ(render(renderer, next).at(0)["choices"][0]["logprobs"]["text_offset"], json::parse("[2]"));
}

TEST(Logprobs, OfAChat) {
  OpenAiForm form = form_of(OpenAiCall::kChat);
  form.logprobs = true;
  OpenAiRenderer renderer(form);
  v1::GenerateChunk chunk = first_chunk("");
  add_logprob(*chunk.mutable_outputs(0), "\xF0\x9F", -0.25F, {{"a", -0.125F}});
  const json logprobs = render(renderer, chunk).at(0)["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs, json::parse(R"({"content": [{"token": "\ufffd", "logprob": -0.25, "bytes": [240, 159],
    "top_logprobs": [{"token": "a", "logprob": -0.125, "bytes": [97]}]}], "refusal": null})"));
}

TEST(Logprobs, TokensWithoutTextAreAnEvent) {
  OpenAiForm form = form_of(OpenAiCall::kCompletion);
  form.logprobs = true;
  OpenAiRenderer renderer(form);
  v1::GenerateChunk chunk = first_chunk("");
  add_logprob(*chunk.mutable_outputs(0), "\xF0", -1, {});
  EXPECT_EQ(render(renderer, chunk).size(), 1U);
}

}  // namespace
}  // namespace folio
