// The reactors of folio.v1.Generation: gRPC's callbacks on one side, GenerationCall or FrontJob on the other. Included
// by grpc_service.cc alone.
//
// Reactors live until gRPC's OnDone and until the last thread of ours lets go, whichever is later.
#pragma once
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <utility>

#include "server/answer_size.h"
#include "server/generation.h"
#include "server/grpc_door.h"
#include "server/grpc_status.h"

namespace folio::internal {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;

inline TimePoint deadline_of(const CallbackServerContext& context) {
  const auto left = context.deadline() - std::chrono::system_clock::now();
  // gRPC's "no deadline" is the end of its clock; beyond a year there is none either.
  if (left > std::chrono::hours(24 * 365)) return kNoDeadline;
  return std::chrono::steady_clock::now() + left;
}

// `watch` sees the reactor from now until its OnDone.
template <class Reactor, class... Args>
std::shared_ptr<Reactor> make_reactor(WriteWatch& watch, Args&&... args) {
  auto reactor = std::make_shared<Reactor>(watch, std::forward<Args>(args)...);
  reactor->keep(reactor);
  watch.add(reactor);
  return reactor;
}

template <class Request>
class UnaryCall final : public grpc::ServerUnaryReactor, public GenerationCall, public WatchedCall {
 public:
  UnaryCall(WriteWatch& watch, Generation& generation, Caller caller, CallbackServerContext& context,
            const ByteBuffer& request, ByteBuffer& response)
      : GenerationCall(generation, deadline_of(context), std::move(caller)),
        WatchedCall(context),
        watch_(watch),
        context_(context),
        request_(request),
        response_(response) {}
  void keep(std::shared_ptr<UnaryCall> self) { self_ = std::move(self); }

  void OnCancel() override { cancel(); }
  void OnDone() override {
    watch_.remove(*this);
    const auto last = std::move(self_);
  }

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
    for (; what == Next::kChunk; what = next(chunk)) {
      if (too_large_) continue;
      too_large_ = answer_.add(chunk);
      if (too_large_) cancel();  // its end follows
    }
    if (what == Next::kNothing) return;
    finished_ = true;
    if (too_large_) return Finish(to_status(*too_large_, context_));
    if (error()) return Finish(to_status(*error(), context_));
    response_ = to_bytes(answer_.whole());
    write_begins();
    Finish(grpc::Status::OK);
  }

  WriteWatch& watch_;
  CallbackServerContext& context_;  // valid until OnDone, as response_
  ByteBuffer request_;
  ByteBuffer& response_;
  // Dispatcher thread:
  JoinedAnswer answer_;
  std::optional<Error> too_large_;
  bool finished_ = false;
  std::shared_ptr<UnaryCall> self_;
};

template <class Request>
class StreamCall final : public grpc::ServerWriteReactor<ByteBuffer>, public GenerationCall, public WatchedCall {
 public:
  StreamCall(WriteWatch& watch, Generation& generation, Caller caller, CallbackServerContext& context,
             const ByteBuffer& request)
      : GenerationCall(generation, deadline_of(context), std::move(caller)),
        WatchedCall(context),
        watch_(watch),
        context_(context),
        request_(request) {}
  void keep(std::shared_ptr<StreamCall> self) { self_ = std::move(self); }

  void OnCancel() override {
    gone_.store(true);
    cancel();
  }
  void OnWriteDone(bool ok) override {
    write_ends();  // before another may begin
    if (!ok) OnCancel();
    if (write_.exchange(Write::kNone) == Write::kUnderWayWithNews) wake();
  }
  void OnDone() override {
    watch_.remove(*this);
    const auto last = std::move(self_);
  }

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
      write_begins();
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

  WriteWatch& watch_;
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
class WorkerCall final : public grpc::ServerUnaryReactor, public FrontJob, public WatchedCall {
 public:
  using Method = Result<Response> (Generation::*)(const Request&) const;

  WorkerCall(WriteWatch& watch, const Generation& generation, Method method, CallbackServerContext& context,
             const ByteBuffer& request, ByteBuffer& response)
      : WatchedCall(context),
        watch_(watch),
        generation_(generation),
        method_(method),
        context_(context),
        request_(request),
        response_(response) {}
  void keep(std::shared_ptr<WorkerCall> self) { self_ = std::move(self); }

  void OnCancel() override { cancelled_.store(true); }
  void OnDone() override {
    watch_.remove(*this);
    const auto last = std::move(self_);
  }

 private:
  bool abandoned() const override { return cancelled_.load(); }
  void drop(const Error& error) override { Finish(to_status(error, context_)); }
  void run() override {
    try {
      const auto request = parse_message<Request>(std::exchange(request_, ByteBuffer()));
      if (!request) return drop(request.error());
      const auto response = (generation_.*method_)(*request);
      if (!response) return drop(response.error());
      if (auto error = check_answer_size(response->ByteSizeLong(), kAskForParts)) return drop(*error);
      response_ = to_bytes(*response);
    } catch (const std::exception& failure) {
      return drop({ErrorCode::kInternal, failure.what()});
    }
    write_begins();
    Finish(grpc::Status::OK);
  }

  WriteWatch& watch_;
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

inline grpc::ServerUnaryReactor* refuse(CallbackServerContext& context, const Error& error) {
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  reactor->Finish(to_status(error, context));
  return reactor;
}

}  // namespace folio::internal
