#include "bench/throughput.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "bench/requests.h"
#include "bench/table.h"

namespace folio::bench {
namespace {

struct Case {
  int batch = 1;
  int prompt_tokens = 1;
  int output_tokens = 1;
};

struct Options {
  ModelFlags model;
  std::string cases = "1,128,64;1,512,1;8,128,64;32,128,64;64,128,64;1,2048,32;8,2048,32";
  int max_batch_tokens = 2048;
  int repeat = 2;
  bool json = false;
};

// Seconds from the first submit to the last end.
double run_once(Engine& engine, const Clock& clock, const std::vector<std::vector<TokenId>>& prompts,
                int output_tokens) {
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

double best_of(int repeat, Engine& engine, const Clock& clock, const std::vector<std::vector<TokenId>>& prompts,
               int output_tokens) {
  double best = run_once(engine, clock, prompts, output_tokens);
  for (int i = 1; i < repeat; ++i) best = std::min(best, run_once(engine, clock, prompts, output_tokens));
  return best;
}

// "B,PP,TG;B,PP,TG". Throws std::runtime_error naming what does not parse.
std::vector<Case> parse_cases(const std::string& text) {
  std::vector<Case> cases;
  std::stringstream list(text);
  for (std::string item; std::getline(list, item, ';');) {
    Case c;
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

void run_throughput(const Options& options) {
  const std::vector<Case> cases = parse_cases(options.cases);
  const int block_size = options.model.options.block_size;
  std::int64_t num_blocks = 0;
  EngineOptions engine_options;
  engine_options.max_num_seqs = 1;
  engine_options.max_batch_tokens = options.max_batch_tokens;
  engine_options.prefix_cache = false;  // the same prompts come again and again
  for (const Case& c : cases) {
    const std::int64_t per_sequence = (c.prompt_tokens + c.output_tokens + block_size - 1) / block_size;
    num_blocks = std::max(num_blocks, per_sequence * c.batch);
    engine_options.max_num_seqs = std::max(engine_options.max_num_seqs, c.batch);
  }
  engine_options.max_queue = std::max(engine_options.max_queue, engine_options.max_num_seqs);
  const BenchModel model(options.model, num_blocks);
  DecodeMeter meter;
  Engine engine(*model.loaded.model, *model.tokenizer, model.clock, engine_options);
  engine.set_step_observer([&meter](const StepRecord& step) { meter.add(step); });
  Table table(options.json);
  for (const Case& c : cases) {
    std::mt19937 random(0);
    std::vector<std::vector<TokenId>> prompts(static_cast<std::size_t>(c.batch));
    for (auto& prompt : prompts) prompt = random_tokens(random, c.prompt_tokens, model.loaded.info.vocab_size);
    run_once(engine, model.clock, prompts, 1);
    const double first = best_of(options.repeat, engine, model.clock, prompts, 1);
    std::optional<double> decode;
    for (int i = 0; c.output_tokens > 1 && i < options.repeat; ++i) {
      meter = {};
      run_once(engine, model.clock, prompts, c.output_tokens);
      if (meter.tokens > 0)
        decode = std::max(decode.value_or(0.0), static_cast<double>(meter.tokens) / meter.ms * 1000);
    }
    Row row = {{"B", c.batch}, {"PP", c.prompt_tokens}, {"TG", c.output_tokens}};
    row["prefill_tok_s"] = rounded(c.batch * c.prompt_tokens / first, 1);
    row["decode_tok_s"] = decode ? Row(rounded(*decode, 1)) : Row(nullptr);
    table.print(row);
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
  command->add_option("--repeat", options->repeat, "runs of each kind; the best counts")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_flag("--json", options->json, "one JSON object a line");
  command->callback([options] { run_throughput(*options); });
}

}  // namespace folio::bench
