// What the engine is told at start.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace folio {

class Model;
struct SchedulerLimits;

struct EngineOptions {
  static constexpr double kMinTenantWeight = 1e-6;
  static constexpr double kMaxTenantWeight = 1e6;
  std::int32_t max_num_seqs = 64;
  std::int32_t max_batch_tokens = 512;                // token budget of a step
  std::int32_t max_context = 0;                       // 0: the model's
  std::int32_t max_queue = 1024;                      // waiting requests
  std::int64_t max_queue_tokens = 1 << 22;            // prompt tokens of waiting requests
  bool prefix_cache = true;                           // off: every request computes its whole prompt
  double target_itl_ms = 0;                           // running answers get a token at least this often: 0 is no target
  std::int32_t pin_quota_percent = 25;                // of the blocks: the most that pins may hold
  std::map<std::string, double> tenant_weights = {};  // in the range above; one that is not named has 1
  bool check_invariants = false;                      // walk tables and pool after every step
  // Most tokens of one sequence in a step: 0 is no cap but the budget. For tuning latency, and for tests that fix it.
  std::int32_t max_prefill_chunk = 0;
  std::uint64_t block_shuffle_seed = 0;  // for tests: other than 0 shuffles the block ids that are handed out
};

// What follows from the options and the model for the scheduler. Throws std::invalid_argument naming the option that is
// out of its range.
SchedulerLimits scheduler_limits(const Model& model, const EngineOptions& options);

}  // namespace folio
