#include "server/grpc_service.h"

#include <chrono>
#include <memory>
#include <utility>

#include "server/grpc_status.h"

namespace folio {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;

const Error kLoading{ErrorCode::kUnavailable, "the model is loading"};

TimePoint deadline_of(const CallbackServerContext& context) {
  const auto left = context.deadline() - std::chrono::system_clock::now();
  // gRPC's "no deadline" is the end of its clock; beyond a year there is none either.
  if (left > std::chrono::hours(24 * 365)) return kNoDeadline;
  return std::chrono::steady_clock::now() + left;
}

// Reactors live until gRPC's OnDone and until the last thread of ours lets go, whichever is later.
template <class Reactor, class... Args>
std::shared_ptr<Reactor> make_reactor(Args&&... args) {
  auto reactor = std::make_shared<Reactor>(std::forward<Args>(args)...);
  reactor->keep(reactor);
  return reactor;
}

template <class Request>
class UnaryCall final : public grpc::ServerUnaryReactor, public GenerationCall {
 public:
  UnaryCall(Generation& generation, CallbackServerContext& context, const ByteBuffer& request, ByteBuffer& response)
      : GenerationCall(generation, deadline_of(context)), context_(context), request_(request), response_(response) {}
  void keep(std::shared_ptr<UnaryCall> self) { self_ = std::move(self); }

  void OnCancel() override { cancel(); }
  void OnDone() override { const auto last = std::move(self_); }

 private:
  Result<GenerationInput> parse() override {
    auto request = parse_message<Request>(std::exchange(request_, ByteBuffer()));
    if (!request) return request.error();
    return GenerationInput(std::move(*request));
  }

  void deliver() override {
    if (finished_) return;
    v1::GenerateChunk chunk;
    Next what = next(chunk);
    for (; what == Next::kChunk; what = next(chunk)) join_chunk(chunk, whole_);
    if (what == Next::kNothing) return;
    finished_ = true;
    if (error()) return Finish(to_status(*error(), context_));
    response_ = to_bytes(whole_);
    Finish(grpc::Status::OK);
  }

  CallbackServerContext& context_;  // valid until OnDone, as response_
  ByteBuffer request_;
  ByteBuffer& response_;
  v1::GenerateResponse whole_;  // dispatcher thread, as finished_
  bool finished_ = false;
  std::shared_ptr<UnaryCall> self_;
};

template <class Request>
class StreamCall final : public grpc::ServerWriteReactor<ByteBuffer>, public GenerationCall {
 public:
  StreamCall(Generation& generation, CallbackServerContext& context, const ByteBuffer& request)
      : GenerationCall(generation, deadline_of(context)), context_(context), request_(request) {}
  void keep(std::shared_ptr<StreamCall> self) { self_ = std::move(self); }

  void OnCancel() override {
    gone_.store(true);
    cancel();
  }
  void OnWriteDone(bool ok) override {
    if (!ok) OnCancel();
    if (write_.exchange(Write::kNone) == Write::kUnderWayWithNews) wake();
  }
  void OnDone() override { const auto last = std::move(self_); }

 private:
  enum class Write : std::uint8_t { kNone, kUnderWay, kUnderWayWithNews };

  Result<GenerationInput> parse() override {
    auto request = parse_message<Request>(std::exchange(request_, ByteBuffer()));
    if (!request) return request.error();
    return GenerationInput(std::move(*request));
  }

  // One write at a time: while it is under way what is made waits in the TokenStream, whatever the reader's speed.
  void deliver() override {
    if (finished_) return;
    Write write = Write::kUnderWay;
    if (write_.compare_exchange_strong(write, Write::kUnderWayWithNews) || write == Write::kUnderWayWithNews) return;
    v1::GenerateChunk chunk;
    Next what = next(chunk);
    while (what == Next::kChunk && gone_.load()) what = next(chunk);  // nobody to send it to
    if (what == Next::kNothing) return;
    if (what == Next::kChunk) {
      bytes_ = to_bytes(chunk);
      what = peek();
      if (what == Next::kEnd) {
        finished_ = true;
        return StartWriteAndFinish(&bytes_, {}, end_status());
      }
      // Only if there is more already does the end of the write need this thread again.
      write_.store(what == Next::kChunk ? Write::kUnderWayWithNews : Write::kUnderWay);
      return StartWrite(&bytes_);
    }
    finished_ = true;
    Finish(end_status());
  }
  grpc::Status end_status() { return error() ? to_status(*error(), context_) : grpc::Status::OK; }

  CallbackServerContext& context_;  // valid until OnDone
  ByteBuffer request_;
  ByteBuffer bytes_;  // of the write in flight
  std::atomic<bool> gone_{false};
  std::atomic<Write> write_{Write::kNone};
  bool finished_ = false;  // dispatcher thread
  std::shared_ptr<StreamCall> self_;
};

// A call that the front worker answers at once.
template <class Request, class Response>
class WorkerCall final : public grpc::ServerUnaryReactor, public FrontJob {
 public:
  using Method = Result<Response> (Generation::*)(const Request&) const;

