// The smaller operations on rows. Pointers are of the device, rows begin at multiples of 16 bytes.
#pragma once
#include "engine/kernels/backend.h"
#include "engine/kernels/cuda/launch.h"
#include "engine/kernels/cuda/row_outputs.h"

namespace folio::cuda {

// x[t] = scale * the row of token t.
struct EmbedRows {
  const __nv_bfloat16* table = nullptr;  // [num_rows][columns]
  std::int32_t columns = 0;              // a multiple of 4
  std::int32_t num_rows = 0;
  float scale = 1.0F;
  const std::int32_t* tokens = nullptr;   // [num_tokens] an id, or -1 - r: what sampled[r] holds
  const std::int32_t* sampled = nullptr;  // ids of the step before
  float* x = nullptr;                     // [num_tokens][columns]; zeros for an id that is none: its row had no number
};
void embed_rows(const EmbedRows& work, std::int32_t num_tokens, cudaStream_t stream);

// out = activation(gate) * up.
struct GateRows {
  const float* gate = nullptr;  // [num_rows][columns]
  const float* up = nullptr;    // [num_rows][columns]
  std::int32_t columns = 0;     // a multiple of 4
  Activation activation = Activation::kSilu;
  RowOutputs out = {};
};
void gate_rows(const GateRows& work, std::int32_t num_rows, cudaStream_t stream);

}  // namespace folio::cuda
