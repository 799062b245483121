// What the tests of the front share: a generation layer on a real engine over a scripted model.
#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "server/generation.h"
#include "tests/server/byte_tokenizer.h"
#include "tests/server/scripted_model.h"

namespace folio::test {

class FrontTest : public ::testing::Test {
 protected:
  static EngineOptions engine_options() {
    EngineOptions options;
    options.max_num_seqs = 8;
    options.max_batch_tokens = 64;
    options.max_queue = 4;
    options.check_invariants = true;
    return options;
  }
  static GenerationOptions generation_options() {
    GenerationOptions options;
    options.model_name = "tiny";
    options.max_num_seqs = 8;
    return options;
  }
  static v1::GenerateRequest greedy(const std::string& text, std::int64_t max_tokens) {
    v1::GenerateRequest request;
    request.set_text(text);
    request.mutable_sampling()->set_temperature(0);
    request.mutable_stopping()->set_max_tokens(max_tokens);
    return request;
  }

  // Lets go of what the test held; then no block is held but by pins.
  void TearDown() override {
    model_.release();
    tokenizer_.hold(false);
    EXPECT_TRUE(engine_.wait_idle(clock_.now() + std::chrono::seconds(10)));
    const LoadSnapshot load = engine_.load();
    EXPECT_EQ(load.blocks_free + load.blocks_cached + load.blocks_held, load.blocks_total);
    EXPECT_EQ(load.blocks_held, load.blocks_pinned);
    EXPECT_EQ(load.blocks_unaccounted, 0);
  }

  ByteTokenizer tokenizer_;
  ScriptedModel model_;
  SteadyClock clock_;
  ChatTemplate chat_template_{"", tokenizer_};
  Engine engine_{model_, tokenizer_, clock_, engine_options()};
  Generation generation_{engine_, tokenizer_, chat_template_, clock_, generation_options()};
};

}  // namespace folio::test
