// The calls of the CUDA runtime that the backend makes, on the host and as late as they may be: copies and launches
// wait in one stream until somebody waits for them, so that memory that is written or freed before its copy was done
// shows. Memory is the host's, between guards and filled with 0xff. A graph is what was put into the stream while it
// was captured. Linked before the runtime; cuBLASLt's products are plain loops over the same bf16 values.
#include "tests/simt/cuda_runtime_twin.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/kernels/cuda/blas_matmul.h"
#include "tests/simt/device_buffer.h"
#include "tests/simt/runner.h"

namespace {

using Memory = folio::simt::DeviceBuffer<char>;
using Work = std::function<void()>;
constexpr std::size_t kTotal = std::size_t{4} << 30U;

std::int64_t graphs_launched = 0;
bool next_product_fails = false;
cudaError_t last_error = cudaSuccess;  // until it is asked for

cudaError_t failed(cudaError_t code) {
  return last_error = code;
}

struct Graph {
  std::vector<Work> work;
};

// The one stream there is.
class StreamTwin {
 public:
  StreamTwin() {
    folio::simt::set_receiver([this](Work work) { put(std::move(work)); });
  }
  void put(Work work) {
    if (captured_ != nullptr) {
      captured_->work.push_back(std::move(work));
    } else {
      waiting_.push_back(std::move(work));
      ++num_put_;
    }
  }
  std::int64_t num_put() const { return num_put_; }
  void run_through(std::int64_t last) {
    while (num_done_ < last) {
      const Work next = std::move(waiting_.front());
      waiting_.pop_front();
      ++num_done_;
      next();
    }
  }
  void run_all() { run_through(num_put_); }
  void begin_capture() { captured_ = std::make_unique<Graph>(); }
  Graph* end_capture() { return captured_.release(); }
  bool is_capturing() const { return captured_ != nullptr; }

 private:
  std::deque<Work> waiting_;
  std::int64_t num_put_ = 0;
  std::int64_t num_done_ = 0;
  std::unique_ptr<Graph> captured_;
};

StreamTwin& stream_twin() {
  static StreamTwin twin;
  return twin;
}

std::map<void*, std::unique_ptr<Memory>>& memories() {
  static std::map<void*, std::unique_ptr<Memory>> all;
  return all;
}

cudaError_t allocate(void** data, std::size_t bytes) {
  if (stream_twin().is_capturing()) return failed(cudaErrorStreamCaptureUnsupported);
  auto memory = std::make_unique<Memory>(bytes);
  *data = memory->data();
  memories()[*data] = std::move(memory);
  return cudaSuccess;
}

// Waits for what may still use it, as the runtime does.
cudaError_t release(void* data) {
  if (stream_twin().is_capturing()) return failed(cudaErrorStreamCaptureUnsupported);
  stream_twin().run_all();
  memories().erase(data);
  return cudaSuccess;
}

}  // namespace

struct CUevent_st {
  std::int64_t last = 0;
};

extern "C" {
cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  return allocate(data, bytes);
}
cudaError_t cudaFree(void* data) {
  return release(data);
}
cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  return allocate(data, bytes);
}
cudaError_t cudaFreeHost(void* data) {
  return release(data);
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = kTotal;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t) {
  stream_twin().put([=] {
    if (bytes > 0) std::memcpy(to, from, bytes);
  });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t) {
  stream_twin().put([=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  if (stream_twin().is_capturing()) return failed(cudaErrorStreamCaptureUnsupported);
  stream_twin().run_all();
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->last = stream_twin().num_put();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (stream_twin().is_capturing()) return failed(cudaErrorStreamCaptureUnsupported);
  stream_twin().run_through(event->last);
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}
const char* cudaGetErrorString(cudaError_t) {
  return "an error";
}
const char* cudaGetErrorName(cudaError_t) {
  return "cudaError";
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  stream_twin().begin_capture();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  *graph = reinterpret_cast<cudaGraph_t>(stream_twin().end_capture());
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  *made = reinterpret_cast<cudaGraphExec_t>(new Graph(*reinterpret_cast<Graph*>(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<Graph*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete reinterpret_cast<Graph*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  ++graphs_launched;
  for (const Work& work : reinterpret_cast<Graph*>(graph)->work) stream_twin().put(work);
  return cudaSuccess;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) {
  return CUBLAS_STATUS_SUCCESS;
}
}

namespace folio::simt {

std::int64_t num_graphs_launched() {
  return graphs_launched;
}

void fail_next_product() {
  next_product_fails = true;
}

}  // namespace folio::simt

namespace folio::cuda {

BlasMatmul::BlasMatmul(void* workspace, std::size_t workspace_bytes, bool deterministic)
    : workspace_(workspace), workspace_bytes_(workspace_bytes), deterministic_(deterministic) {}

void BlasMatmul::multiply(const BlasProduct& product, cudaStream_t) {
  if (std::exchange(next_product_fails, false)) throw BlasError("a product that was meant to fail");
  stream_twin().put([product] {
    const auto depth = static_cast<std::size_t>(product.shape.depth);
    const auto columns = static_cast<std::size_t>(product.shape.columns);
    for (std::size_t r = 0; r < static_cast<std::size_t>(product.shape.rows); ++r) {
      for (std::size_t c = 0; c < columns; ++c) {
        float sum = product.bias != nullptr ? product.bias[c] : 0.0F;
        for (std::size_t d = 0; d < depth; ++d) {
          sum += __bfloat162float(product.x[r * depth + d]) * __bfloat162float(product.weights[c * depth + d]);
        }
        float& out = product.out[r * columns + c];
        out = product.add ? out + sum : sum;
      }
    }
  });
}

}  // namespace folio::cuda
