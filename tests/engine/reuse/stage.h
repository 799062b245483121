// A real model with its engine, and the answers that it has to give: those of each request alone, with every feature
// off.
#pragma once
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/load_model.h"
#include "tests/engine/reader.h"
#include "tests/engine/reuse/poison_model.h"

namespace folio {

inline constexpr const char* kTinyLlama = "tests/reference/tiny_models/llama-gqa-rope3.gguf";
inline constexpr const char* kTinyGemma = "tests/reference/tiny_models/gemma3.gguf";  // windows of 16 tokens

// A model file, opened once.
struct ModelFile {
  explicit ModelFile(const std::string& path) : file(path), tokenizer(make_tokenizer(file)) {}
  std::vector<TokenId> encode(std::string_view text) const;
  std::string text_of(std::span<const TokenId> ids) const;
  GgufFile file;
  std::unique_ptr<Tokenizer> tokenizer;
};

// Time that only moves when told to.
class StageClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(Duration(time_.load())); }
  void advance(Duration by) { time_ += by.count(); }

 private:
  std::atomic<std::int64_t> time_ = 1'000'000'000;
};

struct Answer {
  std::vector<SampledToken> prompt_logprobs;
  std::vector<Reader::Output> outputs;
  StreamEnd end;
  const Reader::Output& front() const { return outputs.front(); }
};

class Stage {
 public:
  struct Setup {
    std::string isa = "auto";
    std::string kv = "f16";
    std::int32_t block_size = 16;
    std::int32_t num_blocks = 64;
    int threads = 1;
    int depth = 1;
    EngineOptions options = {};    // check_invariants is always on
    const Clock* clock = nullptr;  // else the steady one
  };
  Stage(const ModelFile& file, Setup setup);

  Engine& engine() { return *engine_; }
  const PoisonModel& model() const { return *model_; }
  LoadSnapshot load() const { return engine_->load(); }

  // Called first in each step, on the engine's thread; may call the engine. Set before the first submit.
  void set_hook(std::function<void(const StepBatch&)> hook) { hook_ = std::move(hook); }
  // No step goes on from its beginning while this is held.
  std::unique_lock<std::mutex> hold() { return std::unique_lock(gate_); }
  RequestId submit(GenerationRequest request, const Reader& reader);
  Answer run(GenerationRequest request) { return run_together({std::move(request)}).front(); }
  // All are there before the first step ends.
  std::vector<Answer> run_together(std::vector<GenerationRequest> requests);
  // Idle, and nothing is held but by pins. With those released and the cache flushed every block is free.
  testing::AssertionResult is_settled();
  testing::AssertionResult gives_all_back();

 private:
  testing::AssertionResult wait_for(const char* what, const std::function<bool(const LoadSnapshot&)>& holds) const;

  SteadyClock steady_;
  LoadedModel loaded_;
  std::unique_ptr<PoisonModel> model_;
  std::mutex gate_;
  std::function<void(const StepBatch&)> hook_;
  std::unique_ptr<Engine> engine_;
};

// Alone, no prefix cache, the whole prompt in one step, blocks of 16, room for all.
class Solo {
 public:
  Solo(const ModelFile& file, std::string isa = "auto", std::string kv = "f16", std::int32_t num_blocks = 128);
  Answer run(const GenerationRequest& request) { return stage_.run(request); }

 private:
  Stage stage_;
};

// What a client sees of one index, to the last bit.
testing::AssertionResult same_output(const Reader::Output& got, const Reader::Output& alone);
testing::AssertionResult is_beginning(const Reader::Output& got, const Reader::Output& alone);
testing::AssertionResult is_beginning(std::span<const SampledToken> got, std::span<const SampledToken> alone);
testing::AssertionResult same_answer(const Answer& got, const Answer& alone);

// Greedy, to `max_tokens`, with the chosen tokens' log probabilities.
GenerationRequest greedy(std::vector<TokenId> prompt, std::int64_t max_tokens);
// Sampled with a seed and every transformation on.
GenerationRequest sampled(std::vector<TokenId> prompt, std::int64_t max_tokens, std::uint64_t seed);
std::vector<TokenId> random_tokens(std::uint64_t seed, std::size_t count, TokenId vocab_size = 512);
std::vector<TokenId> joined(std::vector<TokenId> head, std::span<const TokenId> tail);

}  // namespace folio
