// A file that a run writes at its end, or line by line: whether it can be written is known before the run.
#pragma once
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace folio::client {

class OutputFile {
 public:
  // Opens the file and writes a byte to see that there is room. What is in it stays until clear. Throws
  // std::runtime_error "PATH: why".
  explicit OutputFile(const std::string& path);

  // Once, before the first write: the run begins, and what is in the file is an older one's. Throws as above.
  void clear();
  // Out of this process when it returns: what was written stays if the process is killed. Throws as above.
  void write(std::string_view text);

 private:
  [[noreturn]] void fail() const;

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace folio::client
