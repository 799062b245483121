// The reference data of tests/reference, read once.
#pragma once
#include <string>
#include <vector>

#include "base/ids.h"

namespace folio {

inline constexpr const char* kSmolPath = "models/smollm2-135m-q4_1.gguf";
inline constexpr const char* kGemmaPath = "models/gemma-3-270m-q4_k_m.gguf";

struct GenerationCase {
  std::string name;
  std::vector<TokenId> prompt, greedy;
  std::vector<double> logprobs;  // of greedy[i], float32 reference
  std::vector<double> margins;   // best logit minus second
};
std::vector<GenerationCase> read_generation(const std::string& model);  // "smollm2" or "gemma3"; shortest first

struct PerplexityText {
  std::vector<TokenId> tokens;
  TokenId bos = -1;         // prepended to every window
  double perplexity_a = 0;  // protocol A, float32
};
PerplexityText read_perplexity(const std::string& model);

struct TinyModel {
  std::string name, path;
  std::vector<std::vector<TokenId>> sequences;
  std::vector<int> row_start;
  std::vector<float> logits;  // [rows][vocab]
  int vocab_size = 0;
};
std::vector<TinyModel> read_tiny_models();

}  // namespace folio
