#include "bench/schedule.h"

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/requests.h"
#include "bench/table.h"
#include "client/statistics.h"
#include "engine/batch_builder.h"
#include "scheduler/scheduler.h"
#include "tests/support/allocations.h"

namespace folio::bench {
namespace {

constexpr std::int32_t kBlockSize = 16;
constexpr std::int32_t kVocab = 49152;
constexpr std::int64_t kCachedPrompt = 1024;  // tokens of the prompts that fill the cache
constexpr std::int64_t kWarmSteps = 64;       // until vectors have their size
constexpr std::int32_t kMaxBatchTokens = 16384;
constexpr int kNewcomers = 64;  // one at a time
constexpr std::int64_t kNewcomerPrompt = 1024;

struct Options {
  int num_seqs = 256;
  int context = 4096;
  int steps = 512;
  std::vector<int> cached_blocks = {1000, 10'000, 100'000};
  bool json = false;
};

struct Case {
  int depth = 1;
  std::int64_t cached_blocks = 0;
  bool evicts = false;  // no block is free but the cached ones: at least as many as are taken
};

// Of one step, in microseconds.
struct Cost {
  double schedule = 0, build = 0, commit = 0;
  double step() const { return schedule + build + commit; }
};

// A scheduler whose steps are committed with made-up tokens.
class Rig {
 public:
  Rig(std::int64_t num_blocks, const Options& options)
      : blocks_(static_cast<std::int32_t>(num_blocks), kBlockSize),
        scheduler_(blocks_, limits(num_blocks, options), clock_) {}

  void submit(std::int64_t num_prompt_tokens, std::int64_t max_tokens) {
    Request request;
    request.id = ++last_id_;
    request.prompt = random_tokens(random_, num_prompt_tokens, kVocab);
    request.max_tokens = max_tokens;
    request.arrival = clock_.now();
    if (const auto error = scheduler_.submit(std::move(request))) throw std::runtime_error(error->message);
  }

  // One step, of which `depth` are in flight while a plan is made. Committed before the next batch is built, as the
  // batch wants to know every token.
  Cost step(int depth) {
    const TimePoint start = clock_.now();
    const StepPlan& plan = scheduler_.schedule();
    const TimePoint scheduled = clock_.now();
    if (depth == 2 && flying_ != nullptr) commit(*flying_);
    const TimePoint committed = clock_.now();
    build_batch(plan, kBlockSize, batch_);
    const TimePoint built = clock_.now();
    if (depth == 2) {
      flying_ = &plan;
    } else {
      commit(plan);
    }
    const TimePoint end = clock_.now();
    const auto us = [](Duration d) { return to_ms(d) * 1000; };
    return {us(scheduled - start), us(built - committed), us(committed - scheduled + (end - built))};
  }
  void land() {
    if (flying_ != nullptr) commit(*std::exchange(flying_, nullptr));
  }

  bool empty() const { return scheduler_.empty(); }
  std::int32_t num_cached() const { return blocks_.num_cached(); }
  std::int64_t num_tokens() const { return batch_.num_tokens(); }
  std::int64_t num_preemptions() const { return scheduler_.counts().num_preemptions; }

 private:
  static SchedulerLimits limits(std::int64_t num_blocks, const Options& options) {
    SchedulerLimits limits;
    limits.block_size = kBlockSize;
    limits.num_blocks = static_cast<std::int32_t>(num_blocks);
    limits.max_context = 1 << 20;
    limits.max_num_seqs = options.num_seqs + 1;
    limits.max_batch_tokens = kMaxBatchTokens;
    limits.max_queue = 1 << 20;
    limits.max_queue_tokens = std::int64_t{1} << 40;
    return limits;
  }
  void commit(const StepPlan& plan) {
    tokens_.clear();
    for (std::int32_t i = 0; i < plan.num_samples(); ++i)
      tokens_.push_back(next_token_ = (next_token_ * 7 + 3) % kVocab);
    scheduler_.commit(plan, tokens_, {});
  }

