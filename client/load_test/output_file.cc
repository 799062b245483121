#include "client/load_test/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace folio::client {

OutputFile::OutputFile(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "w")) {
  if (file_ == nullptr) fail();
  write("\n");
  // What is no plain file (a terminal, a pipe) keeps the line.
  if (std::fseek(file_.get(), 0, SEEK_SET) == 0 && ftruncate(fileno(file_.get()), 0) != 0 && errno != EINVAL) fail();
}

void OutputFile::write(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() || std::fflush(file_.get()) != 0) fail();
}

void OutputFile::fail() const {
  throw std::runtime_error(path_ + ": cannot be written: " + std::strerror(errno));
}

}  // namespace folio::client
