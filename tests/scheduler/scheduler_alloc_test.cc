// In the steady state a step asks for no memory: operator new is counted, in a program of its own.
#include <gtest/gtest.h>

#include "tests/scheduler/world.h"
#include "tests/support/allocations.h"

namespace folio {
namespace {

struct Course {
  const char* what;
  int depth;
  std::int32_t n;   // sequences of each request
  int num_waiting;  // requests that find no place
  std::int32_t num_prompt = 100;
  Duration target{};
};

void PrintTo(const Course& course, std::ostream* out) {
  *out << course.what << " at depth " << course.depth;
}

class SchedulerAllocations : public testing::TestWithParam<Course> {};

// 96 sequences give 600 tokens each, in and across blocks that get sealed; counted once they have all given 40.
TEST_P(SchedulerAllocations, SteadyStepsHaveNone) {
  const Course& course = GetParam();
  const SchedulerLimits limits{.block_size = 16,
                               .num_blocks = 10000,
                               .max_context = 4096,
                               .max_num_seqs = 96,
                               .max_batch_tokens = 4000,
                               .max_queue = 1000,
                               .target_itl = course.target};
  BlockManager blocks(limits.num_blocks, limits.block_size);
  ManualClock clock;
  Scheduler scheduler(blocks, limits, clock);
  for (int i = 0; i < 96 / course.n + course.num_waiting; ++i) {
    Request request;
    request.id = static_cast<RequestId>(i) + 1;
    request.prompt = prompt_of(static_cast<std::uint64_t>(i), course.num_prompt);
    request.max_tokens = 600;
    request.n = course.n;
    request.tenant = i % 2 == 0 ? "a" : "b";
    request.deadline = clock.now() + std::chrono::hours(1);
    ASSERT_FALSE(scheduler.submit(std::move(request)));
  }
  const std::vector<TokenId> tokens(96, 7);
  const StepPlan* in_flight = nullptr;
  const auto step = [&] {
    const StepPlan& plan = scheduler.schedule();
    if (course.depth == 2) {
      if (in_flight != nullptr) scheduler.commit(*in_flight, std::span(tokens).first(in_flight->samples.size()), {});
      in_flight = &plan;
    } else {
      scheduler.commit(plan, std::span(tokens).first(plan.samples.size()), {});
    }
    clock.advance(std::chrono::milliseconds(2));
    return plan.slices.size();
  };
  for (int i = 0; i < 60; ++i) step();
  const std::int32_t held_before = scheduler.count_blocks().held;
  const std::int64_t before = num_allocations();
  for (int i = 0; i < 500; ++i) ASSERT_EQ(step(), 96U);
  EXPECT_EQ(num_allocations() - before, 0);
  EXPECT_GT(scheduler.count_blocks().held, held_before + 96 * 20);
}

INSTANTIATE_TEST_SUITE_P(All, SchedulerAllocations,
                         testing::Values(Course{"alone", 1, 1, 0}, Course{"alone", 2, 1, 0}, Course{"forks", 1, 4, 0},
                                         Course{"forks", 2, 4, 0}, Course{"others waiting", 1, 1, 50},
                                         Course{"others waiting", 2, 1, 50},
                                         Course{"a target", 1, 1, 0, 100, std::chrono::milliseconds(5)}),
                         [](const auto& param) { return "Course" + std::to_string(param.index); });

TEST(SchedulerAllocationsCounter, SeesAllocations) {
  const std::int64_t before = num_allocations();
  std::vector<int> some(10);
  some.push_back(1);
  EXPECT_EQ(num_allocations() - before, 2);
}

}  // namespace
}  // namespace folio
