// DeviceBuffer for what tests/simt (compiled by g++, on the CPU) and tests/gpu (by nvcc, on a device) share.
#pragma once
#ifdef __CUDACC__
#include "tests/gpu/device_buffer.h"
#else
#include "tests/simt/device_buffer.h"
namespace folio::cuda {
using simt::DeviceBuffer;
}
#endif
