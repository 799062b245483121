#include "server/http/http_call.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <exception>
#include <utility>

#include "server/answer_size.h"
#include "server/http/http_error.h"
#include "server/http/openai_request.h"
#include "server/http/openai_response.h"

namespace folio {
namespace {

// Ids of two processes differ, although each counts its requests from 1.
const std::string& process_tag() {
  static const std::string tag = [] {
    constexpr char kHex[] = "0123456789abcdef";
    std::random_device entropy;
    std::string out;
    for (std::uint32_t bits = entropy(); out.size() < 8; bits >>= 4U) out += kHex[bits & 15U];
    return out;
  }();
  return tag;
}

HttpResponse json_response(std::string body) {
  HttpResponse out;
  out.content_type = "application/json";
  out.body = std::move(body);
  return out;
}

HttpResponse event_stream() {
  HttpResponse out;
  out.content_type = "text/event-stream; charset=utf-8";
  out.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};  // proxies: let events pass
  return out;
}

bool has_tokens(const v1::GenerateChunk& chunk) {
  const auto has_some = [](const v1::Output& output) { return output.tokens_size() > 0; };
  return chunk.prompt_info().logprobs_size() > 0 ||
         std::any_of(chunk.outputs().begin(), chunk.outputs().end(), has_some);
}

// Whether it streams stands in the body, so it is known when that was read.
class OpenAiHttpCall final : public GenerationCall, public HttpCall {
 public:
  OpenAiHttpCall(Generation& generation, OpenAiCall call, HttpRequest request, Caller caller,
                 std::weak_ptr<ReplyPort> port)
      : GenerationCall(generation, kNoDeadline, std::move(caller)),
        model_(generation.list_models().models(0).name()),
        call_(call),
        request_(std::move(request)),
        port_(std::move(port)) {}

  void written() override {
    if (write_.exchange(Write::kNone) == Write::kUnderWayWithNews) wake();
  }
  void abandon() override {
    gone_.store(true);
    cancel();
    written();
  }

 private:
  enum class Write : std::uint8_t { kNone, kUnderWay, kUnderWayWithNews };

  Result<GenerationInput> parse() override {
    auto read = read_openai_request(call_, std::exchange(request_.body, std::string()));
    if (!read) return read.error();
    OpenAiForm form = std::move(read->form);
    form.model = model_;
    form.id_prefix = (call_ == OpenAiCall::kChat ? "chatcmpl-" : "cmpl-") + process_tag() + "-";
    form.created = std::time(nullptr);
    streams_ = form.stream;
    renderer_.emplace(std::move(form));
    std::visit(
        [this](auto& request) {
          if (request.request_id().empty()) request.set_request_id(request_.request_id);
        },
        read->input);
    return std::move(read->input);
  }

  void deliver() override {
    if (finished_) return;
    // One write at a time: while it is under way what is made waits in the TokenStream, whatever the reader's speed.
    Write write = Write::kUnderWay;
    if (write_.compare_exchange_strong(write, Write::kUnderWayWithNews) || write == Write::kUnderWayWithNews) return;
    v1::GenerateChunk chunk;
    Next what = next(chunk);
    if (what == Next::kNothing) return;
    if (streams_) {
      deliver_events(chunk, what);
    } else {
      deliver_whole(chunk, what);
    }
  }

  void deliver_whole(v1::GenerateChunk& chunk, Next what) {
    for (; what == Next::kChunk; what = next(chunk)) {
      if (too_large_) continue;
      too_large_ = answer_.add(chunk);
      if (too_large_) cancel();  // its end follows
    }
    if (what == Next::kNothing) return;
    // Not 429, which says that it may be tried again.
    if (too_large_) return finish({error_response({ErrorCode::kInvalidArgument, too_large_->message})});
    finish({error() ? refused() : json_response(renderer_->whole(answer_.whole()))});
  }

