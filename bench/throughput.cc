#include "bench/throughput.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "bench/phases.h"
#include "bench/requests.h"
#include "bench/table.h"

namespace folio::bench {
namespace {

struct Case {
  std::int64_t batch = 1;
  std::int64_t prompt_tokens = 1;
  std::int64_t output_tokens = 1;
};
constexpr std::int64_t kMaxOfCase = 1 << 20;  // each of the three

struct Options {
  ModelFlags model;
  std::string cases = "1,128,64;1,512,1;8,128,64;32,128,64;64,128,64;1,2048,32;8,2048,32";
  int max_batch_tokens = 2048;
  int shared_prefix = 0;
  std::string measure = "both";
  int repeat = 2;
  bool phases = false;
  bool json = false;
};

// Seconds from the first submit to the last end.
double run_once(Engine& engine, const Clock& clock, const std::vector<std::vector<TokenId>>& prompts,
                std::int64_t output_tokens) {
  Streams streams(engine, clock);
  const TimePoint start = clock.now();
  for (const auto& prompt : prompts) streams.submit(greedy_request(prompt, output_tokens));
  streams.wait_for_tokens(static_cast<std::size_t>(output_tokens));
  streams.wait_for_ends();
  return to_ms(clock.now() - start) / 1000;
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

// What the step observer feeds. The engine is made after it and gone before it.
struct Meters {
  DecodeMeter decode;
  PhaseMeter phases;
};

// "B,PP,TG;B,PP,TG". Throws std::runtime_error naming what does not parse.
std::vector<Case> parse_cases(const std::string& text) {
  std::vector<Case> cases;
  std::stringstream list(text);
  for (std::string item; std::getline(list, item, ';');) {
    Case c;
    char rest = 0;
    if (std::sscanf(item.c_str(), "%ld,%ld,%ld%c", &c.batch, &c.prompt_tokens, &c.output_tokens, &rest) != 3 ||
        std::min({c.batch, c.prompt_tokens, c.output_tokens}) < 1 ||
        std::max({c.batch, c.prompt_tokens, c.output_tokens}) > kMaxOfCase) {
      throw std::runtime_error("--cases: \"" + item + "\" is not B,PP,TG with numbers of 1 to " +
                               std::to_string(kMaxOfCase));
    }
    cases.push_back(c);
  }
  if (cases.empty()) throw std::runtime_error("--cases: no case given");
  return cases;
}

// B prompts of PP tokens that begin with the same `shared` ones.
std::vector<std::vector<TokenId>> make_prompts(const Case& c, int shared, std::int32_t vocab_size) {
  std::mt19937 random(0);
  const std::vector<TokenId> common = random_tokens(random, shared, vocab_size);
  std::vector<std::vector<TokenId>> prompts(static_cast<std::size_t>(c.batch), common);
  for (auto& prompt : prompts) {
    const auto own = random_tokens(random, c.prompt_tokens - shared, vocab_size);
    prompt.insert(prompt.end(), own.begin(), own.end());
  }
  return prompts;
}

Row measure(const Options& options, const Case& c, Engine& engine, const BenchModel& model, Meters& meters) {
  const auto prompts = make_prompts(c, options.shared_prefix, model.loaded.info.vocab_size);
  const auto run = [&](std::int64_t output_tokens) {
    meters.decode = {};
    meters.phases.start_run();
    return run_once(engine, model.clock, prompts, output_tokens);
  };
  Row row = {{"B", c.batch}, {"PP", c.prompt_tokens}, {"TG", c.output_tokens}};
  row["prefill_tok_s"] = nullptr;
  row["decode_tok_s"] = nullptr;
  if (options.measure != "decode" || options.shared_prefix > 0) run(1);
  meters.phases = {};
  if (options.measure != "decode" && options.shared_prefix == 0) {
    double best = run(1);
    for (int i = 1; i < options.repeat; ++i) best = std::min(best, run(1));
    row["prefill_tok_s"] = rounded(static_cast<double>(c.batch * c.prompt_tokens) / best, 1);
  }
  double decode = 0;
  for (int i = 0; i < options.repeat && c.output_tokens > 1 && options.measure != "prefill"; ++i) {
    run(c.output_tokens);
    const DecodeMeter& meter = meters.decode;
    if (meter.tokens > 0) decode = std::max(decode, static_cast<double>(meter.tokens) / meter.ms * 1000);
  }
  if (decode > 0) row["decode_tok_s"] = rounded(decode, 1);
  return row;
}

// As many blocks as the largest case wants, and a place for each of its sequences.
std::int64_t size_engine(const Options& options, const std::vector<Case>& cases, EngineOptions& engine_options) {
  if (options.shared_prefix > 0 && options.measure == "prefill") {
    throw std::runtime_error("--shared-prefix: only decode is measured with it, not --measure prefill");
  }
  const int block_size = options.model.options.block_size;
  std::int64_t num_blocks = 0;
  std::int64_t longest = 0;
  engine_options.max_num_seqs = 1;
  engine_options.max_batch_tokens = options.max_batch_tokens;
  engine_options.prefix_cache = options.shared_prefix > 0;  // else the same prompts come again and again
  for (const Case& c : cases) {
    if (c.prompt_tokens <= options.shared_prefix) {
      throw std::runtime_error("--shared-prefix: prompts of " + std::to_string(c.prompt_tokens) +
                               " tokens have none of their own after " + std::to_string(options.shared_prefix));
    }
    const std::int64_t per_sequence = (c.prompt_tokens + c.output_tokens + block_size - 1) / block_size;
    num_blocks = std::max(num_blocks, per_sequence * c.batch);
    longest = std::max(longest, c.prompt_tokens + c.output_tokens);
    engine_options.max_num_seqs = std::max(engine_options.max_num_seqs, static_cast<std::int32_t>(c.batch));
    allow_waiting(engine_options, c.batch, c.prompt_tokens);
  }
  require_context(options.model, "--cases", longest);
  return num_blocks;
}

void run_throughput(const Options& options) {
  const std::vector<Case> cases = parse_cases(options.cases);
  EngineOptions engine_options;
  const BenchModel model(options.model, size_engine(options, cases, engine_options));
  Meters meters;
  Engine engine(*model.loaded.model, *model.tokenizer, model.clock, engine_options);
  engine.set_step_observer([&](const StepRecord& step) {
    meters.decode.add(step);
    if (options.phases) meters.phases.add(step, model.clock.now());
  });
  Table table(options.json);
  for (const Case& c : cases) {
    Row row = measure(options, c, engine, model, meters);
    if (options.phases && options.json) row["phases"] = meters.phases.json();
    table.print(row);
    if (options.phases && !options.json) {
      meters.phases.print(table, {{"B", c.batch}, {"PP", c.prompt_tokens}, {"TG", c.output_tokens}});
    }
  }
}

}  // namespace

void add_throughput_command(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("throughput", "prefill and decode in tokens per second");
  add_model_flags(*command, options->model, true);
  command->add_option("--cases", options->cases, "B,PP,TG;... sequences, prompt and output tokens of each")
      ->capture_default_str();
  command->add_option("--max-batch-tokens", options->max_batch_tokens)
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--shared-prefix", options->shared_prefix,
                   "tokens that all prompts of a case begin with; the prefix cache is on, only decode is measured")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command->add_option("--measure", options->measure, "prefill, decode or both; one alone takes fewer runs")
      ->check(CLI::IsMember({"prefill", "decode", "both"}))
      ->capture_default_str();
  command->add_flag("--phases", options->phases, "also the mean time of a step by phase");
  command->add_option("--repeat", options->repeat, "runs of each kind; the best counts")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_flag("--json", options->json, "one JSON object a line");
  command->callback([options] { run_throughput(*options); });
}

}  // namespace folio::bench
