// A front as small as it can be: reads one stream to its end, on the thread of whoever asks.
#pragma once
#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/support/fake_model/async_model.h"
#include "tests/support/fake_model/fake_model.h"
#include "tests/support/fake_model/fake_tokenizer.h"

namespace folio {

inline constexpr TokenId kVocab = 61;

class Reader {
 public:
  struct Output {
    std::vector<TokenId> ids;
    std::vector<float> logprobs;
    std::vector<TokenLogprob> top;  // of all tokens, one after the other
    std::string bytes;
    FinishReason finish = FinishReason::kNone;
    TokenId stop_token = -1;
    std::int32_t stop_index = -1;
  };

  explicit Reader(std::int32_t n = 1);
  std::shared_ptr<TokenStream> stream() const { return stream_; }

  void wait_end();                                              // reads all
  void wait_tokens(std::size_t count, std::int32_t index = 0);  // or the end
  const Output& output(std::int32_t index = 0) const { return outputs_.at(static_cast<std::size_t>(index)); }
  std::int32_t num_outputs() const { return static_cast<std::int32_t>(outputs_.size()); }
  const std::optional<Usage>& prompt() const { return prompt_; }
  const std::vector<SampledToken>& prompt_logprobs() const { return prompt_logprobs_; }
  bool ended() const { return end_.has_value(); }
  const StreamEnd& end() const { return *end_; }
  // The error's code, or kNotFound when the request ended without one.
  ErrorCode error() const { return end_ && end_->error ? end_->error->code : ErrorCode::kNotFound; }
  int num_wakes() const;

 private:
  struct Signal {
    std::mutex mutex;
    std::condition_variable changed;
    int num_wakes = 0;
  };
  bool read();  // what is there; false: nothing
  void wait_wake();

  std::shared_ptr<Signal> signal_ = std::make_shared<Signal>();
  int num_seen_ = 0;
  std::shared_ptr<TokenStream> stream_;
  std::vector<Output> outputs_;
  std::optional<Usage> prompt_;
  std::vector<SampledToken> prompt_logprobs_;
  std::optional<StreamEnd> end_;
};

// Holds the engine inside a step until it is opened.
class Gate {
 public:
  void open() { opened_.set_value(); }
  void wait() { open_.wait(); }

 private:
  std::promise<void> opened_;
  std::shared_future<void> open_ = opened_.get_future().share();
};

// Prompt from a number; ignores end ids, so that max_tokens decides.
GenerationRequest request_of(int number, std::int64_t num_prompt_tokens, std::int64_t max_tokens, std::int32_t n = 1);

// A model with its engine. Members may be used before the first submit. In a test of a suite AtDepth the model is of
// that depth: of depth 2 one that computes on a thread of its own, where the fake model's hook is called too.
struct Rig {
  static inline int depth = 1;
  explicit Rig(EngineOptions options = {}, std::int32_t num_blocks = 64, std::int32_t block_size = 4,
               std::int32_t max_context = 256);

  RequestId submit(GenerationRequest request, const Reader& reader) {
    return *engine->submit(std::move(request), reader.stream());
  }
  bool idle();  // within ten seconds, with every counter and block back

  FakeModel model;
  std::unique_ptr<AsyncModel> async;  // at depth 2
  FakeTokenizer tokenizer{kVocab};
  SteadyClock clock;
  std::unique_ptr<Engine> engine;
};

class AtDepth : public testing::TestWithParam<int> {
 protected:
  AtDepth() { Rig::depth = GetParam(); }
  ~AtDepth() override { Rig::depth = 1; }
};

#define FOLIO_AT_BOTH_DEPTHS(suite)                             \
  INSTANTIATE_TEST_SUITE_P(Depth, suite, testing::Values(1, 2), \
                           [](const auto& depth) { return std::to_string(depth.param); })

}  // namespace folio
