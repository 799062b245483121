// A plan worked out, as one JSON object (what --json prints), and as text.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "client/plan/memory_plan.h"
#include "client/plan/subject.h"
#include "folio/v1/control.pb.h"

namespace folio::client {

using PlanJson = nlohmann::ordered_json;

// A server as it is now.
struct LiveServer {
  std::string address;
  v1::ServerInfo info;
  v1::Load load;

  // Of its own cache: it holds one block more than it gives out.
  std::uint64_t block_bytes() const { return info.kv_bytes() / (static_cast<std::uint64_t>(info.num_blocks()) + 1); }
};

struct Plan {
  Subject subject;
  std::string dtype;
  KvType type = KvType::kF16;
  std::int32_t block_size = 16;
  Crowd crowd;
  std::optional<std::uint64_t> memory_bytes;  // for weights and K and V together
  std::int64_t prompt_tokens = 1;             // of a newcomer, for the forecast
  std::optional<LiveServer> server;
};

// "f16" -> KvType; none for another word.
std::optional<KvType> kv_type_named(const std::string& name);

// REQUIRES a shape or a server. Throws std::overflow_error when sizes are beyond 16 EiB.
PlanJson plan_json(const Plan& plan);

std::string plan_text(const PlanJson& plan);

}  // namespace folio::client
