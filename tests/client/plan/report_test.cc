#include "client/plan/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "client/plan/sizes.h"
#include "engine/model/load_model.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_folder.h"

namespace folio::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint64_t kGiB = 1ULL << 30U;

Plan plain(KvShape shape, Crowd crowd) {
  Plan plan;
  plan.subject.shape = shape;
  plan.dtype = "f16";
  plan.crowd = crowd;
  plan.prompt_tokens = crowd.context;
  return plan;
}

TEST(PlanReport, TheKnownExample) {
  Plan plan = plain({80, 64, 8, 128}, {.users = 32, .context = 131'072});
  plan.memory_bytes = 640 * kGiB;
  plan.subject.weight_bytes = 140 * kGiB;
  const PlanJson report = plan_json(plan);
  EXPECT_EQ(report["by_heads"].size(), 3U);
  EXPECT_EQ(report["by_heads"][0]["attention"], "MHA");
  EXPECT_EQ(report["by_heads"][0]["users_bytes"], 10240 * kGiB);
  EXPECT_EQ(report["by_heads"][0]["users_fit"], 1);
  EXPECT_EQ(report["by_heads"][1]["attention"], "GQA");
  EXPECT_EQ(report["by_heads"][1]["users_bytes"], 1280 * kGiB);
  EXPECT_EQ(report["by_heads"][2]["attention"], "MQA");
  EXPECT_EQ(report["users_bytes"], 1280 * kGiB);
  EXPECT_EQ(report["total_bytes"], 1420 * kGiB);
  EXPECT_EQ(report["fit"]["blocks"], 500 * 1024 / 5 - 1);
  EXPECT_EQ(report["fit"]["users"], 12);
  const std::string text = plan_text(report);
  for (const char* words :
       {"2.5 MiB", "320 GiB", "10 TiB", "320 KiB", "40 GiB", "1.25 TiB", "165 KiB", "12 users of 131,072 tokens fit"}) {
    EXPECT_THAT(text, HasSubstr(words));
  }
}

TEST(PlanReport, MhaHasNoMiddle) {
  const PlanJson report = plan_json(plain({2, 4, 4, 64}, {.context = 100}));
  EXPECT_EQ(report["by_heads"].size(), 2U);
  EXPECT_EQ(report["model"]["attention"], "MHA");
  EXPECT_EQ(plan_json(plain({2, 1, 1, 64}, {.context = 100}))["by_heads"].size(), 1U);
  EXPECT_FALSE(report.contains("fit"));
  EXPECT_THAT(plan_text(report), Not(HasSubstr("users that fit")));
}

// Every model file and type: what is planned is what the engine makes.
TEST(PlanReport, AFileAsTheEngineLoadsIt) {
  for (const char* name : {"llama-mha", "llama-gqa-rope3", "qwen3", "gemma3"}) {
    const std::string path = std::string("tests/reference/tiny_models/") + name + ".gguf";
    for (const char* dtype : {"f32", "f16", "bf16", "int8"}) {
      Plan plan;
      plan.subject = read_subject(path);
      plan.dtype = dtype;
      plan.type = *kv_type_named(dtype);
      plan.block_size = 32;
      plan.crowd = {.users = 3, .context = 100};
      const PlanJson report = plan_json(plan);
      const ModelInfo info =
          load_model(GgufFile(path),
                     {.num_threads = 1, .kv_dtype = dtype, .block_size = 32, .kv_memory_bytes = 4 << 20U})
              .info;
      EXPECT_EQ(report["token_bytes"], info.kv_bytes_per_token) << name << dtype;
      EXPECT_EQ(report["block_bytes"].get<std::uint64_t>() * (static_cast<std::uint64_t>(info.num_blocks) + 1),
                info.kv_bytes);
      EXPECT_EQ(blocks_in(4 << 20U, report["block_bytes"]), info.num_blocks);
      EXPECT_EQ(report["model"]["max_context"], info.max_context);
    }
  }
}

TEST(PlanReport, WindowsSaveNoMemoryHere) {
  Plan plan;
  plan.subject = read_subject("tests/reference/tiny_models/gemma3.gguf");
  plan.dtype = "f16";
  plan.crowd = {.context = 500};
  const PlanJson report = plan_json(plan);
  EXPECT_EQ(report["model"]["window_layers"], 6);
  EXPECT_EQ(report["model"]["window"], 16);
  const std::uint64_t layer = report["block_bytes"].get<std::uint64_t>() / 7;
  EXPECT_EQ(report["user_bytes"], 32 * 7 * layer);  // every layer, the whole context
  EXPECT_EQ(report["model"]["user_bytes_within_windows"], (6 * 1 + 32) * layer);
  EXPECT_THAT(plan_text(report), HasSubstr("6 layers see the last 16 tokens only. folio keeps"));
}

TEST(PlanReport, NamesOfAnyBytes) {
  const testing::TempFolder folder;
  testing::GgufWriter writer;
  writer.add_string("general.architecture", "llama");
  writer.add_string("general.name", "bad \xFF\x1b[31m name");
  for (const auto& [key, value] : {std::pair{"block_count", 1U},
                                   {"embedding_length", 32U},
                                   {"feed_forward_length", 32U},
                                   {"context_length", 64U},
                                   {"attention.head_count", 2U}}) {
    writer.add_uint32(std::string("llama.") + key, value);
  }
  writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  writer.add_f32_tensor("token_embd.weight", {32, 8}, std::vector<float>(32 * 8));
  Plan plan;
  plan.subject = read_subject(folder.write("model.gguf", writer.bytes()));
  EXPECT_EQ(plan.subject.weight_bytes, 32U * 8 * 4);
  EXPECT_EQ(plan.subject.shape->kv_heads, 2);
  plan.dtype = "f16";
  plan.crowd = {.context = 64};
  EXPECT_THAT(plan_json(plan).dump(2, ' ', false, PlanJson::error_handler_t::replace), HasSubstr("name"));
  EXPECT_THROW(read_subject(folder.path("absent.gguf")), std::runtime_error);
  EXPECT_THROW(read_subject(folder.write("other.gguf", "GGUFnot")), std::runtime_error);
}

TEST(PlanReport, BeyondWhatMemoryCanBe) {
  constexpr std::int32_t kMost = KvShape::kMost;
  EXPECT_THROW(plan_json(plain({kMost, kMost, kMost, kMost}, {.users = Crowd::kMost, .context = Crowd::kMost})),
               std::overflow_error);
  Plan plan = plain({1, 1, 1, 16}, {.context = 16});
  plan.subject.weight_bytes = ~0ULL;
  EXPECT_THROW(plan_json(plan), std::overflow_error);
}

LiveServer live() {
  LiveServer server;
  server.address = "127.0.0.1:50052";
  server.info.set_model("tiny");
  server.info.set_version("0.1.0");
  server.info.set_kv_dtype("f16");
  server.info.set_block_size(16);
  server.info.set_num_blocks(99);
  server.info.set_kv_bytes(100ULL * 16 * 2 * 4 * 64 * 2 * 2);
  server.info.set_max_context(512);
  server.info.set_max_num_seqs(8);
  server.info.set_max_batch_tokens(256);
  (*server.info.mutable_options())["target-itl-ms"] = "50";
  server.load.set_blocks_held(10);
  server.load.set_blocks_free(89);
  return server;
}

TEST(PlanReport, AServerAsPlanned) {
  Plan plan = plain({2, 4, 4, 64}, {.users = 4, .context = 400});
  plan.server = live();
  PlanJson server = plan_json(plan)["server"];
  EXPECT_EQ(server["block_bytes"], plan_json(plan)["block_bytes"]);
  EXPECT_TRUE(server["differences"].empty());
  EXPECT_EQ(server["held_bytes"], 10U * 16 * 2 * 4 * 64 * 2 * 2);
  EXPECT_EQ(server["fit"]["users"], 99 / 25);
  EXPECT_EQ(server["fit"]["context"], 24 * 16);
  EXPECT_TRUE(server["forecast"].is_null());
  EXPECT_THAT(plan_text(plan_json(plan)), HasSubstr("No forecast: the server has seen 0 steps"));

  v1::StepTimes& times = *plan.server->load.mutable_step_times();
  times.set_base_ms(10);
  times.set_row_ms(1);
  times.set_num_samples(50);
  times.set_trusted_rows(512);
  server = plan_json(plan)["server"];
  EXPECT_EQ(server["forecast"]["itl_ms"], 14);
  EXPECT_EQ(server["forecast"]["chunk"], 37);  // 10 + 3 + 37 = the target
  EXPECT_THAT(plan_text(plan_json(plan)), HasSubstr("with 4 users of 400 tokens: a token every 14.0 ms"));
  EXPECT_THAT(plan_text(plan_json(plan)), HasSubstr("The server is as planned."));
}

TEST(PlanReport, AServerThatDiffers) {
  Plan plan = plain({2, 4, 4, 128}, {.users = 9, .context = 600});
  plan.dtype = "int8";
  plan.type = KvType::kInt8;
  plan.block_size = 32;
  plan.server = live();
  EXPECT_EQ(plan_json(plan)["server"]["differences"].size(), 5U);
  plan.server->load.mutable_step_times()->set_num_samples(50);
  EXPECT_EQ(plan_json(plan)["server"]["forecast"]["context"], 512);  // no more than it takes
  EXPECT_EQ(plan_json(plan)["server"]["forecast"]["prompt_tokens"], 512);
  EXPECT_EQ(plan_json(plan)["server"]["forecast"]["users"], 8);
  const std::string text = plan_text(plan_json(plan));
  for (const char* words : {"DIFFERS: K and V in int8 are planned, the server has f16", "blocks of tokens: 32",
                            "bytes of a block:", "contexts of 600 tokens are planned, the server's end at 512",
                            "9 users are planned, the server runs 8 at once"}) {
    EXPECT_THAT(text, HasSubstr(words));
  }
}

TEST(PlanReport, AServerAlone) {
  Plan plan;
  plan.server = live();
  plan.dtype = "f16";
  plan.crowd = {.context = 512};
  const PlanJson report = plan_json(plan);
  EXPECT_EQ(report["token_bytes"], 2U * 4 * 64 * 2 * 2);
  EXPECT_FALSE(report.contains("by_heads"));
  EXPECT_THAT(plan_text(report), HasSubstr("3 users of 512 tokens fit"));
  EXPECT_FALSE(plan_text(report).starts_with('\n'));
}

TEST(PlanReport, AContextThatTheServerDoesNotTakeFitsNobody) {
  Plan plan = plain({2, 4, 4, 64}, {.users = 2, .context = 600});
  plan.server = live();
  EXPECT_EQ(plan_json(plan)["server"]["fit"]["users"], 0);
  EXPECT_THAT(plan_text(plan_json(plan)), HasSubstr("0 users of 600 tokens fit, or 2 users of 512 tokens."));
}

TEST(PlanReport, MemoryThatTheWeightsAloneTake) {
  Plan plan = plain({2, 4, 4, 64}, {.context = 100});
  plan.subject.weight_bytes = plan.memory_bytes.emplace(kGiB);
  EXPECT_THAT(plan_text(plan_json(plan)), HasSubstr("1 GiB: the weights alone, 1 GiB, leave nothing for K and V.\n"));
  plan.memory_bytes = kGiB + 1;
  EXPECT_THAT(plan_text(plan_json(plan)), HasSubstr("0 users of 100 tokens fit; 1 user does not.\n"));
}

TEST(PlanReport, APrefixOfOneUserIsSharedWithNobody) {
  const PlanJson report =
      plan_json(plain({2, 4, 4, 64}, {.users = 3, .context = 512, .prefix_tokens = 100, .prefix_share = 0.5}));
  EXPECT_EQ(report["shared_blocks"], 0);
  EXPECT_EQ(report["users_bytes"], report["users_bytes_without_sharing"]);
  EXPECT_THAT(plan_text(report), Not(HasSubstr("shared;")));
}

}  // namespace
}  // namespace folio::client
