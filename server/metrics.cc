#include "server/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

namespace folio {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

std::string_view name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kStop:
      return "stop";
    case Outcome::kLength:
      return "length";
    case Outcome::kCancelled:
      return "abort";
    case Outcome::kDeadline:
      return "deadline";
    case Outcome::kFailed:
      return "error";
    case Outcome::kShutDown:
      return "shutdown";
  }
  return "unknown";
}

ClientMetric::Histogram to_prometheus(const Histogram& histogram) {
  const Histogram::Counts counts = histogram.read();
  ClientMetric::Histogram out;
  for (std::size_t i = 0; i < histogram.bounds().size(); ++i) {
    out.sample_count += counts.buckets[i];
    out.bucket.push_back({out.sample_count, histogram.bounds()[i]});
  }
  out.sample_count += counts.buckets.back();
  out.sample_sum = counts.sum;
  return out;
}

// The families in the order in which they were added, each with the label of the model.
class Exposition {
 public:
  explicit Exposition(const MetricsOptions& options) : options_(options) {}

  void gauge(const char* name, const char* help, double value, Labels labels = {}) {
    begin(name, help, MetricType::Gauge);
    add_gauge(value, std::move(labels));
  }
  void counter(const char* name, const char* help, std::int64_t value) {
    begin(name, help, MetricType::Counter);
    add_counter(value, {});
  }
  void histogram(const char* name, const char* help, const Histogram& histogram) {
    begin(name, help, MetricType::Histogram);
    add_histogram(histogram, {});
  }
  // A family of several: begin, then what is in it.
  void begin(const char* name, const char* help, MetricType type) {
    families_.push_back({options_.prefix + name, help, type, {}});
  }
  void add_gauge(double value, Labels labels) { add(std::move(labels)).gauge.value = value; }
  void add_counter(std::int64_t value, Labels labels) {
    add(std::move(labels)).counter.value = static_cast<double>(value);
  }
  void add_histogram(const Histogram& histogram, Labels labels) {
    add(std::move(labels)).histogram = to_prometheus(histogram);
  }

  std::string text() const {
    std::ostringstream out;
    prometheus::TextSerializer().Serialize(out, families_);
    return out.str();
  }

 private:
  ClientMetric& add(Labels labels) {
    ClientMetric& metric = families_.back().metric.emplace_back();
    metric.label = std::move(labels);
    metric.label.push_back({"model_name", options_.model_name});
    return metric;
  }

  const MetricsOptions& options_;
  std::vector<MetricFamily> families_;
};

void add_load(Exposition& out, const LoadSnapshot& load, std::size_t num_front_waiting) {
  out.gauge("num_requests_running", "Requests that hold KV blocks.", load.num_running);
  out.gauge("num_requests_waiting", "Accepted requests that wait for a place or for blocks.", load.num_waiting);
  out.gauge("num_front_waiting", "Inputs that wait to be tokenised.", static_cast<double>(num_front_waiting));
  out.counter("num_preemptions_total", "Sequences whose blocks were taken for others.", load.num_preemptions);
  out.counter("engine_steps_total", "Steps of the engine.", load.num_steps);
}

void add_cache(Exposition& out, const LoadSnapshot& load, const MetricsOptions& options) {
  out.gauge("cache_config_info", "How the KV cache is laid out; always 1.", 1,
            {{"block_size", std::to_string(options.block_size)},
             {"num_gpu_blocks", std::to_string(load.blocks_total)},
             {"cache_dtype", options.kv_dtype},
             {"enable_prefix_caching", options.prefix_cache ? "True" : "False"}});
  out.gauge("kv_cache_usage_perc", "Share of the KV blocks that is held; 1 is all of them.",
            static_cast<double>(load.blocks_held) / std::max(load.blocks_total, 1));
  out.begin("kv_blocks", "KV blocks by state; together all of them.", MetricType::Gauge);
  out.add_gauge(load.blocks_free, {{"state", "free"}});
  out.add_gauge(load.blocks_held, {{"state", "held"}});
  out.add_gauge(load.blocks_cached, {{"state", "cached"}});
  out.gauge("kv_blocks_pinned", "Held KV blocks that pins hold.", load.blocks_pinned);
  out.gauge("kv_blocks_unaccounted", "KV blocks that were lost; must read 0.", load.blocks_unaccounted);
  out.gauge("num_pins", "Prefixes that are pinned.", load.num_pins);
  out.counter("pins_released_total", "Pins that gave way to a request.", load.num_pins_released);
  out.counter("prefix_cache_queries_total", "Prompt tokens that were looked for in the prefix cache.",
              load.queried_tokens);
  out.counter("prefix_cache_hits_total", "Prompt tokens that were found in the prefix cache.", load.cached_tokens);
}

