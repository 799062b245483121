// A server without a model, to drive the load test with: stub_server [--itl-ms 50] [--first-ms 50] [--burst]. Each
// stream gets a token every so many milliseconds, counted from its start (with --burst: all streams at the same
// moments, as a batch's step gives them). Prints its port on a line, then serves until its standard input ends.
#include <grpcpp/grpcpp.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "folio/v1/generation.grpc.pb.h"

namespace folio::testing {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

struct Pace {
  double first_ms = 50;
  double itl_ms = 50;
  bool burst = false;
};

// One stream. Its lock is held around everything, since ticks and ends of writes come from different threads.
class Stream final : public grpc::ServerWriteReactor<v1::GenerateChunk> {
 public:
  explicit Stream(const v1::GenerateRequest& request)
      : prompt_tokens_(request.tokens().ids_size()), max_tokens_(request.stopping().max_tokens()) {}

  // A token is due. False: no more of them.
  bool tick() {
    const std::lock_guard lock(mutex_);
    if (over_) return false;
    ++num_due_;
    if (!writing_) write();
    return num_due_ < max_tokens_;
  }
  // The ticker has let go of it.
  void release() {
    std::unique_lock lock(mutex_);
    released_ = true;
    if (!done_) return;
    lock.unlock();
    delete this;
  }

 private:
  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok) over_ = true;
    if (over_) return finish();
    if (num_sent_ == max_tokens_) {
      over_ = true;
      return finish();
    }
    if (num_due_ > num_sent_) write();
  }
  void OnCancel() override {
    const std::lock_guard lock(mutex_);
    over_ = true;
    if (!writing_) finish();
  }
  void OnDone() override {
    std::unique_lock lock(mutex_);
    done_ = true;
    if (!released_) return;
    lock.unlock();
    delete this;
  }

  void write() {
    chunk_.Clear();
    if (num_sent_ == 0) chunk_.mutable_prompt_info()->set_num_tokens(static_cast<std::int32_t>(prompt_tokens_));
    v1::Output& output = *chunk_.add_outputs();
    for (; num_sent_ < num_due_; ++num_sent_) {
      output.add_tokens(100);
      output.mutable_text()->append(" word");
    }
    if (num_sent_ == max_tokens_) {
      output.set_finish_reason(v1::FINISH_REASON_LENGTH);
      chunk_.mutable_usage()->set_prompt_tokens(prompt_tokens_);
      chunk_.mutable_usage()->set_output_tokens(num_sent_);
    }
    writing_ = true;
    StartWrite(&chunk_);
  }
  void finish() {
    if (std::exchange(finished_, true)) return;
    Finish(grpc::Status::OK);
  }

  const std::int64_t prompt_tokens_, max_tokens_;
  std::mutex mutex_;
  std::int64_t num_due_ = 0, num_sent_ = 0;
  bool writing_ = false, over_ = false, finished_ = false, done_ = false, released_ = false;
  v1::GenerateChunk chunk_;
};

// Gives each stream its tokens when they are due.
class Ticker {
 public:
  explicit Ticker(const Pace& pace) : pace_(pace), thread_([this] { run(); }) {}
  ~Ticker() {
    {
      const std::lock_guard lock(mutex_);
      quit_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  void add(Stream& stream) {
    const std::lock_guard lock(mutex_);
    due_.push({next(Clock::now(), pace_.first_ms), &stream});
    changed_.notify_one();
  }

 private:
  using Due = std::pair<Clock::time_point, Stream*>;

  Clock::time_point next(Clock::time_point from, double ms) const {
    const auto gap = std::chrono::duration_cast<Clock::duration>(Milliseconds(ms));
    if (!pace_.burst) return from + gap;
    const auto beat = std::chrono::duration_cast<Clock::duration>(Milliseconds(pace_.itl_ms));
    return Clock::time_point(((from + gap).time_since_epoch() / beat) * beat);
  }
  void run() {
    std::unique_lock lock(mutex_);
    while (!quit_) {
      if (due_.empty()) {
        changed_.wait(lock);
        continue;
      }
      const auto [at, stream] = due_.top();
      if (at > Clock::now()) {
        changed_.wait_until(lock, at);
        continue;
      }
      due_.pop();
      lock.unlock();
      const bool more = stream->tick();
      if (!more) stream->release();
      lock.lock();
      if (more) due_.push({next(at, pace_.itl_ms), stream});
    }
  }

  const Pace pace_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool quit_ = false;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::thread thread_;
};

class Service final : public v1::Generation::CallbackService {
 public:
  explicit Service(const Pace& pace) : ticker_(pace) {}

 private:
  grpc::ServerWriteReactor<v1::GenerateChunk>* GenerateStream(grpc::CallbackServerContext*,
                                                              const v1::GenerateRequest* request) override {
    auto* stream = new Stream(*request);
    ticker_.add(*stream);
    return stream;
  }
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context, const v1::ListModelsRequest*,
                                       v1::ListModelsResponse* response) override {
    v1::ListModelsResponse::Model& model = *response->add_models();
    model.set_name("stub");
    model.set_vocab_size(1000);
    model.set_max_context(1 << 20);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  Ticker ticker_;
};

int serve(const Pace& pace) {
  Service service(pace);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  std::printf("%d\n", port);
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  server->Shutdown(std::chrono::system_clock::now());
  return 0;
}

}  // namespace
}  // namespace folio::testing

int main(int argc, char** argv) {
  folio::testing::Pace pace;
  CLI::App app("tokens without a model, at a pace");
  app.add_option("--first-ms", pace.first_ms, "until the first token")->check(CLI::Range(0.0, 1e6));
  app.add_option("--itl-ms", pace.itl_ms, "between tokens")->check(CLI::Range(0.01, 1e6));
  app.add_flag("--burst", pace.burst, "all streams at the same moments");
  CLI11_PARSE(app, argc, argv);
  return folio::testing::serve(pace);
}
