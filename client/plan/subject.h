// What is planned for: a model's numbers, from its file or from the command line.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "client/plan/memory_plan.h"

namespace folio::client {

struct Subject {
  std::string name;                // empty: plain numbers
  std::optional<KvShape> shape;    // none: only a server's own sizes are known
  std::int64_t max_context = 0;    // 0: not known
  std::uint64_t weight_bytes = 0;  // 0: not known
  std::int32_t window_layers = 0;  // layers that see only the last `window` tokens
  std::int32_t window = 0;
};

// From the file's directory and metadata; weights are not read. Throws what GgufFile and the model's configuration
// throw: std::runtime_error naming the file.
Subject read_subject(const std::string& path);

}  // namespace folio::client
