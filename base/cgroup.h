// What a container runtime or service manager allows this process: the tightest limit between its control group and the
// root. `membership_file` is /proc/self/cgroup and `mount` is /sys/fs/cgroup, except in tests. Versions 1 and 2. None
// where no limit is set or none can be read.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace folio {

// Whole cores, rounded up, at least 1: cpu.max, or cpu.cfs_quota_us over cpu.cfs_period_us.
std::optional<int> cgroup_cpu_limit(const std::string& membership_file, const std::string& mount);

// Bytes that are left: memory.max less memory.current, or memory.limit_in_bytes less memory.usage_in_bytes.
std::optional<std::uint64_t> cgroup_memory_left(const std::string& membership_file, const std::string& mount);

}  // namespace folio
