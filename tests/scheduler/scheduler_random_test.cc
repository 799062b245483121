// Random arrivals, sizes, priorities, deadlines, cancels and failed steps on tiny pools at depth 1 and 2, against the
// plain form of each sequence. A failure names its seed and replays from it: time is the test's own.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/scheduler/world.h"

namespace folio {
namespace {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  std::int32_t pick(std::int32_t low, std::int32_t high) {
    return std::uniform_int_distribution<std::int32_t>(low, high)(random_);
  }
  bool one_in(std::int32_t n) { return pick(1, n) == 1; }

 private:
  std::mt19937_64 random_;
};

SchedulerLimits random_limits(Dice& dice) {
  SchedulerLimits limits;
  const std::int32_t block_sizes[] = {1, 2, 3, 5, 7, 16};
  limits.block_size = block_sizes[dice.pick(0, 5)];
  limits.num_blocks = dice.pick(2, 96 / limits.block_size + 4);
  limits.max_context = dice.pick(8, 120);
  limits.max_num_seqs = dice.pick(1, 9);
  limits.max_batch_tokens = dice.one_in(4) ? dice.pick(1, 4) : dice.pick(1, 64);
  limits.max_prefill_chunk = dice.one_in(3) ? dice.pick(1, 9) : 0;
  limits.max_queue = dice.pick(1, 20);
  limits.max_queue_tokens = dice.pick(10, 400);
  return limits;
}

Request random_request(Dice& dice, TimePoint now) {
  Request request;
  request.prompt.resize(static_cast<std::size_t>(dice.one_in(3) ? dice.pick(1, 60) : dice.pick(1, 16)));
  // Few different tokens: prompts that begin alike are as likely as ones that do not.
  for (TokenId& token : request.prompt) token = dice.pick(0, 2);
  request.max_tokens = dice.one_in(5) ? StoppingParams::kNoLimit : dice.pick(1, 40);
  request.n = dice.one_in(4) ? dice.pick(1, 4) : 1;
  request.priority = dice.one_in(3) ? dice.pick(-1, 2) : 0;
  if (dice.one_in(8)) request.deadline = now + std::chrono::milliseconds(dice.pick(-1, 60));
  return request;
}

void disturb(World& world, Dice& dice) {
  if (world.asked().empty()) return;
  auto asked = world.asked().begin();
  std::advance(asked, dice.pick(0, static_cast<std::int32_t>(world.asked().size()) - 1));
  if (dice.one_in(12)) world.scheduler.end(asked->first, FinishReason::kCancelled);
  if (dice.one_in(12)) world.scheduler.end(asked->first, dice.pick(0, 4), FinishReason::kCancelled);
  if (dice.one_in(60)) world.fail_next();
}

// What the schedules came upon, so that it is known what was tested.
struct Seen {
  std::int64_t tokens = 0, preemptions = 0, recomputed = 0, refused = 0;
  std::map<FinishReason, int> ends;
};

void play(std::uint64_t seed, Seen& seen) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Dice dice(seed);
  const SchedulerLimits limits = random_limits(dice);
  World world(limits, seed);
  const bool calm = dice.one_in(2);  // nothing but arrivals: then every sequence gives all that it gives alone
  std::int64_t num_tokens = 0;
  for (std::int32_t round = 0, rounds = dice.pick(5, 120); round < rounds; ++round) {
    while (dice.one_in(3)) {
      Request request = random_request(dice, world.clock.now());
      if (calm) request.deadline = kNoDeadline;
      num_tokens += request.n * limits.max_context;
      if (world.submit(std::move(request), dice.one_in(2) ? dice.pick(2, 30) : 0) == 0) ++seen.refused;
    }
    if (!calm) disturb(world, dice);
    world.step_at(dice.pick(1, 2), dice.one_in(2));
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  world.run_to_end(dice.pick(1, 2));
  ASSERT_FALSE(testing::Test::HasFailure());
  world.expect_as_alone();
  // Each step moves the first by a token, and only a higher priority, of which there are four, undoes that.
  EXPECT_LE(world.num_steps, 4 * num_tokens + 10);
  for (const auto& [id, asked] : world.asked()) {
    ASSERT_TRUE(asked.summary) << "request " << id << " has no end";
    seen.tokens += asked.summary->output_tokens;
    seen.preemptions += asked.summary->num_preemptions;
    seen.recomputed += asked.summary->recomputed_tokens;
    for (const World::Told& told : asked.told) {
      ++seen.ends[told.finish];
      EXPECT_TRUE(!calm || told.finish == FinishReason::kLength || told.finish == FinishReason::kStopToken);
    }
  }
}

TEST(SchedulerRandom, EverySequenceGivesWhatItGivesAlone) {
  Seen seen;
  for (std::uint64_t seed = 1; seed <= 3000 && !testing::Test::HasFailure(); ++seed) play(seed, seen);
  EXPECT_GT(seen.tokens, 100000);
  EXPECT_GT(seen.preemptions, 1000);
  EXPECT_GT(seen.recomputed, 10000);
  EXPECT_GT(seen.refused, 1000);
  for (FinishReason reason : {FinishReason::kStopToken, FinishReason::kLength, FinishReason::kCancelled,
                              FinishReason::kDeadline, FinishReason::kError}) {
    EXPECT_GT(seen.ends[reason], 100) << "finish reason " << static_cast<int>(reason);
  }
}

}  // namespace
}  // namespace folio
