// What scheduling costs: schedule, batch building and commit of steps in which many long sequences get a token each,
// with no model behind them. Against the depth (at 2 a plan is made before the step before it was committed) and
// against the number of blocks in the prefix cache, with free blocks for the sequences' growth or with cached ones
// evicted for it. Beside them, what a newcomer adds to a step: admitted with a prompt of 1,024 tokens, computed and
// ended in it. Times in microseconds a step; heap allocations are counted by the program's operator new.
#pragma once
#include <CLI/CLI.hpp>

namespace folio::bench {

void add_schedule_command(CLI::App& app);

}  // namespace folio::bench
