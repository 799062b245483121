// Throughput of the engine without a network, for the cases of bench/peers/openvino_bench.py: B sequences of PP random
// prompt tokens, TG output tokens, greedy, end ids ignored. prefill = B * PP / time of a one-token run. decode = tokens
// over time of the steps of a TG run that only decode. Best of `repeat` runs. Phases are means over all steps of these
// runs.
#pragma once
#include <CLI/CLI.hpp>

namespace folio::bench {

void add_throughput_command(CLI::App& app);

}  // namespace folio::bench
