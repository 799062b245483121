// How many files, sockets among them, this process may have open (RLIMIT_NOFILE).
#pragma once
#include <cstddef>

namespace folio {

// Raises what is allowed now towards what may be allowed, as far as connections need it. Once, early.
void raise_open_files();

// As many may be connections, so that none is taken that then has nothing to read a model with.
std::size_t max_connection_files();

}  // namespace folio
