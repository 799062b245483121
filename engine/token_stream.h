// The one way from the engine to a front: what a request's sequences made, in order, held until the front takes it. It
// holds up to everything that the request can make, so a push never fails and the engine never waits for a reader.
#pragma once
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "base/params.h"
#include "engine/sampling/sampler.h"

namespace folio {

// What one sequence made since the last take. `bytes` are released output bytes, not yet checked to be UTF-8.
struct OutputDelta {
  std::int32_t index = 0;
  std::vector<SampledToken> tokens;
  std::string bytes;
  FinishReason finish = FinishReason::kNone;  // set in the last delta of an index
  TokenId stop_token = -1;                    // with kStopToken
  std::int32_t stop_index = -1;               // with kStopString: index into the request's stop strings
};

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t output_tokens = 0;  // of all indices
  std::int64_t pinned_tokens = 0;  // prompt tokens that stay pinned: 0 when none was asked for, or the quota is full
};

struct Timings {
  double queue_ms = 0;          // arrived -> first slice scheduled
  double prefill_ms = 0;        // first slice scheduled -> first token
  double ttft_ms = 0;           // arrived -> first token; 0 when none was made
  double decode_ms = 0;         // first token -> end
  std::int32_t num_chunks = 0;  // prompt slices
  std::int32_t num_preemptions = 0;
  std::int64_t recomputed_tokens = 0;
  std::int32_t peak_blocks = 0;  // most blocks held at once, all indices
};

// The request is over; nothing follows. `error` when it ended without a normal end (abort, deadline before the first
// token, failed step, drain).
struct StreamEnd {
  Usage usage;
  Timings timings;
  std::optional<Error> error;
};

class TokenStream {
 public:
  // `on_ready` is called on the engine thread, at most once per step and only when something was pushed since the last
  // take found the stream empty; it must not block and must not call the engine. It may be called until the end was
  // taken.
  explicit TokenStream(std::function<void()> on_ready) : on_ready_(std::move(on_ready)) {}

  // Engine side.
  void started(std::int64_t prompt_tokens, std::int64_t cached_tokens);  // once, before the first delta
  void push_prompt(SampledToken token);  // the prompt's next one with its log probability, before the first output
  void push(std::int32_t index, SampledToken token, std::string_view released);
  void finish(std::int32_t index, FinishReason reason, TokenId stop_token, std::int32_t stop_index,
              std::string_view released);
  void end(StreamEnd end);
  void notify();  // end of step: calls on_ready if there is news

  // Front side, any one thread at a time.
  struct Taken {
    std::optional<Usage> prompt;  // once: prompt_tokens and cached_tokens
    // If asked for: the prompt's tokens, as far as they were computed, from the first on, which has no log probability.
    std::vector<SampledToken> prompt_logprobs;
    std::vector<OutputDelta> outputs;  // by index; empty deltas are left out
    std::optional<StreamEnd> end;
    bool empty() const { return !prompt && prompt_logprobs.empty() && outputs.empty() && !end; }
  };
  Taken take();  // all that is there

 private:
  OutputDelta& delta(std::int32_t index);

  std::mutex mutex_;
  Taken pending_;
  bool news_ = false;      // pushed since the last notify or take
  bool notified_ = false;  // on_ready was called and no take found the stream empty since
  std::function<void()> on_ready_;
};

}  // namespace folio
