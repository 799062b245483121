#include "client/load_test/sse_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace folio::client {
namespace {

using ::testing::ElementsAre;

// "name|data" of the events, with the bytes given in pieces of `piece` bytes.
std::vector<std::string> events(std::string_view bytes, std::size_t piece) {
  SseReader reader;
  std::vector<std::string> out;
  SseEvent event;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    reader.append(bytes.substr(at, piece));
    while (reader.next(event)) out.push_back(event.name + "|" + event.data);
  }
  EXPECT_FALSE(reader.too_large());
  return out;
}

struct Case {
  std::string stream;
  std::vector<std::string> events;
};

const std::vector<Case> kCases = {
    {"data: a\n\ndata: b\n\n", {"|a", "|b"}},
    {"data: a\r\n\r\ndata: b\r\n\r\n", {"|a", "|b"}},
    {"data: a\r\rdata: b\r\r", {"|a", "|b"}},
    {"data: a\r\n\ndata: b\n\r\n", {"|a", "|b"}},
    {"\xEF\xBB\xBF"
     "data: a\n\n",
     {"|a"}},
    {"data: \xEF\xBB\xBF\n\n", {"|\xEF\xBB\xBF"}},
    {": a comment\n\n:\n\ndata: a\n:inside\n\n", {"|a"}},
    {"data: a\ndata: b\ndata:\ndata\n\n", {"|a\nb\n\n"}},
    {"data:a\n\ndata:  a\n\n", {"|a", "| a"}},
    {"event: error\ndata: a\n\ndata: b\n\n", {"error|a", "|b"}},
    {"error: {\"code\": 500}\n\ndata: b\n\n", {"error|{\"code\": 500}", "|b"}},
    {"event: nothing\n\ndata: b\n\n", {"|b"}},
    {"id: 7\nretry: 10\nunknown: x\ndata: a\n\n", {"|a"}},
    {"data: {\"a\": \"b: c\"}\n\n", {"|{\"a\": \"b: c\"}"}},
    {"\n\n\r\n\rdata: a\n\n", {"|a"}},
    {"data: a\n\ndata: cut\n", {"|a"}},
    {"data: a\n\ndata: cut", {"|a"}},
    {"data:\n\n", {"|"}},
};

TEST(SseReader, ReadsTheFormatHoweverItIsCut) {
  for (const Case& sample : kCases) {
    for (std::size_t piece = 1; piece <= sample.stream.size(); ++piece) {
      EXPECT_EQ(events(sample.stream, piece), sample.events) << sample.stream << " in pieces of " << piece;
    }
  }
}

TEST(SseReader, RandomCutsGiveTheSameEvents) {
  std::string stream;
  std::vector<std::string> expected;
  std::mt19937 random(7);
  const std::vector<std::string> ends = {"\n", "\r\n", "\r"};
  for (int i = 0; i < 300; ++i) {
    const std::string& end = ends[random() % ends.size()];
    const std::string text = std::string(random() % 40, 'x') + std::to_string(i);
    stream += "data: " + text + end + (random() % 3 == 0 ? ":note" + end : "") + end;
    // After a lone CR an LF would be its second half, so what follows begins with neither.
    expected.push_back("|" + text);
  }
  for (int round = 0; round < 20; ++round) {
    SseReader reader;
    std::vector<std::string> got;
    SseEvent event;
    for (std::size_t at = 0; at < stream.size();) {
      const std::size_t length = 1 + random() % 64;
      reader.append(std::string_view(stream).substr(at, length));
      at += length;
      while (reader.next(event)) got.push_back(event.name + "|" + event.data);
    }
    EXPECT_EQ(got, expected);
  }
}

TEST(SseReader, ALineAndAnEventAreBounded) {
  const std::string half(SseReader::kMaxEventBytes / 2 + 1, 'x');
  SseEvent event;
  SseReader line;
  line.append("data: " + half);
  EXPECT_FALSE(line.next(event));
  EXPECT_FALSE(line.too_large());
  line.append(half);
  EXPECT_FALSE(line.next(event));
  EXPECT_TRUE(line.too_large());
  line.append("\n\ndata: a\n\n");
  EXPECT_FALSE(line.next(event));

  SseReader joined;
  joined.append("data: " + half + "\ndata: " + half + "\n\ndata: a\n\n");
  EXPECT_FALSE(joined.next(event));
  EXPECT_TRUE(joined.too_large());

  SseReader fits;
  fits.append("data: " + half + "\n\n");
  EXPECT_TRUE(fits.next(event));
  EXPECT_EQ(event.data, half);
}

}  // namespace
}  // namespace folio::client
