#include "server/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "base/thread_pool.h"
#include "engine/text/detokenizer.h"
#include "server/validation.h"

namespace folio {
namespace {

namespace fs = std::filesystem;
const std::map<std::string, int> kByteShifts = {{"", 0}, {"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
constexpr const char* kDefaultModel = "models/smollm2-135m-q4_1.gguf";

// <root>/build/bin/folio-server -> <root>/models/...; else the current folder's.
std::string default_model(const std::string& executable) {
  std::error_code ignored;
  const fs::path beside = fs::path(executable).parent_path().parent_path().parent_path() / kDefaultModel;
  return fs::exists(beside, ignored) ? beside.string() : kDefaultModel;
}

std::string model_name_of(const std::string& path) {
  const fs::path file(path);
  return file.extension() == ".gguf" ? file.stem().string() : file.filename().string();
}

// A check of CLI11: empty, or what is wrong.
std::string size_error(const std::string& text) {
  try {
    parse_bytes(text);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

// The same for a port that may be off.
std::string port_error(const std::string& text) {
  constexpr int kMaxPort = 65535;
  int port = -1;
  const char* const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, port);
  if (text == "off" || (failure == std::errc() && rest == end && port >= 0 && port <= kMaxPort)) return "";
  return "'" + text + "' is neither a port, 0 to 65535, nor off";
}

// Scheme, host and port, as a browser writes them; it goes into a header as it is.
std::string origin_error(const std::string& text) {
  if (text.empty() || text == "*") return "";
  const bool visible = std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F; });
  const std::size_t scheme = text.find("://");
  const bool whole = scheme != std::string::npos && scheme > 0 && scheme + 3 < text.size();
  if (visible && whole && text.find('/', scheme + 3) == std::string::npos) return "";
  return "'" + sanitize_utf8(text) + "' is neither an origin, as https://app.example, nor *";
}

// And what a metric's name may begin with.
std::string prefix_error(const std::string& text) {
  constexpr std::size_t kMaxBytes = 64;
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':';
  };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (!text.empty() && text.size() <= kMaxBytes && is_letter(text.front()) &&
      std::ranges::all_of(text, [&](char c) { return is_letter(c) || is_digit(c); })) {
    return "";
  }
  return folio::quoted(text) + " is not the beginning of a metric's name: 1 to " + std::to_string(kMaxBytes) +
         " letters, digits, _ and :, no digit first";
}

// A door that somebody wanted closed is not opened by a variable that was not set.
std::string empty_error(const std::string& path) {
  return path.empty() ? "is empty; leave it out for none" : "";
}

// Who gets in, and for how long.
void add_door_flags(CLI::App& app, ServerOptions& o) {
  const auto add_file = [&app](const char* name, std::string& path, const char* what) {
    app.add_option(name, path, what)->type_name("FILE")->check(empty_error);
  };
  add_file("--tls-cert", o.tls_cert, "PEM certificate (chain) of the listeners; with --tls-key");
  add_file("--tls-key", o.tls_key, "PEM private key of that certificate");
  add_file("--tls-client-ca", o.tls_client_ca, "let in only clients with a certificate of these authorities (PEM)");
  add_file("--api-key-file", o.api_key_file, "TOML file of the hashes of API keys; read again at SIGHUP");
  app.add_option("--write-timeout", o.write_timeout_s, "seconds after which a reader that takes nothing is gone")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str();
  app.add_option("--max-connection-age", o.max_connection_age_s,
                 "seconds after which a gRPC connection's client is asked to open a new one; 0: never")
      ->check(CLI::Range(0.0, 1'000'000.0))
      ->capture_default_str();
  app.add_option("--max-connection-age-grace", o.max_connection_age_grace_s,
                 "seconds that calls on such a connection still have")
      ->check(CLI::Range(0.0, 1'000'000.0))
      ->capture_default_str();
}

void add_flags(CLI::App& app, ServerOptions& o, std::string& kv_memory) {
  const int max_int = std::numeric_limits<std::int32_t>::max();
  app.add_option("--model", o.model, "GGUF file to serve")->capture_default_str();
  app.add_option("--model-name", o.model_name, "name that clients use (default: the file's name)");
  app.add_option("--host", o.host, "address of the user listener")->capture_default_str();
  app.add_option("--grpc-port", o.grpc_port, "port of the user listener; 0: any free one, printed")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app.add_option("--http-port", o.http_port,
                 "port of the HTTP listener, on --host too, or 'off'; 0: any free one, printed")
      ->check(port_error)
      ->capture_default_str();
  app.add_option("--cors-allow-origin", o.cors_allow_origin,
                 "origin whose pages may read HTTP answers, as https://app.example, or *; empty: none")
      ->check(origin_error);
  app.add_option("--control-listen", o.control_listen, "host:port of the control listener, or 'off'")
      ->capture_default_str();
  app.add_option("--device", o.device, "what computes the steps; cuda wants libfolio_cuda.so beside this program")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  app.add_flag("--deterministic", o.deterministic,
               "no answer depends on who shares its steps; on the CPU that is always so");
  app.add_option("--threads", o.threads, "threads of a step (default: the cores that this process may use)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--isa", o.isa, "instruction set of the kernels")
      ->check(CLI::IsMember({"auto", "avx512bf16", "avx512", "avx2", "scalar"}))
      ->capture_default_str();
  app.add_option("--block-size", o.block_size, "tokens per KV block")
      ->check(CLI::IsMember({16, 32, 64, 128, 256}))
      ->capture_default_str();
  auto* blocks = app.add_option("--kv-blocks", o.kv_blocks, "KV blocks")->check(CLI::Range(1, max_int));
  app.add_option("--kv-memory", kv_memory,
                 "memory for KV blocks, as 2GiB (default: 40 % of the memory that this process may use, at most "
                 "max-num-seqs times max-context)")
      ->type_name("SIZE")
      ->check(size_error)
      ->excludes(blocks);
  app.add_option("--kv-dtype", o.kv_dtype, "type of the KV cache; f32 is for tests, fp8 is of --device cuda alone")
      ->check(CLI::IsMember({"f16", "bf16", "int8", "f32", "fp8"}))
      ->capture_default_str();
  app.add_option("--max-context", o.max_context, "tokens of a sequence (default: the model's)")
      ->check(CLI::Range(2, max_int));
  app.add_option("--max-num-seqs", o.max_num_seqs, "sequences of a step")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("--max-batch-tokens", o.max_batch_tokens, "tokens of a step")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--target-itl-ms", o.target_itl_ms,
                 "running answers get a token at least this often, if prompts in chunks can make it so; 0: no target")
      ->check(CLI::Range(0.0, 86'400'000.0))
      ->capture_default_str();
  app.add_option("--prefix-cache", o.prefix_cache, "whether prompts reuse what others computed for the same beginning")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app.add_option("--pin-quota", o.pin_quota_percent, "percent of the KV blocks that pins may hold")
      ->check(CLI::Range(0, 100))
      ->capture_default_str();
  app.add_option("--max-queue", o.max_queue, "requests that may wait")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-queue-tokens", o.max_queue_tokens, "prompt tokens of waiting requests")
      ->check(CLI::Range(std::int64_t{1}, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  app.add_option("--log-level", o.log_level, "least level that is logged")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->capture_default_str();
  app.add_option("--log-format", o.log_format, "form of a log line")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_option("--metrics-prefix", o.metrics_prefix,
                 "what the metrics' names begin with; vllm: makes them vLLM's, for dashboards that know those")
      ->check(prefix_error)
      ->capture_default_str();
  app.add_option("--drain-timeout", o.drain_timeout_s, "seconds for running requests after SIGTERM")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  app.add_flag("--check-invariants", o.check_invariants, "check every block after every step (slow)");
  app.add_option("--config", o.config, "TOML file: these flags' names as keys, tenants, and prefixes to pin")
      ->type_name("FILE");
}

struct Contradiction {
  std::string flag;
  std::string message;
};

std::optional<Contradiction> check_doors(const ServerOptions& o) {
  if (!std::isfinite(o.write_timeout_s)) return Contradiction{"write-timeout", "is not a number of seconds"};
  if (!std::isfinite(o.max_connection_age_s)) return Contradiction{"max-connection-age", "is not a number of seconds"};
  if (o.max_connection_age_s > 0 && o.max_connection_age_s < 1) {
    return Contradiction{"max-connection-age", "is less than a second; 0 is none"};
  }
  if (!std::isfinite(o.max_connection_age_grace_s)) {
    return Contradiction{"max-connection-age-grace", "is not a number of seconds"};
  }
  if (o.tls_cert.empty() != o.tls_key.empty()) {
    return o.tls_cert.empty() ? Contradiction{"tls-key", "goes with --tls-cert, which is missing"}
                              : Contradiction{"tls-cert", "goes with --tls-key, which is missing"};
  }
  if (!o.tls_client_ca.empty() && o.tls_cert.empty()) {
    return Contradiction{"tls-client-ca", "goes with --tls-cert and --tls-key, which are missing"};
  }
  return std::nullopt;
}

// What no single flag's range can say.
std::optional<Contradiction> check_together(const ServerOptions& o) {
  if (o.max_num_seqs > o.max_batch_tokens) {
    return Contradiction{"max-num-seqs", std::to_string(o.max_num_seqs) + " is above --max-batch-tokens " +
                                             std::to_string(o.max_batch_tokens) +
                                             ": a step could not decode all sequences"};
  }
  if (!std::isfinite(o.drain_timeout_s)) return Contradiction{"drain-timeout", "is not a number of seconds"};
  if (!std::isfinite(o.target_itl_ms)) return Contradiction{"target-itl-ms", "is not a number of milliseconds"};
  if (!is_valid_utf8(o.model_name)) return Contradiction{"model-name", "is not UTF-8"};
  if (o.control_listen != "off" && o.control_listen.find(':') == std::string::npos) {
    return Contradiction{"control-listen", o.control_listen + " is not host:port or off"};
  }
  if (o.grpc_port != 0 && o.control_listen == o.host + ":" + std::to_string(o.grpc_port)) {
    return Contradiction{"control-listen", o.control_listen + " is the user listener's address"};
  }
  if (o.grpc_port != 0 && o.http_port == std::to_string(o.grpc_port)) {
    return Contradiction{"http-port", o.http_port + " is the gRPC listener's port"};
  }
  if (o.http_port != "0" && o.control_listen == o.host + ":" + o.http_port) {
    return Contradiction{"control-listen", o.control_listen + " is the HTTP listener's address"};
  }
  if (auto what = check_doors(o)) return what;
  if (!o.pins.empty() && o.prefix_cache == "off") {
    return Contradiction{"prefix-cache", "off leaves nothing to hold for " + o.pins.front().where};
  }
  if (!o.pins.empty() && o.pin_quota_percent == 0) {
    return Contradiction{"pin-quota", "0 leaves no room for " + o.pins.front().where};
  }
  return std::nullopt;
}

// The flags, bound to `options`: what is given is written there, the rest is left as it is.
class Flags {
 public:
  explicit Flags(ServerOptions& options) : options_(options) {
    app_.set_version_flag("--version", std::string("folio-server ") + kVersion);
    add_flags(app_, options, kv_memory_);
    add_door_flags(app_, options);
  }
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  void parse(int argc, const char* const* argv) {  // throws CLI::ParseError
    app_.parse(argc, argv);
    settle();
  }
  void apply(const ConfigFile& file) {  // throws ConfigError
    apply_settings(file, app_);
    settle();
  }
  bool given(const std::string& flag) const { return app_.count("--" + flag) > 0; }
  CLI::App& app() { return app_; }

 private:
  // --kv-blocks and --kv-memory exclude each other: the one given now replaces the other from a file.
  void settle() {
    if (given("kv-blocks")) options_.kv_memory_bytes = 0;
    if (!given("kv-memory")) return;
    options_.kv_memory_bytes = parse_bytes(kv_memory_);
    options_.kv_blocks = 0;
  }

  ServerOptions& options_;
  std::string kv_memory_;
  CLI::App app_{"folio-server: serves a GGUF language model over gRPC, from paged attention blocks", "folio-server"};
};

// The file's settings over the defaults, the command line over both.
ServerOptions with_file(const ServerOptions& defaults, const ConfigFile& file, int argc, const char* const* argv) {
  ServerOptions options = defaults;
  Flags(options).apply(file);
  Flags(options).parse(argc, argv);
  options.tenant_weights = file.tenant_weights;
  options.pins = file.pins;
  return options;
}

[[noreturn]] void refuse(const Contradiction& what, const Flags& flags, const std::optional<ConfigFile>& file) {
  if (file && !flags.given(what.flag)) {
    for (const ConfigSetting& setting : file->settings) {
      if (setting.key == what.flag) throw ConfigError(file->path, setting.line, what.flag + ": " + what.message);
    }
  }
  throw CLI::ValidationError("--" + what.flag, what.message);
}

}  // namespace

const char* const kVersion = FOLIO_VERSION;
constexpr int kWrongCommandLine = 2;

std::uint64_t parse_bytes(const std::string& text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, value);
  const auto shift = kByteShifts.find(std::string(rest, end));
  if (failure != std::errc() || shift == kByteShifts.end() || value == 0 ||
      value > (std::numeric_limits<std::uint64_t>::max() >> shift->second)) {
    throw std::invalid_argument("'" + text + "' is not a size: a whole number above 0 and KiB, MiB or GiB");
  }
  return value << shift->second;
}

ParsedOptions parse_options(int argc, const char* const* argv, const std::string& executable) {
  ServerOptions options;
  options.model = default_model(executable);
  const ServerOptions defaults = options;
  Flags flags(options);
  try {
    flags.parse(argc, argv);
    std::optional<ConfigFile> file;
    if (!options.config.empty()) {
      file = read_config_file(options.config);
      options = with_file(defaults, *file, argc, argv);
    }
    if (const auto what = check_together(options)) refuse(*what, flags, file);
  } catch (const CLI::ParseError& end) {
    return {std::nullopt, flags.app().exit(end) == 0 ? 0 : kWrongCommandLine};
  } catch (const ConfigError& error) {
    std::cerr << error.what() << "\n";
    return {std::nullopt, kWrongCommandLine};
  }
  if (options.host.find(':') != std::string::npos && options.host.front() != '[')
    options.host = "[" + options.host + "]";
  if (options.threads == 0) options.threads = available_cores();
  if (options.model_name.empty()) options.model_name = sanitize_utf8(model_name_of(options.model));
  return {options, 0};
}

std::map<std::string, std::string> describe(const ServerOptions& o) {
  const auto number = [](double value) {
    std::ostringstream text;
    text << value;
    return text.str();
  };
  const auto or_none = [](const std::string& path) { return path.empty() ? "none" : sanitize_utf8(path); };
  const auto or_auto = [](auto value) { return value == 0 ? std::string("auto") : std::to_string(value); };
  return {
      {"model", sanitize_utf8(o.model)},
      {"model-name", o.model_name},
      {"host", o.host},
      {"grpc-port", std::to_string(o.grpc_port)},
      {"http-port", o.http_port},
      {"cors-allow-origin", o.cors_allow_origin.empty() ? "none" : sanitize_utf8(o.cors_allow_origin)},
      {"control-listen", o.control_listen},
      {"tls-cert", or_none(o.tls_cert)},
      {"tls-key", or_none(o.tls_key)},
      {"tls-client-ca", or_none(o.tls_client_ca)},
      {"api-key-file", or_none(o.api_key_file)},
      {"write-timeout", number(o.write_timeout_s)},
      {"max-connection-age", number(o.max_connection_age_s)},
      {"max-connection-age-grace", number(o.max_connection_age_grace_s)},
      {"device", o.device},
      {"deterministic", o.deterministic ? "on" : "off"},
      {"threads", std::to_string(o.threads)},
      {"isa", o.isa},
      {"block-size", std::to_string(o.block_size)},
      {"kv-blocks", or_auto(o.kv_blocks)},
      {"kv-memory", o.kv_blocks != 0 ? std::string("by kv-blocks") : or_auto(o.kv_memory_bytes)},
      {"kv-dtype", o.kv_dtype},
      {"max-context", or_auto(o.max_context)},
      {"max-num-seqs", std::to_string(o.max_num_seqs)},
      {"max-batch-tokens", std::to_string(o.max_batch_tokens)},
      {"target-itl-ms", number(o.target_itl_ms)},
      {"prefix-cache", o.prefix_cache},
      {"pin-quota", std::to_string(o.pin_quota_percent)},
      {"max-queue", std::to_string(o.max_queue)},
      {"max-queue-tokens", std::to_string(o.max_queue_tokens)},
      {"log-level", o.log_level},
      {"log-format", o.log_format},
      {"metrics-prefix", o.metrics_prefix},
      {"drain-timeout", number(o.drain_timeout_s)},
      {"check-invariants", o.check_invariants ? "on" : "off"},
      {"config", or_none(o.config)},
  };
}

}  // namespace folio
