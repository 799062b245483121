#include "server/server.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/load_model.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "server/api_keys.h"
#include "server/control_service.h"
#include "server/generation.h"
#include "server/grpc_door.h"
#include "server/grpc_listener.h"
#include "server/grpc_service.h"
#include "server/http/http_listener.h"
#include "server/metrics.h"
#include "server/pins.h"
#include "server/tls.h"
#include "server/validation.h"
#include "server/write_watch.h"

namespace folio {
namespace {

// After the drain: for the last bytes to reach clients that read, and for open Watch streams to be ended.
constexpr auto kCloseTimeout = std::chrono::milliseconds(500);
// For the step under way when the drain timed out: it cannot be interrupted, and its streams still get their last
// chunk.
constexpr auto kLastStepTimeout = std::chrono::seconds(10);
// From refusing to closing: calls already on their way are answered UNAVAILABLE, not cut off.
constexpr auto kRefusalTime = std::chrono::milliseconds(200);

ModelOptions model_options(const ServerOptions& o) {
  ModelOptions out;
  out.device = o.device;
  out.deterministic = o.deterministic;
  out.isa = o.isa;
  out.num_threads = o.threads;
  out.kv_dtype = o.kv_dtype;
  out.block_size = o.block_size;
  out.kv_blocks = o.kv_blocks;
  out.kv_memory_bytes = o.kv_memory_bytes;
  out.max_context = o.max_context;
  out.max_num_seqs = o.max_num_seqs;
  out.max_batch_tokens = o.max_batch_tokens;
  return out;
}

EngineOptions engine_options(const ServerOptions& o) {
  EngineOptions out;
  out.max_num_seqs = o.max_num_seqs;
  out.max_batch_tokens = o.max_batch_tokens;
  out.max_context = o.max_context;
  out.max_queue = o.max_queue;
  out.max_queue_tokens = o.max_queue_tokens;
  out.prefix_cache = o.prefix_cache == "on";
  out.target_itl_ms = o.target_itl_ms;
  out.pin_quota_percent = o.pin_quota_percent;
  out.tenant_weights = o.tenant_weights;
  out.check_invariants = o.check_invariants;
  return out;
}

GenerationOptions generation_options(const ServerOptions& o, const ModelInfo& info) {
  GenerationOptions out;
  out.model_name = o.model_name;
  out.architecture = info.architecture;
  out.max_num_seqs = o.max_num_seqs;
  // Room for those that find a place at once, too: an idle server takes a burst whatever the queue's limit.
  out.max_waiting_inputs = static_cast<std::size_t>(o.max_queue) + static_cast<std::size_t>(o.max_num_seqs);
  return out;
}

MetricsOptions metrics_options(const ServerOptions& o, const ModelInfo& info) {
  MetricsOptions out;
  out.prefix = o.metrics_prefix;
  out.model_name = o.model_name;
  out.block_size = info.block_size;
  out.kv_dtype = info.kv_dtype;
  out.prefix_cache = o.prefix_cache == "on";
  return out;
}

// Stops the server when its device is lost, and remembers why.
class LossWatch final : public EngineObserver {
 public:
  explicit LossWatch(StopSignal& stop) : stop_(stop) {}
  void on_device_lost(const std::string& what) override {
    log::error("the device was lost: " + what);
    lost_.store(true);
    stop_.request();
  }
  bool lost() const { return lost_.load(); }

 private:
  StopSignal& stop_;
  std::atomic<bool> lost_{false};
};

// Everything that a model file brings, in the order in which one part needs the one before.
struct Serving {
  Serving(const ServerOptions& options, std::shared_ptr<LossWatch> loss_watch)
      : file(options.model),
        tokenizer(make_tokenizer(file)),
        chat_template(std::string(file.find_string("tokenizer.chat_template").value_or("")), *tokenizer),
        loaded(load_model(file, model_options(options))),
        engine(*loaded.model, *tokenizer, clock, engine_options(options)),
        generation(engine, *tokenizer, chat_template, clock, generation_options(options, loaded.info)),
        metrics(engine, generation, metrics_options(options, loaded.info)) {
    engine.add_observer(std::move(loss_watch));
  }

