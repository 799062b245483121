#include "server/control_streams.h"

#include <utility>

#include "server/grpc_status.h"

namespace folio {

void LoadWatch::start() {
  self_ = shared_from_this();
  watch_.add(self_);
  write();
}

void LoadWatch::end(const grpc::Status& status) {
  const std::lock_guard lock(mutex_);
  if (status_) return;
  status_ = status;
  if (waiting_) alarm_.Cancel();  // its callback finishes the stream
}

void LoadWatch::OnWriteDone(bool ok) {
  write_ends();
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

void LoadWatch::OnDone() {
  watch_.remove(*this);
  const auto last = std::move(self_);
}

void LoadWatch::on_alarm() {
  {
    const std::lock_guard lock(mutex_);
    waiting_ = false;
  }
  write();
}

// No write and no alarm is under way.
void LoadWatch::write() {
  {
    const std::lock_guard lock(mutex_);
    if (!status_) {
      bytes_ = to_bytes(load_());
      write_begins();
      StartWrite(&bytes_);
      return;
    }
  }
  Finish(*status_);
}

void BlockDumpCall::start(Engine& engine) {
  self_ = shared_from_this();
  watch_.add(self_);
  engine.dump_blocks([weak = weak_from_this()](std::shared_ptr<const BlockDump> dump) {
    if (const auto self = weak.lock()) self->on_dump(std::move(dump));
  });
}

void BlockDumpCall::on_dump(std::shared_ptr<const BlockDump> dump) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kEngine) return;
    state_ = State::kAlarm;
    pages_.emplace(std::move(dump));
  }
  alarm_.Set(std::chrono::system_clock::now(), [weak = weak_from_this()](bool) {
    if (const auto self = weak.lock()) self->write();
  });
}

// While the engine is waited for, nobody else would end the call.
void BlockDumpCall::OnCancel() {
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    if (state_ != State::kEngine) return;
    state_ = State::kOver;
  }
  Finish(grpc::Status::CANCELLED);
}

void BlockDumpCall::OnWriteDone(bool ok) {
  write_ends();
  if (!ok) OnCancel();
  write();
}

void BlockDumpCall::OnDone() {
  watch_.remove(*this);
  num_open_.fetch_sub(1);
  const auto last = std::move(self_);
}

// No write and no alarm is under way.
void BlockDumpCall::write() {
  bool cancelled = false;
  {
    const std::lock_guard lock(mutex_);
    cancelled = cancelled_;
    state_ = cancelled || pages_->ended() ? State::kOver : State::kWriting;
  }
  if (cancelled) return Finish(grpc::Status::CANCELLED);
  if (pages_->ended()) return Finish(grpc::Status::OK);
  bytes_ = to_bytes(pages_->next());
  write_begins();
  StartWrite(&bytes_);
}

}  // namespace folio
