#include "server/http/openai_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <variant>

namespace folio {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Completion {
  v1::GenerateRequest request;
  OpenAiForm form;
};
struct Chat {
  v1::ChatRequest request;
  OpenAiForm form;
};

// Members of a body beside what it must have: `,"n": 2`.
std::string completion_body(const std::string& more) {
  return R"({"model": "tiny", "prompt": "Once")" + more + "}";
}
std::string chat_body(const std::string& more) {
  return R"({"model": "tiny", "messages": [{"role": "user", "content": "Hi"}])" + more + "}";
}

Completion completion(const std::string& body) {
  auto read = read_openai_request(OpenAiCall::kCompletion, body);
  if (read) return {std::get<v1::GenerateRequest>(read->input), read->form};
  ADD_FAILURE() << body << ": " << read.error().message;
  return {};
}
Chat chat(const std::string& body) {
  auto read = read_openai_request(OpenAiCall::kChat, body);
  if (read) return {std::get<v1::ChatRequest>(read->input), read->form};
  ADD_FAILURE() << body << ": " << read.error().message;
  return {};
}
std::string refusal(OpenAiCall call, const std::string& body) {
  const auto read = read_openai_request(call, body);
  EXPECT_FALSE(read) << body;
  return read ? "" : read.error().message;
}
// Both calls refuse it, and the complaint begins with `begin`.
void expect_refused(const std::string& more, const std::string& begin) {
  EXPECT_THAT(refusal(OpenAiCall::kCompletion, completion_body(more)), StartsWith(begin)) << more;
  EXPECT_THAT(refusal(OpenAiCall::kChat, chat_body(more)), StartsWith(begin)) << more;
}

TEST(CompletionRequest, Defaults) {
  const auto [request, form] = completion(R"({"prompt": "Once"})");
  EXPECT_EQ(request.text(), "Once");
  EXPECT_EQ(request.model(), "");
  EXPECT_EQ(request.stopping().max_tokens(), kDefaultCompletionTokens);
  EXPECT_FALSE(request.has_logprobs());
  EXPECT_FALSE(request.sampling().has_temperature());
  EXPECT_FALSE(request.sampling().has_seed());
  EXPECT_FALSE(request.has_add_special());
  EXPECT_FALSE(form.stream);
  EXPECT_FALSE(form.logprobs);
}

TEST(CompletionRequest, EveryField) {
  const auto [request, form] = completion(R"({
    "model": "m", "prompt": [1, 2, 3], "max_tokens": 7, "temperature": 0.5, "top_p": 0.25, "n": 2, "stream": true,
    "stream_options": {"include_usage": true}, "logprobs": 3, "echo": false, "stop": ["a", "b"],
    "presence_penalty": 1, "frequency_penalty": -1, "logit_bias": {"5": -100, "17": 2.5}, "seed": 42, "user": "u",
    "best_of": 2, "suffix": null, "top_k": 40, "min_p": 0.125, "repetition_penalty": 1.5, "min_tokens": 2,
    "ignore_eos": true, "stop_token_ids": [9, 8], "include_stop_str_in_output": true, "skip_special_tokens": false,
    "add_special_tokens": true, "parse_special": true, "prompt_logprobs": 1, "priority": -3, "request_id": "r",
    "cache_salt": "s", "cache_bypass": false, "cache_pin_ms": 5, "tenant": "t", "time_limit_ms": 900,
    "response_format": {"type": "text"}, "service_tier": "auto", "store": false})");
  EXPECT_EQ(request.model(), "m");
  EXPECT_THAT(request.tokens().ids(), ElementsAre(1, 2, 3));
  EXPECT_EQ(request.stopping().max_tokens(), 7);
  EXPECT_EQ(request.sampling().temperature(), 0.5F);
  EXPECT_EQ(request.sampling().top_p(), 0.25F);
  EXPECT_EQ(request.n(), 2);
  EXPECT_TRUE(form.stream);
  EXPECT_TRUE(form.include_usage);
  EXPECT_TRUE(form.logprobs);
  EXPECT_EQ(request.logprobs(), 3);
  EXPECT_FALSE(request.echo());
  EXPECT_THAT(request.stopping().stop(), ElementsAre("a", "b"));
  EXPECT_EQ(request.sampling().presence_penalty(), 1);
  EXPECT_EQ(request.sampling().frequency_penalty(), -1);
  EXPECT_EQ(request.sampling().logit_bias().at(5), -100);
  EXPECT_EQ(request.sampling().logit_bias().at(17), 2.5F);
  EXPECT_EQ(request.sampling().seed(), 42U);
  EXPECT_EQ(request.sampling().top_k(), 40);
  EXPECT_EQ(request.sampling().min_p(), 0.125F);
  EXPECT_EQ(request.sampling().repetition_penalty(), 1.5F);
  EXPECT_EQ(request.stopping().min_tokens(), 2);
  EXPECT_TRUE(request.stopping().ignore_eos());
  EXPECT_THAT(request.stopping().stop_token_ids(), ElementsAre(9, 8));
  EXPECT_TRUE(request.stopping().include_stop());
  EXPECT_FALSE(request.skip_special());
  EXPECT_TRUE(request.add_special());
  EXPECT_TRUE(request.parse_special());
  EXPECT_EQ(request.prompt_logprobs(), 1);
  EXPECT_EQ(request.priority(), -3);
  EXPECT_EQ(request.request_id(), "r");
  EXPECT_EQ(request.cache().salt(), "s");
  EXPECT_EQ(request.cache().pin_ms(), 5U);
  EXPECT_EQ(request.tenant(), "t");
  EXPECT_EQ(request.time_limit_ms(), 900U);
}