  void deliver_events(v1::GenerateChunk& chunk, Next what) {
    ReplyPart part;
    while (what == Next::kChunk) {
      // Nothing for who is gone, and no head before there is something to read: until then an error has its own status.
      if (!gone_.load()) renderer_->append_events(chunk, part.bytes);
      told_ = told_ || has_tokens(chunk);
      if (!part.bytes.empty()) break;
      what = next(chunk);
    }
    if (what == Next::kNothing) return;
    if (what == Next::kChunk) what = peek();
    // A finish reason alone, of what was ended before its first token, is nothing to read.
    if (what == Next::kEnd && error() && !begun_ && !told_) return finish({refused()});
    if (!std::exchange(begun_, true)) {
      part.response = event_stream();
      part.streams = true;
    }
    if (what == Next::kEnd) {
      const auto why = error() ? std::optional<Error>(named_error()) : std::nullopt;
      OpenAiRenderer::append_end(why ? &*why : nullptr, part.bytes);
      return finish(std::move(part));
    }
    part.last = false;
    // Only if there is more already does the end of the write need this thread again.
    write_.store(what == Next::kChunk ? Write::kUnderWayWithNews : Write::kUnderWay);
    send(std::move(part));
    // Nobody tells of the end of a write that nobody does.
    if (gone_.load()) written();
  }

  // What the form itself was refused for has its names already.
  Error named_error() const { return renderer_ ? with_openai_names(*error(), call_) : *error(); }
  HttpResponse refused() const { return error_response(named_error()); }
  void finish(ReplyPart part) {
    finished_ = true;
    send(std::move(part));
  }
  void send(ReplyPart part) {
    if (const auto port = port_.lock()) port->send(std::move(part));
  }

  const std::string model_;
  const OpenAiCall call_;
  HttpRequest request_;
  const std::weak_ptr<ReplyPort> port_;
  std::atomic<bool> gone_{false};
  std::atomic<Write> write_{Write::kNone};
  // Written by the front worker before there is anything to deliver, then the dispatcher thread's, as all below.
  bool streams_ = false;
  std::optional<OpenAiRenderer> renderer_;
  JoinedAnswer answer_;
  std::optional<Error> too_large_;
  bool told_ = false;   // a token, or a prompt's log probability
  bool begun_ = false;  // the head was sent
  bool finished_ = false;
};

// A call that the front worker answers at once.
class WorkerHttpCall final : public FrontJob, public HttpCall {
 public:
  WorkerHttpCall(const Generation& generation, WorkerAnswer answer, HttpRequest request, std::weak_ptr<ReplyPort> port)
      : generation_(generation), answer_(answer), request_(std::move(request)), port_(std::move(port)) {}

  void written() override {}
  void abandon() override { gone_.store(true); }

 private:
  bool abandoned() const override { return gone_.load(); }
  void drop(const Error& error) override { send(error_response(error)); }
  void run() override {
    try {
      send(answer_(generation_, request_.body));
    } catch (const std::exception& failure) {
      drop({ErrorCode::kInternal, failure.what()});
    }
  }
  void send(HttpResponse response) {
    if (const auto port = port_.lock()) port->send({std::move(response)});
  }

  const Generation& generation_;
  const WorkerAnswer answer_;
  const HttpRequest request_;
  const std::weak_ptr<ReplyPort> port_;
  std::atomic<bool> gone_{false};
};

}  // namespace

std::shared_ptr<HttpCall> start_generation(Generation& generation, OpenAiCall call, HttpRequest request, Caller caller,
                                           std::weak_ptr<ReplyPort> port) {
  const std::size_t bytes = request.body.size();
  auto out = std::make_shared<OpenAiHttpCall>(generation, call, std::move(request), std::move(caller), std::move(port));
  generation.start(out, bytes);
  return out;
}

std::shared_ptr<HttpCall> start_worker(Generation& generation, WorkerAnswer answer, HttpRequest request,
                                       std::weak_ptr<ReplyPort> port) {
  const std::size_t bytes = request.body.size();
  auto out = std::make_shared<WorkerHttpCall>(generation, answer, std::move(request), std::move(port));
  generation.run(out, bytes);
  return out;
}

}  // namespace folio
