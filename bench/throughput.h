// Throughput of the engine without a network, for the cases of bench/peers/openvino_bench.py: B sequences of PP random
// prompt tokens, TG output tokens, greedy, end ids ignored. prefill = B * PP / time of a one-token run. decode = tokens
// over time of the steps of a TG run that only decode; the peers' script takes the difference of two runs, which says
// the same but for noise: behind a long prompt that is larger than the decode itself. Best of `repeat` runs.
#pragma once
#include <string>
#include <vector>

#include "engine/model/load_model.h"

namespace folio::bench {

struct ThroughputCase {
  int batch = 1;
  int prompt_tokens = 1;
  int output_tokens = 1;
};

// "B,PP,TG;B,PP,TG". Throws std::runtime_error naming what does not parse.
std::vector<ThroughputCase> parse_cases(const std::string& text);

struct ThroughputOptions {
  std::string model_path;
  ModelOptions model;
  std::vector<ThroughputCase> cases;
  int max_batch_tokens = 2048;
  int repeat = 2;
  bool json = false;
};

void run_throughput(const ThroughputOptions& options);

}  // namespace folio::bench
