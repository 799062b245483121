// Reuse, pins and tenants as a caller sees them, in process. Also run under the thread sanitizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "tests/server/generation_fixture.h"

namespace folio {
namespace {

using namespace std::chrono_literals;
using test::GenerationTest;

const std::string kPrompt(40, 'q');  // two full blocks and a half one

class GenerationCacheTest : public GenerationTest {
 protected:
  v1::GenerateResponse answer(const v1::GenerateRequest& request) {
    const auto call = start(request);
    EXPECT_FALSE(call->wait());
    EXPECT_EQ(call->whole().prompt_info().cached_tokens(), call->whole().usage().cached_tokens());
    return call->whole();
  }
  std::int64_t cached(const v1::GenerateRequest& request) { return answer(request).usage().cached_tokens(); }
  // Until the engine has heard: load() is that of the last step or command.
  void expect_pins(std::int32_t num_pins, std::int32_t num_blocks) {
    const TimePoint limit = clock_.now() + 5s;
    while (engine_.load().num_pins != num_pins && clock_.now() < limit) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(engine_.load().num_pins, num_pins);
    EXPECT_EQ(engine_.load().blocks_pinned, num_blocks);
  }
};

TEST_F(GenerationCacheTest, TheSecondCallerFindsThePrompt) {
  const v1::GenerateResponse first = answer(greedy(kPrompt, 4));
  EXPECT_EQ(first.usage().cached_tokens(), 0);
  EXPECT_EQ(first.usage().pinned_tokens(), 0);
  const v1::GenerateResponse second = answer(greedy(kPrompt, 4));
  EXPECT_GE(second.usage().cached_tokens(), 32);
  EXPECT_LT(second.usage().cached_tokens(), 40);
  EXPECT_EQ(second.outputs(0).text(), first.outputs(0).text());
}

TEST_F(GenerationCacheTest, SaltsShareNothing) {
  v1::GenerateRequest request = greedy(kPrompt, 1);
  for (const char* salt : {"", "a", "b"}) {
    request.mutable_cache()->set_salt(salt);
    EXPECT_EQ(cached(request), 0) << salt;
  }
  for (const char* salt : {"", "a", "b"}) {
    request.mutable_cache()->set_salt(salt);
    EXPECT_GE(cached(request), 32) << salt;
  }
}

TEST_F(GenerationCacheTest, BypassNeitherReadsNorFills) {
  v1::GenerateRequest bypass = greedy(kPrompt, 1);
  bypass.mutable_cache()->set_bypass(true);
  EXPECT_EQ(cached(bypass), 0);
  EXPECT_EQ(cached(greedy(kPrompt, 1)), 0);
  EXPECT_EQ(cached(bypass), 0);
}

TEST_F(GenerationCacheTest, APinSurvivesAFlushAndEndsByItsId) {
  v1::GenerateRequest pin = greedy(kPrompt, 1);
  pin.mutable_cache()->set_pin_ms(3'600'000);
  const v1::GenerateResponse pinned = answer(pin);
  EXPECT_EQ(pinned.usage().pinned_tokens(), 32);
  answer(greedy("another prompt that is longer than a block", 1));
  engine_.flush_prefix_cache();
  EXPECT_EQ(cached(greedy("another prompt that is longer than a block", 1)), 0);
  EXPECT_GE(cached(greedy(kPrompt, 1)), 32);
  expect_pins(1, 2);
  engine_.unpin(pinned.prompt_info().id() + 1'000);  // nobody's
  engine_.unpin(pinned.prompt_info().id());
  expect_pins(0, 0);
  engine_.flush_prefix_cache();
  EXPECT_EQ(cached(greedy(kPrompt, 1)), 0);
}

// Nothing is left to compute of the blocks that are to be held: by a second pin, or by anybody before.
TEST_F(GenerationCacheTest, WhatIsCachedAlreadyIsPinnedToo) {
  answer(greedy(kPrompt, 1));
  v1::GenerateRequest pin = greedy(kPrompt, 1);
  pin.mutable_cache()->set_pin_ms(3'600'000);
  EXPECT_EQ(answer(pin).usage().pinned_tokens(), 32);
  expect_pins(1, 2);
  const v1::GenerateResponse again = answer(pin);  // belongs to this one now
  EXPECT_EQ(again.usage().pinned_tokens(), 32);
  expect_pins(1, 2);
  engine_.unpin(again.prompt_info().id());
  expect_pins(0, 0);
}

TEST_F(GenerationCacheTest, APinEndsByItself) {
  v1::GenerateRequest pin = greedy(kPrompt, 1);
  pin.mutable_cache()->set_pin_ms(1);
  EXPECT_EQ(answer(pin).usage().pinned_tokens(), 32);
  expect_pins(0, 0);
}

// The quota is 25 % of 64 blocks.
TEST_F(GenerationCacheTest, AFullQuotaPinsNothing) {
  v1::GenerateRequest pin = greedy(std::string(16 * 16, 'a'), 1);
  pin.mutable_cache()->set_pin_ms(3'600'000);
  EXPECT_EQ(answer(pin).usage().pinned_tokens(), 256);
  pin.set_text(kPrompt);
  EXPECT_EQ(answer(pin).usage().pinned_tokens(), 0);
  expect_pins(1, 16);
}

TEST_F(GenerationCacheTest, TenantsAreServedAlike) {
  for (const char* tenant : {"", "a", "b"}) {
    v1::GenerateRequest request = greedy("x", 3);
    request.set_tenant(tenant);
    EXPECT_EQ(answer(request).outputs(0).text(), "yza");
  }
}

}  // namespace
}  // namespace folio
