#include "engine/token_stream.h"

#include <gtest/gtest.h>

#include <thread>

namespace folio {
namespace {

SampledToken token(TokenId id) {
  return {id, 0.0F, {}};
}

TEST(TokenStream, JoinsWhatWasPushedByIndex) {
  TokenStream stream([] {});
  stream.started(7, 3);
  stream.push(2, token(5), "a");
  stream.push(0, token(6), "");
  stream.push(2, token(7), "b");
  stream.finish(2, FinishReason::kStopString, -1, 1, "c");
  TokenStream::Taken taken = stream.take();
  ASSERT_TRUE(taken.prompt);
  EXPECT_EQ(taken.prompt->prompt_tokens, 7);
  EXPECT_EQ(taken.prompt->cached_tokens, 3);
  EXPECT_FALSE(taken.end);
  ASSERT_EQ(taken.outputs.size(), 2U);
  EXPECT_EQ(taken.outputs[0].index, 0);
  EXPECT_EQ(taken.outputs[0].tokens.size(), 1U);
  EXPECT_EQ(taken.outputs[0].finish, FinishReason::kNone);
  EXPECT_EQ(taken.outputs[1].index, 2);
  ASSERT_EQ(taken.outputs[1].tokens.size(), 2U);
  EXPECT_EQ(taken.outputs[1].tokens[1].id, 7);
  EXPECT_EQ(taken.outputs[1].bytes, "abc");
  EXPECT_EQ(taken.outputs[1].finish, FinishReason::kStopString);
  EXPECT_EQ(taken.outputs[1].stop_index, 1);
  EXPECT_TRUE(stream.take().empty());

  stream.push(0, token(8), "");
  stream.end({});
  taken = stream.take();
  EXPECT_FALSE(taken.prompt);
  ASSERT_EQ(taken.outputs.size(), 1U);
  EXPECT_EQ(taken.outputs[0].tokens[0].id, 8);
  EXPECT_TRUE(taken.end);
  EXPECT_TRUE(stream.take().empty());
}

TEST(TokenStream, IsReadyOnceUntilATakeFoundItEmpty) {
  int calls = 0;
  TokenStream stream([&] { ++calls; });
  stream.notify();
  EXPECT_EQ(calls, 0) << "no news";
  stream.push(0, token(1), "");
  EXPECT_EQ(calls, 0) << "not before the step's end";
  stream.notify();
  EXPECT_EQ(calls, 1);
  stream.push(0, token(2), "");
  stream.notify();
  EXPECT_EQ(calls, 1) << "nobody looked since";
  EXPECT_FALSE(stream.take().empty());
  stream.push(0, token(3), "");
  stream.notify();
  EXPECT_EQ(calls, 1) << "the front is at it: it takes until it finds nothing";
  EXPECT_FALSE(stream.take().empty());
  EXPECT_TRUE(stream.take().empty());
  stream.notify();
  EXPECT_EQ(calls, 1) << "no news";
  stream.end({});
  stream.notify();
  EXPECT_EQ(calls, 2);
}

TEST(TokenStream, MayBeTakenFromWithinOnReady) {
  std::size_t num_tokens = 0;
  TokenStream* self = nullptr;
  TokenStream stream([&] {
    for (TokenStream::Taken taken = self->take(); !taken.empty(); taken = self->take()) {
      num_tokens += taken.outputs[0].tokens.size();
    }
  });
  self = &stream;
  for (int i = 0; i < 5; ++i) {
    stream.push(0, token(i), "");
    stream.notify();
  }
  EXPECT_EQ(num_tokens, 5U);
}

TEST(TokenStream, TwoThreadsLoseNothing) {
  std::atomic<int> wakes = 0;
  TokenStream stream([&] {
    ++wakes;
    wakes.notify_one();
  });
  std::thread engine([&] {
    for (int i = 0; i < 20000; ++i) {
      stream.push(0, token(i), "x");
      stream.notify();
    }
    stream.end({});
    stream.notify();
  });
  TokenId expected = 0;
  std::size_t num_bytes = 0;
  int seen = 0;
  for (bool ended = false; !ended;) {
    TokenStream::Taken taken = stream.take();
    if (taken.empty()) {
      wakes.wait(seen);
      seen = wakes;
      continue;
    }
    for (const OutputDelta& delta : taken.outputs) {
      for (const SampledToken& t : delta.tokens) EXPECT_EQ(t.id, expected++);
      num_bytes += delta.bytes.size();
    }
    ended = taken.end.has_value();
  }
  engine.join();
  EXPECT_EQ(expected, 20000);
  EXPECT_EQ(num_bytes, 20000U);
}

}  // namespace
}  // namespace folio
