#include "base/cgroup.h"

#include <algorithm>
#include <fstream>
#include <functional>

namespace folio {
namespace {

constexpr double kMaxQuotaCores = 1 << 20;

using ReadLimit = std::optional<double> (*)(const std::string& folder);

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

std::optional<double> read_left(const std::string& limit_file, const std::string& used_file) {
  double limit = 0;
  double used = 0;
  if (!(std::ifstream(limit_file) >> limit) || !(std::ifstream(used_file) >> used)) return std::nullopt;  // "max": none
  return std::max(0.0, limit - used);
}
std::optional<double> read_memory_max(const std::string& folder) {
  return read_left(folder + "/memory.max", folder + "/memory.current");
}
std::optional<double> read_memory_limit(const std::string& folder) {
  return read_left(folder + "/memory.limit_in_bytes", folder + "/memory.usage_in_bytes");
}

// The smallest value of `read` over mount + path and the folders above it, mount included: a group's share is bounded
// by its ancestors' too. Inside a container the path may not exist below the mount; then only the mount speaks.
std::optional<double> tightest(const std::string& mount, std::string path, ReadLimit read) {
  std::optional<double> limit;
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    const std::optional<double> here = read(mount + path);
    if (here && (!limit || *here < *limit)) limit = here;
    if (path.empty()) return limit;
    path.erase(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

// Lines of the membership file are "hierarchy:controllers:path"; version 2 is hierarchy 0 without controllers.
std::optional<double> tightest_of(const std::string& membership_file, const std::string& mount,
                                  const std::string& controller, ReadLimit version2, ReadLimit version1) {
  std::ifstream file(membership_file);
  std::optional<double> limit;
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    std::optional<double> found;
    if (controllers.empty()) {
      found = tightest(mount, path, version2);
    } else if (("," + controllers + ",").find("," + controller + ",") != std::string::npos) {
      found = tightest(mount + "/" + controller, path, version1);
    }
    if (found && (!limit || *found < *limit)) limit = found;
  }
  return limit;
}

}  // namespace

std::optional<int> cgroup_cpu_limit(const std::string& membership_file, const std::string& mount) {
  const auto limit = tightest_of(membership_file, mount, "cpu", read_cpu_max, read_cfs_quota);
  if (!limit) return std::nullopt;
  const double cores = std::min(*limit, kMaxQuotaCores);
  const int whole = static_cast<int>(cores);
  return std::max(1, whole + (cores > whole ? 1 : 0));
}

std::optional<std::uint64_t> cgroup_memory_left(const std::string& membership_file, const std::string& mount) {
  const auto left = tightest_of(membership_file, mount, "memory", read_memory_max, read_memory_limit);
  if (!left || *left > 1e18) return std::nullopt;  // version 1 says "no limit" by a huge number
  return static_cast<std::uint64_t>(*left);
}

}  // namespace folio
