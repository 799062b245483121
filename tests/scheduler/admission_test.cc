#include "scheduler/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/params.h"

namespace folio {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr SchedulerLimits kLimits{.block_size = 16,
                                  .num_blocks = 20,
                                  .max_context = 300,
                                  .max_num_seqs = 4,
                                  .max_batch_tokens = 64,
                                  .max_queue = 3,
                                  .max_queue_tokens = 500};

Error refused(const SchedulerLimits& limits, const QueueLoad& queue, std::int64_t prompt, std::int64_t max_tokens,
              std::int32_t n) {
  const auto error = refusal(limits, queue, prompt, max_tokens, n);
  return error.value_or(Error{ErrorCode::kNotFound, "it was taken"});
}

TEST(Admission, TakesWhatFitsToTheLastToken) {
  EXPECT_FALSE(refusal(kLimits, {}, 1, 1, 1));
  EXPECT_FALSE(refusal(kLimits, {}, 299, StoppingParams::kNoLimit, 4));
  EXPECT_FALSE(refusal(kLimits, {2, 400}, 100, 1, 1));
}

TEST(Admission, RefusesWhatCanNeverFitWithTheNumbers) {
  Error error = refused(kLimits, {}, 300, 1, 1);
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, AllOf(HasSubstr("prompt"), HasSubstr("300"), HasSubstr("context")));

  SchedulerLimits small_pool = kLimits;
  small_pool.max_context = 8192;
  EXPECT_FALSE(refusal(small_pool, {}, 319, 500, 1));
  error = refused(small_pool, {}, 320, 1, 1);
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, AllOf(HasSubstr("prompt"), HasSubstr("320"), HasSubstr("20 blocks of 16")));

  error = refused(kLimits, {}, 5, 1, 5);
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, AllOf(HasSubstr("n: 5"), HasSubstr("4"), HasSubstr("max_num_seqs")));
}

TEST(Admission, APromptAloneMayFillTheContext) {
  EXPECT_FALSE(refusal(kLimits, {}, 300, 0, 1));
  EXPECT_EQ(clipped_max_tokens(kLimits, 300, 0), 0);
  const Error error = refused(kLimits, {}, 301, 0, 1);
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, testing::Not(HasSubstr("to be made")));
  SchedulerLimits small_pool = kLimits;
  small_pool.max_context = 8192;
  EXPECT_FALSE(refusal(small_pool, {}, 320, 0, 1));
  EXPECT_THAT(refused(small_pool, {}, 321, 0, 1).message, HasSubstr("20 blocks of 16"));
}

TEST(Admission, RefusesWhatAsksForNothing) {
  EXPECT_THAT(refused(kLimits, {}, 0, 1, 1).message, HasSubstr("prompt"));
  EXPECT_THAT(refused(kLimits, {}, 1, -1, 1).message, HasSubstr("max_tokens"));
  EXPECT_THAT(refused(kLimits, {}, 1, 1, 0).message, HasSubstr("n:"));
}

TEST(Admission, RefusesWhenTheQueueIsFull) {
  Error error = refused(kLimits, {3, 3}, 1, 1, 1);
  EXPECT_EQ(error.code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(error.message, HasSubstr("3 requests"));
  error = refused(kLimits, {2, 401}, 100, 1, 1);
  EXPECT_EQ(error.code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(error.message, AllOf(HasSubstr("401"), HasSubstr("100"), HasSubstr("500")));
}

TEST(Admission, APromptOverTheQueueLimitIsTakenByAnEmptyQueue) {
  SchedulerLimits limits = kLimits;
  limits.max_queue_tokens = 10;
  EXPECT_FALSE(refusal(limits, {}, 100, 1, 1));
}

TEST(Admission, MaxTokensIsClippedToTheRestOfTheContext) {
  EXPECT_EQ(clipped_max_tokens(kLimits, 299, StoppingParams::kNoLimit), 1);
  EXPECT_EQ(clipped_max_tokens(kLimits, 200, 1000), 100);
  EXPECT_EQ(clipped_max_tokens(kLimits, 200, 7), 7);
}

}  // namespace
}  // namespace folio
