// Fuzz target: any byte string is a history of operations on a block manager and its plain twin (block_world.h). A
// difference between the two, a broken invariant or what the sanitizers see ends the run; the crash input replays with
// `block_manager_fuzz FILE`.
#include <cstdio>
#include <cstdlib>

#include "tests/block_manager/block_world.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  folio::Met met;
  const auto fault = folio::run_operations({data, size}, met);
  if (!fault) return 0;
  std::fprintf(stderr, "%s\n", fault->c_str());
  std::abort();
}
