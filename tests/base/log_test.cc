#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace folio {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class LogTest : public ::testing::Test {
 protected:
  ~LogTest() override {
    log::set_json(false);
    log::set_level(log::Level::kInfo);
  }
  static std::string captured(const std::function<void()>& body) {
    ::testing::internal::CaptureStderr();
    body();
    return ::testing::internal::GetCapturedStderr();
  }
  static std::string text(const std::string& message) {
    return captured([&] { log::info(message); });
  }
  static nlohmann::json json(const std::string& message) {
    log::set_json(true);
    const std::string line = captured([&] { log::warn(message); });
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
    return nlohmann::json::parse(line);  // strict: also refuses broken UTF-8
  }
};

TEST_F(LogTest, TextLineHasTimeLevelAndMessage) {
  EXPECT_THAT(
      text("loaded model {}"),
      ::testing::MatchesRegex("[0-9]+-[0-9]+-[0-9]+ [0-9]+:[0-9]+:[0-9]+\\.[0-9]+ info: loaded model \\{\\}\n"));
}

TEST_F(LogTest, ALineCannotBeForged) {
  EXPECT_THAT(text("user\r\n2030-01-01 00:00:00.000 error: forged"), HasSubstr("user\\r\\n2030"));
  const std::string line = text(std::string("a\0b\x1b[31m\x7f\xc2\x85\xe2\x80\xa8 \t.", 17));
  EXPECT_THAT(line, EndsWith("a\\x00b\\x1b[31m\\x7f\\xc2\\x85\\xe2\\x80\\xa8 \\t.\n"));
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
}

TEST_F(LogTest, Utf8StaysAndBrokenBytesAreShown) {
  EXPECT_THAT(text("é 漢 🙂"), EndsWith("é 漢 🙂\n"));
  EXPECT_THAT(text("\xff\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\xe2\x82"),
              EndsWith("\\xff\\xc0\\xaf\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80\\xe2\\x82\n"));
}

TEST_F(LogTest, JsonIsOneObjectALine) {
  const nlohmann::json record = json("say \"hi\\\" \n{\"level\":\"error\"} \x01 é");
  EXPECT_EQ(record.at("message"), "say \"hi\\\" \n{\"level\":\"error\"} \x01 é");
  EXPECT_EQ(record.at("level"), "warning");
  EXPECT_THAT(record.at("time").get<std::string>(), ::testing::ContainsRegex("^[0-9-]+T[0-9:]+\\.[0-9]+[+-]"));
  EXPECT_EQ(record.size(), 3U);
}

TEST_F(LogTest, JsonStaysParseableWithAnyBytes) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string message = {'a', static_cast<char>(byte), 'b'};
    EXPECT_THAT(json(message).at("message").get<std::string>(), ::testing::StartsWith("a")) << byte;
  }
}

TEST_F(LogTest, LevelsBelowAreSilent) {
  log::set_level(log::Level::kWarn);
  const std::string out = captured([] {
    log::debug("one");
    log::info("two");
    log::warn("three");
    log::error("four");
  });
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 2);
  EXPECT_THAT(out, HasSubstr("error: four"));
  log::set_level(log::Level::kDebug);
  EXPECT_THAT(captured([] { log::debug("five"); }), HasSubstr("debug: five"));
}

TEST_F(LogTest, LinesOfManyThreadsStayWhole) {
  const std::string out = captured([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < 100; ++i) log::info("0123456789");
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  std::istringstream lines(out);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_THAT(line, EndsWith("info: 0123456789"));
  EXPECT_EQ(count, 400);
}

// Ten in a period; the next period begins with how many there were more.
TEST_F(LogTest, WhatOthersCanCauseIsLimited) {
  log::Limited limited(log::Level::kWarn);
  const TimePoint start = std::chrono::steady_clock::now();
  const auto written = [&](int count, Duration after) {
    return captured([&] {
      for (int i = 0; i < count; ++i) limited.write("peer " + std::to_string(i), start + after);
    });
  };
  const std::string first = written(1000, Duration(0));
  EXPECT_EQ(std::count(first.begin(), first.end(), '\n'), log::Limited::kRecords);
  EXPECT_THAT(first, HasSubstr("warning: peer 9\n"));
  EXPECT_EQ(written(5, log::Limited::kPeriod - Duration(1)), "");
  const std::string second = written(2, log::Limited::kPeriod);
  EXPECT_THAT(second, HasSubstr("warning: peer 0 (995 like it before were left out)\n"));
  EXPECT_THAT(second, EndsWith("peer 1\n"));
}

// What the level hides is not counted either.
TEST_F(LogTest, AHiddenRecordTakesNoPlace) {
  log::Limited limited(log::Level::kDebug);
  const TimePoint now = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) limited.write("hidden", now);
  log::set_level(log::Level::kDebug);
  EXPECT_THAT(captured([&] { limited.write("shown", now); }), EndsWith("debug: shown\n"));
}

}  // namespace
}  // namespace folio
