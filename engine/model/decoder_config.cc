#include "engine/model/decoder_config.h"

#include <cmath>

namespace folio {
namespace {

// A size: at least 1 and within what the arithmetic of the kernels carries.
std::int32_t read_size(const GgufFile& file, const std::string& key, std::uint64_t limit) {
  const std::uint64_t value = file.get_uint(key);
  if (value < 1 || value > limit) {
    file.fail(key + " is " + std::to_string(value) + ", expected 1 to " + std::to_string(limit));
  }
  return static_cast<std::int32_t>(value);
}

void refuse_if_set(const GgufFile& file, const std::string& key, const char* what) {
  const GgufArray* array = nullptr;
  try {
    if (file.find_float(key).value_or(0.0) == 0.0) return;
  } catch (const GgufError&) {
    array = file.find_array(key);
  }
  file.fail(key + (array != nullptr ? " is an array: " : " is set: ") + what + " is not supported");
}

// head_count may be an array (one number a layer) in some files; folio wants one number.
std::int32_t read_heads(const GgufFile& file, const std::string& key, std::int32_t fallback) {
  if (!file.has(key) && fallback > 0) return fallback;
  return read_size(file, key, 1024);
}

std::vector<float> read_rope_factors(const GgufFile& file, std::int32_t rotary_dim) {
  std::vector<float> factors;
  const GgufTensor* tensor = file.find_tensor("rope_freqs.weight");
  if (tensor == nullptr) return factors;
  const auto expected = static_cast<std::uint64_t>(rotary_dim / 2);
  if (tensor->type != TensorType::kF32 || tensor->row_length() != expected || tensor->num_rows() != 1) {
    file.fail("tensor rope_freqs.weight: expected " + std::to_string(expected) +
              " F32 values, one for each rotated pair");
  }
  factors.resize(expected);
  dequantize(tensor->type, tensor->data, factors);
  for (const float factor : factors) {
    checked_factor(file, "tensor rope_freqs.weight: a factor", static_cast<double>(factor));
  }
  return factors;
}

// The factor that positions are divided by: rope.scaling.factor (or its old name) unless the type is "none"; no type
// means linear, and a factor of 0 none, as the format's other readers have it. Other types are refused.
double read_linear_scale(const GgufFile& file, const std::string& prefix) {
  const std::string type_key = prefix + "rope.scaling.type";
  const std::string type(file.find_string(type_key).value_or("linear"));
  if (type != "none" && type != "linear") {
    file.fail(type_key + " is \"" + type + "\": only none and linear are supported");
  }
  for (const char* key : {"rope.scaling.attn_factor", "rope.scaling.yarn_log_multiplier"}) {
    refuse_if_set(file, prefix + key, "YaRN");
  }
  const std::string key =
      prefix + (file.has(prefix + "rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear");
  const double factor = file.find_float(key).value_or(0.0);
  return type == "none" || factor == 0.0 ? 1.0 : checked_factor(file, key, factor);
}

AttentionShape read_attention_shape(const GgufFile& file, const std::string& prefix, std::int32_t hidden_size) {
  AttentionShape shape;
  shape.num_heads = read_heads(file, prefix + "attention.head_count", 0);
  shape.num_kv_heads = read_heads(file, prefix + "attention.head_count_kv", shape.num_heads);
  if (shape.num_heads % shape.num_kv_heads != 0) {
    file.fail(prefix + "attention.head_count " + std::to_string(shape.num_heads) +
              " is not a multiple of head_count_kv " + std::to_string(shape.num_kv_heads));
  }
  if (file.has(prefix + "attention.key_length")) {
    shape.head_dim = read_size(file, prefix + "attention.key_length", 1024);
  } else if (hidden_size % shape.num_heads == 0) {
    shape.head_dim = hidden_size / shape.num_heads;
  } else {
    file.fail(prefix + "embedding_length " + std::to_string(hidden_size) + " is not a multiple of head_count " +
              std::to_string(shape.num_heads) + ", and attention.key_length is not given");
  }
  if (const auto values = file.find_uint(prefix + "attention.value_length");
      values && *values != static_cast<std::uint64_t>(shape.head_dim)) {
    file.fail(prefix + "attention.value_length " + std::to_string(*values) + " differs from the key length " +
              std::to_string(shape.head_dim) + ": not supported");
  }
  return shape;
}

void check_vocabulary(const GgufFile& file, const DecoderConfig& config) {
  const GgufTensor& table = file.get_tensor("token_embd.weight");
  const auto hidden = static_cast<std::uint64_t>(config.hidden_size);
  if (table.row_length() != hidden || table.shape.size() != 2) {
    file.fail("tensor token_embd.weight: rows of " + std::to_string(table.row_length()) + ", expected " +
              std::to_string(hidden) + " (" + config.architecture + ".embedding_length)");
  }
  const std::uint64_t rows = table.num_rows();
  if (rows > 1U << 24U) file.fail("tensor token_embd.weight has " + std::to_string(rows) + " rows: out of range");
  if (const auto declared = file.find_uint(config.architecture + ".vocab_size"); declared && *declared != rows) {
    file.fail(config.architecture + ".vocab_size is " + std::to_string(*declared) + " but token_embd.weight has " +
              std::to_string(rows) + " rows");
  }
  if (const GgufArray* tokens = file.find_array("tokenizer.ggml.tokens"); tokens != nullptr && tokens->size != rows) {
    file.fail("tokenizer.ggml.tokens has " + std::to_string(tokens->size) + " entries but token_embd.weight has " +
              std::to_string(rows) + " rows");
  }
}

}  // namespace

double checked_factor(const GgufFile& file, const std::string& key, double value) {
  if (!(value >= 1e-6 && value <= 1e12)) file.fail(key + " is not a number from 1e-6 to 1e12");
  return value;
}

std::vector<float> inverse_frequencies(double base, std::int32_t rotary_dim, double linear_scale,
                                       const std::vector<float>& factors) {
  std::vector<float> result(static_cast<std::size_t>(rotary_dim / 2));
  for (std::size_t i = 0; i < result.size(); ++i) {
    double f = std::pow(base, -2.0 * static_cast<double>(i) / rotary_dim) / linear_scale;
    if (!factors.empty()) f /= static_cast<double>(factors[i]);
    result[i] = static_cast<float>(f);
  }
  return result;
}

DecoderConfig read_common_config(const GgufFile& file) {
  DecoderConfig config;
  config.architecture = std::string(file.get_string("general.architecture"));
  const std::string prefix = config.architecture + ".";
  config.num_layers = read_size(file, prefix + "block_count", 1024);
  config.hidden_size = read_size(file, prefix + "embedding_length", 1U << 17U);
  config.ff_size = read_size(file, prefix + "feed_forward_length", 1U << 19U);
  config.context_length = read_size(file, prefix + "context_length", 1U << 26U);
  if (config.context_length < 2) file.fail(prefix + "context_length is 1: no room for a prompt and an answer");

  config.attention = read_attention_shape(file, prefix, config.hidden_size);
  const AttentionShape& shape = config.attention;

  config.norm_epsilon = static_cast<float>(file.get_float(prefix + "attention.layer_norm_rms_epsilon"));
  if (!(config.norm_epsilon >= 0.0F && config.norm_epsilon < 1.0F))
    file.fail(prefix + "attention.layer_norm_rms_epsilon is out of range");
  config.query_scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
  if (const double scale = file.find_float(prefix + "attention.scale").value_or(0.0); scale != 0.0) {
    config.query_scale = static_cast<float>(checked_factor(file, prefix + "attention.scale", scale));
  }

  config.rotary_dim = shape.head_dim;
  if (file.has(prefix + "rope.dimension_count"))
    config.rotary_dim = read_size(file, prefix + "rope.dimension_count", 1024);
  if (config.rotary_dim % 2 != 0 || config.rotary_dim > shape.head_dim) {
    file.fail(prefix + "rope.dimension_count " + std::to_string(config.rotary_dim) +
              " is odd or larger than the head size " + std::to_string(shape.head_dim));
  }
  const double base = file.find_float(prefix + "rope.freq_base").value_or(10000.0);
  checked_factor(file, prefix + "rope.freq_base", base);
  config.attentions.push_back({0, inverse_frequencies(base, config.rotary_dim, read_linear_scale(file, prefix),
                                                      read_rope_factors(file, config.rotary_dim))});
  config.layer_attention.assign(static_cast<std::size_t>(config.num_layers), 0);

  if (!file.find_bool(prefix + "attention.causal").value_or(true)) {
    file.fail(prefix + "attention.causal is false: only causal models generate");
  }
  refuse_if_set(file, prefix + "expert_count", "a mixture of experts");
  refuse_if_set(file, prefix + "attn_logit_softcapping", "soft-capping of attention");
  refuse_if_set(file, prefix + "final_logit_softcapping", "soft-capping of logits");
  refuse_if_set(file, prefix + "attention.max_alibi_bias", "ALiBi");
  refuse_if_set(file, prefix + "attention.clamp_kqv", "clamping of Q, K and V");
  refuse_if_set(file, prefix + "logit_scale", "a logit scale");
  refuse_if_set(file, prefix + "residual_scale", "a residual scale");
  refuse_if_set(file, prefix + "embedding_scale", "an embedding scale");
  check_vocabulary(file, config);
  config.vocab_size = static_cast<std::int32_t>(file.get_tensor("token_embd.weight").num_rows());
  return config;
}

DecoderConfig read_config(const GgufFile& file) {
  const std::string architecture(file.get_string("general.architecture"));
  if (architecture == "llama") return read_llama_config(file);
  if (architecture == "qwen2") return read_qwen2_config(file);
  if (architecture == "qwen3") return read_qwen3_config(file);
  if (architecture == "gemma3") return read_gemma3_config(file);
  file.fail("architecture \"" + architecture.substr(0, 64) +
            "\" is not supported; folio runs llama, qwen2, qwen3 and gemma3");
}

}  // namespace folio
