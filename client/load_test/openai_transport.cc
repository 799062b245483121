#include "client/load_test/openai_transport.h"

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_future.hpp>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/open_files.h"
#include "client/load_test/http_client.h"
#include "client/load_test/openai_wire.h"

namespace folio::client {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

constexpr std::size_t kMaxBodyBytes = 16U << 20;  // of an answer that is no stream
constexpr auto kAskTimeout = std::chrono::seconds(30);
constexpr auto kEstimateTimeout = std::chrono::seconds(5);
constexpr auto kProbeInterval = std::chrono::milliseconds(50);
// After [DONE]: for the end of the body, which lets the connection be used again.
constexpr auto kEndOfBodyTimeout = std::chrono::seconds(1);

struct HttpReply {
  HttpEnd end;
  std::string body;

  bool ok() const { return end.error.empty() && end.head.status == 200; }
  // Why it is not.
  std::string words() const {
    if (!end.error.empty()) return end.message;
    return "HTTP " + std::to_string(end.head.status) + ": " + error_words(body);
  }
};

// Nobody there or not ready, a refusal, or something else.
int exit_code(const HttpReply& reply) {
  if (!reply.end.error.empty() || reply.end.head.status == 503) return kExitNoServer;
  return reply.end.head.status >= 400 && reply.end.head.status < 500 ? kExitRefused : kExitFailed;
}

// Aborts an exchange when its time is up. The transport's thread only, but for the constructor and the first set().
class Limit {
 public:
  Limit(asio::io_context& io, HttpExchange& exchange) : timer_(io), exchange_(exchange) {}
  void set(std::chrono::steady_clock::duration time, std::string error, std::string message) {
    timer_.expires_after(time);
    // A timer that is over already cannot be cancelled any more: `live` tells it that there is nothing to abort.
    timer_.async_wait([live = std::weak_ptr<bool>(live_), &exchange = exchange_, error = std::move(error),
                       message = std::move(message)](const HttpStream::ErrorCode& failure) {
      if (!failure && !live.expired()) exchange.abort(error, message);
    });
  }
  void end() {
    timer_.cancel();
    live_.reset();
  }

 private:
  asio::steady_timer timer_;
  HttpExchange& exchange_;
  std::shared_ptr<bool> live_ = std::make_shared<bool>(true);
};

// A response in one piece.
awaitable<HttpReply> fetch(asio::io_context& io, HttpClient& client, std::string request, std::chrono::seconds limit) {
  HttpExchange exchange(client);
  Limit timer(io, exchange);
  timer.set(limit, "DEADLINE_EXCEEDED", "no answer in " + std::to_string(limit.count()) + " s");
  HttpReply out;
  const HttpExchange::OnBody on_body = [&](const HttpHead&, std::string_view bytes, SteadyTime) {
    out.body += bytes;
    if (out.body.size() > kMaxBodyBytes) exchange.abort("bad answer", "the answer is larger than 16 MiB");
  };
  out.end = co_await exchange.run(request, on_body);
  timer.end();
  co_return out;
}

// What to do where no HTTP answer came, told once when the load begins; the words are those of the system, of TLS and
// of the reader of responses.
std::string hint_for(const HttpReply& reply, const HttpAddress& address) {
  const auto says = [&reply](const char* part) { return reply.end.message.find(part) != std::string::npos; };
  if (reply.end.error == "bad answer" && says("not a valid HTTP response")) {
    return "\nit may speak gRPC (without --api openai), or TLS (--tls-ca FILE, or https://); folio-server's "
           "--http-port is "
           "8080";
  }
  if (reply.end.error != "connection") return "";
  if (says("Connection refused")) {
    return "\nstart one with: folio-server --model FILE.gguf    (its --http-port is 8080)\n"
           "another address: --address HOST:PORT";
  }
  return address.tls && says("SSL")
             ? "\nit may speak no TLS (then: http://, without --tls-ca), or show another certificate"
             : "";
}

class OpenAiTransport;

// One completion, on the transport's thread.
class Completion {
 public:
  Completion(OpenAiTransport& transport, StreamListener& listener, const RequestSpec& spec, std::string request);

  // Keeps it alive to its end.
  static awaitable<void> run(std::shared_ptr<Completion> self);
  void abort(std::string error, std::string message) { exchange_.abort(std::move(error), std::move(message)); }

 private:
  void take(const HttpHead& head, std::string_view bytes, SteadyTime at);
  StreamEnd settle(const HttpEnd& end) const;

  OpenAiTransport& transport_;
  StreamListener& listener_;
  const std::optional<std::chrono::milliseconds> deadline_;
  const std::string request_;
  HttpExchange exchange_;
  Limit limit_;
  SseReader events_;
  AnswerReader answer_;
  std::string body_;   // of what is no stream
  SteadyTime last_{};  // when bytes of the stream were read
};

class OpenAiTransport final : public Transport {
 public:
  OpenAiTransport(const Connection& connection, int connections);
  ~OpenAiTransport() override;

