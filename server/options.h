// The command line of folio-server and its configuration file, checked before anything is opened.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/config_file.h"

namespace folio {

struct ServerOptions {
  std::string model;       // path of a GGUF file
  std::string model_name;  // as clients call it; default: the file's name without ".gguf"
  std::string host = "127.0.0.1";
  int grpc_port = 50051;                           // 0: any free one
  std::string http_port = "8080";                  // a number as above, or "off": none
  std::string cors_allow_origin;                   // one origin, or "*"; empty: none
  std::string control_listen = "127.0.0.1:50052";  // "off": none
  std::string tls_cert;                            // path of a PEM file; empty: listeners speak in the clear
  std::string tls_key;
  std::string tls_client_ca;        // empty: clients need no certificate
  std::string api_key_file;         // empty: everybody may call
  double write_timeout_s = 60;      // a reader that takes nothing for so long is gone
  double max_connection_age_s = 0;  // 0: connections live as long as their clients want
  double max_connection_age_grace_s = 300;
  std::string device = "cpu";
  bool deterministic = false;
  int threads = 0;  // > 0 after parsing
  std::string isa = "auto";
  std::int32_t block_size = 16;
  std::int64_t kv_blocks = 0;         // 0: from kv_memory
  std::uint64_t kv_memory_bytes = 0;  // 0: a share of the memory that this process may use
  std::string kv_dtype = "f16";
  std::int32_t max_context = 0;  // 0: the model's
  std::int32_t max_num_seqs = 64;
  std::int32_t max_batch_tokens = 512;
  double target_itl_ms = 100;  // 0: none
  std::string prefix_cache = "on";
  int pin_quota_percent = 25;
  std::int32_t max_queue = 1024;
  std::int64_t max_queue_tokens = 1 << 22;
  std::string log_level = "info";
  std::string log_format = "text";
  std::string metrics_prefix = "folio_";  // of the metrics' names
  double drain_timeout_s = 30;
  bool check_invariants = false;
  std::string config;  // path of a configuration file; empty: none
  // From that file alone:
  std::map<std::string, double> tenant_weights;
  std::vector<PinnedPrefix> pins;
};

// What to do after reading the command line.
struct ParsedOptions {
  std::optional<ServerOptions> options;  // none: leave with exit_code
  int exit_code = 0;
};

// Prints help, the version or the error itself. What the command line gives wins over --config. `executable` is this
// program's own path: the default model is looked for beside the build folder that it lies in, then in the current
// folder.
ParsedOptions parse_options(int argc, const char* const* argv, const std::string& executable);

// "2GiB", "512MiB", "1073741824": bytes. Throws std::invalid_argument with the text in its message.
std::uint64_t parse_bytes(const std::string& text);

// Flag -> value as it stands, for the line at start and for GetServerInfo.
std::map<std::string, std::string> describe(const ServerOptions& options);

extern const char* const kVersion;

}  // namespace folio
