// What is planned before the first weight is loaded. No kernel runs.
#include "engine/kernels/cuda/memory_plan.h"

#include <gmock/gmock.h>
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

std::string refusal_of(const DeviceRequest& request, const DeviceFacts& device, std::uint64_t free_bytes) {
  try {
    plan_kv_cache(request, device, free_bytes);
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "a plan was made";
}

// A block takes 2 MiB; weights and rows are the reserve and the activations, 284 MiB.
TEST(MemoryPlanTest, SaysHowMuchWasWantedAndWhatFits) {
  DeviceRequest request = request_of(512);
  request.kv_cache.num_blocks = 1000;
  const std::string refusal = refusal_of(request, kDevice, 1024 * kMiB);
  EXPECT_THAT(refusal, ::testing::HasSubstr("the KV cache (--kv-blocks, --kv-memory) 2002 MiB, and 1024 MiB are free"));
  EXPECT_THAT(refusal, ::testing::HasSubstr(" KV blocks of 16 tokens"));
  const auto at = refusal.find("room for ");
  ASSERT_NE(at, std::string::npos);
  request.kv_cache.num_blocks = std::stoi(refusal.substr(at + 9));
  EXPECT_GT(request.kv_cache.num_blocks, 300);
  EXPECT_EQ(refusal_of(request, kDevice, 1024 * kMiB), "a plan was made");
  ++request.kv_cache.num_blocks;
  EXPECT_NE(refusal_of(request, kDevice, 1024 * kMiB), "a plan was made");
  EXPECT_THAT(refusal_of(request, kDevice, 100 * kMiB), ::testing::HasSubstr("room for 0 KV blocks"));
}

TEST(MemoryPlanTest, RefusesTypesAndHeadsByName) {
  DeviceRequest request = request_of(512);
  request.kv_cache.dtype = "f32";
  EXPECT_EQ(refusal_of(request, kDevice, kFree), "--kv-dtype f32: expected f16, bf16, int8 or fp8");
  request.kv_cache.dtype = "fp8";
  DeviceFacts ampere = kDevice;
  ampere.compute_major = 8;
  ampere.compute_minor = 0;
  EXPECT_THAT(refusal_of(request, ampere, kFree), ::testing::HasSubstr("--kv-dtype fp8: "));
  EXPECT_EQ(refusal_of(request, kDevice, kFree), "a plan was made");
  request.attention.head_dim = 264;
  EXPECT_THROW(attention_setups(request, 4), std::runtime_error);
  request.attention.head_dim = 72;
  EXPECT_EQ(attention_setups(request, 4).at(0).head_dim, 80);
}

}  // namespace
}  // namespace folio::cuda