  WorkerCall(const Generation& generation, Method method, CallbackServerContext& context, const ByteBuffer& request,
             ByteBuffer& response)
      : generation_(generation), method_(method), context_(context), request_(request), response_(response) {}
  void keep(std::shared_ptr<WorkerCall> self) { self_ = std::move(self); }

  void OnCancel() override { cancelled_.store(true); }
  void OnDone() override { const auto last = std::move(self_); }

 private:
  bool abandoned() const override { return cancelled_.load(); }
  void drop(const Error& error) override { Finish(to_status(error, context_)); }
  void run() override {
    try {
      const auto request = parse_message<Request>(std::exchange(request_, ByteBuffer()));
      if (!request) return drop(request.error());
      const auto response = (generation_.*method_)(*request);
      if (!response) return drop(response.error());
      response_ = to_bytes(*response);
    } catch (const std::exception& failure) {
      return drop({ErrorCode::kInternal, failure.what()});
    }
    Finish(grpc::Status::OK);
  }

  const Generation& generation_;
  const Method method_;
  CallbackServerContext& context_;
  ByteBuffer request_;
  ByteBuffer& response_;
  std::atomic<bool> cancelled_{false};
  std::shared_ptr<WorkerCall> self_;
};

// A reactor that only refuses.
class RefusedStream final : public grpc::ServerWriteReactor<ByteBuffer> {
 public:
  explicit RefusedStream(const Error& error) { Finish(to_status(error)); }
  void OnDone() override { delete this; }
};

grpc::ServerUnaryReactor* refuse(CallbackServerContext& context, const Error& error) {
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  reactor->Finish(to_status(error, context));
  return reactor;
}

template <class Request>
grpc::ServerUnaryReactor* start_unary(Generation* generation, CallbackServerContext& context, const ByteBuffer& request,
                                      ByteBuffer& response) {
  if (generation == nullptr) return refuse(context, kLoading);
  const auto call = make_reactor<UnaryCall<Request>>(*generation, context, request, response);
  generation->start(call, request.Length());
  return call.get();
}

template <class Request>
grpc::ServerWriteReactor<ByteBuffer>* start_stream(Generation* generation, CallbackServerContext& context,
                                                   const ByteBuffer& request) {
  if (generation == nullptr) return new RefusedStream(kLoading);
  const auto call = make_reactor<StreamCall<Request>>(*generation, context, request);
  generation->start(call, request.Length());
  return call.get();
}

template <class Request, class Response>
grpc::ServerUnaryReactor* start_worker(Generation* generation,
                                       Result<Response> (Generation::*method)(const Request&) const,
                                       CallbackServerContext& context, const ByteBuffer& request,
                                       ByteBuffer& response) {
  if (generation == nullptr) return refuse(context, kLoading);
  const auto call = make_reactor<WorkerCall<Request, Response>>(*generation, method, context, request, response);
  generation->run(call, request.Length());
  return call.get();
}

}  // namespace

grpc::ServerUnaryReactor* GenerationService::Generate(CallbackServerContext* context, const ByteBuffer* request,
                                                      ByteBuffer* response) {
  return start_unary<v1::GenerateRequest>(generation_.load(), *context, *request, *response);
}

grpc::ServerWriteReactor<ByteBuffer>* GenerationService::GenerateStream(CallbackServerContext* context,
                                                                        const ByteBuffer* request) {
  return start_stream<v1::GenerateRequest>(generation_.load(), *context, *request);
}

grpc::ServerUnaryReactor* GenerationService::Chat(CallbackServerContext* context, const ByteBuffer* request,
                                                  ByteBuffer* response) {
  return start_unary<v1::ChatRequest>(generation_.load(), *context, *request, *response);
}

grpc::ServerWriteReactor<ByteBuffer>* GenerationService::ChatStream(CallbackServerContext* context,
                                                                    const ByteBuffer* request) {
  return start_stream<v1::ChatRequest>(generation_.load(), *context, *request);
}

grpc::ServerUnaryReactor* GenerationService::Tokenize(CallbackServerContext* context, const ByteBuffer* request,
                                                      ByteBuffer* response) {
  return start_worker(generation_.load(), &Generation::tokenize, *context, *request, *response);
}

grpc::ServerUnaryReactor* GenerationService::Detokenize(CallbackServerContext* context, const ByteBuffer* request,
                                                        ByteBuffer* response) {
  return start_worker(generation_.load(), &Generation::detokenize, *context, *request, *response);
}

grpc::ServerUnaryReactor* GenerationService::ApplyChatTemplate(CallbackServerContext* context,
                                                               const ByteBuffer* request, ByteBuffer* response) {
  return start_worker(generation_.load(), &Generation::apply_chat_template, *context, *request, *response);
}

grpc::ServerUnaryReactor* GenerationService::ListModels(CallbackServerContext* context, const ByteBuffer* request,
                                                        ByteBuffer* response) {
  Generation* generation = generation_.load();
  if (generation == nullptr) return refuse(*context, kLoading);
  const auto parsed = parse_message<v1::ListModelsRequest>(*request);
  if (!parsed) return refuse(*context, parsed.error());
  *response = to_bytes(generation->list_models());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace folio
