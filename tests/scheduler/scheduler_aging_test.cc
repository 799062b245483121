// Nobody waits for ever, whatever comes.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/scheduler/world.h"

namespace folio {
namespace {

using std::chrono::seconds;

SchedulerLimits limits_of(std::int32_t num_blocks, std::int32_t max_num_seqs) {
  return {.block_size = 4,
          .num_blocks = num_blocks,
          .max_context = 400,
          .max_num_seqs = max_num_seqs,
          .max_batch_tokens = 16,
          .max_queue = 100};
}

Duration slow_step(const StepLoad&) {
  return std::chrono::milliseconds(100);
}

Request request_of(std::uint64_t seed, std::int64_t num_prompt, std::int64_t max_tokens, std::int32_t priority,
                   const std::string& tenant) {
  Request request;
  request.prompt = prompt_of(seed, num_prompt);
  request.max_tokens = max_tokens;
  request.priority = priority;
  request.tenant = tenant;
  return request;
}

// Two requests are always in the queue that `next` makes. Ends when `patient` gave a token; how long that took.
Duration wait_beside(World& world, RequestId patient, Duration at_most, const std::function<Request()>& next) {
  const TimePoint start = world.clock.now();
  while (world.told(patient).outputs.empty() && world.clock.now() < start + at_most + seconds(100)) {
    while (world.scheduler.queue().requests < 3) {
      EXPECT_NE(world.submit(next()), 0U);
    }
    world.step();
    if (testing::Test::HasFailure()) break;
  }
  return world.clock.now() - start;
}

TEST(SchedulerAging, AStreamOfHigherPrioritiesIsOvertakenInTheStatedTime) {
  for (const std::int32_t ahead : {1, 3, 7, 1000}) {
    for (const char* tenant : {"", "other"}) {
      World world(limits_of(100, 1));
      world.step_cost = slow_step;
      std::uint64_t seed = 0;
      const auto next = [&] { return request_of(++seed + 100, 5, 8, ahead, ""); };
      for (int i = 0; i < 2; ++i) world.submit(next());
      world.step();
      const RequestId patient = world.submit(request_of(1, 200, 5, 0, tenant));
      const auto periods = static_cast<int>(std::ceil(std::log2(ahead + 1)));
      // Then the running one ends, those of the same age go first, and the prompt takes 13 steps.
      const Duration bound = periods * FairQueue::kAgingPeriod + seconds(8);
      EXPECT_LE(wait_beside(world, patient, bound, next), bound) << ahead;
      EXPECT_EQ(world.scheduler.counts().num_preemptions, 0) << "aging evicts nobody, nor is it evicted";
    }
  }
}

// The pool has room for the patient one or for the growth of the others: it is the last in the victim order, and the
// first, of a higher priority, waits until it gave its token.
TEST(SchedulerAging, WhoCameInByItsAgeIsNotEvictedBeforeItGaveAToken) {
  World world(limits_of(24, 3));
  world.step_cost = slow_step;
  std::uint64_t seed = 0;
  const auto next = [&] { return request_of(++seed + 100, 9, 60, 3, ""); };
  for (int i = 0; i < 3; ++i) world.submit(next());
  world.step();
  const RequestId patient = world.submit(request_of(1, 70, 5, 0, "patient"));
  std::int64_t preempted_before_token = 0;
  const auto next_and_watch = [&] {
    for (const Sequence* sequence : world.scheduler.running()) {
      if (sequence->owner->request.id == patient) preempted_before_token = sequence->owner->num_preemptions;
    }
    return next();
  };
  const Duration bound = 2 * FairQueue::kAgingPeriod + seconds(30);
  EXPECT_LE(wait_beside(world, patient, bound, next_and_watch), bound);
  EXPECT_EQ(preempted_before_token, 0);
  world.run_to_end();
  world.expect_as_alone();
}

TEST(SchedulerAging, AStreamOfEarlierDeadlinesIsOvertakenAfterAPeriod) {
  World world(limits_of(100, 1));
  world.step_cost = slow_step;
  std::uint64_t seed = 0;
  const auto next = [&] {
    Request request = request_of(++seed + 100, 5, 8, 0, "");
    request.deadline = world.clock.now() + seconds(60);
    return request;
  };
  for (int i = 0; i < 2; ++i) world.submit(next());
  world.step();
  const RequestId patient = world.submit(request_of(1, 20, 5, 0, ""));
  EXPECT_LE(wait_beside(world, patient, seconds(13), next), FairQueue::kAgingPeriod + seconds(3));
}

TEST(SchedulerAging, AStreamOfNewTenantsIsOvertakenAtTheEndOfAging) {
  World world(limits_of(100, 1));
  world.step_cost = slow_step;
  std::uint64_t seed = 0;
  const auto next = [&] {
    ++seed;
    return request_of(seed + 100, 5, 3, 0, "tenant " + std::to_string(seed));
  };
  world.submit(next());
  world.submit(request_of(2, 300, 5, 0, "greedy"));  // it took much; then it has to wait
  for (int i = 0; i < 40; ++i) {
    while (world.scheduler.queue().requests < 3) world.submit(next());
    world.step();
  }
  const RequestId patient = world.submit(request_of(1, 20, 5, 0, "greedy"));
  const Duration bound = FairQueue::kMaxAgings * FairQueue::kAgingPeriod + seconds(5);
  EXPECT_LE(wait_beside(world, patient, bound, next), bound);
}

}  // namespace
}  // namespace folio
