#include "engine/kernels/cuda/memory_plan.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "engine/kernels/cuda/cuda_error.h"
#include "engine/kernels/cuda/device_matrix.h"
#include "engine/kernels/cuda/device_memory.h"
#include "engine/kernels/cuda/norm_rows.h"
#include "engine/kernels/cuda/step_graphs.h"

namespace folio::cuda {
namespace {

constexpr std::int32_t kScoredRows = 64;                    // that a model asks the logits of at a time
constexpr std::uint64_t kReserve = 256ULL << 20U;           // for what the driver and its libraries take later
constexpr std::int64_t kMaxSlots = std::int64_t{1} << 31U;  // slots are 32-bit

KvElement kv_element(const std::string& dtype, const DeviceFacts& device) {
  if (dtype == "f16") return KvElement::kF16;
  if (dtype == "bf16") return KvElement::kBF16;
  if (dtype == "int8") return KvElement::kInt8;
  if (dtype != "fp8") throw std::runtime_error("--kv-dtype " + dtype + ": expected f16, bf16, int8 or fp8");
  if (device.compute_major * 10 + device.compute_minor < 89) {
    throw std::runtime_error("--kv-dtype fp8: " + device.name + " has compute capability " +
                             std::to_string(device.compute_major) + "." + std::to_string(device.compute_minor) +
                             ", which converts it in software; expected 8.9 or later");
  }
  return KvElement::kFp8;
}

// Attention has kernels for few head sizes; others are kept as the next larger one, with zeros behind. 0: none is.
std::int32_t stored_head_dim(std::int32_t head_dim) {
  for (const std::int32_t stored : {64, 80, 96, 128, 256}) {
    if (head_dim <= stored) return stored;
  }
  return 0;
}

std::string mebibytes(std::uint64_t bytes) {
  return std::to_string((bytes + (1U << 20U) - 1) >> 20U) + " MiB";
}

// By what the request says, else what is left, no more than is useful.
std::int64_t num_blocks(const KvCacheRequest& wanted, std::uint64_t block_bytes, std::uint64_t left) {
  if (wanted.num_blocks > 0) return wanted.num_blocks;
  const std::uint64_t bytes = wanted.bytes > 0 ? wanted.bytes : left;
  const auto fitting = static_cast<std::int64_t>(bytes / block_bytes) - 1;  // beside the null block
  if (wanted.bytes > 0 && fitting < 1) {
    throw std::runtime_error("--kv-memory " + std::to_string(bytes) + " bytes is less than two KV blocks of " +
                             std::to_string(block_bytes) + " bytes");
  }
  return wanted.bytes > 0 ? fitting : std::min(fitting, wanted.useful_blocks);
}

}  // namespace

StepSizes step_sizes(const DeviceRequest& request) {
  StepSizes sizes;
  sizes.tokens = std::max(request.max_batch_tokens, padded_sequences(request.max_num_seqs));
  sizes.logit_rows = std::max(padded_sequences(request.max_num_seqs), kScoredRows);
  sizes.hidden_size = request.hidden_size;
  sizes.ff_size = request.ff_size;
  sizes.vocab_size = request.vocab_size;
  sizes.widest_input = std::max(request.hidden_size, request.attention.num_heads * request.attention.head_dim);
  const std::int32_t block_size = request.kv_cache.block_size;
  sizes.block_ids = std::int64_t{(request.max_context + block_size - 1) / block_size} * request.max_num_seqs;
  if (sizes.widest_input > kMaxNormColumns) {
    throw std::runtime_error("rows of " + std::to_string(sizes.widest_input) +
                             " values: the CUDA kernels have at most " + std::to_string(kMaxNormColumns));
  }
  return sizes;
}

std::vector<AttentionSetup> attention_setups(const DeviceRequest& request, std::int32_t num_sms) {
  const AttentionShape& heads = request.attention;
  constexpr std::int32_t kMaxGroup = 16;
  if (heads.head_dim % 8 != 0 || stored_head_dim(heads.head_dim) == 0 ||
      heads.num_heads / heads.num_kv_heads > kMaxGroup) {
    throw std::runtime_error(
        std::to_string(heads.num_heads) + " query and " + std::to_string(heads.num_kv_heads) + " KV heads of " +
        std::to_string(heads.head_dim) +
        ": the CUDA kernels have heads of up to 256 in steps of 8, up to 16 of them for a KV head");
  }
  std::vector<AttentionSetup> setups;
  for (const std::int32_t window : request.windows) {
    setups.push_back({heads.num_heads, heads.num_kv_heads, stored_head_dim(heads.head_dim), request.kv_cache.block_size,
                      window, num_sms, request.deterministic});
  }
  return setups;
}

std::uint64_t weights_bytes(const DeviceRequest& request) {
  std::uint64_t bytes = 0;
  std::uint64_t passing = 0;  // the most that a matrix takes only while it is loaded
  for (const GgufTensor& tensor : request.tensors) {
    if (tensor.shape.size() < 2) continue;
    const DeviceMatrixBytes matrix =
        device_matrix_bytes(tensor.type, static_cast<std::int32_t>(tensor.shape[0]),
                            static_cast<std::int32_t>(tensor.shape[1]), !request.deterministic);
    bytes += matrix.kept;
    passing = std::max<std::uint64_t>(passing, matrix.while_loaded - matrix.kept);
  }
  return bytes + passing;
}

std::uint64_t activation_bytes(const DeviceRequest& request) {
  const AttentionShape& heads = request.attention;
  std::uint64_t bytes = 0;
  for (const std::int32_t columns :
       {request.hidden_size, heads.num_heads * heads.head_dim, heads.num_kv_heads * heads.head_dim,
        heads.num_kv_heads * heads.head_dim, heads.num_heads * heads.head_dim}) {
    bytes += mapped_bytes(static_cast<std::size_t>(step_sizes(request).tokens) * static_cast<std::size_t>(columns) *
                          sizeof(float));
  }
  return bytes;
}

KvLayout plan_kv_cache(const DeviceRequest& request, const DeviceFacts& device) {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "asking how much memory is free");
  return plan_kv_cache(request, device, free);
}