  SteadyClock clock_;
  BlockManager blocks_;
  Scheduler scheduler_;
  StepBatch batch_;
  std::vector<TokenId> tokens_;
  std::mt19937 random_{1};
  TokenId next_token_ = 0;
  RequestId last_id_ = 0;
  const StepPlan* flying_ = nullptr;
};

// The cache is filled, the sequences start, and when all run and vectors have their size, steps are measured.
Row measure(const Options& options, const Case& c) {
  const std::int64_t num_seqs = options.num_seqs;
  const std::int64_t at_start = num_seqs * (options.context / kBlockSize + 1);
  // While the last ones' prompts are computed, the first ones grow already.
  const std::int64_t prefill_steps = num_seqs * options.context / (kMaxBatchTokens - num_seqs) + 1;
  const std::int64_t growth = num_seqs * ((prefill_steps + kWarmSteps + options.steps + kNewcomers) / kBlockSize + 1) +
                              kNewcomers * (kNewcomerPrompt / kBlockSize + 1);
  const std::int64_t num_cached = c.evicts ? std::max(c.cached_blocks, growth) : c.cached_blocks;
  Rig rig(at_start + num_cached + (c.evicts ? 0 : growth), options);
  for (std::int64_t filled = 0; filled < num_cached; filled += kCachedPrompt / kBlockSize) {
    rig.submit(std::min(kCachedPrompt, (num_cached - filled) * kBlockSize), 1);
  }
  while (!rig.empty()) rig.step(1);
  for (std::int64_t i = 0; i < num_seqs; ++i) rig.submit(options.context, 1 << 16);
  while (rig.num_tokens() != num_seqs) rig.step(1);
  for (std::int64_t i = 0; i < kWarmSteps; ++i) rig.step(c.depth);

  std::vector<Cost> costs(static_cast<std::size_t>(options.steps));
  const std::int32_t cached = rig.num_cached();
  const std::int64_t before = num_allocations();
  for (Cost& cost : costs) cost = rig.step(c.depth);
  const std::int64_t allocations = num_allocations() - before;
  rig.land();
  client::Samples newcomers;
  std::int64_t newcomer_allocations = 0;
  for (int i = 0; i < kNewcomers; ++i) {
    rig.submit(kNewcomerPrompt, 1);
    const std::int64_t before_step = num_allocations();
    const double us = rig.step(1).step();
    newcomer_allocations += num_allocations() - before_step;
    newcomers.add(us);
  }
  if (rig.num_preemptions() > 0) throw std::runtime_error("the sequences outgrew the pool");

  Row row = {{"depth", c.depth}, {"cached_blocks", cached}, {"evicts", c.evicts}, {"sequences", num_seqs}};
  row["context"] = options.context;
  const auto samples = [&](auto&& value) {
    client::Samples all;
    for (const Cost& cost : costs) all.add(std::invoke(value, cost));
    return all;
  };
  const client::Samples step = samples(&Cost::step);
  row["schedule_us"] = rounded(samples(&Cost::schedule).percentile(50), 1);
  row["build_us"] = rounded(samples(&Cost::build).percentile(50), 1);
  row["commit_us"] = rounded(samples(&Cost::commit).percentile(50), 1);
  row["step_us"] = rounded(step.percentile(50), 1);
  row["step_mean_us"] = rounded(step.mean(), 1);
  row["step_p99_us"] = rounded(step.percentile(99), 1);
  row["newcomer_us"] = rounded(newcomers.percentile(50) - step.percentile(50), 1);
  row["newcomer_allocations"] = rounded(static_cast<double>(newcomer_allocations) / kNewcomers, 1);
  row["allocations_a_step"] = rounded(static_cast<double>(allocations) / options.steps, 3);
  return row;
}

void run_schedule(const Options& options) {
  Table table(options.json);
  for (int depth = 1; depth <= Scheduler::kMaxDepth; ++depth) {
    for (int cached : options.cached_blocks) table.print(measure(options, {depth, cached, false}));
  }
  table.print(measure(options, {1, options.cached_blocks.back(), true}));
}

}  // namespace

void add_schedule_command(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("schedule", "what scheduling a step costs, without a model");
  command->add_option("--num-seqs", options->num_seqs, "running sequences")
      ->check(CLI::Range(1, kMaxBatchTokens / 2))
      ->capture_default_str();
  command->add_option("--context", options->context, "tokens of each at the start")
      ->check(CLI::Range(1, 1 << 18))
      ->capture_default_str();
  command->add_option("--steps", options->steps, "that are measured")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command->add_option("--cached-blocks", options->cached_blocks, "one run at each depth for each number")
      ->delimiter(',')
      ->check(CLI::Range(0, 1 << 22))
      ->capture_default_str();
  command->add_flag("--json", options->json, "one JSON object a line");
  command->callback([options] { run_schedule(*options); });
}

}  // namespace folio::bench
