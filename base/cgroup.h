// The CPU quota that a container runtime set for this process.
#pragma once
#include <optional>
#include <string>

namespace folio {

// Whole cores (rounded up, at least 1) of the tightest quota between this process's control group and the root, or none
// where no quota is set or none can be read. `membership_file` is /proc/self/cgroup and `mount` is /sys/fs/cgroup,
// except in tests. Knows version 2 (cpu.max) and version 1 (cpu.cfs_quota_us over cpu.cfs_period_us).
std::optional<int> cgroup_cpu_limit(const std::string& membership_file, const std::string& mount);

}  // namespace folio
