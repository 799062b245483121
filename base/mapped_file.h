// A file's bytes, read-only: a private memory map, or a plain read into memory where the file system refuses maps.
#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace folio {

class MappedFile {
 public:
  // Throws std::runtime_error naming the path and the system's reason (not there, a directory, no permission, empty
  // ...).
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  // Tells the kernel that the pages wholly inside this range of bytes() are not needed any more; they stay readable.
  void give_back(std::size_t offset, std::size_t length) const;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  bool mapped_ = false;
};

}  // namespace folio