  ServedModel model() override;
  std::vector<std::int32_t> tokenize(const std::string& text) override;
  std::unique_ptr<Call> start(const RequestSpec& request, StreamListener& listener) override;
  std::vector<double> read_lags_ms() override;

  asio::io_context& io() { return io_; }
  HttpClient& client() { return client_; }
  // Tokens of the texts together; nullopt: the server does not say.
  awaitable<std::optional<std::int64_t>> count_tokens(const std::vector<std::string>& texts);
  void ended(Completion& completion);

 private:
  struct Tokens {
    std::optional<std::vector<std::int32_t>> ids;
    std::string why_not;
  };
  void probe_lag();
  awaitable<Tokens> ask_tokens(std::string text, std::chrono::seconds limit);
  std::string model_name() const;

  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  HttpClient client_;
  const int connections_;
  mutable std::mutex mutex_;
  std::string model_name_;  // once model() has asked
  std::vector<double> lags_ms_;
  // The transport's thread only.
  std::unordered_set<Completion*> live_;
  std::optional<TokenizeForm> tokenize_form_;  // the one that worked
  bool closing_ = false;
  asio::steady_timer probe_{io_};  // of the thread's lag
  std::thread thread_;
};

// May outlive the completion, which belongs to the transport's thread, and then the transport.
class OpenAiCall final : public Call {
 public:
  OpenAiCall(asio::io_context& io, const std::shared_ptr<Completion>& completion) : io_(io), completion_(completion) {}
  void cancel() override {
    auto completion = completion_.lock();
    if (!completion) return;
    asio::post(io_, [live = std::move(completion)] { live->abort("CANCELLED", "cancelled by the client"); });
  }