void add_tokens(Exposition& out, const LoadSnapshot& load) {
  out.counter("prompt_tokens_total", "Prompt tokens, cached ones too, of requests whose prompt is done.",
              load.answered_prompt_tokens);
  out.counter("prompt_tokens_computed_total", "Prompt tokens that were computed.", load.prompt_tokens);
  out.counter("generation_tokens_total", "Output tokens.", load.output_tokens);
}

void add_ends(Exposition& out, const LoadSnapshot& load, const RefusalCounts& refusals) {
  out.begin("request_success_total", "Accepted requests that ended, by how.", MetricType::Counter);
  for (std::size_t i = 0; i < kNumOutcomes; ++i) {
    out.add_counter(load.num_ended[i], {{"finished_reason", std::string(name_of(static_cast<Outcome>(i)))}});
  }
  out.begin("admission_rejections_total", "Requests that were refused, by the code that their callers got.",
            MetricType::Counter);
  for (std::size_t i = 0; i < kNumErrorCodes; ++i) {
    const auto code = static_cast<ErrorCode>(i);
    const std::int64_t late = code == ErrorCode::kDeadlineExceeded ? load.num_refused_late : 0;
    out.add_counter(refusals.of(code) + late, {{"reason", std::string(folio::name_of(code))}});
  }
}

void add_histograms(Exposition& out, const EngineMeter& meter) {
  out.histogram("time_to_first_token_seconds", "From the arrival of a request to its first token.",
                meter.time_to_first_token());
  out.histogram("inter_token_latency_seconds", "Between two tokens of a sequence.", meter.inter_token_latency());
  out.histogram("e2e_request_latency_seconds", "From the arrival of a request to its end.", meter.e2e_latency());
  out.histogram("request_queue_time_seconds", "From the arrival of a request to the first work on it, or to its end.",
                meter.queue_time());
  out.histogram("request_prefill_time_seconds", "From the first work on a request to its first token.",
                meter.prefill_time());
  out.histogram("request_decode_time_seconds", "From the first token of a request to its end.", meter.decode_time());
  out.histogram("request_prompt_tokens", "Prompt tokens of a request that ended.", meter.prompt_tokens());
  out.histogram("request_generation_tokens", "Output tokens of a request that ended.", meter.generation_tokens());
  out.begin("step_duration_seconds", "The phases of a step.", MetricType::Histogram);
  for (std::size_t phase = 0; phase < EngineMeter::kPhaseNames.size(); ++phase) {
    out.add_histogram(meter.step_phase(phase), {{"phase", EngineMeter::kPhaseNames[phase]}});
  }
}

}  // namespace

Metrics::Metrics(Engine& engine, const Generation& generation, MetricsOptions options)
    : engine_(engine), generation_(generation), options_(std::move(options)), meter_(std::make_shared<EngineMeter>()) {
  engine.add_observer(meter_);
}

std::string Metrics::text() const {
  const LoadSnapshot load = engine_.load();
  Exposition out(options_);
  add_load(out, load, generation_.num_waiting_inputs());
  add_cache(out, load, options_);
  add_tokens(out, load);
  add_ends(out, load, generation_.refusals());
  add_histograms(out, *meter_);
  return out.text();
}

}  // namespace folio