KvLayout plan_kv_cache(const DeviceRequest& request, const DeviceFacts& device, std::uint64_t free_bytes) {
  const KvCacheRequest& wanted = request.kv_cache;
  KvLayout layout;
  layout.num_layers = request.num_layers;
  layout.num_kv_heads = request.attention.num_kv_heads;
  layout.head_dim = stored_head_dim(request.attention.head_dim);
  layout.block_size = wanted.block_size;
  layout.element = kv_element(wanted.dtype, device);
  const std::uint64_t block_bytes = layout.block_bytes_per_layer() * static_cast<std::uint64_t>(layout.num_layers);
  const std::uint64_t weights = weights_bytes(request) + activation_bytes(request) + kReserve;
  const std::uint64_t left = free_bytes > weights ? free_bytes - weights : 0;
  const std::int64_t blocks = num_blocks(wanted, block_bytes, left);
  const std::uint64_t bytes = block_bytes * static_cast<std::uint64_t>(std::max<std::int64_t>(blocks, 1) + 1);
  if (blocks < 1 || weights + bytes > free_bytes) {
    throw std::runtime_error("too little memory on the device: the weights and what goes with them take " +
                             mebibytes(weights) + ", the KV cache (--kv-blocks, --kv-memory) " + mebibytes(bytes) +
                             ", and " + mebibytes(free_bytes) + " are free: room for " +
                             std::to_string(left / block_bytes < 2 ? 0 : left / block_bytes - 1) + " KV blocks of " +
                             std::to_string(wanted.block_size) + " tokens");
  }
  if ((blocks + 1) * wanted.block_size >= kMaxSlots) {
    throw std::runtime_error("KV cache of " + std::to_string(blocks) + " blocks (--kv-blocks, --kv-memory): at most " +
                             std::to_string(kMaxSlots / wanted.block_size - 2));
  }
  layout.num_blocks = static_cast<std::int32_t>(blocks);
  return layout;
}

}  // namespace folio::cuda