 private:
  asio::io_context& io_;
  const std::weak_ptr<Completion> completion_;
};

Completion::Completion(OpenAiTransport& transport, StreamListener& listener, const RequestSpec& spec,
                       std::string request)
    : transport_(transport),
      listener_(listener),
      deadline_(spec.deadline),
      request_(std::move(request)),
      exchange_(transport.client()),
      limit_(transport.io(), exchange_),
      answer_(spec.n) {
  // From the moment it is sent, which is now, not when the thread comes to it.
  if (deadline_)
    limit_.set(*deadline_, "DEADLINE_EXCEEDED", "no end within " + std::to_string(deadline_->count()) + " ms");
}

awaitable<void> Completion::run(std::shared_ptr<Completion> self) {
  const HttpExchange::OnBody on_body = [&self](const HttpHead& head, std::string_view bytes, SteadyTime at) {
    self->take(head, bytes, at);
  };
  const HttpEnd end = co_await self->exchange_.run(self->request_, on_body);
  self->limit_.end();
  StreamEnd out = self->settle(end);
  const std::vector<std::string> texts = self->answer_.texts_without_usage();
  if (out.error.empty() && !texts.empty()) {
    out.output_tokens = co_await self->transport_.count_tokens(texts);
    out.is_estimate = out.output_tokens.has_value();
  }
  self->transport_.ended(*self);
  self->listener_.on_end(out);
}

void Completion::take(const HttpHead& head, std::string_view bytes, SteadyTime at) {
  if (answer_.is_done()) return;
  last_ = at;
  if (head.status != 200 || head.content_type != "text/event-stream") {
    body_ += bytes;
    if (body_.size() > kMaxBodyBytes) abort("bad answer", "the answer is larger than 16 MiB");
    return;
  }
  if (!head.content_encoding.empty() && head.content_encoding != "identity") {
    return abort("bad answer", "Content-Encoding " + head.content_encoding + " was not asked for");
  }
  events_.append(bytes);
  SseEvent event;
  while (!answer_.is_done() && events_.next(event)) {
    auto arrival = answer_.read(event);
    if (!arrival) continue;
    arrival->at = at;
    listener_.on_arrival(*arrival);
  }
  if (answer_.is_done()) {
    limit_.set(kEndOfBodyTimeout, "connection", "the body has no end");
  } else if (events_.too_large()) {
    abort("bad answer", "an event is larger than " + std::to_string(SseReader::kMaxEventBytes >> 20U) + " MiB");
  }
}

StreamEnd Completion::settle(const HttpEnd& end) const {
  StreamEnd out;
  const bool is_stream = end.head.status == 200 && end.head.content_type == "text/event-stream";
  if (answer_.is_done()) {
    out = answer_.end();
  } else if (!end.error.empty() && (end.head.status == 0 || end.head.status == 200)) {
    // What the server said went wrong comes before what then happened to the connection.
    out = answer_.end();
    if (out.error == "no end") {
      out.error = end.error;
      out.message = end.message;
    }
  } else {
    out = is_stream ? answer_.end() : not_a_stream(end.head, body_);
  }
  out.at = end.error.empty() || answer_.is_done() ? last_ : std::chrono::steady_clock::now();
  return out;
}

OpenAiTransport::OpenAiTransport(const Connection& connection, int connections)
    : client_(io_, connection), connections_(connections) {
  raise_open_files(std::numeric_limits<std::size_t>::max());  // each stream takes one
  probe_lag();
  thread_ = std::thread([this] { io_.run(); });
}

OpenAiTransport::~OpenAiTransport() {
  asio::post(io_, [this] {
    closing_ = true;
    for (Completion* completion : live_) completion->abort("CANCELLED", "cancelled by the client");
    if (live_.empty()) io_.stop();
  });
  thread_.join();
}

void OpenAiTransport::ended(Completion& completion) {
  live_.erase(&completion);
  // After what this one still has to say.
  if (closing_ && live_.empty()) asio::post(io_, [this] { io_.stop(); });
}

void OpenAiTransport::probe_lag() {
  probe_.expires_after(kProbeInterval);
  probe_.async_wait([this](const HttpStream::ErrorCode& failure) {
    if (failure) return;
    const auto lag = std::chrono::steady_clock::now() - probe_.expiry();
    {
      const std::lock_guard lock(mutex_);
      lags_ms_.push_back(std::chrono::duration<double, std::milli>(lag).count());
    }
    probe_lag();
  });
}

std::vector<double> OpenAiTransport::read_lags_ms() {
  const std::lock_guard lock(mutex_);
  return lags_ms_;
}

std::string OpenAiTransport::model_name() const {
  const std::lock_guard lock(mutex_);
  return model_name_;
}

ServedModel OpenAiTransport::model() {
  const std::string where = client_.address().authority() + ": GET /v1/models: ";
  auto answer = fetch(io_, client_, client_.request("/v1/models", ""), kAskTimeout);
  const HttpReply reply = asio::co_spawn(io_, std::move(answer), asio::use_future).get();
  if (!reply.ok()) throw CommandError(where + reply.words() + hint_for(reply, client_.address()), exit_code(reply));
  const auto model = parse_models(reply.body);
  if (!model) {
    throw CommandError(where + "the answer names no model: " + error_words(reply.body), kExitNoServer);
  }
  asio::co_spawn(io_, client_.open(connections_), asio::use_future).get();
  const std::lock_guard lock(mutex_);
  model_name_ = model->name;
  return *model;
}

awaitable<OpenAiTransport::Tokens> OpenAiTransport::ask_tokens(std::string text, std::chrono::seconds limit) {
  static constexpr std::array kForms = {TokenizeForm::kPrompt, TokenizeForm::kContent};
  Tokens out;
  for (const TokenizeForm form : kForms) {
    if (tokenize_form_ && *tokenize_form_ != form) continue;
    std::string request = client_.request("/tokenize", tokenize_body(form, model_name(), text));
    const HttpReply reply = co_await fetch(io_, client_, std::move(request), limit);
    out.ids = reply.ok() ? parse_tokens(reply.body) : std::nullopt;
    // llama-server answers the other form with no tokens.
    if (out.ids && (!out.ids->empty() || text.empty())) {
      if (!text.empty()) tokenize_form_ = form;
      co_return out;
    }
    if (out.why_not.empty()) out.why_not = reply.ok() ? "the answer has no tokens" : reply.words();
    out.ids.reset();
  }
  co_return out;
}

std::vector<std::int32_t> OpenAiTransport::tokenize(const std::string& text) {
  Tokens tokens = asio::co_spawn(io_, ask_tokens(text, kAskTimeout), asio::use_future).get();
  if (!tokens.ids) throw CommandError("POST /tokenize: " + tokens.why_not, kExitFailed);
  return std::move(*tokens.ids);
}

awaitable<std::optional<std::int64_t>> OpenAiTransport::count_tokens(const std::vector<std::string>& texts) {
  std::int64_t count = 0;
  for (const std::string& text : texts) {
    const Tokens tokens = co_await ask_tokens(text, kEstimateTimeout);
    if (!tokens.ids) co_return std::nullopt;
    count += static_cast<std::int64_t>(tokens.ids->size());
  }
  co_return count;
}

std::unique_ptr<Call> OpenAiTransport::start(const RequestSpec& request, StreamListener& listener) {
  const auto completion = std::make_shared<Completion>(
      *this, listener, request, client_.request("/v1/completions", completion_body(request, model_name())));
  asio::post(io_, [this, completion] {
    live_.insert(completion.get());
    if (closing_) completion->abort("CANCELLED", "cancelled by the client");
    asio::co_spawn(io_, Completion::run(completion), asio::detached);
  });
  return std::make_unique<OpenAiCall>(io_, completion);
}

}  // namespace

std::unique_ptr<Transport> make_openai_transport(const Connection& connection, int connections) {
  return std::make_unique<OpenAiTransport>(connection, connections);
}

}  // namespace folio::client
