// A decoder-only transformer as plain data. An architecture file reads the file's metadata into it; the forward pass
// (decoder.cc) knows only this. Everything comes from the file: what folio cannot run is refused there by name.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/gguf/gguf_file.h"
#include "engine/kernels/backend.h"

namespace folio {

// How a kind of layer attends: index into DecoderConfig::attentions.
struct AttentionKind {
  std::int32_t window = 0;                 // keys seen, 0: all
  std::vector<float> inverse_frequencies;  // [rotary_dim / 2], scaling applied
};

struct DecoderConfig {
  std::string architecture;
  std::int32_t num_layers = 0;
  std::int32_t hidden_size = 0;
  std::int32_t ff_size = 0;
  std::int32_t vocab_size = 0;
  std::int32_t context_length = 0;
  AttentionShape attention;
  float norm_epsilon = 0.0F;
  float query_scale = 0.0F;  // of the scores: usually 1 / sqrt(head_dim)
  float embedding_scale = 1.0F;
  std::int32_t rotary_dim = 0;
  bool rope_interleaved = false;
  bool has_qk_norm = false;     // norm of each query and key head before rotation
  bool has_post_norms = false;  // norms after attention and feed-forward, before the residual sum
  Activation activation = Activation::kSilu;
  std::vector<AttentionKind> attentions;
  std::vector<std::int32_t> layer_attention;  // [num_layers] index into attentions
};

// Reads what all architectures share, checks it, and leaves one AttentionKind (no window, the file's rope) for all
// layers. Throws GgufError naming the key and the numbers.
DecoderConfig read_common_config(const GgufFile& file);

// One function an architecture (llama.cc, qwen.cc, gemma3.cc).
DecoderConfig read_llama_config(const GgufFile& file);
DecoderConfig read_qwen2_config(const GgufFile& file);
DecoderConfig read_qwen3_config(const GgufFile& file);
DecoderConfig read_gemma3_config(const GgufFile& file);

// By general.architecture; throws GgufError naming one that folio does not run.
DecoderConfig read_config(const GgufFile& file);

// The value itself, for numbers that divide or multiply: positive, and far from where floats end. Else throws naming
// `key`.
double checked_factor(const GgufFile& file, const std::string& key, double value);

// Base^(-2i / rotary_dim), divided by `factors` if there are any (rope_freqs.weight, Llama 3), and by `linear_scale`.
std::vector<float> inverse_frequencies(double base, std::int32_t rotary_dim, double linear_scale,
                                       const std::vector<float>& factors);

}  // namespace folio
