#include "bench/kv_models.h"

#include <cmath>
#include <cstdint>
#include <random>
#include <utility>

#include "tests/support/gguf_writer.h"

namespace folio::bench {
namespace {

constexpr std::uint32_t kLayers = 8, kHidden = 512, kHeads = 8, kHeadDim = 64, kFf = 1024, kVocab = 4096,
                        kContext = 8192;

class Maker {
 public:
  explicit Maker(std::uint32_t kv_heads) {
    writer_.add_string("general.architecture", "llama");
    for (const auto& [key, value] : {std::pair{"block_count", kLayers},
                                     {"embedding_length", kHidden},
                                     {"feed_forward_length", kFf},
                                     {"context_length", kContext},
                                     {"attention.head_count", kHeads},
                                     {"attention.head_count_kv", kv_heads}}) {
      writer_.add_uint32(std::string("llama.") + key, value);
    }
    writer_.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5F);
    matrix("token_embd.weight", kHidden, kVocab);
    ones("output_norm.weight");
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      const std::string at = "blk." + std::to_string(layer) + ".";
      ones(at + "attn_norm.weight");
      matrix(at + "attn_q.weight", kHidden, kHeads * kHeadDim);
      matrix(at + "attn_k.weight", kHidden, kv_heads * kHeadDim);
      matrix(at + "attn_v.weight", kHidden, kv_heads * kHeadDim);
      matrix(at + "attn_output.weight", kHeads * kHeadDim, kHidden);
      ones(at + "ffn_norm.weight");
      matrix(at + "ffn_gate.weight", kHidden, kFf);
      matrix(at + "ffn_up.weight", kHidden, kFf);
      matrix(at + "ffn_down.weight", kFf, kHidden);
    }
  }
  std::string bytes() const { return writer_.bytes(); }

 private:
  // Q8_0: a half-precision scale and 32 bytes; uniform, with the variance of 1 / depth.
  void matrix(const std::string& name, std::uint32_t depth, std::uint32_t columns) {
    constexpr double kDeviation = 127 / 1.7320508;
    const std::uint16_t scale = float_to_half(static_cast<float>(1 / (kDeviation * std::sqrt(depth))));
    std::uniform_int_distribution<int> weight(-127, 127);
    std::string data;
    for (std::uint32_t block = 0; block < columns * (depth / 32); ++block) {
      data += testing::raw(scale);
      for (int i = 0; i < 32; ++i) data += static_cast<char>(weight(random_));
    }
    writer_.add_tensor(name, {depth, columns}, TensorType::kQ8_0, std::move(data));
  }
  void ones(const std::string& name) { writer_.add_f32_tensor(name, {kHidden}, std::vector<float>(kHidden, 1.0F)); }

  testing::GgufWriter writer_;
  std::mt19937 random_{1};
};

}  // namespace

std::vector<KvModel> write_kv_models(const testing::TempFolder& folder) {
  std::vector<KvModel> models;
  for (const auto& [name, kv_heads] : {std::pair{"MHA", kHeads}, {"GQA", kHeads / 4}, {"MQA", 1U}}) {
    models.push_back({name, folder.write(std::string(name) + ".gguf", Maker(kv_heads).bytes())});
  }
  return models;
}

}  // namespace folio::bench
