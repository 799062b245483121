// What the engine tells those who watch it: metrics, benchmarks, tests.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "engine/model/forward_times.h"

namespace folio {

// How a request ended, one word for all of its sequences: the last in this order that one of them had.
enum class Outcome : std::uint8_t {
  kStop,       // an end token, or a stop string
  kLength,     // max_tokens, or no room
  kCancelled,  // its caller is gone, or the operator ended it
  kDeadline,   // its time was up, before or after the first token
  kFailed,     // a step failed
  kShutDown,   // the drain timed out, or the device was lost
};
inline constexpr std::size_t kNumOutcomes = 6;

// One step as it happened; of one that failed, the times up to there. The times are the engine thread's, each spent for
// this step alone, so that they sum up to what the step took of it: schedule, build, forward (starting the step and
// waiting for its results, but for sampling as far as the model tells the two apart), sample, commit. At depth 2 the
// model computes on while the thread is at the other phases of the steps before and behind: forward_ms is what of the
// model's time they did not hide.
struct StepRecord {
  std::int64_t step = 0;
  std::int32_t num_decode_slices = 0;   // slices of one token that continue an output
  std::int32_t num_prefill_slices = 0;  // the others
  std::int32_t num_tokens = 0;
  double schedule_ms = 0, build_ms = 0, forward_ms = 0, sample_ms = 0, commit_ms = 0;
  ForwardTimes forward;  // the parts of forward_ms and sample_ms, where the model knows them
};

// A request that ended.
struct RequestRecord {
  Outcome outcome = Outcome::kStop;
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;  // of all its sequences
  Duration total{};                // from its arrival to its end
  Duration queue{};                // from its arrival to the first work on it, or to its end
  Duration prefill{};              // from there to the first token; with output_tokens > 0
  Duration decode{};               // from there to its end; with output_tokens > 0
};

// The functions are called on the engine thread, between two steps, when load() tells of what happened and no stream
// does yet. They may call whatever of the engine returns at once; they must not block or throw.
class EngineObserver {
 public:
  virtual ~EngineObserver() = default;
  virtual void on_step(const StepRecord&) {}
  virtual void on_first_token(Duration) {}  // of a request, since its arrival
  virtual void on_next_token(Duration) {}   // of a sequence, since the one before
  virtual void on_end(const RequestRecord&) {}
  // Once: no step will run any more. All requests end now, and none is accepted again.
  virtual void on_device_lost(const std::string& /*what*/) {}
};

// Of steps alone, by a function.
class StepObserver final : public EngineObserver {
 public:
  explicit StepObserver(std::function<void(const StepRecord&)> function) : function_(std::move(function)) {}
  void on_step(const StepRecord& step) override { function_(step); }

 private:
  const std::function<void(const StepRecord&)> function_;
};

}  // namespace folio
