#include "client/plan/step_forecast.h"

#include <algorithm>
#include <cmath>

namespace folio::client {
namespace {

constexpr std::int64_t kMinSamples = 20;  // as the scheduler's
constexpr std::int64_t kMinChunk = 8;

// Steps that all have the other answers in them, and a chunk of the newcomer's prompt.
class PromptSteps {
 public:
  PromptSteps(const v1::StepTimes& times, const StepLimits& limits, const ForecastOf& of, std::int64_t others)
      : times_(times), limits_(limits), of_(of), others_(others) {}

  // The step of `count` tokens from position `first` on.
  double ms(std::int64_t first, std::int64_t count) const {
    const auto others = static_cast<double>(others_), context = static_cast<double>(of_.context);
    const auto from = static_cast<double>(first), tokens = static_cast<double>(count);
    return step_ms(times_, others + tokens, others * context + tokens * from + tokens * (tokens + 1) / 2,
                   others * context + from + tokens, others + (first + count == of_.prompt_tokens ? 1 : 0));
  }

  // Of the `rest` from `first` on, as much as the step has tokens for and, beside answers, as the target has time for.
  std::int64_t chunk(std::int64_t first, std::int64_t rest) const {
    const std::int64_t most = std::min(rest, std::max<std::int64_t>(1, limits_.max_batch_tokens - others_));
    if (limits_.target_itl_ms <= 0 || others_ == 0) return most;
    std::int64_t low = std::min(most, kMinChunk);
    std::int64_t high = std::max(low, std::min(most, times_.trusted_rows() - others_));
    while (low < high) {
      const std::int64_t middle = low + (high - low + 1) / 2;
      if (ms(first, middle) <= limits_.target_itl_ms) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

 private:
  const v1::StepTimes& times_;
  const StepLimits& limits_;
  const ForecastOf& of_;
  const std::int64_t others_;
};

}  // namespace

double step_ms(const v1::StepTimes& times, double rows, double pairs, double keys, double logit_rows) {
  return times.base_ms() + times.row_ms() * rows + times.pair_ms() * pairs + times.key_ms() * keys +
         times.logit_row_ms() * logit_rows;
}

std::optional<Forecast> forecast(const v1::StepTimes& times, const StepLimits& limits, const ForecastOf& of) {
  if (times.num_samples() < kMinSamples) return std::nullopt;
  Forecast out;
  out.running = std::clamp<std::int64_t>(of.users, 1, std::max<std::int64_t>(1, limits.max_num_seqs));
  const auto running = static_cast<double>(out.running), keys = running * static_cast<double>(of.context);
  out.itl_ms = step_ms(times, running, keys, keys, running);
  out.is_seen = out.running <= times.trusted_rows();
  const PromptSteps steps(times, limits, of, out.running - 1);
  for (std::int64_t at = std::min(of.cached_tokens, of.prompt_tokens - 1); at < of.prompt_tokens; ++out.steps) {
    const std::int64_t count = steps.chunk(at, of.prompt_tokens - at);
    if (out.steps == 0) out.chunk = count;
    out.is_seen &= out.running - 1 + count <= times.trusted_rows();
    out.ttft_ms += steps.ms(at, count);
    at += count;
  }
  if (!std::isfinite(out.itl_ms) || !std::isfinite(out.ttft_ms)) return std::nullopt;
  return out;
}

}  // namespace folio::client