TEST(CompletionRequest, FormsOfAPrompt) {
  EXPECT_EQ(completion(R"({"prompt": ["one"]})").request.text(), "one");
  EXPECT_THAT(completion(R"({"prompt": [[4, 5]]})").request.tokens().ids(), ElementsAre(4, 5));
  EXPECT_TRUE(completion(R"({"prompt": []})").request.has_tokens());  // the generation layer: no token ids
  const auto refused = [](const char* body) { return refusal(OpenAiCall::kCompletion, body); };
  EXPECT_EQ(refused("{}"), "prompt: must be given");
  EXPECT_THAT(refused(R"({"prompt": ["a", "b"]})"), StartsWith("prompt: 2 prompts; "));
  EXPECT_THAT(refused(R"({"prompt": [[1], [2], [3]]})"), StartsWith("prompt: 3 prompts; "));
  EXPECT_EQ(refused(R"({"prompt": 5})"), "prompt: must be a string or a list of token ids");
  EXPECT_EQ(refused(R"({"prompt": [1, "a"]})"), "prompt[1]: must be a token id");
  EXPECT_EQ(refused(R"({"prompt": [1, 1.5]})"), "prompt[1]: must be a token id");
  EXPECT_EQ(refused(R"({"prompt": [true]})"), "prompt: must be a string or a list of token ids");
  EXPECT_EQ(refused(R"({"prompt": [-1]})"), "prompt[0]: token id -1 is out of range");
  EXPECT_EQ(refused(R"({"prompt": [2147483648]})"), "prompt[0]: token id 2147483648 is out of range");
  EXPECT_EQ(refused(R"({"prompt": [99999999999999999999]})"), "prompt[0]: must be a token id");
}

TEST(CompletionRequest, RefusesByName) {
  const auto refused = [](const char* more) { return refusal(OpenAiCall::kCompletion, completion_body(more)); };
  EXPECT_THAT(refused(R"(,"suffix": "end")"), StartsWith("suffix: not supported"));
  EXPECT_THAT(refused(R"(,"best_of": 2)"), StartsWith("best_of: not supported"));
  EXPECT_THAT(refused(R"(,"n": 3, "best_of": 4)"), StartsWith("best_of: not supported"));
  EXPECT_THAT(refused(R"(,"logprobs": true)"), StartsWith("logprobs: must be a whole number"));
  EXPECT_THAT(refused(R"(,"max_tokens": -1)"), StartsWith("max_tokens: must be a whole number in [0, "));
  EXPECT_THAT(refused(R"(,"max_completion_tokens": 5)"), StartsWith("max_completion_tokens: not a field"));
  EXPECT_THAT(refused(R"(,"messages": [])"), StartsWith("messages: not a field"));
}

TEST(ChatRequest, Defaults) {
  const auto [request, form] = chat(chat_body(""));
  ASSERT_EQ(request.messages_size(), 1);
  EXPECT_EQ(request.messages(0).role(), "user");
  EXPECT_EQ(request.messages(0).content(), "Hi");
  EXPECT_FALSE(request.stopping().has_max_tokens());  // the rest of the context
  EXPECT_FALSE(request.has_logprobs());
  EXPECT_FALSE(request.has_add_generation_prompt());
}

