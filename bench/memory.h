// KV memory under a trace: all of its requests wait from the start, in a pool that is smaller than what they want. How
// much of what is held is unused, and how many sequences run, while the pool is full: with paged blocks as the engine
// takes them, and, by simulation of the same queue over the same memory, with room for a whole answer set aside when a
// request starts (contiguous allocation): for exactly its length (which nobody knows), for max_tokens, for the context.
#pragma once
#include <CLI/CLI.hpp>

namespace folio::bench {

void add_memory_command(CLI::App& app);

}  // namespace folio::bench
