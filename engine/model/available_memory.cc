#include <algorithm>
#include <fstream>
#include <string>

#include "engine/model/load_model.h"

namespace folio {
namespace {

// The number in a one-line file, or none ("max", no such file).
bool read_number(const char* path, std::uint64_t& value) {
  std::ifstream in(path);
  return static_cast<bool>(in >> value);
}

std::uint64_t machine_memory() {
  std::ifstream in("/proc/meminfo");
  std::string key;
  std::uint64_t kib = 0;
  std::string unit;
  while (in >> key >> kib) {
    if (key == "MemAvailable:") return kib << 10U;
    std::getline(in, unit);
  }
  return std::uint64_t{1} << 30U;  // a system that does not say
}

}  // namespace

std::uint64_t available_memory() {
  std::uint64_t available = machine_memory();
  std::uint64_t limit = 0;
  std::uint64_t used = 0;
  const bool v2 = read_number("/sys/fs/cgroup/memory.max", limit) && read_number("/sys/fs/cgroup/memory.current", used);
  const bool v1 = !v2 && read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes", limit) &&
                  read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes", used);
  if (v2 || v1) available = std::min(available, limit > used ? limit - used : 0);
  return available;
}

}  // namespace folio
