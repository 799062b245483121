// What the commands share: a model from flags, random prompts, and greedy requests whose tokens are timed at the
// stream.
#pragma once
#include <CLI/CLI.hpp>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/model/load_model.h"
#include "engine/text/tokenizer.h"

namespace folio::bench {

struct ModelFlags {
  std::string path;
  ModelOptions options;
};
// --model, --threads, --isa, --kv-dtype, --block-size.
void add_model_flags(CLI::App& command, ModelFlags& flags, bool required);

struct BenchModel {
  BenchModel(const ModelFlags& flags, std::int64_t num_blocks);  // throws as load_model does

  LoadedModel loaded;
  std::unique_ptr<Tokenizer> tokenizer;
  SteadyClock clock;
};

// Throws std::runtime_error naming the flags that ask for sequences of so many tokens when the model's are shorter:
// before it is loaded, and memory for them taken.
void require_context(const ModelFlags& model, const std::string& flags, std::int64_t num_tokens);

// The queue's limits raised to what a command submits at once.
void allow_waiting(EngineOptions& options, std::int64_t num_requests, std::int64_t prompt_tokens);

// Ids that are no special ones in the usual vocabularies.
std::vector<TokenId> random_tokens(std::mt19937& random, std::int64_t count, std::int32_t vocab_size);

// Greedy, end ids ignored.
GenerationRequest greedy_request(std::vector<TokenId> prompt, std::int64_t max_tokens);

// Requests of one output each, and when their tokens came. Tokens are taken on the engine's thread at once, so a time
// is that of the stream's call. The engine and the clock outlive it; the end of all requests is waited for.
class Streams {
 public:
  struct Record {
    RequestId id = 0;
    TimePoint submitted{};
    std::vector<TimePoint> tokens;  // when each came
    std::int64_t cached_tokens = 0;
    std::optional<StreamEnd> end;
    double ttft_ms() const { return to_ms(tokens.front() - submitted); }
  };

  Streams(Engine& engine, const Clock& clock) : engine_(engine), clock_(clock) {}
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  void submit(GenerationRequest request);  // throws std::runtime_error when it is refused
  // Until every request has so many tokens. Throws std::runtime_error when one ended before it had.
  void wait_for_tokens(std::size_t num_tokens);
  // Until fewer than `num_open` requests have not ended.
  void wait_for_open_below(std::size_t num_open);
  void wait_for_ends();  // throws std::runtime_error when one ended by an error that is no cancellation
  void cancel();         // all

  const Record& operator[](std::size_t i) const { return entries_[i].record; }  // of one that ended
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    Record record;
    std::shared_ptr<TokenStream> stream;
  };
  void take(Entry& entry);
  bool have_tokens(std::size_t num_tokens) const;
  bool have_ended() const;

  Engine& engine_;
  const Clock& clock_;
  std::mutex mutex_;  // for the records of requests that have not ended, and wanted_
  std::condition_variable news_;
  std::size_t wanted_ = 0;     // tokens that somebody waits for
  std::deque<Entry> entries_;  // keep their address
};

}  // namespace folio::bench
