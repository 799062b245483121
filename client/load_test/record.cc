#include "client/load_test/record.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

namespace folio::client {

std::optional<double> RequestRecord::tpot_ms() const {
  const std::vector<float>& gaps = times.gaps_ms;
  if (gaps.empty()) return std::nullopt;
  return std::accumulate(gaps.begin(), gaps.end(), 0.0) / static_cast<double>(gaps.size());
}

std::optional<double> RequestRecord::itl_p99_ms() const {
  std::vector<float> gaps = times.gaps_ms;
  if (gaps.empty()) return std::nullopt;
  const auto rank = static_cast<std::ptrdiff_t>(std::ceil(0.99 * static_cast<double>(gaps.size())));
  std::nth_element(gaps.begin(), gaps.begin() + rank - 1, gaps.end());
  return gaps[static_cast<std::size_t>(rank) - 1];
}

bool is_refusal(const RequestRecord& record) {
  return record.outcome == Outcome::kFailed && (record.error == "RESOURCE_EXHAUSTED" || record.error == "HTTP 429");
}

const char* outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk:
      return "ok";
    case Outcome::kEmpty:
      return "empty";
    case Outcome::kFailed:
      return "failed";
    case Outcome::kCancelled:
      return "cancelled";
    case Outcome::kAborted:
      break;
  }
  return "aborted";
}

nlohmann::json to_json(const RequestRecord& record) {
  nlohmann::json out{{"number", record.number},
                     {"outcome", outcome_name(record.outcome)},
                     {"due_s", record.due_s},
                     {"sent_s", record.sent_s},
                     {"end_s", record.end_s},
                     {"e2e_ms", record.e2e_ms()},
                     {"prompt_tokens", record.prompt_tokens},
                     {"cached_tokens", record.cached_tokens}};
  if (!record.error.empty()) {
    out["error"] = record.error;
    out["message"] = record.message;
  }
  if (record.first_s) out["ttft_ms"] = record.ttft_ms();
  if (record.output_tokens) out["output_tokens"] = *record.output_tokens;
  if (const auto tpot = record.tpot_ms()) out["tpot_ms"] = *tpot;
  if (const auto itl = record.itl_p99_ms()) out["itl_p99_ms"] = *itl;
  if (!record.times.gaps_ms.empty()) {
    out["itl_max_ms"] = *std::max_element(record.times.gaps_ms.begin(), record.times.gaps_ms.end());
  }
  return out;
}

}  // namespace folio::client