  GgufFile file;
  std::unique_ptr<Tokenizer> tokenizer;
  ChatTemplate chat_template;
  LoadedModel loaded;
  SteadyClock clock;
  Engine engine;
  Generation generation;
  Metrics metrics;
};

v1::ServerInfo server_info(const ServerOptions& options, const Serving& serving) {
  v1::ServerInfo out;
  out.set_version(kVersion);
  out.set_model(options.model_name);
  const ModelInfo& info = serving.loaded.info;
  out.set_architecture(info.architecture);
  out.set_weight_type(info.dtype);
  out.set_kv_dtype(info.kv_dtype);
  out.set_isa(info.isa);
  out.set_num_threads(info.num_threads);
  out.set_block_size(info.block_size);
  out.set_num_blocks(info.num_blocks);
  out.set_kv_bytes(info.kv_bytes);
  out.set_max_context(serving.engine.max_context());
  out.set_vocab_size(info.vocab_size);
  out.set_max_num_seqs(options.max_num_seqs);
  out.set_max_batch_tokens(options.max_batch_tokens);
  out.set_max_queue(options.max_queue);
  out.set_max_queue_tokens(options.max_queue_tokens);
  for (const auto& [flag, value] : describe(options)) (*out.mutable_options())[flag] = value;
  return out;
}

// Loads, and computes what is to be pinned, on a thread of its own, so that a stop is heard meanwhile.
class Loader {
 public:
  Loader(const ServerOptions& options, StopSignal& stop, std::shared_ptr<LossWatch> loss_watch)
      : thread_([this, options, &stop, loss_watch] { load(options, stop, loss_watch); }) {}
  ~Loader() {
    if (thread_.joinable()) thread_.join();
  }
  bool done() const { return done_.load(); }
  std::unique_ptr<Serving> take() {  // REQUIRES done(); throws what loading threw
    thread_.join();
    if (failure_) std::rethrow_exception(failure_);
    return std::move(serving_);
  }

 private:
  void load(const ServerOptions& options, StopSignal& stop, const std::shared_ptr<LossWatch>& loss_watch) {
    try {
      serving_ = std::make_unique<Serving>(options, loss_watch);
      pin_prefixes(serving_->engine, serving_->generation, serving_->loaded.info.block_size, options.pins);
    } catch (...) {
      failure_ = std::current_exception();
    }
    done_.store(true);
    stop.wake();
  }

  std::unique_ptr<Serving> serving_;
  std::exception_ptr failure_;
  std::atomic<bool> done_{false};
  std::thread thread_;  // last: it uses the others
};

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

ListenerOptions listener_options(const ServerOptions& o, const std::optional<TlsFiles>& tls) {
  ListenerOptions out;
  if (tls) out.tls = &*tls;
  if (o.max_connection_age_s > 0) out.max_connection_age = milliseconds(o.max_connection_age_s);
  out.max_connection_age_grace = milliseconds(o.max_connection_age_grace_s);
  return out;
}

HttpOptions http_options(const ServerOptions& o, const std::optional<TlsFiles>& tls, const ApiKeys& keys,
                         WriteWatch& watch) {
  HttpOptions out;
  out.host = o.host;
  out.port = static_cast<std::uint16_t>(std::stoi(o.http_port));
  out.cors_allow_origin = o.cors_allow_origin;
  out.tls = tls;
  out.limits.write_timeout = milliseconds(o.write_timeout_s);
  out.on_write_timeout = [&watch] { watch.count_ended(); };
  if (keys.required()) {
    out.authorize = [&keys](const std::vector<std::string_view>& fields) { return keys.authorize(fields); };
  }
  return out;
}

// The three listeners; HTTP and the control one may be off. All have the same certificate and ask for the same of
// clients.
struct Listeners {
  Listeners(const ServerOptions& options, const std::optional<TlsFiles>& tls, const ApiKeys& keys, WriteWatch& watch,
            GenerationService& generation, ControlService& control)
      : user(options.host + ":" + std::to_string(options.grpc_port),
             {{&generation, v1::Generation::service_full_name()}}, listener_options(options, tls)) {
    log::info("gRPC on " + options.host + ":" + std::to_string(user.port()));
    if (options.http_port != "off") {
      http.emplace(http_options(options, tls, keys, watch));
      log::info("HTTP on " + options.host + ":" + std::to_string(http->port()));
    }
    if (options.control_listen == "off") return;
    ListenerOptions operator_options = listener_options(options, tls);
    operator_options.num_spare_files = kSpareFiles / 2;  // a crowd of callers does not keep the operator out
    operators.emplace(options.control_listen, std::vector<NamedService>{{&control, v1::Control::service_full_name()}},
                      operator_options);
    const std::string host = options.control_listen.substr(0, options.control_listen.rfind(':'));
    log::info("control on " + host + ":" + std::to_string(operators->port()));
  }
  void set_serving(bool serving) {
    user.set_serving(serving);
    if (http) http->set_serving(serving);
    if (operators) operators->set_serving(serving);
  }
  void shutdown() {
    const TimePoint deadline = std::chrono::steady_clock::now() + kCloseTimeout;
    if (http) http->shutdown(deadline);
    user.shutdown(deadline);
    if (operators) operators->shutdown(deadline);
  }

