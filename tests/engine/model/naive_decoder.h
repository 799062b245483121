// The plain twin of the decoder: one sequence at once, in double, nothing shared with the product but the file reader.
// It reads the metadata itself, so that a wrong reading of ours does not show as agreement.
#pragma once
#include <string>
#include <vector>

#include "base/ids.h"
#include "engine/gguf/gguf_file.h"

namespace folio {

// Logits of all positions: [tokens][vocab].
std::vector<std::vector<double>> naive_logits(const GgufFile& file, const std::vector<TokenId>& tokens);

// A small model with random weights, as the bytes of a GGUF file.
struct RandomModel {
  std::string architecture = "llama";
  int layers = 2, hidden = 64, ff = 96, heads = 4, kv_heads = 2, head_dim = 16, vocab = 80, context = 512;
  int rotary_dim = 0;            // 0: not said, the head size
  float freq_base = 0;           // 0: not said
  float linear_scale = 0;        // 0: no scaling
  bool say_scaling_type = true;  // "linear", else only the factor
  int window = 0, pattern = 0;   // gemma3
  bool own_output = false;
  bool biases = false;                    // on q, k, v
  bool say_head_dim = true;               // else hidden / heads
  TensorType weights = TensorType::kF32;  // F32, F16 or BF16
};
std::string random_model_bytes(const RandomModel& model, unsigned seed);

}  // namespace folio
