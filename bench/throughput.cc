#include "bench/throughput.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/text/tokenizer.h"

namespace folio::bench {
namespace {

// Seconds from the first submit to the last end.
double run_once(Engine& engine, const std::vector<std::vector<TokenId>>& prompts, int output_tokens) {
  std::vector<std::shared_ptr<TokenStream>> streams;
  const auto start = std::chrono::steady_clock::now();
  for (const auto& prompt : prompts) {
    GenerationRequest request;
    request.prompt = prompt;
    request.sampling.temperature = 0.0F;
    request.stopping.max_tokens = output_tokens;
    request.stopping.ignore_eos = true;
    streams.push_back(std::make_shared<TokenStream>([] {}));
    const auto id = engine.submit(std::move(request), streams.back());
    if (!id) throw std::runtime_error("a request was refused: " + id.error().message);
  }
  const bool idle = engine.wait_idle(SteadyClock().now() + std::chrono::hours(1));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!idle) throw std::runtime_error("a run took more than an hour");
  for (const auto& stream : streams) {
    const auto taken = stream->take();
    std::size_t tokens = 0;
    for (const OutputDelta& output : taken.outputs) tokens += output.tokens.size();
    if (!taken.end || taken.end->error || tokens != static_cast<std::size_t>(output_tokens)) {
      throw std::runtime_error("a sequence made " + std::to_string(tokens) + " of " + std::to_string(output_tokens) +
                               " tokens");
    }
  }
  return seconds;
}

// Steps that only decode, of the runs since it was cleared. Written on the engine thread, read when the engine is idle.
struct DecodeMeter {
  double ms = 0;
  std::int64_t tokens = 0;
  void add(const StepRecord& step) {
    if (step.num_prefill_slices > 0) return;
    ms += step.schedule_ms + step.build_ms + step.forward_ms + step.sample_ms + step.commit_ms;
    tokens += step.num_decode_slices;
  }
};

double best_of(int repeat, Engine& engine, const std::vector<std::vector<TokenId>>& prompts, int output_tokens) {
  double best = run_once(engine, prompts, output_tokens);
  for (int i = 1; i < repeat; ++i) best = std::min(best, run_once(engine, prompts, output_tokens));
  return best;
}

std::vector<std::vector<TokenId>> random_prompts(const ThroughputCase& c, std::int32_t vocab_size) {
  std::mt19937 random(0);
  const std::int32_t low = std::min(1000, vocab_size / 2);
  std::uniform_int_distribution<TokenId> ids(low, std::min(20000, vocab_size) - 1);
  std::vector<std::vector<TokenId>> prompts(static_cast<std::size_t>(c.batch));
  for (auto& prompt : prompts) {
    prompt.resize(static_cast<std::size_t>(c.prompt_tokens));
    for (TokenId& id : prompt) id = ids(random);
  }
  return prompts;
}

void print_case(const ThroughputOptions& options, const ThroughputCase& c, double prefill,
                std::optional<double> decode) {
  if (options.json) {
    nlohmann::ordered_json line = {{"B", c.batch}, {"PP", c.prompt_tokens}, {"TG", c.output_tokens}};
    line["prefill_tok_s"] = std::round(prefill * 10) / 10;
    line["decode_tok_s"] =
        decode ? nlohmann::ordered_json(std::round(*decode * 10) / 10) : nlohmann::ordered_json(nullptr);
    std::printf("%s\n", line.dump().c_str());
  } else {
    std::printf("B %3d  PP %5d  TG %4d   prefill %8.1f tok/s   decode ", c.batch, c.prompt_tokens, c.output_tokens,
                prefill);
    std::printf(decode ? "%8.1f tok/s\n" : "       -\n", decode.value_or(0.0));
  }
  std::fflush(stdout);
}

}  // namespace

std::vector<ThroughputCase> parse_cases(const std::string& text) {
  std::vector<ThroughputCase> cases;
  std::stringstream list(text);
  for (std::string item; std::getline(list, item, ';');) {
    ThroughputCase c;
    char rest = 0;
    if (std::sscanf(item.c_str(), "%d,%d,%d%c", &c.batch, &c.prompt_tokens, &c.output_tokens, &rest) != 3 ||
        c.batch < 1 || c.prompt_tokens < 1 || c.output_tokens < 1) {
      throw std::runtime_error("--cases: \"" + item + "\" is not B,PP,TG with numbers of at least 1");
    }
    cases.push_back(c);
  }
  if (cases.empty()) throw std::runtime_error("--cases: no case given");
  return cases;
}

void run_throughput(const ThroughputOptions& options) {
  const GgufFile file(options.model_path);
  const auto tokenizer = make_tokenizer(file);
  ModelOptions model_options = options.model;
  int largest_batch = 1;
  for (const ThroughputCase& c : options.cases) {
    const std::int64_t per_sequence =
        (c.prompt_tokens + c.output_tokens + model_options.block_size - 1) / model_options.block_size;
    model_options.kv_blocks = std::max(model_options.kv_blocks, per_sequence * c.batch);
    largest_batch = std::max(largest_batch, c.batch);
  }
  const LoadedModel loaded = load_model(file, model_options);
  const SteadyClock clock;
  EngineOptions engine_options;
  engine_options.max_num_seqs = largest_batch;
  engine_options.max_batch_tokens = options.max_batch_tokens;
  engine_options.max_queue = std::max(engine_options.max_queue, largest_batch);
  DecodeMeter meter;
  Engine engine(*loaded.model, *tokenizer, clock, engine_options);
  engine.set_step_observer([&meter](const StepRecord& step) { meter.add(step); });
  for (const ThroughputCase& c : options.cases) {
    const auto prompts = random_prompts(c, loaded.info.vocab_size);
    run_once(engine, prompts, 1);
    const double first = best_of(options.repeat, engine, prompts, 1);
    std::optional<double> decode;
    for (int i = 0; c.output_tokens > 1 && i < options.repeat; ++i) {
      meter = {};
      run_once(engine, prompts, c.output_tokens);
      if (meter.tokens > 0)
        decode = std::max(decode.value_or(0.0), static_cast<double>(meter.tokens) / meter.ms * 1000);
    }
    print_case(options, c, c.batch * c.prompt_tokens / first, decode);
  }
}

}  // namespace folio::bench
