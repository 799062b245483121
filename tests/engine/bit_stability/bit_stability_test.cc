// The numerics contract, seen from outside: whatever the company, the chunks, the threads, the depth, the block numbers
// and the preemptions, a request gives the same token ids and the same bits of log probability as alone.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <future>
#include <optional>
#include <random>

#include "engine/engine.h"
#include "engine/kernels/cpu/cpu_backend.h"
#include "engine/model/load_model.h"
#include "tests/engine/kernels/levels.h"
#include "tests/engine/model/reference_cases.h"
#include "tests/support/fake_model/async_model.h"

namespace folio {
namespace {

#ifdef __SANITIZE_THREAD__
constexpr bool kIsThreadSanitized = true;
#else
constexpr bool kIsThreadSanitized = false;
#endif

struct Setting {
  int threads = 1;
  int chunk = 0;  // prompt tokens of one sequence in a step, 0: the whole
  int num_blocks = 0;
  std::uint64_t shuffle = 0;
  int max_batch_tokens = 512;
  int depth = 1;  // 2: the model computes on a thread of its own, without the requests whose sampling reads history
};

bool takes_part(const GenerationRequest& request, const Setting& setting) {
  return setting.depth == 1 || !request.sampling.reads_history();
}

struct Answer {
  std::vector<TokenId> ids;
  std::vector<float> logprobs;
  std::vector<float> prompt_logprobs;
};

// A model file, opened once, and the requests of this test.
struct Subject {
  explicit Subject(const std::string& path) : file(path), tokenizer(make_tokenizer(file)) {}
  GgufFile file;
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<GenerationRequest> requests;
};

// Half greedy, half sampled with a seed, half of these with every transformation on; a third asks for its prompt's log
// probabilities.
void make_requests(Subject& subject, int count, int longest_prompt, int output_tokens) {
  std::mt19937 random(42);
  const TokenId vocab = subject.tokenizer->vocab_size();
  for (int i = 0; i < count; ++i) {
    GenerationRequest r;
    r.prompt.resize(1 + random() % static_cast<unsigned>(longest_prompt));
    for (TokenId& id : r.prompt) id = static_cast<TokenId>(random() % static_cast<unsigned>(vocab));
    r.sampling.num_logprobs = 0;
    r.sampling.temperature = i % 2 == 0 ? 0.0F : 0.8F;
    if (i % 2 == 1) {
      r.sampling.seed = static_cast<std::uint64_t>(i);
      r.sampling.top_p = 0.95F;
      r.sampling.top_k = 50;
    }
    if (i % 4 == 1) {
      r.sampling.repetition_penalty = 1.1F;
      r.sampling.frequency_penalty = 0.1F;
    }
    if (i % 3 == 0) r.sampling.num_prompt_logprobs = 0;
    r.stopping.max_tokens = output_tokens;
    r.stopping.ignore_eos = true;
    subject.requests.push_back(std::move(r));
  }
}

struct Run {
  std::vector<Answer> answers;
  std::int64_t num_preemptions = 0;
  int most_slices = 0;
  int mixed_steps = 0;
};

// The options that may change bits, and therefore stay the same in a comparison.
struct Options {
  std::string isa = "auto";
  std::string kv_dtype = "f16";
};

Run run(const Subject& subject, const Options& fixed, const Setting& setting,
        std::span<const GenerationRequest> requests) {
  const LoadedModel loaded = load_model(
      subject.file,
      {.isa = fixed.isa, .num_threads = setting.threads, .kv_dtype = fixed.kv_dtype, .kv_blocks = setting.num_blocks});
  // A slot that no table names is poison, large and finite.
  dynamic_cast<cpu::CpuBackend&>(loaded.model->backend()).cache().fill(30000.0F);
  const SteadyClock clock;
  EngineOptions options;
  options.max_num_seqs = 16;
  options.max_batch_tokens = setting.max_batch_tokens;
  options.max_prefill_chunk = setting.chunk;
  options.block_shuffle_seed = setting.shuffle;
  options.check_invariants = true;
  Run result;
  std::vector<std::shared_ptr<TokenStream>> streams;
  std::promise<void> all_submitted;  // no step ends before: who is there does not hang on how fast this thread is
  std::shared_future<void> submitted = all_submitted.get_future().share();
  {
    std::optional<AsyncModel> async;
    if (setting.depth == 2) async.emplace(*loaded.model);
    Engine engine(async ? static_cast<Model&>(*async) : *loaded.model, *subject.tokenizer, clock, options);
    engine.add_observer(std::make_shared<StepObserver>([&](const StepRecord& step) {
      submitted.wait();
      result.most_slices = std::max(result.most_slices, step.num_decode_slices + step.num_prefill_slices);
      result.mixed_steps += step.num_decode_slices > 0 && step.num_prefill_slices > 0 ? 1 : 0;
    }));
    for (const GenerationRequest& request : requests) {
      streams.push_back(std::make_shared<TokenStream>([] {}));
      if (!takes_part(request, setting)) continue;
      const auto id = engine.submit(request, streams.back());
      EXPECT_TRUE(id) << id.error().message;
    }
    all_submitted.set_value();
    if (!engine.wait_idle(clock.now() + std::chrono::minutes(10)))
      throw std::runtime_error("not idle after ten minutes");
    const LoadSnapshot load = engine.load();
    EXPECT_EQ(load.blocks_free + load.blocks_cached, load.blocks_total);
    EXPECT_EQ(load.blocks_unaccounted, 0);
    result.num_preemptions = load.num_preemptions;
    if (async) {
      EXPECT_EQ(async->most_in_flight(), 2);
    }
  }
  for (const auto& stream : streams) {
    Answer answer;
    const TokenStream::Taken taken = stream->take();
    for (const SampledToken& token : taken.prompt_logprobs) answer.prompt_logprobs.push_back(token.logprob);
    for (const OutputDelta& output : taken.outputs) {
      for (const SampledToken& token : output.tokens) {
        answer.ids.push_back(token.id);
        answer.logprobs.push_back(token.logprob);
      }
    }
    result.answers.push_back(std::move(answer));
  }
  return result;
}

std::vector<Answer> run_alone(const Subject& subject, const Options& fixed) {
  std::vector<Answer> answers;
  for (const GenerationRequest& request : subject.requests) {
    answers.push_back(run(subject, fixed, {.num_blocks = 128}, {&request, 1}).answers.front());
  }
  return answers;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

void expect_same(const Subject& subject, const Run& together, const std::vector<Answer>& alone,
                 const Setting& setting) {
  for (std::size_t i = 0; i < alone.size(); ++i) {
    if (!takes_part(subject.requests[i], setting)) continue;
    SCOPED_TRACE("request " + std::to_string(i) + " chunk " + std::to_string(setting.chunk) + " threads " +
                 std::to_string(setting.threads) + " depth " + std::to_string(setting.depth));
    EXPECT_EQ(together.answers[i].ids, alone[i].ids);
    EXPECT_TRUE(same_bits(together.answers[i].logprobs, alone[i].logprobs)) << "log probability bits";
    EXPECT_TRUE(same_bits(together.answers[i].prompt_logprobs, alone[i].prompt_logprobs)) << "those of the prompt";
  }
}

void check_model(const std::string& path, const Options& fixed, int longest_prompt, int output_tokens, int few_blocks) {
  Subject subject(path);
  make_requests(subject, 16, longest_prompt, output_tokens);
  const std::vector<Answer> alone = run_alone(subject, fixed);
  std::int64_t preemptions = 0;
  int mixed = 0;
  for (const int threads : kIsThreadSanitized ? std::vector{2} : std::vector{1, 2}) {
    for (const int chunk : {1, 7, 64, 0}) {
      const Setting setting{threads,
                            chunk,
                            few_blocks,
                            static_cast<std::uint64_t>(chunk + threads),
                            chunk == 0 ? 4096 : 512,
                            1 + (chunk + threads) % 2};
      const Run together = run(subject, fixed, setting, subject.requests);
      expect_same(subject, together, alone, setting);
      preemptions += together.num_preemptions;
      mixed += together.mixed_steps;
    }
  }
  EXPECT_GT(preemptions, 0) << "the pool was meant to be too small for all";
  EXPECT_GT(mixed, 0) << "no step mixed decodes with a prefill chunk";
  // With room for all, all sixteen run in one step.
  const Run roomy = run(subject, fixed, {.threads = 2, .num_blocks = 512, .shuffle = 3}, subject.requests);
  EXPECT_EQ(roomy.most_slices, 16);
  EXPECT_EQ(roomy.num_preemptions, 0);
  expect_same(subject, roomy, alone, {});
}

class BitStability : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  static Options fixed() { return {std::get<0>(GetParam()), std::get<1>(GetParam())}; }
};

TEST_P(BitStability, TinyLlama) {
  check_model("tests/reference/tiny_models/llama-gqa-rope3.gguf", fixed(), 100, 24, 24);
}
TEST_P(BitStability, TinyGemma3WithWindows) {
  check_model("tests/reference/tiny_models/gemma3.gguf", fixed(), 100, 24, 24);
}

// Each level with the KV types whose kernels it does not share with another. For ThreadSanitizer the best
// two levels alone (the best may have kernels of its own for one type only): where threads meet is the same for all.
std::vector<std::tuple<std::string, std::string>> levels_and_kv_types() {
  std::vector<std::tuple<std::string, std::string>> pairs;
  std::vector<std::string> levels = cpu::available_levels();
  if (kIsThreadSanitized) levels.erase(levels.begin(), levels.end() - std::min<std::ptrdiff_t>(2, std::ssize(levels)));
  for (const std::string& level : levels) {
    for (const KvType type : cpu::kv_types_of(level)) pairs.emplace_back(level, cpu::name_of(type));
  }
  return pairs;
}

INSTANTIATE_TEST_SUITE_P(Levels, BitStability, testing::ValuesIn(levels_and_kv_types()),
                         [](const auto& p) { return std::get<0>(p.param) + "_" + std::get<1>(p.param); });

class BitStabilityLarge : public testing::TestWithParam<std::string> {};

TEST_P(BitStabilityLarge, SmolLM2) {
  if (std::getenv("FOLIO_LARGE_MODEL") == nullptr) GTEST_SKIP() << "run by the ctest entry bit_stability_smollm2";
  if (access(kSmolPath, R_OK) != 0) GTEST_SKIP() << kSmolPath << " is not there: scripts/setup fetches it";
  check_model(kSmolPath, {.kv_dtype = GetParam()}, 120, 16, 40);
}

INSTANTIATE_TEST_SUITE_P(KvTypes, BitStabilityLarge, testing::Values("f16", "bf16", "int8"),
                         [](const auto& p) { return p.param; });

}  // namespace
}  // namespace folio
