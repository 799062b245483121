#include "client/load_test/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

#include "client/load_test/progress.h"
#include "tests/support/temp_folder.h"

namespace folio::client {
namespace {

using ::testing::HasSubstr;

TEST(OutputFile, KeepsAnOlderRunUntilThisOneBeginsAndHoldsWhatWasWrittenAtOnce) {
  const testing::TempFolder folder;
  const std::string path = folder.write("out", "older and longer");
  OutputFile file(path);
  EXPECT_EQ(testing::read_file(path), "older and longer");
  file.clear();
  EXPECT_EQ(testing::read_file(path), "");
  file.write("one\n");
  EXPECT_EQ(testing::read_file(path), "one\n");  // though the file is still open
  file.write("two\n");
  EXPECT_EQ(testing::read_file(path), "one\ntwo\n");
}

TEST(OutputFile, WhatCannotBeWrittenIsToldWhenItIsOpened) {
  for (const auto& [path, why] :
       {std::pair("/no/such/folder/out", "No such file"), std::pair("/dev/full", "No space left")}) {
    try {
      OutputFile file(path);
      ADD_FAILURE() << path;
    } catch (const std::runtime_error& failure) {
      EXPECT_THAT(failure.what(), HasSubstr(std::string(path) + ": cannot be written: " + why));
    }
  }
}

TEST(Progress, TheLineSaysRateFlightFailuresAndFirstTokens) {
  ProgressState state;
  state.elapsed_s = 12;
  state.num_sent = 45;
  state.num_ended = 37;
  state.num_failed = 2;
  state.num_requests = 64;
  state.ends_per_second = 3.14;
  EXPECT_EQ(progress_line(state), "12.0 s  37/64 requests  3.1/s  in flight 8  2 failed");
  state.ttft_p50_ms = 41.4;
  state.num_requests.reset();
  EXPECT_EQ(progress_line(state), "12.0 s  37 requests  3.1/s  in flight 8  2 failed  TTFT p50 41 ms");
}

TEST(Progress, CountsWhatItIsTold) {
  Progress progress(10);
  for (int i = 0; i < 5; ++i) progress.sent();
  RequestRecord record;
  record.outcome = Outcome::kOk;
  for (const double ttft_s : {0.010, 0.030, 0.020}) {
    record.first_s = ttft_s;
    progress.ended(record);
  }
  record.outcome = Outcome::kEmpty;
  progress.ended(record);
  const ProgressState state = progress.state();
  EXPECT_EQ(state.num_sent, 5);
  EXPECT_EQ(state.num_ended, 4);
  EXPECT_EQ(state.num_failed, 1);
  EXPECT_NEAR(*state.ttft_p50_ms, 20, 1e-9);
  EXPECT_GT(state.ends_per_second, 0);
}

TEST(OutputFile, AReaderOfAPipeSeesWhatWasWrittenAlone) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  {
    OutputFile file("/dev/fd/" + std::to_string(ends[1]));
    file.clear();
    file.write("{}\n");
  }
  close(ends[1]);
  char text[16];
  EXPECT_EQ(std::string(text, static_cast<std::size_t>(read(ends[0], text, sizeof text))), "{}\n");
  close(ends[0]);
}

}  // namespace
}  // namespace folio::client
