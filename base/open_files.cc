#include "base/open_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>

namespace folio {

void raise_open_files(std::size_t wanted) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= wanted) return;
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, wanted);
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
