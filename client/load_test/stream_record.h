// One request under way: collects what its stream brings, and makes the record of it when it has ended.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "client/load_test/record.h"
#include "client/load_test/transport.h"
#include "client/load_test/workload.h"

namespace folio::client {

// Threads: the owner's calls start, abort and record; the transport's thread the listener's functions, of which
// on_end's last act is to call `ended`. From there on, and after start has returned, the owner may call record and
// destroy it.
class StreamRecord final : public StreamListener {
 public:
  using Ended = std::function<void(StreamRecord&)>;
  // `ended` outlives this.
  StreamRecord(std::int64_t number, PlannedRequest request, const Ended& ended);

  // Once. The times of the load's own plan: when it was due, and when the limit of concurrency let it go.
  void start(Transport& transport, SteadyTime due, SteadyTime ready);
  void abort();

  // When on_end came, which may be after the stream's end.
  SteadyTime ended_at() const { return ended_at_; }
  // REQUIRES `ended` was called; once. Seconds in it are from `load_start`.
  RequestRecord record(SteadyTime load_start);

  void on_arrival(const Arrival& arrival) override;
  void on_end(const StreamEnd& end) override;

 private:
  void cancel();
  Outcome outcome() const;
  void check_counts();

  const std::int64_t number_;
  const PlannedRequest request_;
  const Ended& ended_;
  SteadyTime due_{}, ready_{}, sent_{}, ended_at_{};
  std::unique_ptr<Call> call_;
  // A stream can want to be cancelled before start has the call: whoever comes second cancels it.
  std::atomic<Call*> cancellable_{nullptr};
  std::atomic<bool> cancelled_{false};
  bool aborted_ = false;  // of the owner's thread alone
  std::int64_t tokens_seen_ = 0;
  std::vector<Arrival> arrivals_;  // with content
  StreamEnd end_;
};

}  // namespace folio::client
