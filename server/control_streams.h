// The reactors of Control's streams. Included by control_service.cc alone.
#pragma once
#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "engine/engine.h"
#include "folio/v1/control.grpc.pb.h"
#include "server/block_dump_pages.h"
#include "server/write_watch.h"

namespace folio {

// Writes a Load, waits for the interval, writes again. gRPC calls OnWriteDone, the alarm and OnCancel from any thread.
class LoadWatch final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                        public WatchedCall,
                        public std::enable_shared_from_this<LoadWatch> {
 public:
  LoadWatch(WriteWatch& watch, grpc::CallbackServerContext& context, std::function<v1::Load()> load,
            std::chrono::milliseconds interval)
      : WatchedCall(context), watch_(watch), load_(std::move(load)), interval_(interval) {}

  void start();
  void end(const grpc::Status& status);

  void OnCancel() override { end(grpc::Status::CANCELLED); }
  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  void on_alarm();
  void write();

  WriteWatch& watch_;
  const std::function<v1::Load()> load_;
  const std::chrono::milliseconds interval_;
  std::mutex mutex_;
  grpc::Alarm alarm_;
  bool waiting_ = false;                // for the alarm
  std::optional<grpc::Status> status_;  // set once: the stream is to end with it
  grpc::ByteBuffer bytes_;              // of the write in flight
  std::shared_ptr<LoadWatch> self_;
};

// One DumpBlocks: asks the engine, then writes page after page. The engine's thread only sets an alarm.
class BlockDumpCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                            public WatchedCall,
                            public std::enable_shared_from_this<BlockDumpCall> {
 public:
  // Lowers num_open by one when it is over.
  BlockDumpCall(WriteWatch& watch, grpc::CallbackServerContext& context, std::atomic<int>& num_open)
      : WatchedCall(context), watch_(watch), num_open_(num_open) {}

  void start(Engine& engine);

  void OnCancel() override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  enum class State : std::uint8_t { kEngine, kAlarm, kWriting, kOver };  // what is waited for

  void on_dump(std::shared_ptr<const BlockDump> dump);
  void write();

  WriteWatch& watch_;
  std::atomic<int>& num_open_;
  std::mutex mutex_;
  State state_ = State::kEngine;
  bool cancelled_ = false;
  grpc::Alarm alarm_;
  std::optional<BlockDumpPages> pages_;
  grpc::ByteBuffer bytes_;  // of the write in flight
  std::shared_ptr<BlockDumpCall> self_;
};

}  // namespace folio
