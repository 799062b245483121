// folio-bench load: the closed loop of folio-client bench, without a network.
#pragma once
#include <CLI/CLI.hpp>

namespace folio::bench {

void add_load_command(CLI::App& app);

}  // namespace folio::bench
