// A fresh folder of a test's own, removed with all that is in it at the end.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace folio::testing {

class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path(const std::string& name) const { return (root_ / name).string(); }
  // Writes a file (folders above it too) and gives its path.
  std::string write(const std::string& name, std::string_view bytes) const;

 private:
  std::filesystem::path root_;
};

// A whole file; throws std::runtime_error naming the path when it cannot be read.
std::string read_file(const std::string& path);

}  // namespace folio::testing
