#include "server/control_service.h"

#include <chrono>
#include <string>
#include <utility>

#include "server/control_streams.h"
#include "server/grpc_status.h"

namespace folio {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;

constexpr std::uint32_t kMinIntervalMs = 10;
constexpr std::uint32_t kMaxIntervalMs = 3'600'000;
constexpr std::uint32_t kDefaultIntervalMs = 1000;

const Error kLoading{ErrorCode::kUnavailable, "the model is loading"};

v1::Load to_proto(const LoadSnapshot& load, std::size_t num_front_waiting, std::int64_t num_write_timeouts) {
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
  const StepPhases& mean = load.mean_step;
  out.set_mean_step_ms(mean.total_ms());
  v1::StepPhases& phases = *out.mutable_mean_step_phases();
  phases.set_schedule_ms(mean.schedule_ms);
  phases.set_build_ms(mean.build_ms);
  phases.set_forward_ms(mean.forward_ms);
  phases.set_sample_ms(mean.sample_ms);
  phases.set_commit_ms(mean.commit_ms);
  const StepTimes& times = load.step_times;
  v1::StepTimes& out_times = *out.mutable_step_times();
  out_times.set_base_ms(times.base_ms);
  out_times.set_row_ms(times.row_ms);
  out_times.set_pair_ms(times.pair_ms);
  out_times.set_key_ms(times.key_ms);
  out_times.set_logit_row_ms(times.logit_row_ms);
  out_times.set_usual_error_ms(times.usual_error_ms);
  out_times.set_num_samples(times.num_samples);
  out_times.set_trusted_rows(times.trusted_rows);
  out.set_num_front_waiting(static_cast<std::int32_t>(num_front_waiting));
  out.set_num_write_timeouts(num_write_timeouts);
  return out;
}

// Answers an admin's unary call here and now: `answer` turns the parsed request into a response or a refusal.
template <class Request, class Answer>
grpc::ServerUnaryReactor* reply(const GrpcDoor& door, CallbackServerContext& context, const ByteBuffer& request,
                                ByteBuffer& response, const Answer& answer) {
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  if (const auto refused = door.refuse_unless_admin(context)) {
    reactor->Finish(to_status(*refused));
    return reactor;
  }
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

class RefusedStream final : public grpc::ServerWriteReactor<ByteBuffer> {
 public:
  explicit RefusedStream(const Error& error) { Finish(to_status(error)); }
  void OnDone() override { delete this; }
};

}  // namespace

void ControlService::serve(Engine& engine, Generation& generation, v1::ServerInfo info) {
  const std::lock_guard lock(mutex_);
  served_ = std::make_shared<const Served>(Served{&engine, &generation, std::move(info)});
}

std::shared_ptr<const ControlService::Served> ControlService::served() const {
  const std::lock_guard lock(mutex_);
  return served_;
}

v1::Load ControlService::load_of(const Served& served) const {
  return to_proto(served.engine->load(), served.generation->num_waiting_inputs(), door_.watch.num_ended());
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
  return reply<v1::GetServerInfoRequest>(door_, *context, *request, *response,
                                         [this](const auto&) -> Result<v1::ServerInfo> {
                                           const auto now = served();
                                           if (!now) return kLoading;
                                           return now->info;
                                         });
}

grpc::ServerUnaryReactor* ControlService::GetLoad(CallbackServerContext* context, const ByteBuffer* request,
                                                  ByteBuffer* response) {
  return reply<v1::GetLoadRequest>(door_, *context, *request, *response, [this](const auto&) -> Result<v1::Load> {
    const auto now = served();
    if (!now) return kLoading;
    return load_of(*now);
  });
}

grpc::ServerUnaryReactor* ControlService::Abort(CallbackServerContext* context, const ByteBuffer* request,
                                                ByteBuffer* response) {
  return reply<v1::AbortRequest>(door_, *context, *request, *response,
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
  return reply<v1::FlushPrefixCacheRequest>(door_, *context, *request, *response,
                                            [this](const auto&) -> Result<v1::FlushPrefixCacheResponse> {
                                              const auto now = served();
                                              if (!now) return kLoading;
                                              now->engine->flush_prefix_cache();
                                              return v1::FlushPrefixCacheResponse();
                                            });
}

grpc::ServerUnaryReactor* ControlService::Unpin(CallbackServerContext* context, const ByteBuffer* request,
                                                ByteBuffer* response) {
  return reply<v1::UnpinRequest>(door_, *context, *request, *response,
                                 [this](const v1::UnpinRequest& unpin) -> Result<v1::UnpinResponse> {
                                   const auto now = served();
                                   if (!now) return kLoading;
                                   now->engine->unpin(unpin.id());
                                   return v1::UnpinResponse();
                                 });
}

grpc::ServerUnaryReactor* ControlService::Drain(CallbackServerContext* context, const ByteBuffer* request,
                                                ByteBuffer* response) {
  return reply<v1::DrainRequest>(door_, *context, *request, *response,
                                 [this](const auto&) -> Result<v1::DrainResponse> {
                                   drain_();
                                   return v1::DrainResponse();
                                 });
}

grpc::ServerWriteReactor<ByteBuffer>* ControlService::WatchLoad(CallbackServerContext* context,
                                                                const ByteBuffer* request) {
  if (const auto refused = door_.refuse_unless_admin(*context)) return new RefusedStream(*refused);
  const auto parsed = parse_message<v1::WatchLoadRequest>(*request);
  if (!parsed) return new RefusedStream(parsed.error());
  const std::uint32_t interval_ms = parsed->interval_ms() == 0 ? kDefaultIntervalMs : parsed->interval_ms();
  if (interval_ms < kMinIntervalMs || interval_ms > kMaxIntervalMs) {
    return new RefusedStream({ErrorCode::kInvalidArgument, "interval_ms: " + std::to_string(interval_ms) +
                                                               " is not in [" + std::to_string(kMinIntervalMs) + ", " +
                                                               std::to_string(kMaxIntervalMs) + "]"});
  }
  const auto now = served();
  if (!now) return new RefusedStream(kLoading);
  const auto watch = std::make_shared<LoadWatch>(
      door_.watch, *context, [this, now] { return load_of(*now); }, std::chrono::milliseconds(interval_ms));
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return new RefusedStream({ErrorCode::kUnavailable, "the server is shutting down"});
    std::erase_if(watches_, [](const auto& other) { return other.expired(); });
    watches_.push_back(watch);
  }
  watch->start();
  return watch.get();
}

grpc::ServerWriteReactor<ByteBuffer>* ControlService::DumpBlocks(CallbackServerContext* context,
                                                                 const ByteBuffer* request) {
  if (const auto refused = door_.refuse_unless_admin(*context)) return new RefusedStream(*refused);
  const auto parsed = parse_message<v1::DumpBlocksRequest>(*request);
  if (!parsed) return new RefusedStream(parsed.error());
  const auto now = served();
  if (!now) return new RefusedStream(kLoading);
  if (num_dumps_.fetch_add(1) >= kMaxDumps) {
    num_dumps_.fetch_sub(1);
    return new RefusedStream(
        {ErrorCode::kResourceExhausted, std::to_string(kMaxDumps) + " DumpBlocks calls are being answered already"});
  }
  const auto call = std::make_shared<BlockDumpCall>(door_.watch, *context, num_dumps_);
  call->start(*now->engine);
  return call.get();
}

}  // namespace folio
