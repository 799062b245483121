// Models with head counts and sizes of other people's, against a plain twin in double; and models that must be refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>

#include "engine/model/load_model.h"
#include "tests/engine/kernels/levels.h"
#include "tests/engine/model/naive_decoder.h"
#include "tests/engine/model/teacher_force.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_folder.h"

namespace folio {
namespace {

using testing::TempFolder;

const RandomModel kModels[] = {
    {.heads = 8, .kv_heads = 2, .head_dim = 64},
    {.heads = 8, .kv_heads = 8, .head_dim = 80},
    {.heads = 12, .kv_heads = 4, .head_dim = 96, .own_output = true},
    {.heads = 14, .kv_heads = 2, .head_dim = 64, .freq_base = 1e6F},
    {.hidden = 288, .heads = 6, .kv_heads = 1, .head_dim = 48, .say_head_dim = false},
    {.heads = 4, .kv_heads = 4, .head_dim = 40},
    {.heads = 32, .kv_heads = 8, .head_dim = 128},
    {.hidden = 50, .ff = 70, .heads = 3, .kv_heads = 1, .head_dim = 18, .vocab = 33},  // nothing fills a vector
    {.heads = 2, .kv_heads = 2, .head_dim = 32, .rotary_dim = 16},
    {.heads = 2, .kv_heads = 2, .head_dim = 32, .linear_scale = 4.0F},
    {.heads = 2, .kv_heads = 2, .head_dim = 32, .linear_scale = 4.0F, .say_scaling_type = false},
    {.heads = 4, .kv_heads = 2, .weights = TensorType::kF16},
    {.heads = 4, .kv_heads = 2, .weights = TensorType::kBF16},
    {.architecture = "qwen2", .heads = 14, .kv_heads = 2, .head_dim = 16, .freq_base = 1e6F, .biases = true},
    {.architecture = "qwen3", .heads = 8, .kv_heads = 2, .head_dim = 24, .own_output = true},
    {.architecture = "gemma3",
     .layers = 7,
     .heads = 4,
     .kv_heads = 1,
     .head_dim = 32,
     .freq_base = 1e6F,
     .linear_scale = 8.0F,
     .window = 20},
    {.architecture = "gemma3",
     .layers = 4,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 16,
     .freq_base = 1e6F,
     .window = 40,
     .pattern = 2},
};

class Architectures : public ::testing::TestWithParam<std::string> {};

struct TwinRun {
  const char* kv_dtype;
  int block_size;
  int chunk;
  double tolerance;
};
constexpr TwinRun kRuns[] = {{"f32", 16, 90, 1e-3}, {"f32", 64, 13, 1e-3}, {"f16", 16, 13, 0.02},
                             {"bf16", 32, 13, 0.1}, {"int8", 16, 90, 0.3}, {"int8", 64, 13, 0.3}};

TEST_P(Architectures, LogitsMatchThePlainTwin) {
  const TempFolder folder;
  unsigned seed = 0;
  std::map<std::string, double> worst_of;
  for (const RandomModel& model : kModels) {
    const GgufFile file(folder.write("model.gguf", random_model_bytes(model, ++seed)));
    std::vector<TokenId> tokens;
    for (int i = 0; i < 90; ++i) tokens.push_back((i * 31 + i * i * 7) % model.vocab);
    const auto expected = naive_logits(file, tokens);
    for (const TwinRun& run : kRuns) {
      if (!cpu::has_own(GetParam(), run.kv_dtype)) continue;
      const LoadedModel loaded = load_model(file, {.isa = GetParam(),
                                                   .num_threads = 1,
                                                   .kv_dtype = run.kv_dtype,
                                                   .block_size = run.block_size,
                                                   .kv_blocks = 16});
      double worst = 0;
      teacher_force(*loaded.model, tokens, run.chunk, 0, [&](int position, std::span<const float> logits) {
        for (std::size_t i = 0; i < logits.size(); ++i) {
          worst = std::max(worst,
                           std::fabs(static_cast<double>(logits[i]) - expected[static_cast<std::size_t>(position)][i]));
        }
      });
      EXPECT_LT(worst, run.tolerance) << model.architecture << " " << model.heads << "/" << model.kv_heads << "x"
                                      << model.head_dim << " seed " << seed << " kv " << run.kv_dtype;
      worst_of[run.kv_dtype] = std::max(worst_of[run.kv_dtype], worst);
    }
  }
  for (const auto& [kv, worst] : worst_of)
    std::printf("%s: largest error with kv %s %.6f\n", GetParam().c_str(), kv.c_str(), worst);
}

INSTANTIATE_TEST_SUITE_P(Levels, Architectures, ::testing::ValuesIn(cpu::available_levels()),
                         [](const auto& level) { return level.param; });

// Each changes one thing of a good file; the message must name it.
struct Refusal {
  const char* name;
  void (*change)(testing::GgufWriter& writer);
  const char* message;
};

void set_number(testing::GgufWriter& w, const char* key, std::uint32_t value) {
  w.set(key, GgufType::kUint32, testing::raw(value));
}
void set_float(testing::GgufWriter& w, const char* key, float value) {
  w.set(key, GgufType::kFloat32, testing::raw(value));
}
void set_string(testing::GgufWriter& w, const char* key, const char* value) {
  w.set(key, GgufType::kString, testing::GgufWriter::string(value));
}

// A complete small model in a writer, so that single fields can be changed.
testing::GgufWriter small_model() {
  testing::GgufWriter w;
  w.add_string("general.architecture", "llama");
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, std::uint32_t>>{{"block_count", 1},
                                                                    {"embedding_length", 32},
                                                                    {"feed_forward_length", 32},
                                                                    {"context_length", 64},
                                                                    {"attention.head_count", 4},
                                                                    {"attention.head_count_kv", 2}}) {
    w.add_uint32(std::string("llama.") + key, value);
  }
  w.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  const auto add = [&](const std::string& name, std::vector<std::uint64_t> shape) {
    std::size_t count = 1;
    for (const auto n : shape) count *= n;
    const std::vector<float> values(count, 0.1F);
    w.add_f32_tensor(name, std::move(shape), values);
  };
  add("token_embd.weight", {32, 10});
  add("output_norm.weight", {32});
  for (const char* name : {"attn_norm", "ffn_norm"}) add(std::string("blk.0.") + name + ".weight", {32});
  for (const char* name : {"attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
    add(std::string("blk.0.") + name + ".weight", {32, 32});
  for (const char* name : {"attn_k", "attn_v"}) add(std::string("blk.0.") + name + ".weight", {32, 16});
  return w;
}

const Refusal kRefusals[] = {
    {"unknown architecture", [](auto& w) { set_string(w, "general.architecture", "qwen3moe"); },
     "architecture \"qwen3moe\" is not supported"},
    {"heads 9/2", [](auto& w) { set_number(w, "llama.attention.head_count", 9); },
     "is not a multiple of head_count_kv"},
    {"no KV heads", [](auto& w) { set_number(w, "llama.attention.head_count_kv", 0); }, "head_count_kv is 0"},
    {"more KV heads", [](auto& w) { set_number(w, "llama.attention.head_count_kv", 8); },
     "is not a multiple of head_count_kv"},
    {"no heads", [](auto& w) { set_number(w, "llama.attention.head_count", 0); }, "head_count is 0"},
    {"a layer more", [](auto& w) { set_number(w, "llama.block_count", 2); },
     "missing tensor \"blk.1.attn_norm.weight\""},
    {"a huge layer count", [](auto& w) { set_number(w, "llama.block_count", 4000000000U); },
     "block_count is 4000000000"},
    {"a layer tensor left over",
     [](auto& w) { w.add_f32_tensor("blk.0.attn_q_norm.weight", {8}, std::vector<float>(8)); },
     "tensor blk.0.attn_q_norm.weight has no place"},
    {"missing tensor", [](auto& w) { w.tensor("blk.0.ffn_up.weight").name = "blk.0.ffn_op.weight"; },
     "missing tensor \"blk.0.ffn_up.weight\""},
    {"wrong shape",
     [](auto& w) {
       w.tensor("blk.0.attn_q.weight").shape = {16, 64};
     },
     "tensor blk.0.attn_q.weight has shape [16, 64], expected [32, 32]"},
    {"wrong vocabulary", [](auto& w) { set_number(w, "llama.vocab_size", 11); },
     "vocab_size is 11 but token_embd.weight has 10 rows"},
    {"yarn", [](auto& w) { set_string(w, "llama.rope.scaling.type", "yarn"); }, "rope.scaling.type is \"yarn\""},
    {"longrope", [](auto& w) { set_string(w, "llama.rope.scaling.type", "longrope"); },
     "rope.scaling.type is \"longrope\""},
    {"rotary larger than the head", [](auto& w) { set_number(w, "llama.rope.dimension_count", 10); },
     "rope.dimension_count 10"},
    {"odd rotary", [](auto& w) { set_number(w, "llama.rope.dimension_count", 3); }, "rope.dimension_count 3"},
    {"attention in both directions",
     [](auto& w) { w.set("llama.attention.causal", GgufType::kBool, std::string(1, '\0')); },
     "attention.causal is false"},
    {"experts", [](auto& w) { set_number(w, "llama.expert_count", 8); }, "llama.expert_count is set"},
    {"values of another size", [](auto& w) { set_number(w, "llama.attention.value_length", 16); },
     "value_length 16 differs"},
    {"no context", [](auto& w) { set_number(w, "llama.context_length", 0); }, "context_length is 0"},
    {"a window on llama", [](auto& w) { set_number(w, "llama.attention.sliding_window", 8); }, "sliding_window is set"},
    {"rope factors of the wrong length",
     [](auto& w) { w.add_f32_tensor("rope_freqs.weight", {7}, std::vector<float>(7, 1.0F)); },
     "rope_freqs.weight: expected 4"},
    {"rope factors of zero", [](auto& w) { w.add_f32_tensor("rope_freqs.weight", {4}, std::vector<float>(4, 0.0F)); },
     "rope_freqs.weight: a factor"},
    {"a context of one", [](auto& w) { set_number(w, "llama.context_length", 1); }, "context_length is 1"},
    {"a scale that is not a number", [](auto& w) { set_float(w, "llama.rope.scale_linear", NAN); },
     "rope.scale_linear"},
    {"a negative scale", [](auto& w) { set_float(w, "llama.rope.scaling.factor", -1.0F); }, "rope.scaling.factor"},
    {"a vanishing base", [](auto& w) { set_float(w, "llama.rope.freq_base", 1e-30F); }, "rope.freq_base"},
    {"an infinite attention scale", [](auto& w) { set_float(w, "llama.attention.scale", INFINITY); },
     "attention.scale"},
    {"epsilon missing", [](auto& w) { w.erase("llama.attention.layer_norm_rms_epsilon"); }, "layer_norm_rms_epsilon"},
    {"epsilon not a number",
     [](auto& w) { w.set("llama.attention.layer_norm_rms_epsilon", GgufType::kFloat32, testing::raw(NAN)); },
     "layer_norm_rms_epsilon is out of range"},
};

TEST(Refusals, NameWhatIsWrong) {
  const TempFolder folder;
  EXPECT_NO_THROW(load_model(GgufFile(folder.write("good.gguf", small_model().bytes())), {.kv_blocks = 4}));
  for (const Refusal& refusal : kRefusals) {
    testing::GgufWriter writer = small_model();
    refusal.change(writer);
    const std::string path = folder.write("bad.gguf", writer.bytes());
    try {
      load_model(GgufFile(path), {.kv_blocks = 4});
      ADD_FAILURE() << refusal.name << ": loaded";
    } catch (const std::exception& e) {
      EXPECT_NE(std::string(e.what()).find(refusal.message), std::string::npos) << refusal.name << ": " << e.what();
      EXPECT_NE(std::string(e.what()).find(path), std::string::npos) << refusal.name << " does not name the file";
    }
  }
}

// The directory is looked at before memory is taken: a file that asks for terabytes and lacks a tensor fails at once.
TEST(Refusals, ComeBeforeMemoryIsTaken) {
  const TempFolder folder;
  testing::GgufWriter writer = small_model();
  set_number(writer, "llama.block_count", 1024);
  set_number(writer, "llama.attention.key_length", 1024);
  set_number(writer, "llama.attention.value_length", 1024);
  EXPECT_THROW(load_model(GgufFile(folder.write("bad.gguf", writer.bytes())), {.kv_blocks = 1 << 26}), GgufError);
}

TEST(Options, AreRefusedByTheirFlag) {
  const TempFolder folder;
  const GgufFile file(folder.write("good.gguf", small_model().bytes()));
  const auto refused = [&](ModelOptions options, const char* message) {
    try {
      load_model(file, options);
      ADD_FAILURE() << message << ": loaded";
    } catch (const std::runtime_error& e) {
      EXPECT_NE(std::string(e.what()).find(message), std::string::npos) << e.what();
    }
  };
  refused({.isa = "sse9", .kv_blocks = 4}, "--isa sse9");
  refused({.kv_dtype = "f8", .kv_blocks = 4},
          "--kv-dtype f8: expected f16, bf16, int8 or f32; with --device cuda also fp8");
  refused({.kv_dtype = "", .kv_blocks = 4}, "--kv-dtype");
  refused({.block_size = 7, .kv_blocks = 4}, "--block-size 7");
  refused({.block_size = 48, .kv_blocks = 4}, "--block-size 48");
  refused({.kv_blocks = -1}, "KV cache of -1 blocks");
  refused({.kv_blocks = std::int64_t{1} << 40}, "--kv-blocks");
  refused({.kv_memory_bytes = 10}, "--kv-memory 10");
  refused({.kv_blocks = 4, .max_context = 65}, "--max-context 65");
}

}  // namespace
}  // namespace folio
