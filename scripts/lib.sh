# What the scripts share. Sourced by them: bash, with `set -euo pipefail` and the source folder as working directory.

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() {
  say "$*"
  exit 1
}

# Debian's own Python: the packages python3-* are for this one, whatever comes first in PATH.
PYTHON=/usr/bin/python3

# How many compilers at once: one a core, but none without 1.5 GiB of memory to itself (the gRPC headers ask for it).
build_jobs() {
  local cores memory_kib by_memory
  cores=$(nproc)
  memory_kib=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)
  by_memory=$((memory_kib / (1536 * 1024)))
  if ((by_memory < 1)); then by_memory=1; fi
  echo $((cores < by_memory ? cores : by_memory))
}

# NVIDIA's compiler, if it is there.
cuda_compiler() {
  command -v nvcc || { [[ -x /usr/local/cuda/bin/nvcc ]] && echo /usr/local/cuda/bin/nvcc; }
}
