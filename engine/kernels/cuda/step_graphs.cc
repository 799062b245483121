#include "engine/kernels/cuda/step_graphs.h"

namespace folio::cuda {

std::int32_t padded_sequences(std::int32_t num_sequences) {
  if (num_sequences <= 8) return num_sequences;
  const std::int32_t unit = num_sequences <= 64 ? 8 : 32;
  return (num_sequences + unit - 1) / unit * unit;
}

StepGraphs::Mode StepGraphs::begin(std::int32_t size, const Stream& stream) {
  size_ = size;
  const auto found = graphs_.find(size);
  if (found == graphs_.end()) return mode_ = Mode::kPlain;
  if (found->second) return mode_ = Mode::kReplay;
  check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "capturing a step");
  return mode_ = Mode::kCapture;
}

void StepGraphs::end(const Stream& stream) {
  const Mode mode = std::exchange(mode_, Mode::kPlain);
  const std::int32_t size = std::exchange(size_, 0);
  if (size == 0) return;
  Graph& graph = graphs_[size];
  if (mode == Mode::kPlain) return;
  if (mode == Mode::kCapture) {
    cudaGraph_t captured = nullptr;
    check(cudaStreamEndCapture(stream.get(), &captured), "capturing a step");
    cudaGraphExec_t made = nullptr;
    const cudaError_t code = cudaGraphInstantiate(&made, captured, 0);
    cudaGraphDestroy(captured);
    check(code, "making a graph of a step");
    graph.reset(made);
  }
  check(cudaGraphLaunch(graph.get(), stream.get()), "starting a step's graph");
}

void StepGraphs::abandon(const Stream& stream) {
  size_ = 0;
  if (std::exchange(mode_, Mode::kPlain) != Mode::kCapture) return;
  cudaGraph_t captured = nullptr;
  cudaStreamEndCapture(stream.get(), &captured);
  if (captured != nullptr) cudaGraphDestroy(captured);
  cudaGetLastError();  // of the capture: the failure itself was reported
}

}  // namespace folio::cuda
