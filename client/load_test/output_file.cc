#include "client/load_test/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace folio::client {

OutputFile::OutputFile(const std::string& path) : path_(path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) fail();
  file_.reset(fdopen(fd, "w"));  // truncates nothing
  struct stat before {};
  if (fstat(fd, &before) != 0) fail();
  const bool is_plain = S_ISREG(before.st_mode);
  if (S_ISFIFO(before.st_mode) || S_ISSOCK(before.st_mode) || isatty(fd) != 0) return;  // whose reader would see it
  if ((is_plain ? pwrite(fd, "\n", 1, before.st_size) : ::write(fd, "\n", 1)) != 1) fail();
  if (is_plain && ftruncate(fd, before.st_size) != 0) fail();
}

void OutputFile::clear() {
  if (ftruncate(fileno(file_.get()), 0) != 0 && errno != EINVAL) fail();  // EINVAL: no plain file
}

void OutputFile::write(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() || std::fflush(file_.get()) != 0) fail();
}

void OutputFile::fail() const {
  throw std::runtime_error(path_ + ": cannot be written: " + std::strerror(errno));
}

}  // namespace folio::client
