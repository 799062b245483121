// Throughput of the engine without a network, for the cases of bench/peers/openvino_bench.py: B sequences of PP random
// prompt tokens, TG output tokens, greedy, end ids ignored. prefill = B * PP / time of a one-token run. decode = tokens
// over time of the steps of a TG run that only decode; the peers' script takes the difference of two runs, which says
// the same but for noise: behind a long prompt that is larger than the decode itself. Best of `repeat` runs. Phases are
// means over all steps of these runs.
#pragma once
#include <CLI/CLI.hpp>

namespace folio::bench {

void add_throughput_command(CLI::App& app);

}  // namespace folio::bench
