#include "tests/engine/sampling/naive_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace folio::testing {
namespace {

// In float: each step's rounding is part of what is promised.
std::vector<float> modified(const SampleRequest& request, std::span<const float> raw) {
  const SamplingParams& params = *request.params;
  std::vector<float> logits(raw.begin(), raw.end());
  for (const auto& [id, bias] : params.logit_bias) logits[static_cast<std::size_t>(id)] += bias;
  std::map<TokenId, int> in_output;
  for (std::size_t i = 0; i < request.tokens.size(); ++i) {
    in_output[request.tokens[i]] += i >= static_cast<std::size_t>(request.num_prompt_tokens) ? 1 : 0;
  }
  for (const auto& [id, count] : in_output) {
    float& logit = logits[static_cast<std::size_t>(id)];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    if (count > 0) logit = logit - static_cast<float>(count) * params.frequency_penalty - params.presence_penalty;
  }
  for (const TokenId id : request.masked)
    logits[static_cast<std::size_t>(id)] = -std::numeric_limits<float>::infinity();
  return logits;
}

}  // namespace

TokenId naive_choice(const SampleRequest& request, std::span<const float> raw_logits, Nudge nudge) {
  const SamplingParams& params = *request.params;
  const std::vector<float> logits = modified(request, raw_logits);
  std::vector<TokenId> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<TokenId>(i);
  const auto logit = [&](TokenId id) { return static_cast<double>(logits[static_cast<std::size_t>(id)]); };
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return logit(a) > logit(b); });
  if (params.temperature == 0.0F) return order[0];
  const double best = logit(order[0]);
  const auto weight = [&](TokenId id) {
    return std::exp((logit(id) - best) / static_cast<double>(params.temperature));
  };

  std::size_t kept = 0;
  while (kept < order.size() && weight(order[kept]) >= params.min_p * (1 + nudge.cut)) ++kept;
  if (params.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(params.top_k));
  if (params.top_p < 1.0F) {
    double total = 0;
    for (std::size_t i = 0; i < kept; ++i) total += weight(order[i]);
    const double target = params.top_p * (1 + nudge.cut) * total;
    double sum = 0;
    std::size_t head = 0;
    while (head < kept && (head == 0 || sum < target)) sum += weight(order[head++]);
    kept = head;
  }
  order.resize(std::max<std::size_t>(kept, 1));
  std::sort(order.begin(), order.end());
  double total = 0;
  for (const TokenId id : order) total += weight(id);
  const double uniform = uniform_random(params.seed, request.sequence_index, request.position) + nudge.draw;
  double sum = 0;
  TokenId last = order[0];
  for (const TokenId id : order) {
    if (weight(id) == 0) continue;
    last = id;
    sum += weight(id);
    if (sum > uniform * total) break;
  }
  return last;
}

std::vector<double> naive_logprobs(std::span<const float> raw_logits) {
  const double best = *std::max_element(raw_logits.begin(), raw_logits.end());
  double total = 0;
  for (const float logit : raw_logits) total += std::exp(static_cast<double>(logit) - best);
  std::vector<double> logprobs;
  for (const float logit : raw_logits) logprobs.push_back(static_cast<double>(logit) - best - std::log(total));
  return logprobs;
}

}  // namespace folio::testing
