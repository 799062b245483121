// What Prometheus scrapes (the text format 0.0.4), under the names that dashboards know from vLLM: docs/api.md has
// the list. Everything is read when it is asked for; nothing waits for a step.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "server/engine_meter.h"
#include "server/generation.h"

namespace folio {

struct MetricsOptions {
  std::string prefix = "folio_";  // of every name; checked by parse_options
  std::string model_name;         // label of all
  // Labels of cache_config_info.
  std::int32_t block_size = 0;
  std::string kv_dtype;
  bool prefix_cache = true;
};

class Metrics {
 public:
  // Starts to watch the engine: before its first submit. Engine and generation outlive this object.
  Metrics(Engine& engine, const Generation& generation, MetricsOptions options);

  // Any thread, at once.
  std::string text() const;

 private:
  const Engine& engine_;
  const Generation& generation_;
  const MetricsOptions options_;
  const std::shared_ptr<EngineMeter> meter_;
};

}  // namespace folio
