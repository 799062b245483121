#include "client/bench.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

namespace folio::client {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

double ms_between(SteadyTime from, SteadyTime to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

v1::GenerateRequest make_request(const BenchOptions& options, int number, std::int32_t vocab_size) {
  v1::GenerateRequest request;
  // Each request has its own numbers, whichever worker sends it: a seed gives the same load twice.
  std::mt19937_64 random(options.seed * 1'000'003 + static_cast<std::uint64_t>(number));
  std::uniform_int_distribution<std::int32_t> token(0, vocab_size - 1);
  for (int i = 0; i < options.prompt_tokens; ++i) request.mutable_tokens()->add_ids(token(random));
  request.mutable_sampling()->set_temperature(options.temperature);
  request.set_tenant(options.tenant);
  request.mutable_sampling()->set_seed(random());
  request.mutable_stopping()->set_max_tokens(options.output_tokens);
  request.mutable_stopping()->set_ignore_eos(true);
  return request;
}

// Times the chunks of one stream as they are read.
class StreamTimer {
 public:
  void add(const v1::GenerateChunk& chunk) {
    const SteadyTime now = std::chrono::steady_clock::now();
    std::int64_t tokens = 0;
    for (const v1::Output& output : chunk.outputs()) {
      tokens += output.tokens_size();
      if (output.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) finish_ = output.finish_reason();
    }
    if (chunk.has_usage()) usage_ = chunk.usage();
    if (tokens == 0) return;
    const bool first = num_tokens_ == 0;
    const double share = first ? 0 : ms_between(last_token_, now) / static_cast<double>(tokens);
    for (std::int64_t i = first ? 1 : 0; i < tokens; ++i) itl_ms_.add(share);
    if (first) first_token_ = now;
    last_token_ = now;
    num_tokens_ += tokens;
  }

  BenchRecord record(SteadyTime sent, const grpc::Status& status, bool stopped) const {
    BenchRecord out;
    out.e2e_ms = ms_between(sent, std::chrono::steady_clock::now());
    out.output_tokens = usage_ ? usage_->output_tokens() : num_tokens_;
    out.prompt_tokens = usage_ ? usage_->prompt_tokens() : 0;
    const auto fail = [&out](std::string kind, std::string message) {
      out.error = std::move(kind);
      out.message = std::move(message);
      return out;
    };
    if (!status.ok()) {
      if (stopped) out.kind = BenchRecord::Kind::kAborted;
      return fail(std::string(code_name(status.error_code())), status.error_message());
    }
    if (finish_ == v1::FINISH_REASON_UNSPECIFIED) return fail("no end", "status OK without a finish reason");
    const bool normal = finish_ == v1::FINISH_REASON_LENGTH || finish_ == v1::FINISH_REASON_STOP_TOKEN ||
                        finish_ == v1::FINISH_REASON_STOP_STRING;
    if (!normal) return fail("finish " + short_name(finish_), "ended by the server");
    if (num_tokens_ == 0) {
      out.kind = BenchRecord::Kind::kEmpty;
      return out;
    }
    out.kind = BenchRecord::Kind::kOk;
    out.ttft_ms = ms_between(sent, first_token_);
    out.itl_ms = itl_ms_;
    return out;
  }

 private:
  SteadyTime first_token_{};
  SteadyTime last_token_{};
  std::int64_t num_tokens_ = 0;
  v1::FinishReason finish_ = v1::FINISH_REASON_UNSPECIFIED;
  std::optional<v1::Usage> usage_;
  Samples itl_ms_;
};

class ClosedLoop;

// One request and its stream, read on gRPC's threads: a thread of its own for each caller would cost the machine, which
// may be the server's too, a change of threads for every chunk. The loop owns it and deletes it in `end`.
class BenchCall final : public grpc::ClientReadReactor<v1::GenerateChunk> {
 public:
  BenchCall(ClosedLoop& loop, v1::GenerateRequest request) : loop_(loop), request_(std::move(request)) {}
  void start(v1::Generation::Stub& stub, const Connection& connection) {
    connection.authorize(context_);
    sent_ = std::chrono::steady_clock::now();
    stub.async()->GenerateStream(&context_, &request_, this);
    StartRead(&chunk_);
    StartCall();
  }
  void cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    timer_.add(chunk_);
    StartRead(&chunk_);
  }
  void OnDone(const grpc::Status& status) override;

 private:
  ClosedLoop& loop_;
  const v1::GenerateRequest request_;
  grpc::ClientContext context_;
  v1::GenerateChunk chunk_;
  StreamTimer timer_;
  SteadyTime sent_{};
};

class ClosedLoop {
 public:
  ClosedLoop(const BenchOptions& options, v1::Generation::Stub& stub, std::int32_t vocab_size)
      : options_(options), stub_(stub), vocab_size_(vocab_size) {}

