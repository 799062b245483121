#include "base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "tests/support/temp_folder.h"

namespace folio {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string content(const MappedFile& file) {
  const auto bytes = file.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string error_of(const std::string& path) {
  try {
    const MappedFile file(path);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

class MappedFileTest : public ::testing::Test {
 protected:
  testing::TempFolder folder_;
};

TEST_F(MappedFileTest, BothWaysGiveTheBytes) {
  std::string bytes(70'001, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  const std::string path = folder_.write("with space and \xC3\xA9.bin", bytes);
  const MappedFile mapped(path);
  EXPECT_TRUE(mapped.is_mapped());
  EXPECT_EQ(mapped.path(), path);
  EXPECT_EQ(content(mapped), bytes);
  const MappedFile copied(path, FileAccess::kRead);
  EXPECT_FALSE(copied.is_mapped());
  EXPECT_EQ(content(copied), bytes);
}

TEST_F(MappedFileTest, OneByte) {
  EXPECT_EQ(content(MappedFile(folder_.write("one", "x"))), "x");
}

TEST_F(MappedFileTest, ReadOnlyFileInReadOnlyFolderThroughALink) {
  const std::string path = folder_.write("inner/file", "abc");
  ASSERT_EQ(::chmod(path.c_str(), 0444), 0);
  ASSERT_EQ(::chmod(folder_.path("inner").c_str(), 0555), 0);
  std::filesystem::create_symlink(path, folder_.path("link"));
  EXPECT_EQ(content(MappedFile(folder_.path("link"))), "abc");
  ASSERT_EQ(::chmod(folder_.path("inner").c_str(), 0755), 0);
}

TEST_F(MappedFileTest, StaysReadableAfterItsDeletion) {
  const std::string path = folder_.write("gone", "still here");
  const MappedFile file(path);
  std::filesystem::remove(path);
  EXPECT_EQ(content(file), "still here");
}

TEST_F(MappedFileTest, PagesGivenBackStayReadable) {
  std::string bytes(50'000, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 + i / 256);
  const std::string path = folder_.write("pages", bytes);
  for (const FileAccess access : {FileAccess::kMap, FileAccess::kRead}) {
    const MappedFile file(path, access);
    const std::size_t ends[] = {0, 1, 4095, 4096, 8191, 49'999, 50'000, 60'000, SIZE_MAX};
    for (const std::size_t offset : ends) {
      for (const std::size_t length : ends) file.give_back(offset, length);
    }
    EXPECT_EQ(content(file), bytes);
  }
}

TEST_F(MappedFileTest, RefusalsNameThePathAndTheReason) {
  EXPECT_THAT(error_of(folder_.path("absent")), AllOf(HasSubstr(folder_.path("absent")), HasSubstr("No such file")));
  EXPECT_THAT(error_of(folder_.path("")), HasSubstr("a directory"));
  EXPECT_THAT(error_of(folder_.write("empty", "")), AllOf(HasSubstr("empty"), HasSubstr("is empty")));
  EXPECT_THAT(error_of("/dev/null"), HasSubstr("a device"));
  EXPECT_THAT(error_of(""), HasSubstr("cannot open"));
  EXPECT_THAT(error_of(folder_.write("file", "x") + "/below"), HasSubstr("Not a directory"));
}

TEST_F(MappedFileTest, APipeIsRefusedWithoutWaiting) {
  ASSERT_EQ(::mkfifo(folder_.path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(error_of(folder_.path("pipe")), AllOf(HasSubstr("pipe"), HasSubstr("a pipe, not a file")));
}

TEST_F(MappedFileTest, ASocketIsRefused) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_GE(fd, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = folder_.path("s");
  ASSERT_LT(path.size(), sizeof address.sun_path);
  std::memcpy(address.sun_path, path.c_str(), path.size());
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_THAT(error_of(path), HasSubstr("cannot open"));
  ::close(fd);
}

TEST_F(MappedFileTest, NoPermission) {
  const std::string path = folder_.write("secret", "x");
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  GTEST_FLAG_SET(death_test_style, "fast");
  EXPECT_EXIT(
      {
        if (::geteuid() == 0 && ::seteuid(65534) != 0) std::_Exit(1);  // root may read every file
        std::fputs(error_of(path).c_str(), stderr);
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "secret: cannot open: Permission denied");
}

TEST_F(MappedFileTest, AFileSystemWithoutMapsIsReadInstead) {
  // The kernel maps no attribute file of sysfs, and says a size for it that is not its content's: refused, never a
  // crash.
  const std::string path = "/sys/kernel/mm/transparent_hugepage/enabled";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no sysfs here";
  ::testing::internal::CaptureStderr();
  const std::string error = error_of(path);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("cannot map"));
  EXPECT_THAT(error, HasSubstr("became shorter"));
}

}  // namespace
}  // namespace folio
