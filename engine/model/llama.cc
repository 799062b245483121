// Llama and what is built like it (SmolLM2, Mistral ...): RMS norms, rotary pairs side by side, SiLU gate, grouped
// heads.
#include "engine/model/decoder_config.h"

namespace folio {

DecoderConfig read_llama_config(const GgufFile& file) {
  DecoderConfig config = read_common_config(file);
  config.rope_interleaved = true;  // the file's q and k rows are permuted to that order
  if (const auto window = file.find_uint("llama.attention.sliding_window"); window && *window != 0) {
    file.fail("llama.attention.sliding_window is set: not supported for this architecture");
  }
  return config;
}

}  // namespace folio
