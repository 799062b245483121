#include "bench/pass_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace folio::bench {
namespace {

struct Subject {
  explicit Subject(const std::string& name)
      : file("tests/reference/tiny_models/" + name + ".gguf"),
        info(load_model(file, {.num_threads = 1, .kv_blocks = 2}).info),
        costs(file, info) {}
  GgufFile file;
  ModelInfo info;
  PassCosts costs;
};

// Every multiplication counted, tensor by tensor and key by key.
double counted_ops(const Subject& s, std::int64_t first, std::int64_t count) {
  const std::string gives_logits = s.file.find_tensor("output.weight") ? "output.weight" : "token_embd.weight";
  double ops = 0;
  for (const GgufTensor& tensor : s.file.tensors()) {
    const auto weights = static_cast<double>(tensor.row_length() * tensor.num_rows());
    if (tensor.name.starts_with("blk.") && tensor.num_rows() > 1) ops += 2 * static_cast<double>(count) * weights;
    if (tensor.name == gives_logits) ops += 2 * weights;
  }
  const DecoderConfig& config = s.costs.config();
  for (const std::int32_t kind : config.layer_attention) {
    const std::int64_t window = config.attentions[static_cast<std::size_t>(kind)].window;
    for (std::int64_t p = first; p < first + count; ++p) {
      const std::int64_t keys = window > 0 ? std::min(p + 1, window) : p + 1;
      ops += 4.0 * static_cast<double>(keys) * config.attention.num_heads * config.attention.head_dim;
    }
  }
  return ops;
}

TEST(PassCosts, OperationsAsCounted) {
  for (const char* name : {"llama-mha", "llama-gqa-rope3", "qwen3", "gemma3"}) {
    const Subject s(name);
    for (const auto& [first, count] : {std::pair{0, 1}, {0, 200}, {7, 1}, {150, 1}, {100, 60}}) {
      EXPECT_DOUBLE_EQ(s.costs.pass(first, count).ops(), counted_ops(s, first, count)) << name << " " << first;
    }
  }
}

TEST(PassCosts, BytesOnceEach) {
  const Subject s("gemma3");
  const DecoderConfig& config = s.costs.config();
  const double a_token = 2.0 * 2 * config.attention.num_kv_heads * config.attention.head_dim;  // f16 K and V of a layer
  double expected = 0;
  for (const std::int32_t kind : config.layer_attention) {
    const std::int64_t window = config.attentions[static_cast<std::size_t>(kind)].window;
    expected += a_token * (static_cast<double>(window > 0 ? std::min<std::int64_t>(window, 301) : 301) + 1);
  }
  ASSERT_GT(config.attentions.size(), 1U);
  EXPECT_DOUBLE_EQ(s.costs.pass(300, 1).kv_bytes, expected);
  EXPECT_DOUBLE_EQ(s.costs.kv_bytes_per_token(), a_token * config.num_layers);
  EXPECT_EQ(s.costs.pass(300, 1).weight_bytes, s.costs.pass(0, 300).weight_bytes);
  const PassCost one = s.costs.pass(300, 1), four = s.costs.pass(300, 1, 4);
  EXPECT_DOUBLE_EQ(four.ops(), 4 * one.ops());
  EXPECT_DOUBLE_EQ(four.kv_bytes, 4 * one.kv_bytes);
  EXPECT_DOUBLE_EQ(four.weight_bytes, one.weight_bytes);
}

TEST(Roofline, WhatIsTheLimit) {
  const Roofline roofline({.read_bytes = 10, .int8 = 400, .f32 = 100, .bf16 = 200}, true);
  EXPECT_DOUBLE_EQ(roofline.ridge(), 40);
  const PassCost memory{.matrix_ops = 400, .attention_ops = 0, .weight_bytes = 20, .kv_bytes = 5};
  EXPECT_DOUBLE_EQ(roofline.compute_s(memory), 1);
  EXPECT_DOUBLE_EQ(roofline.memory_s(memory), 2.5);
  EXPECT_FALSE(roofline.is_compute_bound(memory));
  EXPECT_TRUE(roofline.is_compute_bound({.matrix_ops = 400, .attention_ops = 400, .weight_bytes = 20, .kv_bytes = 5}));
  EXPECT_DOUBLE_EQ(Roofline({.read_bytes = 10, .int8 = 400, .f32 = 100, .bf16 = 0}, false).ridge(), 10);
  EXPECT_DOUBLE_EQ(Roofline({.read_bytes = 10, .int8 = 0, .f32 = 100, .bf16 = 0}, true).ridge(), 10);
}

TEST(FirstComputeBound, TheLeastCount) {
  for (std::int64_t from = 1; from <= 40; ++from) {
    EXPECT_EQ(first_compute_bound(40, [from](std::int64_t count) { return count >= from; }), from);
  }
  EXPECT_EQ(first_compute_bound(40, [](std::int64_t count) { return count > 40; }), 0);
  EXPECT_EQ(first_compute_bound(0, [](std::int64_t) { return true; }), 0);
}

}  // namespace
}  // namespace folio::bench
