// What one caller sees of the engine, and that company changes nothing of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>

#include "tests/engine/reader.h"

namespace folio {
namespace {

using testing::HasSubstr;

std::string text_of(const std::vector<TokenId>& ids) {
  std::string text;
  for (TokenId id : ids) text += static_cast<char>('a' + id % 26);
  return text;
}

class EngineTest : public AtDepth {};
FOLIO_AT_BOTH_DEPTHS(EngineTest);

TEST_P(EngineTest, GivesAnAnswerWithItsNumbers) {
  Rig rig;
  const GenerationRequest request = request_of(1, 9, 7);
  Reader reader;
  rig.submit(request, reader);
  reader.wait_end();
  EXPECT_EQ(reader.output().ids, fake_outputs(request.prompt, 7, kVocab));
  EXPECT_EQ(reader.output().bytes, text_of(reader.output().ids));
  EXPECT_EQ(reader.output().finish, FinishReason::kLength);
  EXPECT_EQ(reader.output().logprobs[0], fake_logprob(request.prompt));
  EXPECT_EQ(reader.prompt()->prompt_tokens, 9);
  EXPECT_EQ(reader.prompt()->cached_tokens, 0);
  EXPECT_FALSE(reader.end().error);
  EXPECT_EQ(reader.end().usage.prompt_tokens, 9);
  EXPECT_EQ(reader.end().usage.output_tokens, 7);
  EXPECT_EQ(reader.end().timings.num_chunks, 1);
  EXPECT_EQ(reader.end().timings.peak_blocks, 4);
  EXPECT_GE(reader.end().timings.ttft_ms, reader.end().timings.queue_ms);
  ASSERT_TRUE(rig.idle());
  const LoadSnapshot load = rig.engine->load();
  EXPECT_EQ(load.num_steps, 7);
  EXPECT_EQ(load.prompt_tokens, 9);
  EXPECT_EQ(load.output_tokens, 7);
  EXPECT_EQ(load.blocks_total, 64);
  EXPECT_GT(load.output_tokens_per_second, 0);
}

TEST_P(EngineTest, OnReadyIsCalledAtMostOnceAStep) {
  Rig rig;
  Reader reader(3);
  rig.submit(request_of(2, 9, 40, 3), reader);
  reader.wait_end();
  ASSERT_TRUE(rig.idle());
  EXPECT_LE(reader.num_wakes(), rig.engine->load().num_steps + 1);
}

TEST_P(EngineTest, EveryIndexOfNStreamsToItsOwnEnd) {
  Rig rig;
  const GenerationRequest request = request_of(3, 15, 20, 4);
  Reader reader(4);
  const RequestId id = rig.submit(request, reader);
  rig.engine->cancel(id, 9);  // no such index
  reader.wait_end();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(reader.output(i).ids, fake_outputs(request.prompt, 20, kVocab));
    EXPECT_EQ(reader.output(i).finish, FinishReason::kLength);
  }
  EXPECT_EQ(reader.end().usage.prompt_tokens, 15);
  EXPECT_EQ(reader.end().usage.output_tokens, 80);
  EXPECT_TRUE(rig.idle());
}

TEST_P(EngineTest, AStopStringEndsItsSequenceInThatStepAndNothingPastItIsSent) {
  Rig rig;
  GenerationRequest request = request_of(4, 6, 60);
  const std::vector<TokenId> ids = fake_outputs(request.prompt, 60, kVocab);
  const std::string text = text_of(ids);
  const std::string stop = text.substr(20, 4);
  ASSERT_EQ(text.find(stop), 20U);
  request.stopping.stop = {"never@", stop};
  Reader reader;
  rig.submit(std::move(request), reader);
  reader.wait_end();
  EXPECT_EQ(reader.output().bytes, text.substr(0, 20));
  EXPECT_EQ(reader.output().ids, std::vector<TokenId>(ids.begin(), ids.begin() + 24));
  EXPECT_EQ(reader.output().finish, FinishReason::kStopString);
  EXPECT_EQ(reader.output().stop_index, 1);
  EXPECT_EQ(reader.end().usage.output_tokens, 24);
  ASSERT_TRUE(rig.idle());
  EXPECT_EQ(rig.engine->load().output_tokens, 24);
}

TEST_P(EngineTest, AnEndIdEndsAndMinTokensMasksIt) {
  // A prompt whose answer has the end id among its first tokens.
  int number = 0;
  std::vector<TokenId> ids;
  std::size_t at = 0;
  for (; at < 2 || at > 30; ++number) {
    ids = fake_outputs(request_of(number, 5, 1).prompt, 60, kVocab);
    at = static_cast<std::size_t>(std::find(ids.begin(), ids.end(), 0) - ids.begin());
  }
  GenerationRequest request = request_of(number - 1, 5, 60);
  request.stopping.ignore_eos = false;
  Rig rig;
  Reader plain;
  rig.submit(request, plain);
  plain.wait_end();
  EXPECT_EQ(plain.output().finish, FinishReason::kStopToken);
  EXPECT_EQ(plain.output().stop_token, 0);
  EXPECT_EQ(plain.output().ids.size(), at + 1);
  EXPECT_EQ(plain.output().bytes.size(), at) << "the end token adds no text";

  request.stopping.min_tokens = static_cast<std::int64_t>(at) + 2;
  Reader longer;
  rig.submit(request, longer);
  longer.wait_end();
  EXPECT_GE(longer.output().ids.size(), at + 2);
  EXPECT_NE(longer.output().ids[at], 0);
}

TEST_P(EngineTest, HeldTextIsReleasedWhenTheAnswerEndsAtItsLimit) {
  Rig rig;
  GenerationRequest request = request_of(5, 6, 20);
  const std::string text = text_of(fake_outputs(request.prompt, 20, kVocab));
  request.stopping.stop = {text.substr(17) + "@"};
  Reader reader;
  rig.submit(std::move(request), reader);
  reader.wait_end();
  EXPECT_EQ(reader.output().bytes, text);
}

// Batching is seen, not assumed; and neither chunks, block numbers, company nor preemption changes an answer.
TEST_P(EngineTest, CompanyChunksBlockNumbersAndPreemptionChangeNothing) {
  for (std::int32_t chunk : {0, 1, 7}) {
    for (std::int32_t num_blocks : {400, 30}) {
      EngineOptions options;
      options.max_num_seqs = 16;
      options.max_batch_tokens = 32;
      options.max_prefill_chunk = chunk;
      options.block_shuffle_seed = 3;
      Rig rig(options, num_blocks);
      std::atomic<int> most_slices = 0;
      std::atomic<int> num_mixed = 0;
      rig.engine->add_observer(std::make_shared<StepObserver>([&](const StepRecord& step) {
        most_slices = std::max<int>(most_slices, step.num_decode_slices + step.num_prefill_slices);
        num_mixed += step.num_decode_slices > 0 && step.num_prefill_slices > 0 ? 1 : 0;
      }));
      Gate gate;
      rig.model.set_hook([&](const StepBatch&) { gate.wait(); });  // until all have arrived
      std::deque<Reader> readers;
      std::vector<GenerationRequest> requests;
      for (int i = 0; i < 16; ++i) {
        requests.push_back(request_of(i, 3 + 5 * i % 40, 30));
        rig.submit(requests.back(), readers.emplace_back());
      }
      gate.open();
      for (std::size_t i = 0; i < requests.size(); ++i) {
        readers[i].wait_end();
        const std::vector<TokenId> expected = fake_outputs(requests[i].prompt, 30, kVocab);
        EXPECT_EQ(readers[i].output().ids, expected);
        std::vector<TokenId> before = requests[i].prompt;
        for (std::size_t k = 0; k < expected.size(); ++k) {
          EXPECT_EQ(readers[i].output().logprobs[k], fake_logprob(before));
          before.push_back(expected[k]);
        }
      }
      ASSERT_TRUE(rig.idle());
      EXPECT_GT(num_mixed, 0);
      if (num_blocks == 30) {
        EXPECT_GT(rig.engine->load().num_preemptions, 0);
      } else {
        EXPECT_EQ(most_slices, 16);
      }
    }
  }
}

TEST_P(EngineTest, RefusesWhatCanNeverFitAndSaysWhy) {
  EngineOptions options;
  options.max_num_seqs = 2;
  Rig rig(options, 8, 4, 256);
  const auto refused = [&](GenerationRequest request) {
    const auto result = rig.engine->submit(std::move(request), Reader().stream());
    return result.ok() ? Error{ErrorCode::kNotFound, "it was taken"} : result.error();
  };
  EXPECT_THAT(refused(request_of(1, 1000, 5)).message, HasSubstr("context of 256"));
  EXPECT_THAT(refused(request_of(1, 32, 5)).message, HasSubstr("8 blocks of 4"));
  EXPECT_THAT(refused(request_of(1, 3, 5, 3)).message, HasSubstr("max_num_seqs"));
  EXPECT_EQ(refused(request_of(1, 3, 5, 3)).code, ErrorCode::kInvalidArgument);
  GenerationRequest empty = request_of(1, 3, 5);
  empty.prompt.clear();
  EXPECT_EQ(refused(std::move(empty)).code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(rig.idle());
  EXPECT_EQ(rig.engine->load().num_steps, 0);
}

TEST_P(EngineTest, RefusesOptionsOutOfTheirRange) {
  FakeModel model(8, 4, 100, kVocab);
  FakeTokenizer tokenizer(kVocab);
  SteadyClock clock;
  const auto refused = [&](auto change) {
    EngineOptions options;
    change(options);
    try {
      const Engine engine(model, tokenizer, clock, options);
      return std::string("it was taken");
    } catch (const std::invalid_argument& e) {
      return std::string(e.what());
    }
  };
  EXPECT_THAT(refused([](EngineOptions& o) { o.max_context = 101; }), HasSubstr("max_context: 101"));
  EXPECT_THAT(refused([](EngineOptions& o) { o.max_num_seqs = 0; }), HasSubstr("max_num_seqs"));
  EXPECT_THAT(refused([](EngineOptions& o) { o.max_batch_tokens = 0; }), HasSubstr("max_batch_tokens"));
  EXPECT_THAT(refused([](EngineOptions& o) { o.max_queue = 0; }), HasSubstr("max_queue"));
  EXPECT_THAT(refused([](EngineOptions& o) { o.max_context = 50; }), HasSubstr("taken"));
}

}  // namespace
}  // namespace folio
