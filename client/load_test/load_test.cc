#include "client/load_test/load_test.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/thread_pool.h"
#include "client/load_test/grpc_transport.h"
#include "client/load_test/openai_transport.h"
#include "client/load_test/progress.h"
#include "client/text.h"

namespace folio::client {
namespace {

constexpr int kDefaultConcurrency = 8;
constexpr std::int64_t kDefaultRequests = 64;

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

nlohmann::json lengths_json(const Lengths& lengths) {
  const std::string& text = lengths.text();
  if (text.find(':') != std::string::npos) return text;
  return std::stoll(text);
}

const char* name(PromptKind kind) {
  switch (kind) {
    case PromptKind::kIds:
      return "ids";
    case PromptKind::kWords:
      return "words";
    case PromptKind::kText:
      break;
  }
  return "text";
}

const char* name(ArrivalKind kind) {
  switch (kind) {
    case ArrivalKind::kPoisson:
      return "poisson";
    case ArrivalKind::kGamma:
      return "gamma";
    case ArrivalKind::kConstant:
      break;
  }
  return "constant";
}

ArrivalKind arrival_kind(const BenchOptions& options) {
  return options.arrivals.value_or(options.burstiness ? ArrivalKind::kGamma : ArrivalKind::kPoisson);
}

}  // namespace

LoadTest::LoadTest(const BenchOptions& options, Interrupts& interrupts) : interrupts_(interrupts) {
  if (!options.records_file.empty()) records_file_.emplace(options.records_file);
  if (!options.trace_file.empty()) trace_ = read_trace(options.trace_file);
  if (!options.rate && !options.concurrency && !trace_.empty()) {
    if (!has_times() && options.max_concurrency) {
      throw std::runtime_error(options.trace_file +
                               " has no times, and without --rate --max-concurrency limits nothing");
    }
    if (has_times() && options.ramp_s > 0) {
      throw std::runtime_error("--ramp: " + options.trace_file + " has times of its own");
    }
    const auto size = static_cast<std::int64_t>(trace_.size());
    if (has_times() && options.num_requests.value_or(0) > size) {
      throw UsageError("--num-requests: " + options.trace_file + " has times for " + count_text(size) +
                       "; with --rate or --concurrency it is sent over again");
    }
  }
  transport_ = options.api == Api::kOpenAi
                   ? make_openai_transport(options.connection, options.connections)
                   : make_grpc_transport(options.connection, options.connections, options.threads);
  model_ = transport_->model();
  choose_prompts(options.prompts);
  if (records_file_) records_file_->clear();
  interrupts_.on_interrupt([this](int signal, int count) {
    if (count > 1) _exit(128 + signal);
    const std::lock_guard lock(mutex_);
    signal_ = signal;
    if (runner_ != nullptr) runner_->stop();
  });
}

void LoadTest::choose_prompts(std::optional<PromptKind> wanted) {
  prompts_ = wanted.value_or(model_.vocab_size > 0 ? PromptKind::kIds : PromptKind::kWords);
  if (prompts_ == PromptKind::kIds) return;
  words_ = find_words(*transport_);
  if (!words_.note.empty()) std::fprintf(stderr, "folio-client: %s\n", words_.note.c_str());
  if (!wanted && words_.ids.empty()) prompts_ = PromptKind::kText;
}

LoadTest::~LoadTest() {
  interrupts_.on_interrupt(nullptr);
}

int LoadTest::signal() const {
  const std::lock_guard lock(mutex_);
  return signal_;
}

SendPlan LoadTest::plan(const BenchOptions& options) const {
  SendPlan plan;
  plan.duration_s = options.duration_s;
  plan.num_requests = options.num_requests;
  if (options.rate) {
    plan.arrivals.emplace(ArrivalOptions{arrival_kind(options), *options.rate, options.burstiness.value_or(1),
                                         options.ramp_s, options.workload.seed});
  } else if (has_times() && !options.concurrency) {
    std::vector<double> times;
    for (const TraceEntry& entry : trace_) times.push_back(*entry.at_s);
    plan.arrivals.emplace(std::move(times));
  }
  if (plan.arrivals) {
    plan.concurrency = options.max_concurrency.value_or(0);
  } else {
    plan.concurrency = options.concurrency.value_or(kDefaultConcurrency);
    plan.ramp_s = options.ramp_s;
  }
  if (!plan.num_requests && !trace_.empty() && !plan.duration_s) {
    plan.num_requests = static_cast<std::int64_t>(trace_.size());
  }
  if (!plan.num_requests && !plan.duration_s) plan.num_requests = kDefaultRequests;
  return plan;
}

LoadTest::Run LoadTest::run(const BenchOptions& options, const std::string& title, const nlohmann::json* label) {
  WorkloadOptions asked = options.workload;
  asked.prompts = prompts_;
  const Workload workload(asked, trace_, model_.vocab_size, words_);
  const SendPlan plan = this->plan(options);
  Run out;
  RunResult result;
  ClientLoad client;
  {
    Progress progress(plan.num_requests, title);
    Runner runner(plan, workload, *transport_,
                  {[&] { progress.sent(); },
                   [&](RequestRecord record) {
                     progress.ended(record);
                     write_record(record, label);
                     out.records.push_back(std::move(record));
                   }});
    const auto set_runner = [this](Runner* current) {
      const std::lock_guard lock(mutex_);
      runner_ = current;
      if (current != nullptr && signal_ != 0) current->stop();
    };
    const double cpu_before = cpu_seconds();
    const std::size_t lags_before = transport_->read_lags_ms().size();
    set_runner(&runner);
    result = runner.run();
    set_runner(nullptr);
    client.cpu_s = cpu_seconds() - cpu_before;
    const std::vector<double> lags = transport_->read_lags_ms();
    for (std::size_t i = lags_before; i < lags.size(); ++i) client.read_lag_ms.add(lags[i]);
  }
  client.cores = std::min(available_cores(), options.threads);
  out.summary = summarize(out.records, result, plan.arrivals.has_value(),
                          {options.warmup_s, options.cooldown_s, options.goals,
                           /*expects_cached=*/options.workload.shared_prefix > 0 || !trace_.empty()},
                          std::move(client));
  return out;
}

void LoadTest::write_record(const RequestRecord& record, const nlohmann::json* label) {
  if (!records_file_) return;
  nlohmann::json line = to_json(record);
  if (label != nullptr) line.update(*label);
  try {
    records_file_->write(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  } catch (const std::runtime_error& failure) {
    std::fprintf(stderr, "folio-client: %s; the run goes on without\n", failure.what());
    records_file_.reset();
    lost_records_ = true;
  }
}

nlohmann::json LoadTest::describe(const BenchOptions& options) const {
  const WorkloadOptions& workload = options.workload;
  nlohmann::json out{{"address", options.connection.address},
                     {"model", model_.name},
                     {"api", options.api == Api::kOpenAi ? "openai" : "grpc"},
                     {"seed", workload.seed},
                     {"connections", options.connections},
                     {"client_threads", options.threads},
                     {"max_failed", options.max_failed_percent},
                     {"prompts", name(prompts_)},
                     {"ignore_eos", workload.ignore_eos},
                     {"n", workload.n},
                     {"temperature", workload.temperature},
                     {"warmup_s", options.warmup_s},
                     {"cooldown_s", options.cooldown_s},
                     {"ramp_s", options.ramp_s},
                     {"cancel_fraction", workload.cancel_fraction}};
  if (!options.trace_file.empty()) {
    out["trace"] = options.trace_file;
  } else {
    out["prompt_tokens"] = lengths_json(workload.prompt_tokens);
    out["output_tokens"] = lengths_json(workload.output_tokens);
    out["shared_prefix"] = workload.shared_prefix;
    out["prefixes"] = workload.prefixes;
  }
  if (workload.top_p) out["top_p"] = *workload.top_p;
  if (workload.top_k) out["top_k"] = *workload.top_k;
  if (!workload.stop.empty()) out["stop"] = workload.stop;
  if (!workload.tenant.empty()) out["tenant"] = workload.tenant;
  if (workload.deadline) out["deadline_ms"] = workload.deadline->count();
  if (options.rate) {
    out["rate"] = *options.rate;
    out["arrivals"] = name(arrival_kind(options));
    if (options.burstiness) out["burstiness"] = *options.burstiness;
  }
  const SendPlan plan = this->plan(options);
  if (!plan.arrivals) out["concurrency"] = plan.concurrency;
  if (options.max_concurrency) out["max_concurrency"] = *options.max_concurrency;
  if (options.duration_s) out["duration_s"] = *options.duration_s;
  if (plan.num_requests) out["num_requests"] = *plan.num_requests;
  return out;
}

}  // namespace folio::client
