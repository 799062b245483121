#include <algorithm>
#include <fstream>
#include <string>

#include "base/cgroup.h"
#include "engine/model/load_model.h"

namespace folio {
namespace {

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
  const std::uint64_t machine = machine_memory();
  const auto left = cgroup_memory_left("/proc/self/cgroup", "/sys/fs/cgroup");
  return left ? std::min(machine, *left) : machine;
}

}  // namespace folio
