// What the KV cache is for: the same generation with it and without it, at several lengths, on three small models that
// differ only in their heads of K and V (MHA, GQA, MQA), or on one model of the caller's. Time a token, operations and
// bytes a token, the memory kept, and whether computing or memory is the limit on this machine. Both ways must give the
// same ids and the same bits of log probability, or it is an error.
#pragma once
#include <CLI/CLI.hpp>

namespace folio::bench {

void add_kv_cache_command(CLI::App& app);

}  // namespace folio::bench
