#include "client/plan/report.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "client/plan/sizes.h"
#include "client/plan/step_forecast.h"
#include "client/text.h"

namespace folio::client {
namespace {

constexpr std::pair<const char*, KvType> kTypes[] = {
    {"f32", KvType::kF32}, {"f16", KvType::kF16}, {"bf16", KvType::kBF16}, {"int8", KvType::kInt8}};

std::uint64_t blocks_bytes(std::int64_t num_blocks, std::uint64_t block_bytes) {
  return product(static_cast<std::uint64_t>(num_blocks), block_bytes);
}

std::uint64_t block_bytes_of(const Plan& plan) {
  return plan.subject.shape ? layout_of(*plan.subject.shape, plan.type, plan.block_size).block_bytes()
                            : plan.server->block_bytes();
}

std::string attention_name(const KvShape& shape, std::int32_t kv_heads) {
  return kv_heads == shape.heads ? "MHA" : kv_heads == 1 ? "MQA" : "GQA";
}

// Blocks for K and V in the memory given. None: no memory was given.
std::optional<std::int64_t> blocks_in_memory(const Plan& plan, std::uint64_t block_bytes) {
  if (!plan.memory_bytes) return std::nullopt;
  const std::uint64_t weights = plan.subject.weight_bytes;
  return *plan.memory_bytes > weights ? blocks_in(*plan.memory_bytes - weights, block_bytes) : 0;
}

// One line of a table: the plan with blocks of another size.
PlanJson variant(const Plan& plan, PlanJson head, const KvCacheLayout& layout) {
  const BlockNeed need = block_need(plan.crowd, plan.block_size);
  head["token_bytes"] = token_bytes(layout);
  head["user_bytes"] = blocks_bytes(need.a_user, layout.block_bytes());
  head["users_bytes"] = blocks_bytes(need.all, layout.block_bytes());
  if (const auto blocks = blocks_in_memory(plan, layout.block_bytes())) {
    head["users_fit"] = users_that_fit(plan.crowd, plan.block_size, *blocks);
  }
  return head;
}

PlanJson by_heads(const Plan& plan, const KvShape& shape) {
  PlanJson rows = PlanJson::array();
  std::vector<std::int32_t> counts = {shape.heads, shape.kv_heads, 1};
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  for (const std::int32_t kv_heads : counts) {
    const KvShape other{shape.layers, shape.heads, kv_heads, shape.head_dim};
    rows.push_back(variant(plan, {{"attention", attention_name(shape, kv_heads)}, {"kv_heads", kv_heads}},
                           layout_of(other, plan.type, plan.block_size)));
  }
  return rows;
}

PlanJson by_dtype(const Plan& plan, const KvShape& shape) {
  PlanJson rows = PlanJson::array();
  for (const auto& [name, type] : kTypes) {
    rows.push_back(variant(plan, {{"kv_dtype", name}}, layout_of(shape, type, plan.block_size)));
  }
  return rows;
}

PlanJson model_json(const Plan& plan) {
  const Subject& subject = plan.subject;
  PlanJson out = PlanJson::object();
  if (!subject.name.empty()) out["name"] = subject.name;
  if (subject.shape) {
    out["layers"] = subject.shape->layers;
    out["heads"] = subject.shape->heads;
    out["kv_heads"] = subject.shape->kv_heads;
    out["head_dim"] = subject.shape->head_dim;
    out["attention"] = attention_name(*subject.shape, subject.shape->kv_heads);
  }
  if (subject.max_context > 0) out["max_context"] = subject.max_context;
  if (subject.weight_bytes > 0) out["weight_bytes"] = subject.weight_bytes;
  if (subject.window_layers > 0) {
    // What a cache would hold that forgot what no layer can see any more; folio's does not.
    const std::int64_t seen = std::min<std::int64_t>(plan.crowd.context, subject.window);
    const auto blocks = [&](std::int64_t tokens) { return (tokens + plan.block_size - 1) / plan.block_size; };
    const std::uint64_t layer = layout_of(*subject.shape, plan.type, plan.block_size).block_bytes_per_layer();
    out["window_layers"] = subject.window_layers;
    out["window"] = subject.window;
    out["user_bytes_within_windows"] = product(
        static_cast<std::uint64_t>(blocks(seen) * subject.window_layers +
                                   blocks(plan.crowd.context) * (subject.shape->layers - subject.window_layers)),
        layer);
  }
  return out;
}

// `max_context`: what no context may be over; 0: not known.
PlanJson fit_json(const Plan& plan, std::int64_t num_blocks, std::int64_t max_context) {
  const std::int64_t context = context_that_fits(plan.crowd, plan.block_size, num_blocks);
  const bool is_too_long = max_context > 0 && plan.crowd.context > max_context;
  return {{"blocks", num_blocks},
          {"tokens", num_blocks * plan.block_size},
          {"users", is_too_long ? 0 : users_that_fit(plan.crowd, plan.block_size, num_blocks)},
          {"context", max_context > 0 ? std::min(context, max_context) : context}};
}

// Where the plan and the server are not the same, in sentences.
std::vector<std::string> differences(const Plan& plan, const LiveServer& server) {
  std::vector<std::string> out;
  const v1::ServerInfo& info = server.info;
  const auto differ = [&](const std::string& what, const std::string& planned, const std::string& there) {
    if (planned != there) out.push_back(what + " " + planned + " are planned, the server has " + there);
  };
  differ("K and V in", plan.dtype, info.kv_dtype());
  differ("blocks of tokens:", std::to_string(plan.block_size), std::to_string(info.block_size()));
  differ("bytes of a block:", std::to_string(block_bytes_of(plan)), std::to_string(server.block_bytes()));
  if (plan.crowd.context > info.max_context()) {
    out.push_back("contexts of " + count_text(plan.crowd.context) + " tokens are planned, the server's end at " +
                  count_text(info.max_context()));
  }
  if (plan.crowd.users > info.max_num_seqs()) {
    out.push_back(count_text(plan.crowd.users) + " users are planned, the server runs " +
                  count_text(info.max_num_seqs()) + " at once and lets the others wait");
  }
  return out;
}

// Of contexts that the server takes.
PlanJson forecast_json(const Plan& plan, const LiveServer& server) {
  const v1::ServerInfo& info = server.info;
  StepLimits limits{info.max_batch_tokens(), info.max_num_seqs(), 0};
  if (const auto target = info.options().find("target-itl-ms"); target != info.options().end()) {
    limits.target_itl_ms = std::strtod(target->second.c_str(), nullptr);
  }
  ForecastOf of{plan.crowd.users, std::min<std::int64_t>(plan.crowd.context, info.max_context())};
  of.prompt_tokens = std::min(plan.prompt_tokens, of.context);
  of.cached_tokens = plan.crowd.num_sharing() > 0 ? std::min(plan.crowd.prefix_tokens, of.prompt_tokens - 1) : 0;
  const auto expected = forecast(server.load.step_times(), limits, of);
  if (!expected) return nullptr;
  return {{"users", expected->running},        {"context", of.context},        {"prompt_tokens", of.prompt_tokens},
          {"cached_tokens", of.cached_tokens}, {"ttft_ms", expected->ttft_ms}, {"itl_ms", expected->itl_ms},
          {"chunk", expected->chunk},          {"steps", expected->steps},     {"is_seen", expected->is_seen}};
}

PlanJson server_json(const Plan& plan, const LiveServer& server) {
  const v1::ServerInfo& info = server.info;
  const v1::Load& load = server.load;
  const v1::StepTimes& times = load.step_times();
  PlanJson out = {{"address", server.address},
                  {"model", info.model()},
                  {"version", info.version()},
                  {"kv_dtype", info.kv_dtype()},
                  {"block_size", info.block_size()},
                  {"block_bytes", server.block_bytes()},
                  {"kv_bytes", info.kv_bytes()},
                  {"max_context", info.max_context()},
                  {"max_num_seqs", info.max_num_seqs()},
                  {"num_running", load.num_running()},
                  {"num_waiting", load.num_waiting()},
                  {"blocks_held", load.blocks_held()},
                  {"blocks_cached", load.blocks_cached()},
                  {"blocks_free", load.blocks_free()},
                  {"held_bytes", blocks_bytes(load.blocks_held(), server.block_bytes())}};
  out["fit"] = fit_json(plan, info.num_blocks(), info.max_context());
  out["differences"] = differences(plan, server);
  out["step_times"] = {{"base_ms", times.base_ms()},           {"row_ms", times.row_ms()},
                       {"pair_ms", times.pair_ms()},           {"key_ms", times.key_ms()},
                       {"logit_row_ms", times.logit_row_ms()}, {"usual_error_ms", times.usual_error_ms()},
                       {"num_samples", times.num_samples()},   {"trusted_rows", times.trusted_rows()}};
  out["forecast"] = forecast_json(plan, server);
  return out;
}

}  // namespace

std::optional<KvType> kv_type_named(const std::string& name) {
  for (const auto& [known, type] : kTypes) {
    if (name == known) return type;
  }
  return std::nullopt;
}

PlanJson plan_json(const Plan& plan) {
  const std::uint64_t block_bytes = block_bytes_of(plan);
  const BlockNeed need = block_need(plan.crowd, plan.block_size);
  Crowd apart = plan.crowd;
  apart.prefix_tokens = 0;
  const std::uint64_t all = blocks_bytes(need.all, block_bytes);
  PlanJson out;
  out["model"] = model_json(plan);
  out["kv_dtype"] = plan.dtype;
  out["block_size"] = plan.block_size;
  out["context"] = plan.crowd.context;
  out["users"] = plan.crowd.users;
  out["prefix_tokens"] = plan.crowd.prefix_tokens;
  out["prefix_share"] = plan.crowd.prefix_share;
  out["token_bytes"] = block_bytes / static_cast<std::uint64_t>(plan.block_size);
  out["block_bytes"] = block_bytes;
  out["user_blocks"] = need.a_user;
  out["user_bytes"] = blocks_bytes(need.a_user, block_bytes);
  out["shared_blocks"] = need.shared;
  out["users_blocks"] = need.all;
  out["users_bytes"] = all;
  out["users_bytes_without_sharing"] = blocks_bytes(block_need(apart, plan.block_size).all, block_bytes);
  out["total_bytes"] = sum(all, plan.subject.weight_bytes);
  if (plan.subject.shape) {
    out["by_heads"] = by_heads(plan, *plan.subject.shape);
    out["by_dtype"] = by_dtype(plan, *plan.subject.shape);
  }
  if (const auto blocks = blocks_in_memory(plan, block_bytes)) {
    out["memory_bytes"] = *plan.memory_bytes;
    out["fit"] = fit_json(plan, *blocks, plan.subject.max_context);
  }
  if (plan.server) out["server"] = server_json(plan, *plan.server);
  return out;
}

}  // namespace folio::client