  GrpcListener user;
  std::optional<HttpListener> http;
  std::optional<GrpcListener> operators;
};

void log_options(const ServerOptions& options) {
  std::string line = "folio-server " + std::string(kVersion) + ":";
  for (const auto& [flag, value] : describe(options)) line.append(" --").append(flag).append(" ").append(value);
  log::info(line);
  if (options.tenant_weights.empty()) return;
  std::ostringstream weights;
  for (const auto& [tenant, weight] : options.tenant_weights) weights << " " << folio::quoted(tenant) << " " << weight;
  log::info("weights of tenants:" + weights.str());
}

// What a SIGHUP does while this object lives.
class Hangup {
 public:
  Hangup(StopSignal& signal, std::function<void()> action) : signal_(signal) { signal_.on_hangup(std::move(action)); }
  ~Hangup() { signal_.on_hangup(nullptr); }
  Hangup(const Hangup&) = delete;
  Hangup& operator=(const Hangup&) = delete;

 private:
  StopSignal& signal_;
};

void drain(const ServerOptions& options, Serving& serving) {
  const auto limit = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(options.drain_timeout_s));
  serving.engine.stop_accepting();
  log::info("draining: running requests have " + std::to_string(std::lround(options.drain_timeout_s)) + " s");
  const TimePoint start = std::chrono::steady_clock::now();
  const TimePoint deadline = start + limit;
  if (!serving.engine.wait_idle(deadline)) {
    log::warn("the drain timed out: ending what still runs");
    serving.engine.end_all({ErrorCode::kUnavailable, "the server is shutting down"});
    serving.engine.wait_idle(std::chrono::steady_clock::now() + kLastStepTimeout);
  }
  // What was made is still to be read by slow clients.
  serving.generation.wait_calls_done(std::max(deadline, std::chrono::steady_clock::now() + kCloseTimeout));
  std::this_thread::sleep_until(start + kRefusalTime);
}

}  // namespace

void run_server(const ServerOptions& options, StopSignal& stop) {
  log_options(options);
  const auto tls = read_tls_files(options.tls_cert, options.tls_key, options.tls_client_ca);
  ApiKeys keys(options.api_key_file);
  if (keys.required()) log::info(options.api_key_file + ": " + std::to_string(keys.size()) + " API keys");
  if (std::error_code ignored; !std::filesystem::exists(options.model, ignored)) {
    throw std::runtime_error("--model " + options.model + ": no such file; scripts/setup fetches the default model");
  }
  const Hangup reload(stop, [&keys] { keys.reload(); });
  WriteWatch watch(milliseconds(options.write_timeout_s));
  const GrpcDoor door{keys, watch};
  GenerationService generation_service(door);
  ControlService control_service(door, [&stop] { stop.request(); });
  Listeners listeners(options, tls, keys, watch, generation_service, control_service);

  const auto loss_watch = std::make_shared<LossWatch>(stop);
  Loader loader(options, stop, loss_watch);
  stop.wait([&loader] { return loader.done(); });
  if (!loader.done()) {
    log::info("stopped while the model was loading");
    listeners.shutdown();
    std::fflush(nullptr);
    std::_Exit(loss_watch->lost() ? EXIT_FAILURE : EXIT_SUCCESS);
  }
  const std::unique_ptr<Serving> serving = loader.take();
  generation_service.serve(serving->generation);
  if (listeners.http) {
    listeners.http->serve(serving->generation, [&metrics = serving->metrics] { return metrics.text(); });
  }
  control_service.serve(serving->engine, serving->generation, server_info(options, *serving));
  if (!stop.requested()) {
    listeners.set_serving(true);
    const ModelInfo& info = serving->loaded.info;
    log::info("ready: " + options.model_name + ", " + std::to_string(info.num_blocks) + " blocks of " +
              std::to_string(info.block_size) + " tokens, " + info.isa);
  }
  stop.wait();
  listeners.set_serving(false);
  drain(options, *serving);
  control_service.end_watches();
  listeners.shutdown();
  if (loss_watch->lost()) throw std::runtime_error("stopped: the device was lost");
  log::info("stopped");
}

}  // namespace folio
