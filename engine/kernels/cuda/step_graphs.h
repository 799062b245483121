// Decode steps as CUDA graphs: one a number of sequences, rounded up, so that a step costs the host one launch instead
// of hundreds. What a graph reads lies at fixed places (step_arrays.h).
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>

#include "engine/kernels/cuda/device_memory.h"

namespace folio::cuda {

// Sequences that a decode step of `num_sequences` is padded to: themselves up to 8, where each row costs, then
// multiples of 8, and of 32 above 64.
std::int32_t padded_sequences(std::int32_t num_sequences);

class StepGraphs {
 public:
  // What becomes of the launches of a step.
  enum class Mode {
    kPlain,    // they run: until one of its size came to its end, in which libraries choose and allocate what they want
    kCapture,  // they become a graph, which runs at the end
    kReplay    // they are left out: the graph runs at the end
  };

  Mode begin(std::int32_t size, const Stream& stream);
  void end(const Stream& stream);  // of any step: starts the graph, if there is one
  // A step that failed before its end, if one did: until then a thread that captures may wait for nothing.
  void abandon(const Stream& stream);
  Mode mode() const { return mode_; }

 private:
  struct Destroy {
    void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
  };
  using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Destroy>;

  std::map<std::int32_t, Graph> graphs_;  // null: one step of the size was done
  std::int32_t size_ = 0;                 // 0: the step is none that becomes a graph
  Mode mode_ = Mode::kPlain;
};

}  // namespace folio::cuda
