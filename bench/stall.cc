#include "bench/stall.h"

#include <memory>
#include <string>
#include <vector>

#include "bench/requests.h"
#include "bench/table.h"
#include "client/flag_checks.h"
#include "client/statistics.h"

namespace folio::bench {
namespace {

struct Options {
  ModelFlags model;
  int streams = 8;
  int stream_prompt_tokens = 128;
  int tokens_before = 64;
  int prompt_tokens = 4096;
  std::vector<double> targets_ms = {50, 0};
  int max_batch_tokens = 256;
  int repeat = 3;
  bool json = false;
};

struct Outcome {
  client::Samples before;  // gaps in ms
  client::Samples during;
  double ttft_ms = 0;
  std::int64_t num_chunks = 0;
};

// Each gap belongs to the time of the token that ends it. The first ones, while the streams' own prompts are computed,
// do not count, nor what came after the newcomer's first token.
void add_gaps(const Streams::Record& stream, const Streams::Record& newcomer, std::size_t first, Outcome& outcome) {
  for (std::size_t i = first; i < stream.tokens.size() && stream.tokens[i] <= newcomer.tokens.front(); ++i) {
    const double gap = to_ms(stream.tokens[i] - stream.tokens[i - 1]);
    (stream.tokens[i] < newcomer.submitted ? outcome.before : outcome.during).add(gap);
  }
}

Outcome run_once(const Options& options, const BenchModel& model, double target_ms) {
  EngineOptions engine_options;
  engine_options.max_num_seqs = options.streams + 1;
  engine_options.max_batch_tokens = options.max_batch_tokens;
  engine_options.target_itl_ms = target_ms;
  Engine engine(*model.loaded.model, *model.tokenizer, model.clock, engine_options);
  std::mt19937 random(1);
  const auto prompt = [&](std::int64_t count) { return random_tokens(random, count, model.loaded.info.vocab_size); };
  Streams streams(engine, model.clock);
  for (int i = 0; i < options.streams; ++i) {
    streams.submit(greedy_request(prompt(options.stream_prompt_tokens), StoppingParams::kNoLimit));
  }
  streams.wait_for_tokens(static_cast<std::size_t>(options.tokens_before));
  Streams newcomers(engine, model.clock);
  newcomers.submit(greedy_request(prompt(options.prompt_tokens), 1));
  newcomers.wait_for_ends();
  streams.cancel();
  streams.wait_for_ends();

  Outcome outcome;
  outcome.ttft_ms = newcomers[0].ttft_ms();
  outcome.num_chunks = newcomers[0].end->timings.num_chunks;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    add_gaps(streams[i], newcomers[0], static_cast<std::size_t>(options.tokens_before / 2), outcome);
  }
  return outcome;
}

void run_stall(const Options& options) {
  const int block_size = options.model.options.block_size;
  // Streams may run for as long as the prompt is computed in the smallest chunks.
  const std::int64_t per_stream = options.stream_prompt_tokens + options.tokens_before + options.prompt_tokens / 4;
  require_context(options.model, "--prompt", options.prompt_tokens + 1);
  require_context(options.model, "--stream-prompt and --tokens-before",
                  options.stream_prompt_tokens + options.tokens_before + 1);
  const BenchModel model(options.model,
                         (options.streams * per_stream + options.prompt_tokens) / block_size + options.streams + 1);
  Table table(options.json);
  for (double target_ms : options.targets_ms) {
    for (int run = 1; run <= options.repeat; ++run) {
      const Outcome outcome = run_once(options, model, target_ms);
      const double during_p99 = outcome.during.percentile(99);
      Row row = {{"target_itl_ms", target_ms}, {"run", run}, {"streams", options.streams}};
      row["prompt"] = options.prompt_tokens;
      row["before_p50_ms"] = rounded(outcome.before.percentile(50), 2);
      row["before_p99_ms"] = rounded(outcome.before.percentile(99), 2);
      row["during_p50_ms"] = rounded(outcome.during.percentile(50), 2);
      row["during_p99_ms"] = rounded(during_p99, 2);
      row["during_max_ms"] = rounded(outcome.during.max(), 2);
      row["p99_of_target"] = target_ms > 0 ? Row(rounded(during_p99 / target_ms, 2)) : Row(nullptr);
      row["newcomer_ttft_ms"] = rounded(outcome.ttft_ms, 2);
      row["chunks"] = outcome.num_chunks;
      table.print(row);
    }
  }
}

}  // namespace

void add_stall_command(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("stall", "gaps between the tokens of running streams while a long prompt comes");
  add_model_flags(*command, options->model, true);
  command->add_option("--streams", options->streams)->check(CLI::Range(1, 4096))->capture_default_str();
  command->add_option("--stream-prompt", options->stream_prompt_tokens, "prompt tokens of each")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--tokens-before", options->tokens_before, "output tokens of each before the long prompt comes")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command->add_option("--prompt", options->prompt_tokens, "tokens of the long prompt")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--target-itl-ms", options->targets_ms, "one run for each; 0: no target")
      ->delimiter(',')
      ->check(client::number_in(0, 1e6))
      ->capture_default_str();
  command->add_option("--max-batch-tokens", options->max_batch_tokens)
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--repeat", options->repeat, "runs for each target")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_flag("--json", options->json, "one JSON object a line");
  command->callback([options] { run_stall(*options); });
}

}  // namespace folio::bench
