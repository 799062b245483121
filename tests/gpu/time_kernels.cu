// Times of the kernels by themselves: attention as a share of the copy's bandwidth, products by what they read.
#include <algorithm>
#include <numeric>
#include <random>

#include "engine/kernels/cuda/attention.h"
#include "engine/kernels/cuda/blas_matmul.h"
#include "engine/kernels/cuda/quant_dot.h"
#include "tests/gpu/device_buffer.h"
#include "tests/gpu/device_model.h"
#include "tests/gpu/parts.h"
#include "tests/gpu/timing.h"

namespace folio::gpu {
namespace {

using cuda::DeviceBuffer;
using cuda::KvElement;

constexpr int kFill = 0x3c;  // bytes of small positive numbers, in every type

// Bytes read and written in a second.
double copy_bandwidth(const cuda::Stream& stream) {
  constexpr std::size_t kBytes = std::size_t{1} << 30U;
  const cuda::DeviceMemory from(kBytes, "a copy");
  const cuda::DeviceMemory to(kBytes, "a copy");
  const double ms = median_ms(stream, [&] {
    cuda::check(cudaMemcpyAsync(to.get(), from.get(), kBytes, cudaMemcpyDeviceToDevice, stream.get()), "a copy");
  });
  return 2.0 * kBytes / (ms / 1e3);
}

struct TimedAttention {
  KvElement element;
  std::int32_t group;
  std::int32_t sequences;
  std::int32_t context;
  std::int32_t count;  // tokens of a sequence
};

// Eight KV heads of 128, one layer, blocks in random order.
double attention_ms(const TimedAttention& work, int num_sms, const cuda::Stream& stream) {
  const cuda::AttentionSetup setup{
      .num_heads = 8 * work.group, .num_kv_heads = 8, .head_dim = 128, .block_size = 16, .num_sms = num_sms};
  const std::int32_t blocks_each = work.context / setup.block_size;
  StepBatch batch;
  batch.query_start = batch.block_start = {0};
  for (std::int32_t s = 0; s < work.sequences; ++s) {
    for (std::int32_t p = work.context - work.count; p < work.context; ++p) batch.positions.push_back(p);
    batch.query_start.push_back((s + 1) * work.count);
    batch.block_start.push_back((s + 1) * blocks_each);
    batch.context_len.push_back(work.context);
  }
  batch.tokens.assign(batch.positions.size(), 0);
  batch.block_ids.resize(static_cast<std::size_t>(work.sequences * blocks_each));
  std::iota(batch.block_ids.begin(), batch.block_ids.end(), 1);
  std::shuffle(batch.block_ids.begin(), batch.block_ids.end(), std::mt19937(1));
  cuda::AttentionPlan plan;
  cuda::plan_attention(batch, setup, plan);
  const cuda::AttentionExtent extent = plan.extent();
  std::vector<std::int32_t> flat(cuda::AttentionPlanLayout(extent).size);
  cuda::flatten(plan, extent, flat);
  const cuda::KvLayout layout{.num_layers = 1,
                              .num_kv_heads = 8,
                              .head_dim = 128,
                              .block_size = 16,
                              .num_blocks = work.sequences * blocks_each,
                              .element = work.element};
  const cuda::DeviceMemory cache(layout.total_bytes(), "a cache");
  cuda::check(cudaMemset(cache.get(), kFill, cache.bytes()), "filling a cache");
  const DeviceBuffer<std::int32_t> device_plan(flat);
  const DeviceBuffer<std::int32_t> positions(batch.positions);
  const DeviceBuffer<BlockId> block_ids(batch.block_ids);
  const std::size_t floats = batch.positions.size() * static_cast<std::size_t>(setup.num_heads * setup.head_dim);
  const DeviceBuffer<float> q(std::vector<float>(floats, 0.01F));
  DeviceBuffer<float> out(floats);
  DeviceBuffer<float> workspace(cuda::attention_workspace_floats(setup, extent));
  cuda::AttentionWork attention{.layout = layout,
                                .cache = cache.get<char>(),
                                .num_heads = setup.num_heads,
                                .head_dim = setup.head_dim,
                                .q = q.data(),
                                .out = out.data(),
                                .positions = positions.data(),
                                .block_ids = block_ids.data()};
  cuda::use_plan(attention, device_plan.data(), extent, workspace.data());
  cuda::check(cudaDeviceSynchronize(), "filling a cache");
  return median_ms(stream, [&] { cuda::attend(attention, extent, stream.get()); });
}

std::string name_of(const TimedAttention& work) {
  return std::string(work.element == KvElement::kBF16 ? "bf16" : "int8") + " group " + std::to_string(work.group) +
         " B " + std::to_string(work.sequences) + " context " + std::to_string(work.context);
}

double quant_dot_ms(TensorType type, std::int32_t rows, const cuda::Stream& stream, std::size_t& bytes) {
  constexpr std::int32_t kDepth = 4096;
  constexpr std::int32_t kColumns = 14336;
  constexpr std::size_t kMatrices = 8;  // in turn, so that none waits in the cache
  bytes = cuda::quant_matrix_bytes(type, kDepth, kColumns);
  const std::size_t stride = (bytes + 255) / 256 * 256;
  const cuda::DeviceMemory planes(kMatrices * stride, "matrices");
  cuda::check(cudaMemset(planes.get(), kFill, planes.bytes()), "filling matrices");
  DeviceBuffer<std::int8_t> values(std::vector<std::int8_t>(static_cast<std::size_t>(rows * kDepth), 3));
  DeviceBuffer<float2> groups(std::vector<float2>(static_cast<std::size_t>(rows * kDepth / 32), {0.01F, 0.96F}));
  DeviceBuffer<float> out(static_cast<std::size_t>(rows * kColumns));
  const double ms = median_ms(stream, [&] {
    for (std::size_t m = 0; m < kMatrices; ++m) {
      const cuda::QuantProduct product{cuda::quant_matrix(type, kDepth, kColumns, planes.get<std::byte>() + m * stride),
                                       nullptr, out.data(), kColumns, false};
      cuda::quant_dot({values.data(), groups.data(), kDepth}, rows, {&product, 1}, stream.get());
    }
  });
  return ms / static_cast<double>(kMatrices);
}

double blas_ms(std::int32_t rows, int major, const cuda::Stream& stream) {
  constexpr std::int32_t kDepth = 4096;
  constexpr std::int32_t kColumns = 14336;
  DeviceBuffer<std::byte> workspace(cuda::blas_workspace_bytes(major));
  cuda::BlasMatmul blas(workspace.data(), cuda::blas_workspace_bytes(major), false);
  const DeviceBuffer<__nv_bfloat16> x(
      std::vector<__nv_bfloat16>(static_cast<std::size_t>(rows) * kDepth, __float2bfloat16_rn(0.5F)));
  const DeviceBuffer<__nv_bfloat16> weights(
      std::vector<__nv_bfloat16>(std::size_t{kColumns} * kDepth, __float2bfloat16_rn(0.25F)));
  DeviceBuffer<float> out(static_cast<std::size_t>(rows) * kColumns);
  return median_ms(stream, [&] {
    blas.multiply({.x = x.data(), .weights = weights.data(), .out = out.data(), .shape = {rows, kColumns, kDepth}},
                  stream.get());
  });
}

}  // namespace

void time_attention(Report& report) {
  const int num_sms = device_facts().num_sms;
  const cuda::Stream stream;
  const double copied = copy_bandwidth(stream);
  report.figure("copy, read and written", copied / 1e9, "GB/s");
  for (const KvElement element : {KvElement::kBF16, KvElement::kInt8}) {
    for (const std::int32_t group : {4, 1}) {
      for (const std::int32_t context : {4096, 16384}) {
        const TimedAttention work{element, group, 64, context, 1};
        const double ms = attention_ms(work, num_sms, stream);
        const double bytes = 2.0 * 8 * 128 * 64 * context * (element == KvElement::kBF16 ? 2 : 1) +
                             (element == KvElement::kInt8 ? 2.0 * 8 * 4 * 64 * context : 0);
        report.figure("decode " + name_of(work), ms, "ms");
        report.figure("decode " + name_of(work) + ", of the copy", bytes / (ms / 1e3) / copied, "");
      }
    }
  }
  for (const KvElement element : {KvElement::kBF16, KvElement::kInt8}) {
    const TimedAttention work{element, 4, 1, 4096, 4096};
    const double ms = attention_ms(work, num_sms, stream);
    const double flops = 4.0 * (4096.0 * 4097 / 2) * 128 * 32;  // causal: what is seen
    report.figure("prefill " + name_of(work), flops / (ms / 1e3) / 1e12, "TFLOP/s");
  }
}

void time_products(Report& report) {
  const cuda::Stream stream;
  for (const TensorType type : {TensorType::kQ4_0, TensorType::kQ4_K, TensorType::kQ8_0}) {
    for (const std::int32_t rows : {1, 4, 8}) {
      std::size_t bytes = 0;
      const double ms = quant_dot_ms(type, rows, stream, bytes);
      report.figure(std::string(tensor_type_info(type).name) + " 4096 x 14336, rows " + std::to_string(rows),
                    static_cast<double>(bytes) / (ms / 1e3) / 1e9, "GB/s");
    }
  }
  for (const std::int32_t rows : {16, 256, 2048}) {
    const double ms = blas_ms(rows, device_facts().compute_major, stream);
    report.figure("cuBLASLt 4096 x 14336, rows " + std::to_string(rows), 2.0 * rows * 4096 * 14336 / (ms / 1e3) / 1e12,
                  "TFLOP/s");
  }
}

}  // namespace folio::gpu
