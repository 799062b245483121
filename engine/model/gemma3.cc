// Gemma 3 (text): norms around attention and feed-forward, norms of q and k heads, GELU gate, scaled embeddings, five
// layers with a sliding window and a rotary base of their own to each global one. Source: Gemma 3 Technical Report,
// arXiv:2503.19786.
#include <cmath>

#include "engine/model/decoder_config.h"

namespace folio {

DecoderConfig read_gemma3_config(const GgufFile& file) {
  DecoderConfig config = read_common_config(file);
  config.has_qk_norm = true;
  config.has_post_norms = true;
  config.activation = Activation::kGelu;
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  // The 27B model scales by hidden size over heads, which its files do not say.
  if (config.num_layers == 62 && !file.has("gemma3.attention.scale")) {
    config.query_scale =
        1.0F / std::sqrt(static_cast<float>(config.hidden_size) / static_cast<float>(config.attention.num_heads));
  }

  const std::uint64_t window = file.find_uint("gemma3.attention.sliding_window").value_or(0);
  if (window > 1U << 26U) file.fail("gemma3.attention.sliding_window is " + std::to_string(window) + ": out of range");
  if (window == 0) return config;
  const std::uint64_t pattern = file.find_uint("gemma3.attention.sliding_window_pattern").value_or(6);
  if (pattern < 1 || pattern > 1024)
    file.fail("gemma3.attention.sliding_window_pattern is " + std::to_string(pattern) + ": out of range");
  // Local layers: their own base, never scaled.
  const double local_base =
      checked_factor(file, "gemma3.rope.freq_base_swa", file.find_float("gemma3.rope.freq_base_swa").value_or(10000.0));
  config.attentions.push_back(
      {static_cast<std::int32_t>(window), inverse_frequencies(local_base, config.rotary_dim, 1.0, {})});
  for (std::size_t i = 0; i < config.layer_attention.size(); ++i) {
    config.layer_attention[i] = i % pattern < pattern - 1 ? 1 : 0;
  }
  return config;
}

}  // namespace folio
