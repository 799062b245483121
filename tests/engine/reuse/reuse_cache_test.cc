// The prefix cache: a hit changes nothing but the time, whatever ended the answers that filled it, and nobody is lent
// another's content.
#include <algorithm>
#include <random>

#include "tests/engine/reuse/cases.h"

namespace folio {
namespace {

class ReuseCache : public ReuseCase {};
FOLIO_FOR_TINY_MODELS(ReuseCache);

// 100 tokens in common, then 16 tails that begin differently.
std::vector<GenerationRequest> with_tails() {
  std::vector<GenerationRequest> requests;
  for (TokenId i = 0; i < 16; ++i) {
    const std::vector<TokenId> tail = joined({30 + i}, random_tokens(static_cast<std::uint64_t>(i), 5 + 3 * (i % 7)));
    const std::vector<TokenId> prompt = joined(random_tokens(77, 100), tail);
    requests.push_back(i % 2 == 0 ? greedy(prompt, 32) : sampled(prompt, 32, 9));
  }
  std::shuffle(requests.begin(), requests.end(), std::mt19937(5));
  return requests;
}

TEST_P(ReuseCache, AHitIsAMissIsOff) {
  const std::vector<GenerationRequest> requests = with_tails();
  const std::vector<Answer> expected = alone(requests);
  Stage stage(file(), {.num_blocks = 256});
  for (const bool again : {false, true}) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const Answer got = stage.run(requests[i]);
      EXPECT_TRUE(same_answer(got, expected[i])) << i;
      const auto most = static_cast<std::int64_t>(requests[i].prompt.size()) - 1;
      EXPECT_EQ(got.end.usage.cached_tokens, again ? most : i == 0 ? 0 : 100) << i;
    }
  }
  EXPECT_TRUE(stage.gives_all_back());
}

TEST_P(ReuseCache, EightAtATimeShareWhatIsBeingComputed) {
  const std::vector<GenerationRequest> requests = with_tails();
  const std::vector<Answer> expected = alone(requests);
  Stage stage(file(), {.num_blocks = 256, .options = {.max_num_seqs = 8, .max_batch_tokens = 64}});
  for (int round = 0; round < 2; ++round) {
    const std::vector<Answer> got = stage.run_together(requests);
    int num_cold = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_TRUE(same_answer(got[i], expected[i])) << i;
      num_cold += got[i].end.usage.cached_tokens < 96 ? 1 : 0;
    }
    EXPECT_EQ(num_cold, round == 0 ? 1 : 0) << "the common part is computed once";
  }
  EXPECT_TRUE(stage.gives_all_back());
}

TEST_P(ReuseCache, PromptsFarLongerThanAWindowFourTimesEach) {
  Stage stage(file(), {.num_blocks = 100, .options = {.max_batch_tokens = 64}});
  for (const std::size_t length : {60U, 64U, 150U, 300U}) {
    const GenerationRequest request = greedy(random_tokens(length, length), 24);
    const Answer expected = alone(request);
    for (int time = 0; time < 4; ++time) {
      const Answer got = stage.run(request);
      EXPECT_TRUE(same_answer(got, expected)) << length << " time " << time;
      EXPECT_EQ(got.end.usage.cached_tokens, time == 0 ? 0 : static_cast<std::int64_t>(length) - 1);
    }
  }
}

// ---- what an answer leaves behind

constexpr std::int64_t kPrompt = 20;
enum class EndBy { kStopString, kStopToken, kLength, kAbort };

// Every way to end after `num_tokens` of the answer.
void end_by(EndBy how, std::int64_t num_tokens, const Answer& whole, const ModelFile& model_file,
            GenerationRequest& request) {
  const std::vector<TokenId>& ids = whole.front().ids;
  const auto last = static_cast<std::size_t>(num_tokens) - 1;
  if (how == EndBy::kStopString) request.stopping.stop = {model_file.text_of(std::span(ids).subspan(last - 3, 4))};
  if (how == EndBy::kStopToken) request.stopping.stop_token_ids = {ids[last]};
  if (how == EndBy::kLength) request.stopping.max_tokens = num_tokens;
}

