#include "bench/memory.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/requests.h"
#include "bench/table.h"
#include "tests/support/fake_model/fake_model.h"
#include "tests/support/fake_model/fake_tokenizer.h"

namespace folio::bench {
namespace {

constexpr TokenId kFakeVocab = 512;

struct Options {
  ModelFlags model;
  std::string trace = "bench/traces/chat_1000.csv";
  int num_requests = 0;  // 0: the whole trace
  int kv_blocks = 4096;
  int max_num_seqs = 256;
  int max_batch_tokens = 512;
  int max_context = 8192;
  bool json = false;
};

struct TraceEntry {
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;
  std::int64_t max_tokens = 0;  // what the caller asks for, not knowing the length of the answer
};

std::vector<TraceEntry> read_trace(const Options& options) {
  std::ifstream file(options.trace);
  if (!file) throw std::runtime_error("--trace: cannot read " + options.trace);
  std::vector<TraceEntry> trace;
  std::string line;
  std::getline(file, line);  // names of the columns
  for (int number = 2; std::getline(file, line); ++number) {
    TraceEntry entry;
    char rest = 0;
    const int fields = std::sscanf(line.c_str(), "%ld,%ld,%ld%c", &entry.prompt_tokens, &entry.output_tokens,
                                   &entry.max_tokens, &rest);
    if (fields != 3 || std::min({entry.prompt_tokens, entry.output_tokens, entry.max_tokens}) < 1 ||
        entry.max_tokens < entry.output_tokens || entry.prompt_tokens + entry.max_tokens > options.max_context) {
      throw std::runtime_error("--trace: " + options.trace + ", line " + std::to_string(number) + ": \"" + line +
                               "\" is not prompt,output,max tokens with 1 <= output <= max within the context of " +
                               std::to_string(options.max_context));
    }
    trace.push_back(entry);
  }
  if (trace.empty()) throw std::runtime_error("--trace: " + options.trace + " has no requests");
  if (options.num_requests > 0) trace.resize(std::min(trace.size(), static_cast<std::size_t>(options.num_requests)));
  return trace;
}

// What the steps said while requests waited for memory.
struct Use {
  std::int64_t steps = 0;
  double sequences = 0;  // summed over the steps
  double held = 0;
  double unused = 0;
  double peak_unused_share = 0;

