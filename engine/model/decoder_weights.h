// The tensors of a decoder: which there must be, with which shapes, and nothing besides.
#pragma once
#include <memory>
#include <vector>

#include "engine/gguf/gguf_file.h"
#include "engine/kernels/backend.h"
#include "engine/model/decoder_config.h"

namespace folio {

struct DecoderLayer {
  // Vectors are the backend's (load_vector); null: none.
  const float *attention_norm = nullptr, *post_attention_norm = nullptr, *ff_norm = nullptr, *post_ff_norm = nullptr;
  const float *q_norm = nullptr, *k_norm = nullptr;
  const float *q_bias = nullptr, *k_bias = nullptr, *v_bias = nullptr;
  std::unique_ptr<WeightMatrix> q, k, v, attention_out, gate, up, down;
};

struct DecoderWeights {
  std::unique_ptr<WeightMatrix> embedding, own_output;  // no own_output: tied to the embedding
  const float* output_norm = nullptr;
  std::vector<DecoderLayer> layers;
};

// Looks at the directory alone, before memory is taken for anything. Throws GgufError: a missing tensor, a wrong shape
// (expected and found), a tensor that the forward pass would leave out.
void check_weights(const GgufFile& file, const DecoderConfig& config);

// Loads through the backend and gives the file's pages back. REQUIRES check_weights.
DecoderWeights load_weights(const GgufFile& file, const DecoderConfig& config, Backend& backend);

}  // namespace folio
