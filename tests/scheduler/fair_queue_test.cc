// The queue by itself: tenants that come and go, what they are charged, and what waiting adds.
#include "scheduler/fair_queue.h"

#include <gtest/gtest.h>

#include "tests/scheduler/world.h"

namespace folio {
namespace {

// A request of one sequence in the queue.
class Waiting {
 public:
  Waiting(FairQueue& queue, BlockManager& blocks, const std::string& tenant, std::int32_t priority = 0,
          TimePoint deadline = kNoDeadline)
      : queue_(queue) {
    static std::uint64_t arrivals = 0;
    state_.request.prompt = {1};
    state_.request.priority = priority;
    state_.arrival = ++arrivals;
    state_.deadline = deadline;
    state_.tenant = &queue.join(tenant);
    state_.sequences.emplace_back(state_, 0, blocks.make_table({}));
  }
  void push(TimePoint now) { queue_.push(sequence(), now); }
  void leave() { queue_.leave(*state_.tenant); }
  Sequence& sequence() { return state_.sequences.front(); }
  double counter() const { return state_.tenant->counter; }

 private:
  FairQueue& queue_;
  RequestState state_;
};

class FairQueueTest : public testing::Test {
 protected:
  BlockManager blocks_{4, 16};
  FairQueue queue_{{{"half", 0.5}, {"double", 2.0}}};
  TimePoint now_ = TimePoint(std::chrono::hours(1));
};

TEST_F(FairQueueTest, ATenantThatReturnsIsLiftedToTheLeastOfThoseThatAreThere) {
  Waiting a(queue_, blocks_, "a");
  Waiting b(queue_, blocks_, "b");
  reserve(a.sequence(), 100);
  reserve(b.sequence(), 300);
  Waiting idle(queue_, blocks_, "c");
  EXPECT_EQ(idle.counter(), 100);
  idle.leave();
  reserve(a.sequence(), 400);
  Waiting back(queue_, blocks_, "c");
  EXPECT_EQ(back.counter(), 300) << "nobody saves up";
  b.leave();
  Waiting b_again(queue_, blocks_, "b");
  EXPECT_EQ(b_again.counter(), 300) << "what it took stays known";
}

TEST_F(FairQueueTest, WhenNobodyIsThereAllIsForgotten) {
  Waiting a(queue_, blocks_, "a");
  reserve(a.sequence(), 100);
  a.leave();
  EXPECT_EQ(queue_.num_tenants(), 0U);
  EXPECT_EQ(Waiting(queue_, blocks_, "a").counter(), 0);
}

TEST_F(FairQueueTest, MemoryOfIdleTenantsIsBoundedAndKeepsThoseWhoTookMost) {
  Waiting there(queue_, blocks_, "there");
  for (int i = 0; i < 20000; ++i) {
    Waiting one(queue_, blocks_, "tenant " + std::to_string(i));
    reserve(one.sequence(), i == 5 ? 1e9 : 1);
    one.leave();
    ASSERT_LE(queue_.num_tenants(), 1026U);
  }
  EXPECT_EQ(Waiting(queue_, blocks_, "tenant 5").counter(), 1e9);
}

TEST_F(FairQueueTest, AReserveIsSpentFirstAndTheRestComesBack) {
  Waiting a(queue_, blocks_, "double");
  reserve(a.sequence(), 100);
  EXPECT_EQ(a.counter(), 50);
  spend(a.sequence(), 30);
  EXPECT_EQ(a.counter(), 50);
  refund(a.sequence());
  EXPECT_EQ(a.counter(), 15) << "30 over the weight";
  spend(a.sequence(), 4);
  EXPECT_EQ(a.counter(), 17);
  reserve(a.sequence(), 10);
  spend(a.sequence(), 16);
  refund(a.sequence());
  EXPECT_EQ(a.counter(), 25);
}

TEST_F(FairQueueTest, PriorityThenCounterThenDeadlineThenArrival) {
  Waiting late(queue_, blocks_, "a");
  Waiting urgent(queue_, blocks_, "a", 0, now_ + std::chrono::seconds(1));
  Waiting other(queue_, blocks_, "half");
  Waiting high(queue_, blocks_, "half", 1);
  reserve(other.sequence(), 1);
  Waiting* const expected[] = {&high, &urgent, &late, &other};
  for (Waiting* one : {&other, &late, &urgent, &high}) one->push(now_);
  for (Waiting* one : expected) {
    EXPECT_EQ(queue_.first(), &one->sequence());
    queue_.erase(*queue_.first());
  }
  EXPECT_EQ(queue_.first(), nullptr);
}

TEST_F(FairQueueTest, WaitingGainsUpToTheHighestThatIsThere) {
  Waiting low(queue_, blocks_, "a", -2);
  low.push(now_);
  const auto level_after = [&](int periods, std::int64_t highest_running) {
    queue_.age(now_ + periods * FairQueue::kAgingPeriod, highest_running);
    return low.sequence().level;
  };
  EXPECT_EQ(level_after(0, 4), -2);
  EXPECT_EQ(level_after(1, 4), -1);
  EXPECT_EQ(level_after(2, 4), 1);
  EXPECT_EQ(level_after(3, 4), 4) << "not 5";
  EXPECT_EQ(level_after(4, -2), 4) << "what it has it keeps";
  Waiting high(queue_, blocks_, "b", 100);
  high.push(now_ + 4 * FairQueue::kAgingPeriod);
  EXPECT_EQ(level_after(5, -2), 29);
  EXPECT_EQ(level_after(31, -2), 100);
  EXPECT_EQ(queue_.first(), &low.sequence()) << "level with it, and it waited for longer";
}

TEST_F(FairQueueTest, AmongEqualsTheCountersDecideUntilTheEndOfAging) {
  Waiting took_much(queue_, blocks_, "a");
  reserve(took_much.sequence(), 1000);
  took_much.push(now_);
  for (int period = 1; period < FairQueue::kMaxAgings; ++period) {
    Waiting newcomer(queue_, blocks_, "new " + std::to_string(period));
    newcomer.sequence().owner->tenant->counter = 0;
    newcomer.push(now_ + period * FairQueue::kAgingPeriod);
    queue_.age(now_ + period * FairQueue::kAgingPeriod, 0);
    EXPECT_EQ(queue_.first(), &newcomer.sequence());
    queue_.erase(newcomer.sequence());
    newcomer.leave();
  }
  Waiting newcomer(queue_, blocks_, "new", 1000);
  newcomer.push(now_ + FairQueue::kMaxAgings * FairQueue::kAgingPeriod);
  queue_.age(now_ + FairQueue::kMaxAgings * FairQueue::kAgingPeriod, 0);
  EXPECT_EQ(queue_.first(), &took_much.sequence()) << "before everybody else";
}

TEST_F(FairQueueTest, WhoIsSetAsideIsNotFirstUntilTakenBack) {
  Waiting a(queue_, blocks_, "a");
  Waiting b(queue_, blocks_, "b");
  a.push(now_);
  b.push(now_);
  queue_.set_aside(a.sequence());
  EXPECT_EQ(queue_.first(), &b.sequence());
  EXPECT_EQ(queue_.size(), 2U);
  queue_.take_back();
  EXPECT_EQ(queue_.first(), &a.sequence());
  queue_.set_aside(a.sequence());
  queue_.erase(a.sequence());
  queue_.take_back();
  EXPECT_EQ(queue_.first(), &b.sequence());
  EXPECT_EQ(queue_.size(), 1U);
}

}  // namespace
}  // namespace folio
