// Each fault that the runner is for, planted on purpose, is seen: with its source line, and in the build that says it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/simt/device_buffer.h"
#include "tests/simt/faulty_kernels.h"

namespace folio::cuda {
namespace {

using simt::DeviceBuffer;
using ::testing::ContainsRegex;

#ifdef FOLIO_SIMT_RACE
constexpr bool kRaceBuild = true;
#else
constexpr bool kRaceBuild = false;
#endif

std::vector<float> inputs() {
  std::vector<float> values(kFaultyCtas * kFaultyThreads);
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

std::vector<float> run_with(Fault fault) {
  const DeviceBuffer<float> from(inputs());
  DeviceBuffer<float> to(from.size());
  faulty_kernel(fault, from.data(), to.data());
  return to.to_vector();
}

bool is_right(const std::vector<float>& results) {
  const std::vector<float> from = inputs();
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (results[i] != 2 * from[i ^ 33] + from[i ^ 1]) return false;
  }
  return true;
}

std::string error_of(Fault fault) {
  try {
    run_with(fault);
  } catch (const simt::SimtError& error) {
    return error.what();
  }
  return "no error";
}

// In every order.
void expect_error(Fault fault, const std::string& pattern) {
  simt::in_every_order([&](simt::Order) { EXPECT_THAT(error_of(fault), ContainsRegex(pattern)); });
}

// A fault that AddressSanitizer ends the process for, with `report`, and that the race build calls `error`.
void expect_bad_memory(Fault fault, const std::string& report, const std::string& error) {
  if (kRaceBuild) {
    expect_error(fault, error);
  } else {
    EXPECT_DEATH(run_with(fault), report);
  }
}

constexpr const char* kLine = "tests/simt/faulty_kernels.cc:[0-9]+";
std::string at(const std::string& before, const std::string& after = "") {
  return before + " at " + kLine + after;
}

TEST(FaultsTest, NoFault) {
  simt::in_every_order([&](simt::Order) { EXPECT_TRUE(is_right(run_with(Fault::kNone))); });
}

TEST(FaultsTest, MissingSyncCta) {
  if (kRaceBuild) {
    simt::set_order(simt::Order::kForward);
    EXPECT_THAT(error_of(Fault::kNoSyncCta), ContainsRegex(at("shared memory by thread 0 .*", ", which nobody wrote")));
    expect_error(Fault::kNoSyncCtaBefore, at("race: .*", ".* with no sync_cta between them"));
  } else {
    EXPECT_FALSE(is_right(run_with(Fault::kNoSyncCta)));
    EXPECT_FALSE(is_right(run_with(Fault::kNoSyncCtaBefore)));
  }
}

// Lanes come to the shuffle before any reads, so that the values are right: only the race build sees it.
TEST(FaultsTest, MissingSyncWarp) {
  if (kRaceBuild) {
    expect_error(Fault::kNoSyncWarp, at("race: a read of 4 bytes of shared memory .*", " and a write by .*") +
                                         at("", " with no sync_warp between them"));
  } else {
    EXPECT_TRUE(is_right(run_with(Fault::kNoSyncWarp)));
  }
}

TEST(FaultsTest, MissingWait) {
  expect_bad_memory(Fault::kNoWait, "use-after-poison", at("a read .*", ", where a copy has not landed"));
}

TEST(FaultsTest, CopyToWhereOthersRead) {
  expect_bad_memory(Fault::kLateCopy, "use-after-poison", "race|has not landed");
}

TEST(FaultsTest, PastTheEnd) {
  expect_bad_memory(Fault::kReadPastEnd, "READ of size 4", at("a read .*", ", outside of what the kernel was given"));
  expect_bad_memory(Fault::kWritePastEnd, "WRITE of size 4",
                    at("a write .*", ", outside of what the kernel was given"));
  expect_bad_memory(Fault::kPieceOverrun, "WRITE of size 4", at("a write .* shared .*", ", outside"));
}

// Values come out right in some orders of threads, or in all: only the race build is sure to see these.
TEST(FaultsTest, OneOfSeveralReadersAndBytesOfAWord) {
  if (kRaceBuild) {
    expect_error(Fault::kWriteAfterReads, at("race: a (read|write) .*", " and a (read|write) by .*") + kLine);
    expect_error(Fault::kSharedByte,
                 at("race: a write of 1 bytes .*", " and a write by .*") + at("", " with no sync_warp between them"));
  } else {
    EXPECT_TRUE(is_right(run_with(Fault::kSharedByte)));
  }
}

// NaN in the first build.
TEST(FaultsTest, UnwrittenSharedMemory) {
  if (kRaceBuild) {
    expect_error(Fault::kUnwritten, at("a read of 4 bytes of shared memory .*", ", which nobody wrote"));
  } else {
    EXPECT_FALSE(is_right(run_with(Fault::kUnwritten)));
  }
}

TEST(FaultsTest, ThreadsThatDoNotMeet) {
  const std::string barrier = at("sync_cta");
  expect_error(Fault::kDivergentBarrier,
               "CTA .*divergent barrier: thread [0-9]+ .*" + barrier + ", another .*" + at(""));
  expect_error(Fault::kBarrierInHalf, "divergent barrier: |no thread can go on: ");
  expect_error(Fault::kEndedThread, "no thread can go on: 1 ended, the first is thread 63 .*63 in " + barrier);
  expect_error(Fault::kLaneMissing, "divergent warp operation: thread 31 .* in " + at("shuffle_xor") + ".* in " +
                                        at("shuffle") + "|divergent warp operation: .* in " + at("shuffle"));
  expect_error(Fault::kLaneElsewhere, "divergent warp operation: .* in " + at("shuffle") + ", .* in " + at("shuffle"));
}

TEST(FaultsTest, SharedMemoryThatDiffers) {
  expect_error(Fault::kTakesDiffer, at("take", " of (128|256) bytes by thread .*: another thread's was ") + at("take"));
  expect_error(Fault::kTooMuchShared, at("take", ": 768 bytes of shared memory, and the launch gave 512"));
}

// Either value is right for one of the two, and CTAs run in turn: only the race build sees it.
TEST(FaultsTest, CtasThatMeet) {
  if (kRaceBuild) {
    expect_error(Fault::kCtasMeet,
                 at("race: a write .* global .*", " and a write by thread 5 .* of another CTA") + at(""));
    expect_error(Fault::kCtasReadWrite, "race: .* of another CTA at ");
  } else {
    EXPECT_NO_THROW(run_with(Fault::kCtasMeet));
  }
}

TEST(FaultsTest, MemoryThatIsNotTheDevices) {
  if (kRaceBuild) {
    expect_error(Fault::kForeignMemory, at("a write of 4 bytes .*", ", which is not device memory"));
  } else {  // the program's own: AddressSanitizer has nothing against it
    EXPECT_TRUE(is_right(run_with(Fault::kForeignMemory)));
  }
}

TEST(FaultsTest, Alignment) {
  expect_error(Fault::kMisaligned, "copy_16_async: an address that is no multiple of 16 bytes");
}

}  // namespace
}  // namespace folio::cuda
