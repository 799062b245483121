#include "bench/prefix.h"

#include <atomic>
#include <memory>
#include <string>

#include "bench/requests.h"
#include "bench/table.h"
#include "client/statistics.h"

namespace folio::bench {
namespace {

struct Options {
  ModelFlags model;
  int users = 32;
  int prefix_tokens = 1024;
  int tail_tokens = 64;
  int max_batch_tokens = 256;
  int repeat = 3;
  bool json = false;
};

// Far more than a user makes before all others have a first token; the blocks for them are there.
constexpr int kMaxOutputTokens = 512;

struct Outcome {
  client::Samples ttft_ms;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t held_slots = 0;   // at the end, when all users hold their blocks
  std::int64_t ideal_slots = 0;  // then, with the prefix once and no slot unused
};

// One burst of all users.
Outcome burst(const Options& options, const BenchModel& model, bool cache, bool warm) {
  EngineOptions engine_options;
  engine_options.max_num_seqs = options.users;
  engine_options.max_batch_tokens = std::max(options.max_batch_tokens, options.users);
  engine_options.prefix_cache = cache;
  Engine engine(*model.loaded.model, *model.tokenizer, model.clock, engine_options);
  std::atomic<std::int64_t> held_slots = 0;
  engine.set_step_observer(
      [&](const StepRecord& step) { held_slots = std::max(held_slots.load(), step.num_held_slots); });

  std::mt19937 random(1);
  const auto tokens = [&](std::int64_t count) { return random_tokens(random, count, model.loaded.info.vocab_size); };
  std::uniform_int_distribution<std::int64_t> tail_length((options.tail_tokens + 1) / 2, options.tail_tokens * 3 / 2);
  const auto prefix = tokens(options.prefix_tokens);
  Streams streams(engine, model.clock);
  if (warm) {
    Streams before(engine, model.clock);
    before.submit(greedy_request(prefix, 1));
    before.wait_for_ends();
  }
  Outcome outcome;
  outcome.ideal_slots = options.prefix_tokens;
  for (int user = 0; user < options.users; ++user) {
    auto prompt = prefix;
    const auto tail = tokens(tail_length(random));
    prompt.insert(prompt.end(), tail.begin(), tail.end());
    outcome.prompt_tokens += static_cast<std::int64_t>(prompt.size());
    outcome.ideal_slots += static_cast<std::int64_t>(tail.size());
    streams.submit(greedy_request(std::move(prompt), kMaxOutputTokens));
  }
  streams.wait_for_tokens(1);
  streams.cancel();
  streams.wait_for_ends();

  outcome.held_slots = held_slots;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    outcome.ttft_ms.add(streams[i].ttft_ms());
    outcome.cached_tokens += streams[i].cached_tokens;
    outcome.ideal_slots += static_cast<std::int64_t>(streams[i].tokens.size()) - 1;  // the newest has no slot yet
  }
  return outcome;
}

void run_prefix(const Options& options) {
  const int block_size = options.model.options.block_size;
  const std::int64_t per_user = (options.prefix_tokens + 2 * options.tail_tokens + kMaxOutputTokens) / block_size + 1;
  require_context(options.model, "--prefix and --tail", options.prefix_tokens + 2 * options.tail_tokens);
  const BenchModel model(options.model, options.users * per_user);
  Table table(options.json);
  double off_p50 = 0;
  for (const auto& [mode, cache, warm] :
       {std::tuple("off", false, false), std::tuple("cold", true, false), std::tuple("warm", true, true)}) {
    Outcome best = burst(options, model, cache, warm);
    for (int i = 1; i < options.repeat; ++i) {
      Outcome other = burst(options, model, cache, warm);
      if (other.ttft_ms.percentile(50) < best.ttft_ms.percentile(50)) best = std::move(other);
    }
    const double p50 = best.ttft_ms.percentile(50);
    if (!cache) off_p50 = p50;
    Row row = {
        {"cache", mode}, {"users", options.users}, {"prefix", options.prefix_tokens}, {"tail", options.tail_tokens}};
    row["ttft_p50_ms"] = rounded(p50, 1);
    row["ttft_p99_ms"] = rounded(best.ttft_ms.percentile(99), 1);
    row["ttft_max_ms"] = rounded(best.ttft_ms.max(), 1);
    row["times_faster"] = rounded(off_p50 / p50, 2);
    row["hit_rate"] = rounded(static_cast<double>(best.cached_tokens) / static_cast<double>(best.prompt_tokens), 4);
    row["held_blocks"] = best.held_slots / block_size;
    row["ideal_blocks"] = rounded(static_cast<double>(best.ideal_slots) / block_size, 1);
    row["of_ideal"] = rounded(static_cast<double>(best.held_slots) / static_cast<double>(best.ideal_slots), 3);
    table.print(row);
  }
}

}  // namespace

void add_prefix_command(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("prefix", "time to first token and KV memory with a common system prompt");
  add_model_flags(*command, options->model, true);
  command->add_option("--users", options->users)->check(CLI::Range(1, 4096))->capture_default_str();
  command->add_option("--prefix", options->prefix_tokens, "tokens that all prompts begin with")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--tail", options->tail_tokens, "tokens of a user's own, half of it to half more")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--max-batch-tokens", options->max_batch_tokens)
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--repeat", options->repeat, "bursts of each kind; the best counts")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_flag("--json", options->json, "one JSON object a line");
  command->callback([options] { run_prefix(*options); });
}

}  // namespace folio::bench
