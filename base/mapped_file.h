// A file's bytes, read-only: a private memory map, or a plain read into memory where the file system refuses maps.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace folio {

enum class FileAccess {
  kMap,   // map; read when the file system has no maps (a warning is logged)
  kRead,  // always read into memory
};

class MappedFile {
 public:
  // Throws std::runtime_error naming the path and the system's reason (not there, no permission, a directory, a pipe,
  // empty ...). Never writes, never waits. The file may be deleted afterwards; it must not be shortened.
  explicit MappedFile(const std::string& path, FileAccess access = FileAccess::kMap);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  bool is_mapped() const { return mapped_; }
  // Tells the kernel that the pages wholly inside this range of bytes() are not needed any more; they stay readable.
  void give_back(std::size_t offset, std::size_t length) const;

 private:
  std::string path_;
  std::unique_ptr<std::byte[]> copy_;  // when not mapped
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  bool mapped_ = false;
};

}  // namespace folio