  BenchSummary run() {
    const SteadyTime start = std::chrono::steady_clock::now();
    {
      std::unique_lock lock(mutex_);
      for (int i = 0; i < options_.concurrency; ++i) start_next();
      all_ended_.wait(lock, [this] { return running_.empty(); });
    }
    summary_.duration_s = ms_between(start, std::chrono::steady_clock::now()) / 1000;
    summary_.partial = stopped_;
    if (show_progress_) std::fprintf(stderr, "\n");
    return summary_;
  }

  // Any thread: no new requests, and those that run are cancelled.
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    for (const auto& [call, owned] : running_) call->cancel();
  }

  // The call's last words: the next request takes its place, and the call is gone before the last one is reported.
  void end(BenchCall& call, const StreamTimer& timer, SteadyTime sent, const grpc::Status& status) {
    const std::lock_guard lock(mutex_);
    summary_.add(timer.record(sent, status, stopped_));
    ++num_done_;
    if (show_progress_) {
      std::fprintf(stderr, "\r%d of %d requests, %lld failed", num_done_, options_.num_requests,
                   static_cast<long long>(summary_.num_failed));
    }
    start_next();
    running_.erase(&call);
    if (running_.empty()) all_ended_.notify_all();
  }

 private:
  // REQUIRES the lock.
  void start_next() {
    if (stopped_ || num_sent_ == options_.num_requests) return;
    auto call = std::make_unique<BenchCall>(*this, make_request(options_, num_sent_++, vocab_size_));
    BenchCall& started = *call;
    running_.emplace(&started, std::move(call));
    started.start(stub_, options_.connection);
  }

  const BenchOptions& options_;
  v1::Generation::Stub& stub_;
  const std::int32_t vocab_size_;
  const bool show_progress_ = isatty(STDERR_FILENO) != 0;
  std::mutex mutex_;
  std::condition_variable all_ended_;
  std::map<BenchCall*, std::unique_ptr<BenchCall>> running_;
  BenchSummary summary_;
  bool stopped_ = false;
  int num_sent_ = 0;
  int num_done_ = 0;
};

void BenchCall::OnDone(const grpc::Status& status) {
  loop_.end(*this, timer_, sent_, status);  // deletes this
}

nlohmann::json describe(const BenchOptions& options, const std::string& model) {
  return {{"address", options.connection.address}, {"model", model},       {"concurrency", options.concurrency},
          {"num_requests", options.num_requests},  {"seed", options.seed}, {"prompt_tokens", options.prompt_tokens},
          {"output_tokens", options.output_tokens}};
}

}  // namespace

int run_bench(const BenchOptions& options, Interrupts& interrupts) {
  std::ofstream file;
  if (!options.json_file.empty()) {
    file.open(options.json_file);
    if (!file) {
      std::fprintf(stderr, "folio-client: cannot write %s\n", options.json_file.c_str());
      return kExitFailed;
    }
  }
  const auto stub = v1::Generation::NewStub(make_channel(options.connection));
  v1::ListModelsResponse models;
  {
    grpc::ClientContext context;
    options.connection.authorize(context);
    const grpc::Status status = stub->ListModels(&context, {}, &models);
    if (!status.ok() || models.models_size() == 0) {
      print_error(status);
      return kExitFailed;
    }
  }
  ClosedLoop loop(options, *stub, models.models(0).vocab_size());
  interrupts.on_interrupt([&loop](int, int count) {
    if (count > 1) _exit(kExitInterrupted);
    loop.stop();
  });
  const BenchSummary summary = loop.run();
  interrupts.on_interrupt(nullptr);
  std::printf("%s", summary.text().c_str());
  if (file.is_open()) {
    nlohmann::json out = summary.json();
    out["options"] = describe(options, models.models(0).name());
    file << out.dump(2) << "\n";
    file.close();
    if (!file) {
      std::fprintf(stderr, "folio-client: cannot write %s\n", options.json_file.c_str());
      return kExitFailed;
    }
  }
  if (summary.partial) return kExitInterrupted;
  return summary.num_ok > 0 ? kExitOk : kExitFailed;
}

}  // namespace folio::client
