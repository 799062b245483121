// Many threads at once; run under ThreadSanitizer too.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <numeric>
#include <random>
#include <thread>

#include "tests/engine/reader.h"

namespace folio {
namespace {

class EngineThreadsTest : public AtDepth {};
FOLIO_AT_BOTH_DEPTHS(EngineThreadsTest);

TEST_P(EngineThreadsTest, TwoHundredStreamsAtOnce) {
  Rig rig({.max_num_seqs = 32, .max_batch_tokens = 64, .block_shuffle_seed = 9}, 200);
  std::deque<Reader> readers(200);
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 200; ++i) {
    requests.push_back(request_of(i, 1 + i % 50, 20 + i % 13));
    rig.submit(requests.back(), readers[static_cast<std::size_t>(i)]);
  }
  for (std::size_t i = 0; i < readers.size(); ++i) {
    readers[i].wait_end();
    EXPECT_EQ(readers[i].output().ids, fake_outputs(requests[i].prompt, requests[i].stopping.max_tokens, kVocab));
    EXPECT_EQ(readers[i].output().finish, FinishReason::kLength);
  }
  EXPECT_TRUE(rig.idle());
}

// Of a snapshot: all that was ever accepted is somewhere.
std::int64_t num_accepted(const LoadSnapshot& load) {
  return load.num_running + load.num_waiting + load.num_refused_late +
         std::accumulate(load.num_ended.begin(), load.num_ended.end(), std::int64_t{0});
}

// Callers that submit, read, cancel, are late, or go away, on a pool that is too small, with failing steps between.
TEST_P(EngineThreadsTest, ManyCallersComeAndGo) {
  Rig rig({.max_num_seqs = 8, .max_batch_tokens = 24, .max_queue = 12, .max_prefill_chunk = 9}, 40);
  std::atomic<int> num_steps = 0;
  rig.model.set_hook([&](const StepBatch&) {
    if (++num_steps % 97 == 0) throw std::runtime_error("now and then");
  });
  constexpr int kCallers = 6;
  std::atomic<bool> watching = true;
  std::atomic<std::int64_t> num_taken = 0;
  std::thread watcher([&] {
    while (watching) {
      const std::int64_t before = num_taken;
      const LoadSnapshot load = rig.engine->load();
      EXPECT_GE(num_accepted(load), before) << "in the middle of a step too";
      EXPECT_LE(num_accepted(load), num_taken + kCallers);
      EXPECT_EQ(load.blocks_unaccounted, 0);
      EXPECT_EQ(load.blocks_free + load.blocks_held + load.blocks_cached, load.blocks_total);
      std::this_thread::yield();
    }
  });
  std::atomic<int> num_whole = 0;
  std::atomic<int> num_refused = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      std::mt19937 random(static_cast<unsigned>(caller));
      for (int i = 0; i < 60; ++i) {
        const int kind = static_cast<int>(random() % 6);
        const int n = 1 + static_cast<int>(random() % 2);
        GenerationRequest request =
            request_of(static_cast<int>(random() % 30), 1 + random() % 40, 1 + random() % 40, n);
        request.priority = static_cast<std::int32_t>(random() % 3);
        request.tenant = std::to_string(random() % 3);
        request.cache.salt = std::to_string(random() % 2);
        request.cache.bypass = random() % 8 == 0;
        if (!request.cache.bypass && random() % 4 == 0)
          request.cache.pin_ms = 1 + static_cast<std::int64_t>(random() % 20);
        if (random() % 8 == 0) request.transport_deadline = rig.clock.now() + std::chrono::milliseconds(random() % 20);
        if (kind == 0) request.deadline = rig.clock.now() + std::chrono::microseconds(random() % 3000);
        Reader reader(n);
        const auto id = rig.engine->submit(request, reader.stream());
        if (!id.ok()) {
          EXPECT_EQ(id.error().code, ErrorCode::kResourceExhausted);
          ++num_refused;
          continue;
        }
        ++num_taken;
        if (kind == 1) rig.engine->cancel(*id);
        if (kind == 2) reader.wait_tokens(random() % 20);
        if (kind == 2) rig.engine->cancel(*id);
        if (kind == 4) rig.engine->cancel(*id, static_cast<std::int32_t>(random() % 2));
        if (random() % 16 == 0) rig.engine->flush_prefix_cache();
        if (random() % 16 == 0) rig.engine->unpin(random() % 2 == 0 ? 0 : *id);
        if (kind == 3) continue;  // nobody reads it
        reader.wait_end();
        for (int index = 0; index < n; ++index) {
          const Reader::Output& output = reader.output(index);
          const auto num_ids = static_cast<std::int64_t>(output.ids.size());
          EXPECT_EQ(output.ids, fake_outputs(request.prompt, num_ids, kVocab));
          if (output.finish != FinishReason::kLength) continue;
          EXPECT_EQ(num_ids, request.stopping.max_tokens);
          ++num_whole;
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE(rig.engine->wait_idle(rig.clock.now() + std::chrono::seconds(10)));
  while (rig.engine->load().num_pins > 0) std::this_thread::yield();  // the last expire while nobody is there
  EXPECT_TRUE(rig.idle());
  EXPECT_EQ(num_accepted(rig.engine->load()), num_taken);
  watching = false;
  watcher.join();
  EXPECT_GT(num_whole, 50);
}

TEST_P(EngineThreadsTest, AnIdleEngineSleepsAndWakesForEachRequest) {
  Rig rig;
  for (int i = 0; i < 50; ++i) {
    Reader reader;
    rig.submit(request_of(i, 3, 2), reader);
    reader.wait_end();
    ASSERT_TRUE(rig.idle());
  }
  EXPECT_EQ(rig.engine->load().num_steps, 100);
}

}  // namespace
}  // namespace folio
