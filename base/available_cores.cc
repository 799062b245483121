#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <thread>
#include <vector>

#include "base/cgroup.h"
#include "base/thread_pool.h"

namespace folio {
namespace {

int affinity_cores() {
  // The kernel's mask may be longer than cpu_set_t: ask again with a longer one until it fits.
  for (int bits = CPU_SETSIZE; bits <= (1 << 20); bits *= 4) {
    std::vector<cpu_set_t> sets(CPU_ALLOC_SIZE(bits) / sizeof(cpu_set_t));
    const std::size_t bytes = sets.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, sets.data()) == 0) return CPU_COUNT_S(bytes, sets.data());
    if (errno != EINVAL) break;
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

int available_cores() {
  const int cores = std::max(1, affinity_cores());
  const std::optional<int> quota = cgroup_cpu_limit("/proc/self/cgroup", "/sys/fs/cgroup");
  return quota ? std::min(cores, *quota) : cores;
}

}  // namespace folio
