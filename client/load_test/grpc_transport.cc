#include "client/load_test/grpc_transport.h"

#include <grpcpp/alarm.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/thread_name.h"
#include "client/failure.h"
#include "client/text.h"

namespace folio::client {
namespace {

using namespace std::chrono_literals;

constexpr auto kConnectTime = 5s;
constexpr auto kUnaryTime = 30s;       // for a model's name or a few ids
constexpr auto kProbeInterval = 50ms;  // of the reading threads' lag
constexpr std::size_t kMaxMessageBytes = 200;

// What a completion queue gives back: something that goes on when its operation is done.
class Event {
 public:
  virtual ~Event() = default;
  virtual void done(bool ok) = 0;
};

v1::GenerateRequest to_message(const RequestSpec& spec) {
  v1::GenerateRequest request;
  if (spec.prompt.empty()) {
    request.set_text(spec.text);
  } else {
    request.mutable_tokens()->mutable_ids()->Add(spec.prompt.begin(), spec.prompt.end());
  }
  v1::SamplingOptions& sampling = *request.mutable_sampling();
  sampling.set_temperature(spec.temperature);
  if (spec.top_p) sampling.set_top_p(*spec.top_p);
  if (spec.top_k) sampling.set_top_k(*spec.top_k);
  sampling.set_seed(spec.seed);
  request.mutable_stopping()->set_max_tokens(spec.max_tokens);
  request.mutable_stopping()->set_ignore_eos(spec.ignore_eos);
  for (const std::string& stop : spec.stop) request.mutable_stopping()->add_stop(stop);
  if (spec.n != 1) request.set_n(spec.n);
  request.set_tenant(spec.tenant);
  return request;
}

// What of a stream says how it ended: the outputs' finish reasons, usage, and the status.
class Ending {
 public:
  explicit Ending(int num_answers) : num_answers_(num_answers) {}

  void add(const v1::GenerateChunk& chunk) {
    for (const v1::Output& output : chunk.outputs()) {
      if (output.finish_reason() == v1::FINISH_REASON_UNSPECIFIED) continue;
      finished_.insert(output.index());
      const bool normal = output.finish_reason() == v1::FINISH_REASON_LENGTH ||
                          output.finish_reason() == v1::FINISH_REASON_STOP_TOKEN ||
                          output.finish_reason() == v1::FINISH_REASON_STOP_STRING;
      if (!normal) abnormal_ = output.finish_reason();
    }
    if (!chunk.has_usage()) return;
    end_.prompt_tokens = chunk.usage().prompt_tokens();
    end_.cached_tokens = chunk.usage().cached_tokens();
    end_.output_tokens = chunk.usage().output_tokens();
  }

  StreamEnd end(const grpc::Status& status) {
    if (!status.ok()) {
      fail(std::string(code_name(status.error_code())), status.error_message());
    } else if (abnormal_ != v1::FINISH_REASON_UNSPECIFIED) {
      fail("finish " + short_name(abnormal_), "ended by the server");
    } else if (finished_.size() < static_cast<std::size_t>(num_answers_)) {
      fail("no end", "status OK without a finish reason for each answer");
    }
    end_.at = std::chrono::steady_clock::now();
    return std::move(end_);
  }

 private:
  void fail(std::string error, const std::string& message) {
    end_.error = std::move(error);
    end_.message = shown_words(message, kMaxMessageBytes);
  }

  const int num_answers_;
  std::set<std::int32_t> finished_;  // answers
  v1::FinishReason abnormal_ = v1::FINISH_REASON_UNSPECIFIED;
  StreamEnd end_;
};

// One stream: one operation is on the queue at any time until the listener has heard the end.
class GrpcCall final : public Call, private Event {
 public:
  GrpcCall(int num_answers, StreamListener& listener) : ending_(num_answers), listener_(listener) {}
  void start(const Connection& connection, v1::Generation::Stub& stub, const RequestSpec& spec,
             grpc::CompletionQueue& queue) {
    connection.authorize(context_);
    const v1::GenerateRequest request = to_message(spec);
    if (spec.deadline) context_.set_deadline(std::chrono::system_clock::now() + *spec.deadline);
    reader_ = stub.PrepareAsyncGenerateStream(&context_, request, &queue);
    reader_->StartCall(tag());
  }
  void cancel() override { context_.TryCancel(); }

 private:
  void* tag() { return static_cast<Event*>(this); }

  void done(bool ok) override {
    if (state_ == State::kFinishing) return listener_.on_end(ending_.end(status_));  // may destroy this
    if (state_ == State::kReading && ok) hear(std::chrono::steady_clock::now());
    if (!ok) {
      state_ = State::kFinishing;
      return reader_->Finish(&status_, tag());
    }
    state_ = State::kReading;
    reader_->Read(&chunk_, tag());
  }

  void hear(SteadyTime now) {
    for (const v1::Output& output : chunk_.outputs()) {
      listener_.on_arrival(
          {now, output.tokens_size(), static_cast<std::int64_t>(output.text().size()), output.index()});
    }
    ending_.add(chunk_);
  }

