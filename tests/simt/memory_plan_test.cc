// What is planned before the first weight is loaded. No kernel runs.
#include "engine/kernels/cuda/memory_plan.h"

#include <gtest/gtest.h>

namespace folio::cuda {
namespace {

constexpr std::uint64_t kMiB = 1U << 20U;
constexpr std::uint64_t kFree = 8192 * kMiB;
const DeviceFacts kDevice{"a device", 132, 9, 0};

DeviceRequest request_of(std::int32_t max_batch_tokens) {
  DeviceRequest request;
  request.attention = {32, 8, 128};
  request.num_layers = 32;
  request.hidden_size = 4096;
  request.ff_size = 14336;
  request.vocab_size = 128256;
  request.max_context = 8192;
  request.max_num_seqs = 256;
  request.max_batch_tokens = max_batch_tokens;
  request.windows = {0};
  request.kv_cache.useful_blocks = 1 << 20;
  return request;
}

GgufTensor matrix_of(TensorType type, std::uint64_t depth, std::uint64_t columns) {
  GgufTensor tensor;
  tensor.type = type;
  tensor.shape = {depth, columns};
  return tensor;
}

// The first step asks for rows of x, Q, K, V and the attended: 14,336 floats a token.
TEST(MemoryPlanTest, LeavesRoomForTheActivationsOfTheLargestStep) {
  for (const int tokens : {512, 8192}) {
    const DeviceRequest request = request_of(tokens);
    const KvLayout layout = plan_kv_cache(request, kDevice, kFree);
    const std::uint64_t activations = static_cast<std::uint64_t>(tokens) * 14336 * sizeof(float);
    EXPECT_LE(layout.total_bytes() + activations + 200 * kMiB, kFree) << tokens;
    EXPECT_GE(layout.total_bytes() + activations + 300 * kMiB, kFree) << tokens;
  }
}

// Large allocations have pages of their own: 225 matrices of 1.5 MiB take 450 MiB.
TEST(MemoryPlanTest, CountsPagesOfMatrices) {
  DeviceRequest request = request_of(512);
  const std::vector<GgufTensor> tensors(225, matrix_of(TensorType::kF16, 1024, 768));
  request.tensors = tensors;
  EXPECT_EQ(weights_bytes(request), 450 * kMiB);
}

// Deterministic: the integers of a matrix are there until its bf16 is made.
TEST(MemoryPlanTest, CountsWhatAMatrixTakesWhileItIsLoaded) {
  DeviceRequest request = request_of(512);
  const std::vector<GgufTensor> tensors{matrix_of(TensorType::kF16, 4096, 4096),
                                        matrix_of(TensorType::kQ8_0, 4096, 8192)};
  request.tensors = tensors;
  request.deterministic = true;
  EXPECT_GE(weights_bytes(request), (32 + 64 + 34) * kMiB);
  EXPECT_LE(weights_bytes(request), (32 + 64 + 36) * kMiB);
}

TEST(MemoryPlanTest, NamesTheFlagThatGivesTheCacheTooLittle) {
  DeviceRequest request = request_of(512);
  request.kv_cache.bytes = kMiB;
  try {
    plan_kv_cache(request, kDevice, kFree);
    ADD_FAILURE() << "a plan was made";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "--kv-memory 1048576 bytes is less than two KV blocks of 2097152 bytes");
  }
}

}  // namespace
}  // namespace folio::cuda
