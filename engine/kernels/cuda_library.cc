#include "engine/kernels/cuda_library.h"

#include <dlfcn.h>

#include <filesystem>
#include <stdexcept>

namespace folio {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("--device cuda: " + what);
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const DeviceRequest& request) {
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::filesystem::path beside = program.parent_path() / kCudaLibrary;
  return make_cuda_backend(std::filesystem::exists(beside, ignored) ? beside.string() : kCudaLibrary, request);
}

std::unique_ptr<Backend> make_cuda_backend(const std::string& library, const DeviceRequest& request) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const std::string error = dlerror();  // begins with the file that was not found: this one, or one that it needs
    if (error.starts_with(library + ": cannot open shared object file")) {
      fail(library + " is not there: build with -DFOLIO_CUDA=ON, and keep it beside folio-server");
    }
    fail("cannot load " + library + ": " + error);
  }
  void* const entry = dlsym(handle, "folio_cuda_plugin");
  if (entry == nullptr) fail(library + " is no CUDA backend of folio");
  const CudaPlugin* const plugin = reinterpret_cast<decltype(&folio_cuda_plugin)>(entry)();
  if (plugin->build != std::string(FOLIO_BACKEND_BUILD)) {
    fail(library + " is of another build: it is " + plugin->build + ", this is " FOLIO_BACKEND_BUILD);
  }
  try {
    return plugin->make_backend(request);
  } catch (const std::exception& e) {
    fail(e.what());
  }
}

}  // namespace folio