  void add(std::int64_t num_sequences, std::int64_t held_slots, std::int64_t used_slots) {
    ++steps;
    sequences += static_cast<double>(num_sequences);
    held += static_cast<double>(held_slots);
    unused += static_cast<double>(held_slots - used_slots);
    peak_unused_share =
        std::max(peak_unused_share, static_cast<double>(held_slots - used_slots) / static_cast<double>(held_slots));
  }
  Row row(const std::string& allocation, std::int64_t pool_slots) const {
    const double n = static_cast<double>(std::max<std::int64_t>(steps, 1));
    return {{"allocation", allocation},
            {"loaded_steps", steps},
            {"mean_sequences", rounded(sequences / n, 1)},
            {"held_percent", rounded(100 * held / n / static_cast<double>(pool_slots), 1)},
            {"unused_percent", rounded(100 * unused / std::max(held, 1.0), 2)},
            {"peak_unused_percent", rounded(100 * peak_unused_share, 2)}};
  }
};

// First come, first served; no room is more than the pool; a request that runs gets a token in each step, its prompt is
// there at once.
Use run_contiguous(const std::vector<TraceEntry>& trace, std::int64_t pool_slots, int max_num_seqs,
                   const std::function<std::int64_t(const TraceEntry&)>& room_for) {
  struct Running {
    std::int64_t room;
    std::int64_t used;
    std::int64_t end;
  };
  std::vector<Running> running;
  std::int64_t held = 0;
  Use use;
  for (auto next = trace.begin();;) {
    for (; next != trace.end() && std::ssize(running) < max_num_seqs; ++next) {
      const std::int64_t room = room_for(*next);
      if (held + room > pool_slots) break;
      held += room;
      running.push_back({room, next->prompt_tokens, next->prompt_tokens + next->output_tokens});
    }
    if (next == trace.end()) return use;
    std::int64_t used = 0;
    for (const Running& sequence : running) used += sequence.used;
    use.add(std::ssize(running), held, used);
    std::erase_if(running, [&](Running& sequence) {
      if (++sequence.used < sequence.end) return false;
      held -= sequence.room;
      return true;
    });
  }
}

Row run_paged(const Options& options, const std::vector<TraceEntry>& trace, Model& model, const Tokenizer& tokenizer) {
  EngineOptions engine_options;
  engine_options.max_num_seqs = options.max_num_seqs;
  engine_options.max_batch_tokens = options.max_batch_tokens;
  engine_options.max_context = options.max_context;
  engine_options.max_queue = static_cast<std::int32_t>(trace.size());
  const SteadyClock clock;
  Engine engine(model, tokenizer, clock, engine_options);
  Use use;  // of the engine thread until all is over
  const std::int64_t pool_slots = std::int64_t{model.num_blocks()} * model.block_size();
  engine.set_step_observer([&](const StepRecord& step) {
    const bool is_full = step.num_held_slots * 10 >= pool_slots * 9 && engine.load().num_waiting > 0;
    if (is_full) use.add(step.num_decode_slices + step.num_prefill_slices, step.num_held_slots, step.num_used_slots);
  });
  std::mt19937 random(1);
  Streams streams(engine, clock);
  for (const TraceEntry& entry : trace) {
    streams.submit(greedy_request(random_tokens(random, entry.prompt_tokens, model.vocab_size()), entry.output_tokens));
  }
  streams.wait_for_ends();
  Row row = use.row("paged, blocks of " + std::to_string(model.block_size()), pool_slots);
  std::int64_t recomputed = 0;
  std::int64_t computed = 0;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    recomputed += streams[i].end->timings.recomputed_tokens;
    computed += trace[i].prompt_tokens + trace[i].output_tokens;
  }
  row["preemptions"] = engine.load().num_preemptions;
  row["recomputed_percent"] = rounded(100 * static_cast<double>(recomputed) / static_cast<double>(computed), 2);
  return row;
}

void run_memory(const Options& options) {
  const std::vector<TraceEntry> trace = read_trace(options);
  const int block_size = options.model.options.block_size;
  const std::int64_t pool_slots = std::int64_t{options.kv_blocks} * block_size;
  if (pool_slots < options.max_context) {
    throw std::runtime_error("--kv-blocks: " + std::to_string(pool_slots) + " slots are less than --max-context " +
                             std::to_string(options.max_context));
  }
  Table table(options.json);
  if (options.model.path.empty()) {
    FakeModel model(options.kv_blocks, block_size, options.max_context, kFakeVocab);
    table.print(run_paged(options, trace, model, FakeTokenizer(kFakeVocab)));
  } else {
    require_context(options.model, "--max-context", options.max_context);
    const BenchModel model(options.model, options.kv_blocks);
    table.print(run_paged(options, trace, *model.loaded.model, *model.tokenizer));
  }
  const auto contiguous = [&](const char* name, const std::function<std::int64_t(const TraceEntry&)>& room_for) {
    Row row = run_contiguous(trace, pool_slots, options.max_num_seqs, room_for).row(name, pool_slots);
    row["preemptions"] = 0;
    row["recomputed_percent"] = 0.0;
    table.print(row);
  };
  contiguous("contiguous, exact", [](const TraceEntry& e) { return e.prompt_tokens + e.output_tokens; });
  contiguous("contiguous, max_tokens", [](const TraceEntry& e) { return e.prompt_tokens + e.max_tokens; });
  contiguous("contiguous, context", [&](const TraceEntry&) { return options.max_context; });
}

}  // namespace

void add_memory_command(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("memory", "KV memory held and not used under a trace");
  add_model_flags(*command, options->model, false);
  command->get_option("--model")->description("GGUF file; without it a fake model that only keeps the books");
  command->add_option("--trace", options->trace, "CSV: prompt_tokens,output_tokens,max_tokens")->capture_default_str();
  command->add_option("--num-requests", options->num_requests, "the first so many; 0: all")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command->add_option("--kv-blocks", options->kv_blocks)->check(CLI::Range(1, 1 << 24))->capture_default_str();
  command->add_option("--max-num-seqs", options->max_num_seqs)->check(CLI::Range(1, 65536))->capture_default_str();
  command->add_option("--max-batch-tokens", options->max_batch_tokens)
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--max-context", options->max_context)->check(CLI::Range(2, 1 << 24))->capture_default_str();
  command->add_flag("--json", options->json, "one JSON object a line");
  command->callback([options] { run_memory(*options); });
}

}  // namespace folio::bench
