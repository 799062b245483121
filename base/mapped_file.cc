#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <limits>
#include <new>
#include <stdexcept>
#include <system_error>

#include "base/log.h"

namespace folio {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw std::runtime_error(path + ": " + why);
}

std::string reason(int error) {
  return std::generic_category().message(error);
}

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// The size of an open regular file.
std::size_t checked_size(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) refuse(path, "cannot read its size: " + reason(errno));
  if (!S_ISREG(info.st_mode)) refuse(path, std::string("is ") + kind_of(info.st_mode) + ", not a file");
  if (info.st_size <= 0) refuse(path, "is empty");
  return static_cast<std::size_t>(info.st_size);
}

void read_all(int fd, const std::string& path, std::byte* out, std::size_t size) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t got = ::pread(fd, out + done, size - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(path, "cannot read: " + reason(errno));
    if (got == 0) refuse(path, "became shorter while it was read");
    done += static_cast<std::size_t>(got);
  }
}

}  // namespace

MappedFile::MappedFile(const std::string& path, FileAccess access) : path_(path) {
  // O_NONBLOCK: a pipe without a writer must be refused below, not waited for. It means nothing for regular files.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) refuse(path, "cannot open: " + reason(errno));
  size_ = checked_size(file.fd, path);
  if (access == FileAccess::kMap) {
    void* map = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (map != MAP_FAILED) {
      data_ = static_cast<const std::byte*>(map);
      mapped_ = true;
      return;
    }
    log::warn(path + ": cannot map (" + reason(errno) + "): reading it into memory");
  }
  copy_.reset(new (std::nothrow) std::byte[size_]);
  if (!copy_) refuse(path, "no memory for its " + std::to_string(size_) + " bytes");
  read_all(file.fd, path, copy_.get(), size_);
  data_ = copy_.get();
}

MappedFile::~MappedFile() {
  if (mapped_) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::give_back(std::size_t offset, std::size_t length) const {
  if (!mapped_ || offset >= size_) return;
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t end = length < size_ - offset ? offset + length : size_;
  const std::size_t first = (offset + page - 1) / page * page;
  const std::size_t last = end / page * page;  // the file's own last, partly filled page stays
  if (first >= last) return;
  // Only advice: the pages come back from the file when they are read again, so a refusal changes nothing.
  static_cast<void>(::madvise(const_cast<std::byte*>(data_) + first, last - first, MADV_DONTNEED));
}

}  // namespace folio
