#include "engine/text/chat_template.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "engine/text/chat_helper.h"
#include "engine/text/chat_request.h"
#include "engine/text/control_marks.h"
#include "engine/text/detokenizer.h"

namespace folio {
namespace {

constexpr std::size_t kMaxErrorBytes = 1000;
constexpr std::size_t kMaxRequestBytes = 64U << 20;
constexpr std::size_t kMaxReplyGrowth = 4;  // how much longer than its text a marked text may be
constexpr std::chrono::milliseconds kStartLimit{10000};
// The helper ends itself this much later than the server would kill it, should the server not live to do so.
constexpr double kGraceSeconds = 1.0;

std::string piece_or_empty(const Tokenizer& tokenizer, TokenId id) {
  return id < 0 ? std::string() : std::string(tokenizer.piece(id));
}

ChatHelper::Options helper_options(const std::string& source, const Tokenizer& tokenizer, const ChatLimits& limits) {
  const std::size_t max_reply = limits.max_output_bytes * kMaxReplyGrowth;
  const auto seconds = [](double s) { return std::to_string(s + kGraceSeconds); };
  std::string setup = "{\"template\": " + json_quoted(source);
  setup += ", \"bos_token\": " + json_quoted(piece_or_empty(tokenizer, tokenizer.bos()));
  setup += ", \"eos_token\": " + json_quoted(piece_or_empty(tokenizer, tokenizer.eos()));
  setup += ", \"now\": " + json_quoted(limits.now);
  setup += ", \"max_memory\": " + std::to_string(limits.max_memory_bytes);
  setup += ", \"max_output\": " + std::to_string(max_reply);
  setup += ", \"seconds\": " + seconds(limits.timeout_ms / 1e3);
  setup += ", \"start_seconds\": " + seconds(std::chrono::duration<double>(kStartLimit).count()) + "}";
  // An error text is at most 2,000 code points.
  return {limits.python, std::move(setup), std::max<std::size_t>(max_reply, 8000), kStartLimit,
          std::chrono::milliseconds(limits.timeout_ms)};
}

}  // namespace

class ChatTemplate::Impl {
 public:
  Impl(const std::string& source, const Tokenizer& tokenizer, const ChatLimits& limits)
      : tokenizer_(tokenizer),
        limits_(limits),
        marks_(tokenizer),
        helper_(helper_options(source, tokenizer, limits)),
        error_(start(source)) {}

  const std::string& error() const { return error_; }

  Result<Rendered> render(const ChatInput& input, std::size_t max_text_bytes) {
    if (!error_.empty()) return Error{ErrorCode::kFailedPrecondition, error_};
    Result<std::string> request = make_chat_request(input, marks_);
    if (!request) return failed(request.error().code, request.error().message);
    if (request->size() > kMaxRequestBytes) {
      return failed(ErrorCode::kInvalidArgument, "messages: more than 64 MiB with tools and template_args");
    }
    ChatHelper::Reply reply = ask(*request);
    if (reply.outcome != ChatHelper::Outcome::kRendered) return refused(reply);
    Rendered rendered{ControlMarks::unmark(reply.text), {}};
    const std::size_t limit = std::min(max_text_bytes, limits_.max_output_bytes);
    if (rendered.text.size() > limit) return too_long(limit);
    marks_.encode(reply.text, rendered.tokens);
    const TokenId bos = tokenizer_.bos();
    const bool begins_with_bos = !rendered.tokens.empty() && rendered.tokens.front() == bos;
    if (tokenizer_.add_bos() && bos >= 0 && !begins_with_bos) rendered.tokens.insert(rendered.tokens.begin(), bos);
    return rendered;
  }

 private:
  std::string start(const std::string& source) {
    if (source.empty()) return "the model file has no chat template";
    if (!is_valid_utf8(source)) return "chat template: not valid UTF-8";
    const std::string why = helper_.make_ready();
    return why.empty() ? why : shortened("chat template: " + why);
  }

  ChatHelper::Reply ask(const std::string& request) {
    const std::lock_guard lock(mutex_);
    return helper_.ask(request);
  }

  Error refused(const ChatHelper::Reply& reply) const {
    using Outcome = ChatHelper::Outcome;
    const auto code = reply.outcome == Outcome::kDied         ? ErrorCode::kInternal
                      : reply.outcome == Outcome::kNotStarted ? ErrorCode::kUnavailable
                                                              : ErrorCode::kInvalidArgument;
    return failed(code, what_happened(reply));
  }

  std::string what_happened(const ChatHelper::Reply& reply) const {
    switch (reply.outcome) {
      case ChatHelper::Outcome::kRaised:
        return "messages: refused by the chat template: " + ControlMarks::unmark(reply.text);
      case ChatHelper::Outcome::kTimeout:
        return "messages: the chat template ran for more than " + std::to_string(limits_.timeout_ms) + " ms";
      case ChatHelper::Outcome::kDied:
        return "messages: the chat template's process died of them";
      case ChatHelper::Outcome::kNotStarted:
        return "the chat template's process could not be started again: " + reply.text;
      default:
        return "messages: the chat template failed: " + ControlMarks::unmark(reply.text);
    }
  }

  static Error too_long(std::size_t limit) {
    Error error = failed(ErrorCode::kInvalidArgument,
                         "messages: the rendered prompt is longer than " + std::to_string(limit) + " bytes");
    error.over_context = true;
    return error;
  }

  static std::string shortened(const std::string& text) {
    const std::string valid = sanitize_utf8(text);
    return std::string(truncate_utf8(valid, kMaxErrorBytes));
  }
  static Error failed(ErrorCode code, const std::string& message) { return {code, shortened(message)}; }

  const Tokenizer& tokenizer_;
  const ChatLimits limits_;
  const ControlMarks marks_;
  std::mutex mutex_;
  ChatHelper helper_;  // under mutex_ once constructed
  const std::string error_;
};

ChatTemplate::ChatTemplate(std::string source, const Tokenizer& tokenizer, ChatLimits limits)
    : impl_(std::make_unique<Impl>(source, tokenizer, limits)) {}
ChatTemplate::~ChatTemplate() = default;

bool ChatTemplate::available() const {
  return impl_->error().empty();
}

const std::string& ChatTemplate::error() const {
  return impl_->error();
}

Result<ChatTemplate::Rendered> ChatTemplate::render(const ChatInput& input, std::size_t max_text_bytes) const {
  return impl_->render(input, max_text_bytes);
}

}  // namespace folio
