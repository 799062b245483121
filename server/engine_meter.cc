#include "server/engine_meter.h"

namespace folio {
namespace {

// About half as much again from bound to bound, so that a quantile is known to a fifth or so.
constexpr std::array kLatencyBounds = {0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02,  0.03, 0.05,
                                       0.075, 0.1,    0.15,  0.2,   0.3,   0.5,    0.75, 1.0,   1.5,   2.0,  3.0,
                                       5.0,   7.5,    10.0,  15.0,  20.0,  30.0,   60.0, 120.0, 300.0, 600.0};
// Scheduling takes some microseconds, a forward pass milliseconds.
constexpr std::array kStepBounds = {1e-6,  2e-6,  5e-6,  1e-5,   2e-5, 5e-5,  0.0001, 0.0002, 0.0005, 0.001,
                                    0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02,   0.03,   0.05,   0.075,
                                    0.1,   0.15,  0.2,   0.3,    0.5,  0.75,  1.0,    2.0,    5.0,    10.0};
constexpr std::array kTokenBounds = {1.0,    2.0,    5.0,    10.0,  20.0,  50.0,  100.0, 200.0, 500.0,
                                     1000.0, 2000.0, 5000.0, 1.0e4, 2.0e4, 5.0e4, 1.0e5, 2.0e5};

double seconds(Duration d) {
  return to_ms(d) / 1000;
}

}  // namespace

EngineMeter::EngineMeter()
    : time_to_first_token_(kLatencyBounds),
      inter_token_latency_(kLatencyBounds),
      e2e_latency_(kLatencyBounds),
      queue_time_(kLatencyBounds),
      prefill_time_(kLatencyBounds),
      decode_time_(kLatencyBounds),
      prompt_tokens_(kTokenBounds),
      generation_tokens_(kTokenBounds),
      step_phases_{Histogram(kStepBounds), Histogram(kStepBounds), Histogram(kStepBounds), Histogram(kStepBounds),
                   Histogram(kStepBounds)} {}

void EngineMeter::on_step(const StepRecord& step) {
  const std::array phases_ms = {step.schedule_ms, step.build_ms, step.forward_ms, step.sample_ms, step.commit_ms};
  static_assert(phases_ms.size() == kPhaseNames.size());
  for (std::size_t phase = 0; phase < phases_ms.size(); ++phase) step_phases_[phase].observe(phases_ms[phase] / 1000);
}

void EngineMeter::on_first_token(Duration since_arrival) {
  time_to_first_token_.observe(seconds(since_arrival));
}

void EngineMeter::on_next_token(Duration since_last) {
  inter_token_latency_.observe(seconds(since_last));
}

void EngineMeter::on_end(const RequestRecord& request) {
  e2e_latency_.observe(seconds(request.total));
  queue_time_.observe(seconds(request.queue));
  prompt_tokens_.observe(static_cast<double>(request.prompt_tokens));
  generation_tokens_.observe(static_cast<double>(request.output_tokens));
  if (request.output_tokens == 0) return;
  prefill_time_.observe(seconds(request.prefill));
  decode_time_.observe(seconds(request.decode));
}

}  // namespace folio
