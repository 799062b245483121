#include "client/plan/subject.h"

#include <algorithm>

#include "engine/gguf/gguf_file.h"
#include "engine/model/decoder_config.h"

namespace folio::client {

Subject read_subject(const std::string& path) {
  const GgufFile file(path);
  const DecoderConfig config = read_config(file);
  Subject subject;
  subject.name = file.find_string("general.name").value_or("");
  if (subject.name.empty()) subject.name = path.substr(path.find_last_of('/') + 1);
  const AttentionShape& heads = config.attention;
  subject.shape = KvShape{config.num_layers, heads.num_heads, heads.num_kv_heads, heads.head_dim};
  subject.max_context = config.context_length;
  for (const GgufTensor& tensor : file.tensors()) subject.weight_bytes += tensor.data.size();
  for (const std::int32_t kind : config.layer_attention) {
    const std::int32_t window = config.attentions[static_cast<std::size_t>(kind)].window;
    if (window == 0) continue;
    ++subject.window_layers;
    subject.window = std::max(subject.window, window);
  }
  return subject;
}

}  // namespace folio::client
