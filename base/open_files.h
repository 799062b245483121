// How many files, sockets among them, this process may have open (RLIMIT_NOFILE).
#pragma once
#include <cstddef>

namespace folio {

// Raises what is allowed now to `wanted`, as far as it may be. Once, early. (Shells give 1024, which select() needs.)
void raise_open_files(std::size_t wanted);

// Left to everything else than callers' connections, such as the model's file.
inline constexpr std::size_t kSpareFiles = 128;
// As many may be connections, so that `spare` are left; half of them where that would be more.
std::size_t max_connection_files(std::size_t spare = kSpareFiles);

}  // namespace folio
