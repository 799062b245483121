// The engine: one thread, one loop (docs/architecture.md):
//   plan = schedule() -> batch = build_batch(plan) -> sample(forward(batch)) -> stop checkers -> events = commit(...)
// Everything public may be called from any thread and returns at once, but for the constructor, the destructor and
// drain.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/ids.h"
#include "base/params.h"
#include "engine/block_dump.h"
#include "engine/model/model.h"
#include "engine/options.h"
#include "engine/text/tokenizer.h"
#include "engine/token_stream.h"

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
  TimePoint deadline = kNoDeadline;            // what is made by then is the answer
  TimePoint transport_deadline = kNoDeadline;  // nothing reaches the client after it: ends a step earlier
  bool skip_special = true;
};

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
  std::int64_t num_steps = 0;
  std::int64_t prompt_tokens = 0;  // computed since start
  std::int64_t cached_tokens = 0;  // prompt tokens found in the prefix cache since start
  std::int64_t output_tokens = 0;
  std::int64_t num_preemptions = 0;
  double prompt_tokens_per_second = 0;  // over the last seconds
  double output_tokens_per_second = 0;
  double last_step_ms = 0;
  double mean_step_ms = 0;  // over the last 64 steps
};

// One step as it happened, for tests and tools.
struct StepRecord {
  std::int64_t step = 0;
  std::int32_t num_decode_slices = 0;   // slices of one token that continue an output
  std::int32_t num_prefill_slices = 0;  // the others
  std::int32_t num_tokens = 0;
  std::int64_t num_held_slots = 0;  // token positions in blocks that running sequences hold, each block once
  std::int64_t num_used_slots = 0;  // those that hold the K and V of a token
  double schedule_ms = 0, build_ms = 0, forward_ms = 0, sample_ms = 0, commit_ms = 0;
  ForwardTimes forward;  // the parts of forward_ms
};

class Engine {
 public:
  // model, tokenizer and clock outlive the engine. Throws std::invalid_argument naming an option out of its range.
  Engine(Model& model, const Tokenizer& tokenizer, const Clock& clock, EngineOptions options);
  ~Engine();  // ends what is left with kUnavailable, joins the thread

  // Refusals: kInvalidArgument (prompt + 1, or with max_tokens 0 the prompt, over the context or the pool, n over
  // max_num_seqs: with the numbers), kResourceExhausted (queue full; says when to try again), kUnavailable (draining).
  // The stream is told of everything after acceptance: also, with kDeadlineExceeded, that the request cannot give a
  // token before its deadline.
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
  // Of the last committed step, but for the requests that run and wait, which are of now; never waits for a step.
  LoadSnapshot load() const;

  void stop_accepting();  // submit answers kUnavailable from now on
  // Until no request is left or the deadline (of the steady clock) passed: true when idle.
  bool wait_idle(TimePoint deadline);
  void end_all(Error reason);  // ends every request with this error

  void set_step_observer(std::function<void(const StepRecord&)> observer);  // before the first submit; engine thread
  std::int32_t max_context() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace folio
