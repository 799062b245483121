#include "server/control_service.h"

#include <grpcpp/alarm.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "server/grpc_status.h"

namespace folio {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;

constexpr std::uint32_t kMinIntervalMs = 10;
constexpr std::uint32_t kMaxIntervalMs = 3'600'000;
constexpr std::uint32_t kDefaultIntervalMs = 1000;

const Error kLoading{ErrorCode::kUnavailable, "the model is loading"};

v1::Load to_proto(const LoadSnapshot& load, std::size_t num_front_waiting) {
  v1::Load out;
  out.set_num_running(load.num_running);
  out.set_num_waiting(load.num_waiting);
  out.set_blocks_total(load.blocks_total);
  out.set_blocks_free(load.blocks_free);
  out.set_blocks_held(load.blocks_held);
  out.set_blocks_cached(load.blocks_cached);
  out.set_blocks_pinned(load.blocks_pinned);
  out.set_blocks_unaccounted(load.blocks_unaccounted);
  out.set_num_pins(load.num_pins);
  out.set_num_pins_released(load.num_pins_released);
  out.set_num_steps(load.num_steps);
  out.set_prompt_tokens(load.prompt_tokens);
  out.set_cached_tokens(load.cached_tokens);
  out.set_output_tokens(load.output_tokens);
  out.set_num_preemptions(load.num_preemptions);
  out.set_prompt_tokens_per_second(load.prompt_tokens_per_second);
  out.set_output_tokens_per_second(load.output_tokens_per_second);
  out.set_last_step_ms(load.last_step_ms);
  out.set_mean_step_ms(load.mean_step_ms);
  out.set_num_front_waiting(static_cast<std::int32_t>(num_front_waiting));
  return out;
}

// Answers a unary call here and now: `answer` turns the parsed request into a response or a refusal.
template <class Request, class Answer>
grpc::ServerUnaryReactor* reply(CallbackServerContext& context, const ByteBuffer& request, ByteBuffer& response,
                                const Answer& answer) {
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  const auto parsed = parse_message<Request>(request);
  if (!parsed) {
    reactor->Finish(to_status(parsed.error()));
    return reactor;
  }
  const auto result = answer(*parsed);
  if (result.ok()) response = to_bytes(*result);
  reactor->Finish(result.ok() ? grpc::Status::OK : to_status(result.error()));
  return reactor;
}

class RefusedWatch final : public grpc::ServerWriteReactor<ByteBuffer> {
 public:
  explicit RefusedWatch(const Error& error) { Finish(to_status(error)); }
  void OnDone() override { delete this; }
};

}  // namespace

// Writes a Load, waits for the interval, writes again. gRPC calls OnWriteDone, the alarm and OnCancel from any thread.
class LoadWatch final : public grpc::ServerWriteReactor<ByteBuffer>, public std::enable_shared_from_this<LoadWatch> {
 public:
  LoadWatch(std::function<v1::Load()> load, std::chrono::milliseconds interval)
      : load_(std::move(load)), interval_(interval) {}

  void start() {
    self_ = shared_from_this();
    write();
  }
  void end(const grpc::Status& status) {
    const std::lock_guard lock(mutex_);
    if (status_) return;
    status_ = status;
    if (waiting_) alarm_.Cancel();  // its callback finishes the stream
  }

  void OnCancel() override { end(grpc::Status::CANCELLED); }
  void OnWriteDone(bool ok) override {
    if (!ok) end(grpc::Status::CANCELLED);
    {
      const std::lock_guard lock(mutex_);
      if (!status_) {
        waiting_ = true;
        // Weak, since the alarm keeps its callback; self_ holds this object until OnDone.
        alarm_.Set(std::chrono::system_clock::now() + interval_, [weak = weak_from_this()](bool) {
          if (const auto self = weak.lock()) self->on_alarm();
        });
        return;
      }
    }
    Finish(*status_);
  }
  void OnDone() override { const auto last = std::move(self_); }

 private:
  void on_alarm() {
    {
      const std::lock_guard lock(mutex_);
      waiting_ = false;
    }
    write();
  }
  // No write and no alarm is under way.
  void write() {
    {
      const std::lock_guard lock(mutex_);
      if (!status_) {
        bytes_ = to_bytes(load_());
        StartWrite(&bytes_);
        return;
      }
    }
    Finish(*status_);
  }

  const std::function<v1::Load()> load_;
  const std::chrono::milliseconds interval_;
  std::mutex mutex_;
  grpc::Alarm alarm_;
  bool waiting_ = false;                // for the alarm
  std::optional<grpc::Status> status_;  // set once: the stream is to end with it
  ByteBuffer bytes_;                    // of the write in flight
  std::shared_ptr<LoadWatch> self_;
};

