// base/log.h for a program without a logging library.
#include <cstdio>

#include "base/log.h"

namespace folio::log {

void write(Level, std::string_view message) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(message.size()), message.data());
}

}  // namespace folio::log
