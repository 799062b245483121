// Opens libfolio_cuda.so (cuda_plugin.h).
#pragma once
#include <memory>
#include <string>

#include "engine/kernels/cuda_plugin.h"

namespace folio {

// The library beside this program's own file, or else where the system looks for libraries. It stays open. Throws
// std::runtime_error beginning with "--device cuda: ": the library is not there, cannot be loaded, is of another build,
// or what it said.
std::unique_ptr<Backend> make_cuda_backend(const DeviceRequest& request);

// The same from this file; a name without a slash is looked for by the system.
std::unique_ptr<Backend> make_cuda_backend(const std::string& library, const DeviceRequest& request);

}  // namespace folio
