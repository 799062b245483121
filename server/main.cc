// folio-server: options in, one server's life, an exit code out.
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>

#include "base/log.h"
#include "base/open_files.h"
#include "server/grpc_listener.h"
#include "server/options.h"
#include "server/server.h"
#include "server/stop_signal.h"

namespace {

constexpr std::size_t kWantedFiles = 8192;  // for connections of callers

folio::log::Level level_of(const std::string& name) {
  if (name == "debug") return folio::log::Level::kDebug;
  if (name == "warn") return folio::log::Level::kWarn;
  if (name == "error") return folio::log::Level::kError;
  return folio::log::Level::kInfo;
}

}  // namespace

int main(int argc, char** argv) {
  std::error_code ignored;
  const auto parsed =
      folio::parse_options(argc, argv, std::filesystem::read_symlink("/proc/self/exe", ignored).string());
  if (!parsed.options) return parsed.exit_code;
  folio::log::set_level(level_of(parsed.options->log_level));
  folio::log::set_json(parsed.options->log_format == "json");
  // A log or a socket whose reader is gone is an error of that write, not the end of the server.
  std::signal(SIGPIPE, SIG_IGN);
  folio::raise_open_files(kWantedFiles);
  try {
    folio::StopSignal stop(!parsed.options->api_key_file.empty());
    folio::init_grpc();
    folio::run_server(*parsed.options, stop);
  } catch (const std::exception& failure) {
    folio::log::error(failure.what());
    return 1;
  }
  return 0;
}
