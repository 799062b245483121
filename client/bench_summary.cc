#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/bench.h"

namespace folio::client {
namespace {

double per_second(std::int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

}  // namespace

void BenchSummary::add(const BenchRecord& record) {
  switch (record.kind) {
    case BenchRecord::Kind::kOk:
      ++num_ok;
      prompt_tokens += record.prompt_tokens;
      output_tokens += record.output_tokens;
      ttft_ms.add(record.ttft_ms);
      e2e_ms.add(record.e2e_ms);
      itl_ms.add(record.itl_ms);
      break;
    case BenchRecord::Kind::kEmpty:
      ++num_empty;
      break;
    case BenchRecord::Kind::kAborted:
      ++num_aborted;
      break;
    case BenchRecord::Kind::kFailed:
      ++num_failed;
      ++errors[record.error];
      first_messages.try_emplace(record.error, record.message);
      break;
  }
}

std::string BenchSummary::text() const {
  char line[320];
  std::string out = partial ? "PARTIAL: interrupted\n" : "";
  std::snprintf(line, sizeof line, "requests: %lld ok, %lld empty, %lld failed, %lld aborted in %.2f s\n",
                static_cast<long long>(num_ok), static_cast<long long>(num_empty), static_cast<long long>(num_failed),
                static_cast<long long>(num_aborted), duration_s);
  out += line;
  for (const auto& [kind, count] : errors) {
    out += "  " + kind + ": " + std::to_string(count) + ", first: " + first_messages.at(kind) + "\n";
  }
  std::snprintf(
      line, sizeof line,
      "rates of %lld ok requests: %.2f requests/s, %.1f prompt tokens/s (%lld), %.1f output tokens/s (%lld)\n",
      static_cast<long long>(num_ok), per_second(num_ok, duration_s), per_second(prompt_tokens, duration_s),
      static_cast<long long>(prompt_tokens), per_second(output_tokens, duration_s),
      static_cast<long long>(output_tokens));
  out += line;
  out += statistics_header() + "\n";
  out += statistics_row("time to first token ms", ttft_ms) + "\n";
  out += statistics_row("inter-token latency ms", itl_ms) + "\n";
  out += statistics_row("end to end ms", e2e_ms) + "\n";
  return out;
}

nlohmann::json BenchSummary::json() const {
  nlohmann::json failures = nlohmann::json::object();
  for (const auto& [kind, count] : errors) {
    failures[kind] = {{"count", count}, {"first_message", first_messages.at(kind)}};
  }
  return {{"partial", partial},
          {"duration_s", duration_s},
          {"num_ok", num_ok},
          {"num_empty", num_empty},
          {"num_failed", num_failed},
          {"num_aborted", num_aborted},
          {"errors", failures},
          {"prompt_tokens", prompt_tokens},
          {"output_tokens", output_tokens},
          {"requests_per_second", per_second(num_ok, duration_s)},
          {"prompt_tokens_per_second", per_second(prompt_tokens, duration_s)},
          {"output_tokens_per_second", per_second(output_tokens, duration_s)},
          {"ttft_ms", to_json(ttft_ms)},
          {"itl_ms", to_json(itl_ms)},
          {"e2e_ms", to_json(e2e_ms)}};
}

}  // namespace folio::client
