// The tensors of a decoder: which there must be, with which shapes, and nothing besides.
#pragma once
#include <memory>
#include <vector>

#include "engine/gguf/gguf_file.h"
#include "engine/kernels/backend.h"
#include "engine/model/decoder_config.h"

namespace folio {

struct DecoderLayer {
  std::vector<float> attention_norm, post_attention_norm, ff_norm, post_ff_norm, q_norm, k_norm;  // empty: none
  std::unique_ptr<WeightMatrix> q, k, v, attention_out, gate, up, down;
  std::vector<float> q_bias, k_bias, v_bias;
};

struct DecoderWeights {
  std::unique_ptr<WeightMatrix> embedding, own_output;  // no own_output: tied to the embedding
  std::vector<float> output_norm;
  std::vector<DecoderLayer> layers;
};

// Looks at the directory alone, before memory is taken for anything. Throws GgufError: a missing tensor, a wrong shape
// (expected and found), a tensor that the forward pass would leave out.
void check_weights(const GgufFile& file, const DecoderConfig& config);

// Loads through the backend and gives the file's pages back. REQUIRES check_weights.
DecoderWeights load_weights(const GgufFile& file, const DecoderConfig& config, Backend& backend);

}  // namespace folio
