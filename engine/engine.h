// The engine: one thread, one loop (docs/architecture.md):
//   plan = schedule() -> batch = build_batch(plan) -> start(batch) ... collect() -> stop checkers -> events =
//   commit(...)
// At the model's depth 2 the next step is scheduled and started before the one in flight is collected.
// Everything public may be called from any thread and returns at once, but for the constructor, the destructor and
// drain.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/ids.h"
#include "base/params.h"
#include "engine/block_dump.h"
#include "engine/load_meter.h"
#include "engine/model/model.h"
#include "engine/observer.h"
#include "engine/options.h"
#include "engine/text/tokenizer.h"
#include "engine/token_stream.h"
#include "scheduler/slot_use.h"
#include "scheduler/step_time_model.h"

namespace folio {

// What a front hands over. Already checked against the vocabulary and the ranges of base/params.h.
struct GenerationRequest {
  std::vector<TokenId> prompt;  // at least one token
  SamplingParams sampling;
  StoppingParams stopping;
  std::int32_t n = 1;
  std::int32_t priority = 0;  // higher first
  std::string tenant;         // whose share of the server it takes; empty is a tenant like any other
  CacheParams cache;
  TimePoint arrival{};                         // when it came to the front; epoch of the clock: when it is submitted
  TimePoint deadline = kNoDeadline;            // what is made by then is the answer
  TimePoint transport_deadline = kNoDeadline;  // nothing reaches the client after it: ends a step earlier
  bool skip_special = true;
};

// Taken at one moment: every accepted request runs, waits, has ended or was refused late.
struct LoadSnapshot {
  std::int32_t num_running = 0;  // requests
  std::int32_t num_waiting = 0;
  std::int32_t blocks_total = 0;
  std::int32_t blocks_free = 0;
  std::int32_t blocks_held = 0;
  std::int32_t blocks_cached = 0;
  std::int32_t blocks_pinned = 0;       // part of held
  std::int32_t blocks_unaccounted = 0;  // by the last walk: at most a second old when asked for often
  std::int32_t num_pins = 0;
  std::int64_t num_pins_released = 0;  // since start: gave way to a request that needed their blocks
  // Since start:
  std::int64_t num_steps = 0;
  std::array<std::int64_t, kNumOutcomes> num_ended{};  // requests, by outcome
  std::int64_t num_refused_late = 0;        // requests that could not have given a token before their deadline
  std::int64_t prompt_tokens = 0;           // computed
  std::int64_t answered_prompt_tokens = 0;  // of prompts that are done, each once a request
  std::int64_t queried_tokens = 0;          // of the prompts that were looked for in the prefix cache
  std::int64_t cached_tokens = 0;           // prompt tokens found in the prefix cache
  std::int64_t output_tokens = 0;
  std::int64_t num_preemptions = 0;
  double prompt_tokens_per_second = 0;  // over the last seconds
  double output_tokens_per_second = 0;
  double last_step_ms = 0;
  StepPhases mean_step;  // over the last 64 steps
  StepTimes step_times;  // as steps are predicted now
};

class Engine {
 public:
  // model, tokenizer and clock outlive the engine. Throws std::invalid_argument naming an option out of its range.
  Engine(Model& model, const Tokenizer& tokenizer, const Clock& clock, EngineOptions options);
  ~Engine();  // ends what is left with kUnavailable, joins the thread

  // Refusals: kInvalidArgument (prompt + 1, or with max_tokens 0 the prompt, over the context or the pool, n over
  // max_num_seqs: with the numbers), kResourceExhausted (queue full; says when to try again), kUnavailable (draining,
  // device lost). The stream is told of everything after acceptance: also, with kDeadlineExceeded, that the request
  // cannot give a token before its deadline.
  Result<RequestId> submit(GenerationRequest request, std::shared_ptr<TokenStream> stream);
  // No more is computed for it from the next step on; the stream ends with kCancelled. Unknown ids are ignored.
  void cancel(RequestId id);
  // Likewise one of its n sequences: that index finishes with kCancelled, the others go on.
  void cancel(RequestId id, std::int32_t index);
  // Forgets every cached prefix but the pinned ones, before the next step.
  void flush_prefix_cache();
  // Releases the pin of the request that asked for it (its prompt may be gone long since), or with 0 every pin.
  void unpin(RequestId id);
  // `done` is called once, on the engine thread, before the next step; it must not block and must not call the engine.
  void dump_blocks(BlockDumpReceiver done);
  LoadSnapshot load() const;  // as it is now: what the step under way began with; never waits for one

  void stop_accepting();  // submit answers kUnavailable from now on
  // Until no request is left and no step in flight, or the deadline (of the steady clock) passed: true when idle.
  bool wait_idle(TimePoint deadline);
  void end_all(Error reason);  // ends every request with this error

  void add_observer(std::shared_ptr<EngineObserver> observer);  // before the first submit
  SlotUse slot_use();  // a walk over all tables; from an observer's functions only
  std::int32_t max_context() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace folio
