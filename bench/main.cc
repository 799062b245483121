// folio-bench: the engine without a network.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "bench/kv_cache.h"
#include "bench/load.h"
#include "bench/memory.h"
#include "bench/prefix.h"
#include "bench/schedule.h"
#include "bench/stall.h"
#include "bench/throughput.h"
#include "client/flag_checks.h"

int main(int argc, char** argv) {
  using namespace folio::bench;
  namespace client = folio::client;
  CLI::App app("folio-bench: measures the engine without a network");
  app.require_subcommand(1);
  add_throughput_command(app);
  add_load_command(app);
  add_kv_cache_command(app);
  add_prefix_command(app);
  add_memory_command(app);
  add_stall_command(app);
  add_schedule_command(app);
  if (const std::string wrong = client::wrong_command(app, argc, argv); !wrong.empty()) {
    std::fprintf(stderr, "folio-bench: %s\n", wrong.c_str());
    return 2;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& end) {
    return app.exit(end) == 0 ? 0 : 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "folio-bench: %s\n", e.what());
    return 1;
  }
  return 0;
}
