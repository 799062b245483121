#include "client/history_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace folio::client {
namespace {

unsigned mode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 0777U;
}

TEST(HistoryFileTest, LinesComeBackAndAreTheOwnersAlone) {
  const testing::TempFolder folder;
  const std::string path = folder.path("state/folio/chat_history");
  const HistoryFile file(path);
  EXPECT_TRUE(file.load().empty());
  EXPECT_TRUE(file.add("h\xC3\xA9llo"));
  EXPECT_TRUE(file.add("again"));
  EXPECT_EQ(file.load(), (std::vector<std::string>{"h\xC3\xA9llo", "again"}));
  EXPECT_EQ(mode_of(path), 0600U);
  EXPECT_EQ(mode_of(folder.path("state/folio")), 0700U);
}

TEST(HistoryFileTest, AFileThatOthersCouldReadIsClosedToThem) {
  const testing::TempFolder folder;
  const std::string path = folder.write("history", "old\n\n\xFF bad\n");
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  const HistoryFile file(path);
  EXPECT_EQ(file.load(), std::vector<std::string>{"old"});
  EXPECT_TRUE(file.add("new"));
  EXPECT_EQ(mode_of(path), 0600U);
}

TEST(HistoryFileTest, ItIsCutWhenItHasGrown) {
  const testing::TempFolder folder;
  std::string lines;
  for (std::size_t i = 0; i < 2 * HistoryFile::kMaxLines; ++i) lines += std::to_string(i) + "\n";
  const std::string path = folder.write("history", lines);
  const std::vector<std::string> kept = HistoryFile(path).load();
  ASSERT_EQ(kept.size(), HistoryFile::kMaxLines);
  EXPECT_EQ(kept.front(), std::to_string(HistoryFile::kMaxLines));
  EXPECT_EQ(HistoryFile(path).load(), kept);
  EXPECT_EQ(testing::read_file(path).substr(0, 5), "1000\n");
}

TEST(HistoryFileTest, WhereItCannotBe) {
  EXPECT_TRUE(HistoryFile("").add("x"));  // none is wanted
  EXPECT_FALSE(HistoryFile("/dev/null/folder/history").add("x"));
  EXPECT_TRUE(HistoryFile("/dev/null/folder/history").load().empty());
}

TEST(HistoryFileTest, ItsPathFollowsTheEnvironment) {
  setenv("HOME", "/home/somebody", 1);
  setenv("XDG_STATE_HOME", "/state", 1);
  EXPECT_EQ(HistoryFile::default_path(), "/state/folio/chat_history");
  setenv("XDG_STATE_HOME", "relative", 1);  // to be ignored, the specification says
  EXPECT_EQ(HistoryFile::default_path(), "/home/somebody/.local/state/folio/chat_history");
  unsetenv("XDG_STATE_HOME");
  unsetenv("HOME");
  EXPECT_EQ(HistoryFile::default_path(), "");
}

}  // namespace
}  // namespace folio::client
