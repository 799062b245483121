#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/cgroup.h"
#include "base/thread_pool.h"

namespace folio {
namespace {

constexpr double kMaxQuotaCores = 1 << 20;

std::optional<double> read_cpu_max(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(quota.c_str(), &end);
  if (*end != '\0' || value <= 0) return std::nullopt;
  return value / period;
}

std::optional<double> read_cfs_quota(const std::string& folder) {
  double quota = 0;
  double period = 0;
  if (!(std::ifstream(folder + "/cpu.cfs_quota_us") >> quota)) return std::nullopt;
  if (!(std::ifstream(folder + "/cpu.cfs_period_us") >> period)) return std::nullopt;
  if (quota <= 0 || period <= 0) return std::nullopt;  // a quota of -1 is none
  return quota / period;
}

// The smallest value of `read` over mount + path and the folders above it, mount included: a group's share is bounded
// by its ancestors' too. Inside a container the path may not exist below the mount; then only the mount speaks.
template <class Read>
std::optional<double> tightest(const std::string& mount, std::string path, Read read) {
  std::optional<double> limit;
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    const std::optional<double> here = read(mount + path);
    if (here && (!limit || *here < *limit)) limit = here;
    if (path.empty()) return limit;
    path.erase(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

bool lists_cpu_controller(const std::string& controllers) {
  return ("," + controllers + ",").find(",cpu,") != std::string::npos;
}

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

std::optional<int> cgroup_cpu_limit(const std::string& membership_file, const std::string& mount) {
  std::ifstream file(membership_file);
  std::optional<double> limit;
  // Lines are "hierarchy:controllers:path"; version 2 is hierarchy 0 without controllers.
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    std::optional<double> found;
    if (controllers.empty()) {
      found = tightest(mount, path, read_cpu_max);
    } else if (lists_cpu_controller(controllers)) {
      found = tightest(mount + "/cpu", path, read_cfs_quota);
    }
    if (found && (!limit || *found < *limit)) limit = found;
  }
  if (!limit) return std::nullopt;
  const double cores = std::min(*limit, kMaxQuotaCores);
  const int whole = static_cast<int>(cores);
  return std::max(1, whole + (cores > whole ? 1 : 0));
}

int available_cores() {
  const int cores = std::max(1, affinity_cores());
  const std::optional<int> quota = cgroup_cpu_limit("/proc/self/cgroup", "/sys/fs/cgroup");
  return quota ? std::min(cores, *quota) : cores;
}

}  // namespace folio
