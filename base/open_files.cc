#include "base/open_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>

namespace folio {
namespace {

constexpr rlim_t kWanted = 8192;  // shells give 1024, which select() needs and nothing here

}  // namespace

void raise_open_files() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= kWanted) return;
  files.rlim_cur = std::min(files.rlim_max, kWanted);
  setrlimit(RLIMIT_NOFILE, &files);  // refused: it stays as it is
}

std::size_t max_connection_files(std::size_t spare) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) {
    return std::numeric_limits<std::size_t>::max();
  }
  const auto allowed = static_cast<std::size_t>(files.rlim_cur);
  return allowed > 2 * spare ? allowed - spare : allowed / 2;
}

}  // namespace folio
