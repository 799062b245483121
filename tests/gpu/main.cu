// gpu_check PART [FILE]: one part of what scripts/gpu_check runs, its findings as JSON in FILE.
// Exit status: 0 all checks hold, 1 one does not, 2 a wrong command line, 3 there is no device.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <exception>
#include <string>

#include "tests/gpu/parts.h"

namespace {

using namespace folio::gpu;

struct Part {
  const char* name;
  void (*run)(Report&);
};
constexpr Part kParts[] = {{"attention", check_attention},     {"rows", check_rows},
                           {"sampling", check_sampling},       {"products", check_products},
                           {"tiny-models", check_tiny_models}, {"cut-model", check_cut_model},
                           {"sample", check_sample},           {"small-attention", check_small_attention},
                           {"time-attention", time_attention}, {"time-products", time_products},
                           {"time-cut", time_cut_model},       {"time-large", time_large_model}};

int usage() {
  std::fprintf(stderr, "usage: gpu_check PART [FILE]; parts:");
  for (const Part& part : kParts) std::fprintf(stderr, " %s", part.name);
  std::fprintf(stderr, "\n");
  return 2;
}

bool has_device() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) return true;
  std::fprintf(stderr, "gpu_check: no CUDA device: %s\n",
               code == cudaSuccess ? "none is there" : cudaGetErrorString(code));
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) return usage();
  const std::string name = argv[1];
  for (const Part& part : kParts) {
    if (name != part.name) continue;
    if (!has_device()) return 3;
    Report report(name, argc > 2 ? argv[2] : "");
    try {
      part.run(report);
    } catch (const std::exception& error) {
      report.check("runs to its end", false, error.what());
    }
    report.finish();
    return report.all_hold() ? 0 : 1;
  }
  return usage();
}