// Inside a block, at its end, and a token past it: what is filed are whole blocks of what was computed, which the last
// token was not.
TEST_P(ReuseCache, WhatEndedAnAnswerIsNotSeenByThoseThatGoOnFromIt) {
  GenerationRequest first = greedy(random_tokens(21, kPrompt), 60);
  first.skip_special = false;  // the text is the tokens' spellings, of control tokens too
  const Answer whole = alone(first);
  const GenerationRequest second = greedy(joined(joined(first.prompt, whole.front().ids), random_tokens(22, 3)), 24);
  const Answer expected = alone(second);
  Stage stage(file(), {.num_blocks = 200});
  RequestId to_abort = 0;
  std::int64_t abort_at = 0;
  stage.set_hook([&](const StepBatch& batch) {
    if (to_abort != 0 && batch.context_len[0] == abort_at) stage.engine().cancel(std::exchange(to_abort, 0));
  });
  for (const EndBy how : {EndBy::kStopString, EndBy::kStopToken, EndBy::kLength, EndBy::kAbort}) {
    for (std::int64_t num_tokens = 10; num_tokens <= 30; ++num_tokens) {
      SCOPED_TRACE("end " + std::to_string(static_cast<int>(how)) + " after " + std::to_string(num_tokens));
      GenerationRequest cut = first;
      end_by(how, num_tokens, whole, file(), cut);
      cut.cache.salt = std::to_string(static_cast<int>(how)) + ":" + std::to_string(num_tokens);
      Reader reader;
      {
        const auto no_step = stage.hold();
        const RequestId id = stage.submit(cut, reader);
        abort_at = kPrompt + num_tokens - 1;
        to_abort = how == EndBy::kAbort ? id : 0;
      }
      reader.wait_end();
      // A spelling or an id may have come up before.
      const auto num_made = std::ssize(reader.output().ids);
      EXPECT_TRUE(is_beginning(reader.output(), whole.front()));
      EXPECT_TRUE(how == EndBy::kStopString || how == EndBy::kStopToken ? num_made <= num_tokens
                                                                        : num_made == num_tokens);
      GenerationRequest next = second;
      next.cache.salt = cut.cache.salt;
      const Answer got = stage.run(next);
      EXPECT_TRUE(same_answer(got, expected));
      EXPECT_EQ(got.end.usage.cached_tokens, in_whole_blocks(kPrompt + num_made - 1));
    }
  }
  EXPECT_TRUE(stage.gives_all_back());
}

TEST_P(ReuseCache, SixTurnsWithStopsAreAsWithoutACache) {
  Stage stage(file(), {.num_blocks = 40});
  std::vector<TokenId> talk;
  for (std::uint64_t turn = 0; turn < 6; ++turn) {
    talk = joined(std::move(talk), random_tokens(200 + turn, 13));
    GenerationRequest request = turn % 2 == 0 ? greedy(talk, 40) : sampled(talk, 40, turn);
    const std::vector<TokenId> ids = alone(request).front().ids;
    request.stopping.stop = {file().text_of(std::span(ids).subspan(15 + turn, 3))};
    const Answer got = stage.run(request);
    EXPECT_TRUE(same_answer(got, alone(request))) << "turn " << turn;
    EXPECT_GE(got.end.usage.cached_tokens, in_whole_blocks(std::ssize(talk) - 13 - 1)) << "turn " << turn;
    talk = joined(std::move(talk), got.front().ids);
  }
}

// ---- whose content it is

TEST_P(ReuseCache, SaltsAndBypassShareNothing) {
  Stage stage(file(), {});
  const auto cached = [&](const std::string& salt, bool bypass = false) {
    GenerationRequest request = greedy(random_tokens(31, 64), 8);
    request.cache.salt = salt;
    request.cache.bypass = bypass;
    const Answer got = stage.run(request);
    EXPECT_TRUE(same_answer(got, alone(request))) << salt;
    return got.end.usage.cached_tokens;
  };
  EXPECT_EQ(cached("", true), 0);
  EXPECT_EQ(cached(""), 0) << "what bypassed the cache left something in it";
  EXPECT_EQ(cached("A"), 0);
  EXPECT_EQ(cached("B"), 0);
  EXPECT_EQ(cached("A"), 63);
  EXPECT_EQ(cached(""), 63) << "an empty salt is no salt";
  EXPECT_EQ(cached(GetParam()), 0) << "the model's name";
  EXPECT_EQ(cached("A" + std::string(1, '\0')), 0);
  EXPECT_EQ(cached("", true), 0);
  EXPECT_TRUE(stage.gives_all_back());
}

// Each shares a preface with the others and has words of its own; the pool has room for about five, so that blocks pass
// from hand to hand all the time.
TEST_P(ReuseCache, NobodySeesAnothersWordsUnderPressure) {
  std::vector<GenerationRequest> requests;
  for (std::uint64_t i = 0; i < 32; ++i) {
    const std::vector<TokenId> words = joined(random_tokens(300 + i, 6), random_tokens(41, 4));
    requests.push_back(greedy(joined(random_tokens(40, 64), words), 40));
  }
  const std::vector<Answer> expected = alone(requests);
  Stage stage(file(), {.num_blocks = 24, .options = {.max_num_seqs = 16, .max_batch_tokens = 48}});
  for (unsigned round = 0; round < 3; ++round) {
    std::vector<std::size_t> order(requests.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), std::mt19937(round));
    std::vector<GenerationRequest> shuffled;
    for (std::size_t i : order) shuffled.push_back(requests[i]);
    const std::vector<Answer> got = stage.run_together(shuffled);
    for (std::size_t i = 0; i < order.size(); ++i) EXPECT_TRUE(same_answer(got[i], expected[order[i]])) << order[i];
  }
  EXPECT_GT(stage.load().num_preemptions, 0);
  EXPECT_TRUE(stage.gives_all_back());
}

}  // namespace
}  // namespace folio
