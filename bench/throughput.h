// Throughput of the engine without a network, by the definitions of bench/peers/openvino_bench.py: B sequences of PP
// random prompt tokens, TG output tokens, greedy, end ids ignored. prefill = B * PP / time of a one-token run; decode =
// B * (TG - 1) / (time of the TG run - time of the one-token run). Best of `repeat` runs.
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
