// FOLIO_CHECK: an invariant of ours, in every build. A failure is a bug of folio, never bad input: it says which and
// aborts.
#pragma once
#include <cstdio>
#include <cstdlib>

namespace folio {
[[noreturn]] inline void check_failed(const char* condition, const char* file, int line, const char* what) {
  std::fprintf(stderr, "folio: broken invariant: %s (%s:%d) %s\n", condition, file, line, what);
  std::abort();
}
}  // namespace folio

#define FOLIO_CHECK(condition, what) \
  (static_cast<bool>(condition) ? void(0) : ::folio::check_failed(#condition, __FILE__, __LINE__, what))