TEST(ChatRequest, LimitsUnderBothNames) {
  EXPECT_EQ(chat(chat_body(R"(,"max_tokens": 5)")).request.stopping().max_tokens(), 5);
  EXPECT_EQ(chat(chat_body(R"(,"max_completion_tokens": 6)")).request.stopping().max_tokens(), 6);
  EXPECT_EQ(chat(chat_body(R"(,"max_tokens": 6, "max_completion_tokens": 6)")).request.stopping().max_tokens(), 6);
  EXPECT_THAT(refusal(OpenAiCall::kChat, chat_body(R"(,"max_tokens": 5, "max_completion_tokens": 6)")),
              StartsWith("max_tokens: differs"));
}

TEST(ChatRequest, Logprobs) {
  EXPECT_FALSE(chat(chat_body(R"(,"logprobs": false)")).request.has_logprobs());
  EXPECT_EQ(chat(chat_body(R"(,"logprobs": true)")).request.logprobs(), 0);
  EXPECT_EQ(chat(chat_body(R"(,"logprobs": true, "top_logprobs": 4)")).request.logprobs(), 4);
  EXPECT_THAT(refusal(OpenAiCall::kChat, chat_body(R"(,"top_logprobs": 4)")), StartsWith("top_logprobs: only"));
  EXPECT_THAT(refusal(OpenAiCall::kChat, chat_body(R"(,"logprobs": 4)")), StartsWith("logprobs: must be true"));
}

TEST(ChatRequest, ToolsAndFormatsAreRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(,"tools": [{"type": "function"}])", "tools: not supported"},
      {R"(,"tool_choice": "auto")", "tool_choice: not supported"},
      {R"(,"functions": [{}])", "functions: not supported"},
      {R"(,"function_call": "auto")", "function_call: not supported"},
      {R"(,"parallel_tool_calls": 1)", "parallel_tool_calls: must be true or false"},
      {R"(,"response_format": {"type": "json_object"})", "response_format: not supported"},
      {R"(,"response_format": {"type": "json_schema", "json_schema": {}})", "response_format: not supported"},
      {R"(,"modalities": ["text", "audio"])", "modalities: not supported"},
      {R"(,"reasoning_effort": "high")", "reasoning_effort: not supported"},
      {R"(,"web_search_options": {})", "web_search_options: not supported"},
      {R"(,"continue_final_message": true)", "continue_final_message: not supported"},
  };
  for (const auto& [more, message] : cases) EXPECT_EQ(refusal(OpenAiCall::kChat, chat_body(more)), message);
  chat(chat_body(R"(,"tools": [], "tool_choice": "none", "functions": null, "response_format": {"type": "text"})"));
}

// T09.
TEST(ChatRequest, FormsOfContent) {
  const auto content = [](const std::string& role, const std::string& json) {
    return chat(R"({"messages": [{"role": ")" + role + R"(", "content": )" + json + "}]}")
        .request.messages(0)
        .content();
  };
  for (const char* role : {"system", "user", "assistant", "tool", "developer"}) {
    EXPECT_EQ(content(role, R"([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])"), "ab");
    EXPECT_EQ(content(role, R"("ab")"), "ab");
    EXPECT_EQ(content(role, R"("")"), "");
  }
}

TEST(ChatRequest, ContentThatIsNone) {
  const auto refused = [](const std::string& message) {
    return refusal(OpenAiCall::kChat, R"({"messages": [{"role": "user", "content": "x"}, )" + message + "]}");
  };
  const std::string bad = "messages[1].content: must be a string or a list of text parts";
  EXPECT_EQ(refused(R"({"role": "user", "content": null})"), bad);
  EXPECT_EQ(refused(R"({"role": "assistant", "content": null})"), bad);
  EXPECT_EQ(refused(R"({"role": "user"})"), bad);
  EXPECT_EQ(refused(R"({"role": "user", "content": 5})"), bad);
  EXPECT_EQ(refused(R"({"role": "user", "content": []})"), "messages[1].content: an empty list");
  EXPECT_EQ(refused(R"({"role": "user", "content": [null]})"),
            "messages[1].content[0]: must be an object with type and text");
  EXPECT_EQ(refused(R"({"role": "user", "content": [{"type": "text"}]})"),
            "messages[1].content[0].text: must be given");
  EXPECT_EQ(refused(R"({"role": "user", "content": [{"type": "text", "text": 1}]})"),
            "messages[1].content[0].text: must be a string");
  EXPECT_EQ(refused(R"({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]})"),
            R"(messages[1].content[0].type: "image_url" is not supported, only "text" is)");
}

