// Attention alone. Decode: one token over 15 layers, against the context; with a window its time must not grow.
// Prefill: a chunk of one layer on one thread, by KV type.
//   build/bin/attention_bench [--benchmark_filter=...]
#include <benchmark/benchmark.h>

#include <algorithm>
#include <numeric>

#include "tests/engine/kernels/attention_runner.h"
#include "tests/engine/kernels/kv_reader.h"

namespace folio::cpu {
namespace {

constexpr int kLayers = 15;  // as many local layers as Gemma 3 270M has: their K and V do not stay in a core's cache

// The last `count` tokens of a context, in blocks of 16 in any order.
StepBatch last_tokens(int context, int count) {
  StepBatch batch;
  batch.clear();
  batch.tokens.resize(static_cast<std::size_t>(count));
  for (int p = context - count; p < context; ++p) batch.positions.push_back(p);
  batch.query_start.push_back(count);
  batch.context_len.push_back(context);
  batch.block_ids.resize(static_cast<std::size_t>((context + 15) / 16));
  std::iota(batch.block_ids.begin(), batch.block_ids.end(), 1);
  std::shuffle(batch.block_ids.begin(), batch.block_ids.end(), std::mt19937(1));
  batch.block_start.push_back(static_cast<std::int32_t>(batch.block_ids.size()));
  return batch;
}

void decode_15_layers(benchmark::State& state) {
  const AttentionShape shape{4, 1, 256};  // Gemma 3 270M
  const auto type = static_cast<KvType>(state.range(0));
  const auto window = static_cast<std::int32_t>(state.range(1));
  const auto context = static_cast<int>(state.range(2));
  ThreadPool pool(2);
  KvCache cache({kLayers, shape.num_kv_heads, shape.head_dim, 16, context / 16 + 1, type}, pool);
  cache.fill(0.5F);
  CpuBackend backend("auto", pool, shape, cache);
  const StepBatch batch = last_tokens(context, 1);
  const std::vector<float> q(static_cast<std::size_t>(shape.num_heads * shape.head_dim), 0.01F);
  std::vector<float> out(q.size());
  for (auto _ : state) {
    backend.begin_step(batch, {});
    for (int layer = 0; layer < kLayers; ++layer) backend.attend(layer, window, q.data(), out.data());
  }
  benchmark::DoNotOptimize(out.data());
  state.SetLabel(std::string(name_of(type)) + " " + backend.name());
}
BENCHMARK(decode_15_layers)
    ->ArgNames({"type", "window", "context"})
    ->ArgsProduct({{static_cast<int>(KvType::kF16), static_cast<int>(KvType::kBF16), static_cast<int>(KvType::kInt8)},
                   {512, 0},
                   {1024, 2048, 4096, 7168}})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

void prefill_128_at_2048(benchmark::State& state) {
  const AttentionShape shape{9, 3, 64};  // SmolLM2 135M
  const auto type = static_cast<KvType>(state.range(0));
  ThreadPool pool(1);
  KvCache cache({1, shape.num_kv_heads, shape.head_dim, 16, 2176 / 16 + 1, type}, pool);
  cache.fill(0.5F);
  CpuBackend backend("auto", pool, shape, cache);
  const StepBatch batch = last_tokens(2176, 128);
  const std::vector<float> q(static_cast<std::size_t>(128 * shape.num_heads * shape.head_dim), 0.01F);
  std::vector<float> out(q.size());
  for (auto _ : state) {
    backend.begin_step(batch, {});
    backend.attend(0, 0, q.data(), out.data());
  }
  benchmark::DoNotOptimize(out.data());
  state.SetLabel(std::string(name_of(type)) + " " + backend.name());
}
BENCHMARK(prefill_128_at_2048)->DenseRange(0, static_cast<int>(KvType::kCount) - 1)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace folio::cpu

BENCHMARK_MAIN();