  enum class State { kStarting, kReading, kFinishing };
  State state_ = State::kStarting;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncReader<v1::GenerateChunk>> reader_;
  v1::GenerateChunk chunk_;
  grpc::Status status_;
  Ending ending_;
  StreamListener& listener_;
};

// A thread that reads, and how late it is: an alarm of its own on the same queue waits behind what is there to be read.
class ReadLoop final : private Event {
 public:
  explicit ReadLoop(int number) {
    thread_ = std::thread([this, number] {
      name_thread(("bench-read-" + std::to_string(number)).c_str());
      run();
    });
  }
  ~ReadLoop() override {
    quit_.store(true);
    {
      const std::lock_guard lock(mutex_);
      alarm_.Cancel();
    }
    thread_.join();
  }
  grpc::CompletionQueue& queue() { return queue_; }

  void collect_lags(std::vector<double>& all) {
    const std::lock_guard lock(mutex_);
    all.insert(all.end(), lags_ms_.begin(), lags_ms_.end());
  }

 private:
  void run() {
    arm();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) static_cast<Event*>(tag)->done(ok);
  }
  void arm() {
    const std::lock_guard lock(mutex_);
    due_ = std::chrono::steady_clock::now() + kProbeInterval;
    alarm_.Set(&queue_, std::chrono::system_clock::now() + kProbeInterval, static_cast<Event*>(this));
  }
  void done(bool) override {
    if (quit_.load()) return queue_.Shutdown();
    {
      const std::lock_guard lock(mutex_);
      const auto lag = std::chrono::steady_clock::now() - due_;
      lags_ms_.push_back(std::max(0.0, std::chrono::duration<double, std::milli>(lag).count()));
    }
    arm();
  }

  grpc::CompletionQueue queue_;
  std::atomic<bool> quit_{false};
  std::mutex mutex_;
  grpc::Alarm alarm_;
  SteadyTime due_{};
  std::vector<double> lags_ms_;
  std::thread thread_;
};

class GrpcTransport final : public Transport {
 public:
  GrpcTransport(const Connection& connection, int connections, int threads) : connection_(connection) {
    for (int i = 0; i < std::min(threads, connections); ++i) loops_.push_back(std::make_unique<ReadLoop>(i));
    for (int i = 0; i < connections; ++i) channels_.push_back(make_channel(connection, /*own=*/true));
    for (const auto& channel : channels_) {
      channel->GetState(true);
      stubs_.push_back(v1::Generation::NewStub(channel));
    }
    const auto until = std::chrono::system_clock::now() + kConnectTime;
    for (const auto& channel : channels_) {
      if (!wait_for_connection(*channel, until)) break;
    }
  }

  ServedModel model() override {
    v1::ListModelsResponse models;
    call([&](grpc::ClientContext& context) { return stubs_[0]->ListModels(&context, {}, &models); });
    if (models.models_size() == 0) throw CommandError("the server has no model", kExitNoServer);
    const v1::ListModelsResponse::Model& first = models.models(0);
    return {first.name(), first.vocab_size(), first.max_context()};
  }

  std::vector<std::int32_t> tokenize(const std::string& text) override {
    v1::TokenizeRequest request;
    v1::TokenizeResponse response;
    request.set_text(text);
    call([&](grpc::ClientContext& context) { return stubs_[0]->Tokenize(&context, request, &response); });
    return {response.tokens().begin(), response.tokens().end()};
  }

  std::unique_ptr<Call> start(const RequestSpec& request, StreamListener& listener) override {
    const std::size_t lane = next_.fetch_add(1) % stubs_.size();
    auto call = std::make_unique<GrpcCall>(request.n, listener);
    call->start(connection_, *stubs_[lane], request, loops_[lane % loops_.size()]->queue());
    return call;
  }

  std::vector<double> read_lags_ms() override {
    std::vector<double> all;
    for (const auto& loop : loops_) loop->collect_lags(all);
    return all;
  }

 private:
  // Until it is there or an attempt has failed.
  static bool wait_for_connection(grpc::Channel& channel, std::chrono::system_clock::time_point until) {
    while (true) {
      const grpc_connectivity_state state = channel.GetState(true);
      if (state == GRPC_CHANNEL_READY) return true;
      if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || !channel.WaitForStateChange(state, until)) return false;
    }
  }

  template <class Rpc>
  void call(Rpc rpc) {
    grpc::ClientContext context;
    connection_.authorize(context);
    context.set_deadline(std::chrono::system_clock::now() + kUnaryTime);
    const grpc::Status status = rpc(context);
    if (status.ok()) return;
    const Failure failure = explain(status, connection_, Listener::kGeneration);
    throw CommandError(failure.text, failure.exit_code);
  }

  const Connection connection_;
  std::vector<std::unique_ptr<ReadLoop>> loops_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::vector<std::unique_ptr<v1::Generation::Stub>> stubs_;
  std::atomic<std::size_t> next_{0};
};

}  // namespace

std::unique_ptr<Transport> make_grpc_transport(const Connection& connection, int connections, int threads) {
  return std::make_unique<GrpcTransport>(connection, connections, threads);
}

}  // namespace folio::client
