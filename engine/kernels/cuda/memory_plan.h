// How large the steps and the KV cache of a model are on a device, and what the kernels cannot run. All but
// plan_kv_cache is plain host code.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/kernels/cuda/attention_plan.h"
#include "engine/kernels/cuda/kv_layout.h"
#include "engine/kernels/cuda_plugin.h"

namespace folio::cuda {

// The device as it was found.
struct DeviceFacts {
  std::string name;
  int num_sms = 0;
  int compute_major = 0;
  int compute_minor = 0;
};

// The most of everything in a step.
struct StepSizes {
  std::int32_t tokens = 0;      // rows; a padded decode step is no larger
  std::int32_t logit_rows = 0;  // at a time; as many are sampled
  std::int32_t hidden_size = 0;
  std::int32_t ff_size = 0;
  std::int32_t vocab_size = 0;
  std::int32_t widest_input = 0;  // of a product but that of the gated rows
  std::int64_t block_ids = 0;
};
StepSizes step_sizes(const DeviceRequest& request);

// One a window. Throws std::runtime_error for heads that no kernel has.
std::vector<AttentionSetup> attention_setups(const DeviceRequest& request, std::int32_t num_sms);

// What the weights will take: those tensors with two dimensions twice over (device_matrix.h).
std::uint64_t weights_bytes(const DeviceRequest& request);
// What a model asks for with its first step, Backend::activations(): the residual stream, Q, K, V and attended rows.
std::uint64_t activation_bytes(const DeviceRequest& request);

// The number of blocks that the request names, or as many as fit into what is free now less the above. Throws
// std::runtime_error: a type without kernel; too little memory, how much was wanted and how much there is.
KvLayout plan_kv_cache(const DeviceRequest& request, const DeviceFacts& device);
KvLayout plan_kv_cache(const DeviceRequest& request, const DeviceFacts& device, std::uint64_t free_bytes);

}  // namespace folio::cuda