TEST(ChatRequest, NullContentBesideToolCalls) {
  const auto [request, form] = chat(R"({"messages": [{"role": "user", "content": "x"},
    {"role": "assistant", "content": null, "refusal": null, "annotations": [],
     "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c", "name": "f", "content": "5"}]})");
  EXPECT_EQ(request.messages(1).content(), "");
  EXPECT_THAT(request.messages(1).tool_calls(), HasSubstr(R"("name":"f")"));
  EXPECT_EQ(request.messages(2).tool_call_id(), "c");
  EXPECT_EQ(request.messages(2).name(), "f");
}

TEST(ChatRequest, MessagesThatAreNone) {
  const auto refused = [](const char* body) { return refusal(OpenAiCall::kChat, body); };
  EXPECT_EQ(refused("{}"), "messages: must be given");
  EXPECT_EQ(refused(R"({"messages": []})"), "messages: an empty list");
  EXPECT_EQ(refused(R"({"messages": {"role": "user"}})"), "messages: must be a list");
  EXPECT_EQ(refused(R"({"messages": ["hi"]})"), "messages[0]: must be an object");
  EXPECT_EQ(refused(R"({"messages": [{"content": "x"}]})"), "messages[0].role: must be given");
  EXPECT_EQ(refused(R"({"messages": [{"role": 1, "content": "x"}]})"), "messages[0].role: must be a string");
  EXPECT_EQ(refused(R"({"messages": [{"role": "user", "content": "x", "weight": 1}]})"),
            "messages[0].weight: not a field of this call");
  EXPECT_EQ(refused(R"({"messages": [{"role": "assistant", "content": "x", "refusal": "no"}]})"),
            "messages[0].refusal: not supported");
}

TEST(ChatRequest, TemplateArguments) {
  const auto [request, form] =
      chat(chat_body(R"(,"chat_template_kwargs": {"a": [1, "x"]}, "add_generation_prompt": false)"));
  EXPECT_EQ(request.template_args(), R"({"a":[1,"x"]})");
  EXPECT_TRUE(request.has_add_generation_prompt());
  EXPECT_FALSE(request.add_generation_prompt());
  EXPECT_THAT(refusal(OpenAiCall::kChat, chat_body(R"(,"chat_template_kwargs": [])")),
              StartsWith("chat_template_kwargs"));
}

TEST(OpenAiRequest, TypesAreNotGuessed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(,"temperature": "0.5")", "temperature: must be a number"},
      {R"(,"temperature": 1e39)", "temperature: the number is too large"},
      {R"(,"temperature": 1e999)", "temperature: the number is too large"},
      {R"(,"temperature": true)", "temperature: must be a number"},
      {R"(,"max_tokens": "5")", "max_tokens: must be a whole number"},
      {R"(,"max_tokens": 2.5)", "max_tokens: must be a whole number"},
      {R"(,"max_tokens": 99999999999999999999)", "max_tokens: must be a whole number"},
      {R"(,"n": 0)", "n: must be a whole number in [1, "},
      {R"(,"n": 4294967297)", "n: must be a whole number in [1, "},
      {R"(,"stream": "yes")", "stream: must be true or false"},
      {R"(,"stream": 1)", "stream: must be true or false"},
      {R"(,"user": 5)", "user: must be a string"},
      {R"(,"stop": 5)", "stop: must be a string or a list"},
      {R"(,"stop": ["a", 5])", "stop[1]: must be a string"},
      {R"(,"seed": "x")", "seed: must be a whole number"},
      {R"(,"seed": 0.5)", "seed: must be a whole number"},
      {R"(,"logit_bias": [])", "logit_bias: must be an object"},
      {R"(,"logit_bias": {"x": 1})", "logit_bias: \"x\" is not a token id"},
      {R"(,"logit_bias": {"99999999999": 1})", "logit_bias: \"99999999999\" is not a token id"},
      {R"(,"logit_bias": {"5": "1"})", "logit_bias[5]: must be a number"},
      {R"(,"logit_bias": {"5": 1, "05": 1})", "logit_bias[5]: given twice"},
      {R"(,"stop_token_ids": 5)", "stop_token_ids: must be a list"},
      {R"(,"stop_token_ids": ["a"])", "stop_token_ids[0]: must be a token id"},
      {R"(,"stream_options": {"include_usage": true})", "stream_options: only together with stream"},
      {R"(,"stream": true, "stream_options": true)", "stream_options: must be an object"},
      {R"(,"stream": true, "stream_options": {"include_usage": 1})", "stream_options.include_usage: must be true"},
      {R"(,"stream": true, "stream_options": {"x": 1})", "stream_options.x: not a field"},
      {R"(,"priority": 1e10)", "priority: must be a whole number"},
      {R"(,"time_limit_ms": -1)", "time_limit_ms: must be a whole number"},
      {R"(,"use_beam_search": true)", "use_beam_search: not supported"},
      {R"(,"metadata": {"a": "b"})", "metadata: not supported"},
      {R"(,"store": true)", "store: not supported"},
      {R"(,"guided_json": {})", "guided_json: not supported"},
      {R"(,"temprature": 1)", "temprature: not a field of this call"},
  };
  for (const auto& [more, begin] : cases) expect_refused(more, begin);
}

