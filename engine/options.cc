#include "engine/options.h"

#include <stdexcept>
#include <string>

#include "engine/model/model.h"
#include "scheduler/admission.h"

namespace folio {

SchedulerLimits scheduler_limits(const Model& model, const EngineOptions& options) {
  const auto require = [](bool holds, const std::string& what) {
    if (!holds) throw std::invalid_argument(what);
  };
  require(options.max_num_seqs >= 1, "max_num_seqs: at least 1");
  require(options.max_batch_tokens >= 1, "max_batch_tokens: at least 1");
  require(options.max_prefill_chunk >= 0, "max_prefill_chunk: at least 0");
  require(options.max_queue >= 1, "max_queue: at least 1");
  require(options.max_queue_tokens >= 1, "max_queue_tokens: at least 1");
  require(options.target_itl_ms >= 0 && options.target_itl_ms <= 1e9, "target_itl_ms: at least 0");
  require(options.pin_quota_percent >= 0 && options.pin_quota_percent <= 100, "pin_quota_percent: 0 to 100");
  for (const auto& [name, weight] : options.tenant_weights) {
    require(weight >= EngineOptions::kMinTenantWeight && weight <= EngineOptions::kMaxTenantWeight,
            "tenant_weights: that of " + name + " is not in [1e-06, 1e+06]");
  }
  require(options.max_context == 0 || (options.max_context >= 2 && options.max_context <= model.max_context()),
          "max_context: " + std::to_string(options.max_context) + " is not within 2 and the model's " +
              std::to_string(model.max_context()));
  SchedulerLimits limits;
  limits.block_size = model.block_size();
  limits.num_blocks = model.num_blocks();
  limits.max_context = options.max_context == 0 ? model.max_context() : options.max_context;
  limits.max_num_seqs = options.max_num_seqs;
  limits.max_batch_tokens = options.max_batch_tokens;
  limits.max_prefill_chunk = options.max_prefill_chunk;
  limits.max_queue = options.max_queue;
  limits.max_queue_tokens = options.max_queue_tokens;
  limits.prefix_cache = options.prefix_cache;
  limits.max_pinned_blocks =
      static_cast<std::int32_t>(std::int64_t{model.num_blocks()} * options.pin_quota_percent / 100);
  limits.target_itl =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(options.target_itl_ms));
  return limits;
}

}  // namespace folio
