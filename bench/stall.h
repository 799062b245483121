// What a long prompt does to those who are reading: some streams run, then one long prompt arrives. The gaps between
// their tokens, before it and from its arrival to its own first token, as the streams' reader sees them. Twice: with a
// target for the gaps, and without.
#pragma once
#include <CLI/CLI.hpp>

namespace folio::bench {

void add_stall_command(CLI::App& app);

}  // namespace folio::bench
