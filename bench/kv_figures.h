// What folio-bench kv-cache measured, and its plots.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "bench/pass_cost.h"

namespace folio::bench {

// One way at one length.
struct KvFigure {
  std::int64_t length = 0;
  double ms = 0;          // of the pass that gives a token, median
  PassCost cost;          // of that pass
  double kept_bytes = 0;  // of K and V between two passes
};

struct KvFigures {
  std::string model;
  std::vector<KvFigure> with, without;
  std::int64_t compute_bound_from = 0;  // tokens of a pass over a whole prompt; 0: never, or not known
};

// Tokens per second, operations a token, memory kept and operations a byte, against the length. `ridge`: operations a
// byte of this machine, 0: not known. The further lines of the title are its own.
std::string kv_plots(const std::string& title, const std::vector<KvFigures>& models, double ridge);

}  // namespace folio::bench