void ControlService::serve(Engine& engine, Generation& generation, v1::ServerInfo info) {
  const std::lock_guard lock(mutex_);
  served_ = std::make_shared<const Served>(Served{&engine, &generation, std::move(info)});
}

std::shared_ptr<const ControlService::Served> ControlService::served() const {
  const std::lock_guard lock(mutex_);
  return served_;
}

void ControlService::end_watches() {
  std::vector<std::weak_ptr<LoadWatch>> watches;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    watches.swap(watches_);
  }
  for (const auto& watch : watches) {
    if (const auto live = watch.lock()) live->end({grpc::StatusCode::UNAVAILABLE, "the server is shutting down"});
  }
}

grpc::ServerUnaryReactor* ControlService::GetServerInfo(CallbackServerContext* context, const ByteBuffer* request,
                                                        ByteBuffer* response) {
  return reply<v1::GetServerInfoRequest>(*context, *request, *response, [this](const auto&) -> Result<v1::ServerInfo> {
    const auto now = served();
    if (!now) return kLoading;
    return now->info;
  });
}

grpc::ServerUnaryReactor* ControlService::GetLoad(CallbackServerContext* context, const ByteBuffer* request,
                                                  ByteBuffer* response) {
  return reply<v1::GetLoadRequest>(*context, *request, *response, [this](const auto&) -> Result<v1::Load> {
    const auto now = served();
    if (!now) return kLoading;
    return to_proto(now->engine->load(), now->generation->num_waiting_inputs());
  });
}

grpc::ServerUnaryReactor* ControlService::Abort(CallbackServerContext* context, const ByteBuffer* request,
                                                ByteBuffer* response) {
  return reply<v1::AbortRequest>(*context, *request, *response,
                                 [this](const v1::AbortRequest& abort) -> Result<v1::AbortResponse> {
                                   const auto now = served();
                                   if (!now) return kLoading;
                                   if (abort.id() == 0) return Error{ErrorCode::kInvalidArgument, "id: not set"};
                                   now->engine->cancel(abort.id());
                                   return v1::AbortResponse();
                                 });
}

grpc::ServerUnaryReactor* ControlService::FlushPrefixCache(CallbackServerContext* context, const ByteBuffer* request,
                                                           ByteBuffer* response) {
  return reply<v1::FlushPrefixCacheRequest>(*context, *request, *response,
                                            [this](const auto&) -> Result<v1::FlushPrefixCacheResponse> {
                                              const auto now = served();
                                              if (!now) return kLoading;
                                              now->engine->flush_prefix_cache();
                                              return v1::FlushPrefixCacheResponse();
                                            });
}

grpc::ServerUnaryReactor* ControlService::Unpin(CallbackServerContext* context, const ByteBuffer* request,
                                                ByteBuffer* response) {
  return reply<v1::UnpinRequest>(*context, *request, *response,
                                 [this](const v1::UnpinRequest& unpin) -> Result<v1::UnpinResponse> {
                                   const auto now = served();
                                   if (!now) return kLoading;
                                   now->engine->unpin(unpin.id());
                                   return v1::UnpinResponse();
                                 });
}

grpc::ServerUnaryReactor* ControlService::Drain(CallbackServerContext* context, const ByteBuffer* request,
                                                ByteBuffer* response) {
  return reply<v1::DrainRequest>(*context, *request, *response, [this](const auto&) -> Result<v1::DrainResponse> {
    drain_();
    return v1::DrainResponse();
  });
}

grpc::ServerWriteReactor<ByteBuffer>* ControlService::WatchLoad(CallbackServerContext*, const ByteBuffer* request) {
  const auto parsed = parse_message<v1::WatchLoadRequest>(*request);
  if (!parsed) return new RefusedWatch(parsed.error());
  const std::uint32_t interval_ms = parsed->interval_ms() == 0 ? kDefaultIntervalMs : parsed->interval_ms();
  if (interval_ms < kMinIntervalMs || interval_ms > kMaxIntervalMs) {
    return new RefusedWatch({ErrorCode::kInvalidArgument, "interval_ms: " + std::to_string(interval_ms) +
                                                              " is not in [" + std::to_string(kMinIntervalMs) + ", " +
                                                              std::to_string(kMaxIntervalMs) + "]"});
  }
  const auto now = served();
  if (!now) return new RefusedWatch(kLoading);
  const auto watch = std::make_shared<LoadWatch>(
      [now] { return to_proto(now->engine->load(), now->generation->num_waiting_inputs()); },
      std::chrono::milliseconds(interval_ms));
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return new RefusedWatch({ErrorCode::kUnavailable, "the server is shutting down"});
    std::erase_if(watches_, [](const auto& other) { return other.expired(); });
    watches_.push_back(watch);
  }
  watch->start();
  return watch.get();
}

}  // namespace folio
