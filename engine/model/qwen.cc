// Qwen 2 and 2.5 (biases on q, k and v, found by their tensors) and Qwen 3 (norms of q and k heads instead).
#include "engine/model/decoder_config.h"

namespace folio {

DecoderConfig read_qwen2_config(const GgufFile& file) {
  return read_common_config(file);
}

DecoderConfig read_qwen3_config(const GgufFile& file) {
  DecoderConfig config = read_common_config(file);
  config.has_qk_norm = true;
  return config;
}

}  // namespace folio
