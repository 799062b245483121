// Random arrivals, sizes, priorities, tenants, shared prefixes, salts, pins, forks, deadlines, cancels, flushes and
// failed steps on tiny pools at depth 1 and 2, against the plain form of each sequence. A failure names its seed and
// replays from it (FOLIO_SEED=n plays that one alone): time is the test's own.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <map>
#include <random>

#include "tests/scheduler/world.h"

namespace folio {
namespace {

using std::chrono::milliseconds;

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

// What a seed decides once.
struct Scene {
  SchedulerLimits limits;
  std::vector<std::vector<TokenId>> prefixes;
  bool calm = false;      // nothing but arrivals: then every sequence gives all that it gives alone
  bool slow = false;      // steps take what their load costs, and sometimes much time passes
  int few_symbols = 3;    // prompts that begin alike are as likely as ones that do not
  int shared_one_in = 2;  // prompts that begin with a prefix of the scene
};

SchedulerLimits random_limits(Dice& dice) {
  SchedulerLimits limits;
  const std::int32_t block_sizes[] = {1, 2, 3, 5, 7, 16};
  limits.block_size = block_sizes[dice.pick(0, 5)];
  limits.num_blocks = dice.pick(2, (dice.one_in(2) ? 96 : 200) / limits.block_size + 4);
  limits.max_context = dice.pick(8, 120);
  limits.max_num_seqs = dice.pick(1, 9);
  limits.max_batch_tokens = dice.one_in(4) ? dice.pick(1, 4) : dice.pick(1, 64);
  limits.max_prefill_chunk = dice.one_in(3) ? dice.pick(1, 9) : 0;
  limits.max_queue = dice.pick(1, 20);
  limits.max_queue_tokens = dice.pick(10, 400);
  limits.prefix_cache = !dice.one_in(8);
  limits.max_pinned_blocks = dice.pick(0, limits.num_blocks);
  if (dice.one_in(3)) limits.target_itl = std::chrono::microseconds(dice.pick(500, 8000));
  return limits;
}

Scene random_scene(Dice& dice) {
  Scene scene;
  scene.limits = random_limits(dice);
  scene.calm = dice.one_in(2);
  scene.slow = dice.one_in(2);
  scene.few_symbols = dice.one_in(3) ? 1 : 2;
  scene.shared_one_in = dice.pick(1, 4);
  for (int i = 0; i < 3; ++i) {
    auto& prefix = scene.prefixes.emplace_back(static_cast<std::size_t>(dice.pick(1, 50)));
    for (TokenId& token : prefix) token = dice.pick(0, scene.few_symbols);
  }
  return scene;
}

Request random_request(Dice& dice, const Scene& scene, TimePoint now) {
  Request request;
  if (dice.one_in(scene.shared_one_in)) {
    request.prompt = scene.prefixes[static_cast<std::size_t>(dice.pick(0, 2))];
    if (dice.one_in(3)) request.prompt.resize(static_cast<std::size_t>(dice.pick(1, 50)));
  }
  const std::int32_t own = dice.one_in(3) ? dice.pick(1, 60) : dice.pick(1, 16);
  for (std::int32_t i = 0; i < own; ++i) request.prompt.push_back(dice.pick(0, scene.few_symbols));
  request.max_tokens = dice.one_in(5) ? StoppingParams::kNoLimit : dice.pick(1, 40);
  if (dice.one_in(10)) request.max_tokens = 0;
  if (dice.one_in(6)) request.sampling.num_prompt_logprobs = 0;
  request.n = dice.one_in(4) ? dice.pick(1, 4) : 1;
  request.priority = dice.one_in(3) ? dice.pick(-1, 2) : 0;
  request.tenant = std::string(1, static_cast<char>('a' + dice.pick(0, 3)));
  if (dice.one_in(6)) request.cache.salt = dice.one_in(2) ? "x" : "y";
  request.cache.bypass = dice.one_in(12);
  if (dice.one_in(6)) request.cache.pin_ms = dice.one_in(4) ? CacheParams::kPinForever : dice.pick(1, 400);
  if (scene.calm) return request;
  if (dice.one_in(8)) request.deadline = now + milliseconds(dice.pick(-1, 90));
  if (dice.one_in(8)) request.transport_deadline = now + milliseconds(dice.pick(5, 120));
  return request;
}

void disturb(World& world, Dice& dice) {
  if (dice.one_in(25)) world.scheduler.flush_prefix_cache();
  if (world.asked().empty()) return;
  auto asked = world.asked().begin();
  std::advance(asked, dice.pick(0, static_cast<std::int32_t>(world.asked().size()) - 1));
  if (dice.one_in(12)) world.scheduler.end(asked->first, FinishReason::kCancelled);
  if (dice.one_in(12)) world.scheduler.end(asked->first, dice.pick(0, 4), FinishReason::kCancelled);
  if (dice.one_in(60)) world.fail_next();
  if (dice.one_in(20)) world.scheduler.unpin(dice.one_in(5) ? 0 : asked->first);
}

// What the schedules came upon, so that it is known what was tested.
struct Seen {
  std::int64_t tokens = 0, preemptions = 0, recomputed = 0, refused = 0, too_late = 0;
  std::int64_t cached = 0, waited_for_others = 0, pinned = 0, pins_released = 0;
  std::int64_t copies = 0, forks = 0, resumed = 0, resumed_with_reuse = 0;
  std::int64_t scored = 0, computed_and_not_scored = 0, prompts_alone = 0;
  std::map<FinishReason, int> ends;
};

void count(World& world, const Scene& scene, Seen& seen) {
  for (const auto& [id, asked] : world.asked()) {
    ASSERT_TRUE(asked.summary) << "request " << id << " has no end";
    const RequestSummary& summary = *asked.summary;
    seen.tokens += summary.output_tokens;
    seen.preemptions += summary.num_preemptions;
    seen.recomputed += summary.recomputed_tokens;
    seen.cached += summary.cached_tokens;
    seen.waited_for_others += summary.cached_tokens > asked.num_cached_on_arrival + scene.limits.block_size ? 1 : 0;
    seen.pinned += summary.pinned_tokens > 0 ? 1 : 0;
    seen.prompts_alone += asked.request.max_tokens == 0 && asked.told[0].finish == FinishReason::kLength ? 1 : 0;
    ASSERT_LT(summary.cached_tokens, summary.prompt_tokens) << "the last token is computed in any case";
    ASSERT_TRUE(summary.cached_tokens == 0 || !asked.request.wants_scores()) << "it finds nothing";
    if (asked.request.cache.bypass || !scene.limits.prefix_cache) {
      ASSERT_EQ(summary.cached_tokens, 0);
      ASSERT_EQ(summary.pinned_tokens, 0);
    }
    for (const World::Told& told : asked.told) {
      ++seen.ends[told.finish];
      ASSERT_TRUE(!scene.calm || told.finish == FinishReason::kLength || told.finish == FinishReason::kStopToken);
    }
  }
  seen.pins_released += world.scheduler.counts().num_pins_released;
  seen.copies += world.met.copies;
  seen.forks += world.met.forks;
  seen.resumed += world.met.resumed;
  seen.resumed_with_reuse += world.met.resumed_with_reuse;
  seen.scored += world.met.scored;
  seen.computed_and_not_scored += world.met.computed_and_not_scored;
}

void play(std::uint64_t seed, Seen& seen) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Dice dice(seed);
  const Scene scene = random_scene(dice);
  World world(scene.limits, seed, {{"a", 1.0}, {"b", 3.0}, {"c", 0.25}});
  if (scene.slow) world.step_cost = linear_cost(1, 0.05, 0.001, 0.002, 0.1);
  std::int64_t num_tokens = 0;
  for (std::int32_t round = 0, rounds = dice.pick(5, 120); round < rounds; ++round) {
    while (dice.one_in(3)) {
      Request request = random_request(dice, scene, world.clock.now());
      num_tokens += request.n * scene.limits.max_context;
      if (world.submit(std::move(request), dice.one_in(2) ? dice.pick(2, 30) : 0) == 0) {
        ++(world.refusal->code == ErrorCode::kDeadlineExceeded ? seen.too_late : seen.refused);
      }
    }
    if (!scene.calm) disturb(world, dice);
    if (scene.slow && dice.one_in(20)) world.clock.advance(std::chrono::seconds(dice.pick(1, 40)));
    world.step_at(dice.pick(1, 2), dice.one_in(2));
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  world.run_to_end(dice.pick(1, 2));
  ASSERT_FALSE(testing::Test::HasFailure());
  world.expect_as_alone();
  // Each step moves the first by a token, and only a higher priority, of which there are four, or an aged one undoes
  // it.
  EXPECT_LE(world.num_steps, 4 * num_tokens + 10);
  count(world, scene, seen);
  world.scheduler.unpin(0);
  ASSERT_EQ(world.blocks.num_available(), world.blocks.num_blocks());
  ASSERT_EQ(world.scheduler.count_blocks().unaccounted, 0);
  ASSERT_EQ(world.scheduler.broken_invariant(), std::nullopt);
  world.scheduler.flush_prefix_cache();
  ASSERT_EQ(world.blocks.num_free(), world.blocks.num_blocks());
}

TEST(SchedulerRandom, EverySequenceGivesWhatItGivesAlone) {
  Seen seen;
  if (const char* seed = std::getenv("FOLIO_SEED")) return play(std::strtoull(seed, nullptr, 10), seen);
  for (std::uint64_t seed = 1; seed <= 4000 && !testing::Test::HasFailure(); ++seed) play(seed, seen);
  const std::pair<const char*, std::array<std::int64_t, 2>> floors[] = {
      {"tokens", {seen.tokens, 200000}},
      {"preemptions", {seen.preemptions, 3000}},
      {"recomputed", {seen.recomputed, 10000}},
      {"refused", {seen.refused, 1000}},
      {"too_late", {seen.too_late, 50}},
      {"cached", {seen.cached, 50000}},
      {"waited_for_others", {seen.waited_for_others, 1000}},
      {"pinned", {seen.pinned, 500}},
      {"pins_released", {seen.pins_released, 100}},
      {"copies", {seen.copies, 3000}},
      {"forks", {seen.forks, 1000}},
      {"resumed", {seen.resumed, 2000}},
      {"resumed_with_reuse", {seen.resumed_with_reuse, 500}},
      {"scored", {seen.scored, 30000}},
      {"computed_and_not_scored", {seen.computed_and_not_scored, 2000}},
      {"prompts_alone", {seen.prompts_alone, 1000}},
  };
  for (const auto& [name, floor] : floors) {
    RecordProperty(name, std::to_string(floor[0]));
    EXPECT_GE(floor[0], floor[1]) << name << " is not tested enough";
    if (std::getenv("FOLIO_PRINT")) printf("%s %ld\n", name, floor[0]);
  }
  for (FinishReason reason : {FinishReason::kStopToken, FinishReason::kLength, FinishReason::kCancelled,
                              FinishReason::kDeadline, FinishReason::kError}) {
    EXPECT_GT(seen.ends[reason], 100) << "finish reason " << static_cast<int>(reason);
  }
}

}  // namespace
}  // namespace folio