TEST(OpenAiRequest, TheModelIsAString) {
  EXPECT_EQ(refusal(OpenAiCall::kCompletion, R"({"prompt": "x", "model": 5})"), "model: must be a string");
  EXPECT_EQ(refusal(OpenAiCall::kChat, R"({"messages": [], "model": ["m"]})"), "model: must be a string");
}

TEST(OpenAiRequest, NullIsTheDefaultEverywhere) {
  completion(completion_body(R"(,"max_tokens": null, "temperature": null, "n": null, "stream": null, "logprobs": null,
    "stop": null, "logit_bias": null, "seed": null, "user": null, "stream_options": null, "response_format": null)"));
  chat(chat_body(R"(,"max_tokens": null, "max_completion_tokens": null, "logprobs": null, "top_logprobs": null,
    "stop": null, "tools": null, "tool_choice": null, "response_format": null)"));
}

TEST(OpenAiRequest, SeedsOf64Bits) {
  const auto seed = [](const char* text) {
    return completion(completion_body(std::string(R"(,"seed": )") + text)).request.sampling().seed();
  };
  EXPECT_EQ(seed("-1"), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(seed("18446744073709551615"), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(seed("0"), 0U);
}

TEST(OpenAiNames, OfComplaints) {
  const auto renamed = [](OpenAiCall call, const char* message) {
    return with_openai_names({ErrorCode::kInvalidArgument, message}, call).message;
  };
  const std::pair<const char*, const char*> cases[] = {
      {"sampling.temperature: -1 is not in [0, 100]", "temperature: -1 is not in [0, 100]"},
      {"sampling.logit_bias[5]: 2000 is not in [-1000, 1000]", "logit_bias[5]: 2000 is not in [-1000, 1000]"},
      {"stopping.stop[0]: empty", "stop[0]: empty"},
      {"stopping.min_tokens: 5 is above stopping.max_tokens", "min_tokens: 5 is above max_tokens"},
      {"cache.pin_ms: not together with cache.bypass", "cache_pin_ms: not together with cache_bypass"},
      {"prompt.tokens[3]: token id 9 is not in [0, 5)", "prompt[3]: token id 9 is not in [0, 5)"},
      {"n: 9 is not in [0, 8]", "n: 9 is not in [0, 8]"},
  };
  for (const auto& [from, to] : cases) EXPECT_EQ(renamed(OpenAiCall::kCompletion, from), to);
  EXPECT_EQ(renamed(OpenAiCall::kChat, "prompt: 9 tokens"), "messages: 9 tokens");
  EXPECT_EQ(renamed(OpenAiCall::kCompletion, "prompt: 9 tokens"), "prompt: 9 tokens");
  EXPECT_EQ(renamed(OpenAiCall::kChat, "logprobs: 30 is not in [0, 20]"), "top_logprobs: 30 is not in [0, 20]");
  EXPECT_EQ(with_openai_names({ErrorCode::kInternal, "sampling.x: y"}, OpenAiCall::kChat).message, "sampling.x: y");
}

}  // namespace
}  // namespace folio
