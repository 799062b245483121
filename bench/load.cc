#include "bench/load.h"

#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <random>

#include "bench/requests.h"
#include "bench/table.h"
#include "client/flag_checks.h"

namespace folio::bench {
namespace {

struct Options {
  ModelFlags model;
  int concurrency = 32;
  int num_requests = 128;
  int prompt_tokens = 128;
  int output_tokens = 64;
  double target_itl_ms = 100;
  std::uint64_t seed = 0;
  bool json = false;
};

// Of all threads of this process, in seconds.
double cpu_time() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// At most `concurrency` requests are open; whenever one ended the next is sent.
void run_loop(const Options& options, int num_requests, std::mt19937& random, const BenchModel& model, Engine& engine) {
  Streams streams(engine, model.clock);
  for (int i = 0; i < num_requests; ++i) {
    streams.wait_for_open_below(static_cast<std::size_t>(options.concurrency));
    streams.submit(greedy_request(random_tokens(random, options.prompt_tokens, model.loaded.info.vocab_size),
                                  options.output_tokens));
  }
  streams.wait_for_ends();
}

void run_load(const Options& options) {
  // The server's defaults, and room for all that runs.
  EngineOptions engine_options;
  engine_options.max_num_seqs = std::max(engine_options.max_num_seqs, options.concurrency);
  engine_options.target_itl_ms = options.target_itl_ms;
  const std::int64_t block_size = options.model.options.block_size;
  const std::int64_t per_sequence = (options.prompt_tokens + options.output_tokens) / block_size + 2;
  allow_waiting(engine_options, options.concurrency, options.prompt_tokens);
  require_context(options.model, "--prompt-tokens and --output-tokens", options.prompt_tokens + options.output_tokens);
  const BenchModel model(options.model, per_sequence * options.concurrency * 2);
  Engine engine(*model.loaded.model, *model.tokenizer, model.clock, engine_options);
  std::mt19937 random(static_cast<std::uint32_t>(options.seed));
  run_loop(options, std::min(options.concurrency, 4), random, model, engine);  // touches what is used first

  const std::int64_t first_step = engine.load().num_steps;
  const double cpu_start = cpu_time();
  const TimePoint start = model.clock.now();
  run_loop(options, options.num_requests, random, model, engine);
  const double seconds = to_ms(model.clock.now() - start) / 1000;
  const double requests = options.num_requests;
  Table table(options.json);
  table.print({{"duration_s", rounded(seconds, 3)},
               {"cpu_s", rounded(cpu_time() - cpu_start, 2)},
               {"steps", engine.load().num_steps - first_step},
               {"prompt_tok_s", rounded(requests * options.prompt_tokens / seconds, 1)},
               {"output_tok_s", rounded(requests * options.output_tokens / seconds, 1)}});
}

}  // namespace

void add_load_command(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("load", "closed loop of requests, as folio-client bench sends them");
  add_model_flags(*command, options->model, true);
  command->add_option("--concurrency", options->concurrency, "requests at a time")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--num-requests", options->num_requests, "requests in all")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_option("--prompt-tokens", options->prompt_tokens, "random token ids per prompt")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--output-tokens", options->output_tokens, "tokens per answer; end tokens are ignored")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--target-itl-ms", options->target_itl_ms, "as the server's; 0: no target")
      ->check(client::number_in(0, 86'400'000))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "of the prompts")->capture_default_str();
  command->add_flag("--json", options->json, "one JSON object a line");
  command->callback([options] { run_load(*options); });
}

}  // namespace folio::bench
