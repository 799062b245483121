// Attention alone, over all layers of a model, 2 threads: microseconds a layer, the K and V that it reads in GB/s, and
// the multiplications and additions of scores and values in Gop/s. Beside them, in the same run, what the machine reads
// in a stream.
//   build/bin/attention_bench [--benchmark_filter=...]
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "tests/engine/kernels/attention_runner.h"
#include "tests/engine/kernels/kv_reader.h"

namespace folio::cpu {
namespace {

struct Model {
  AttentionShape shape;
  int layers;
};
constexpr Model kSmolLM2{{9, 3, 64}, 30};
constexpr Model kGemma3Local{{4, 1, 256}, 15};

// `count` tokens at the end of each of `sequences` contexts, in blocks of 16 in any order.
StepBatch last_tokens(int sequences, int context, int count) {
  StepBatch batch;
  batch.clear();
  batch.tokens.resize(static_cast<std::size_t>(sequences * count));
  const int blocks = (context + 15) / 16;
  batch.block_ids.resize(static_cast<std::size_t>(sequences * blocks));
  std::iota(batch.block_ids.begin(), batch.block_ids.end(), 1);
  std::shuffle(batch.block_ids.begin(), batch.block_ids.end(), std::mt19937(1));
  for (int s = 0; s < sequences; ++s) {
    for (int p = context - count; p < context; ++p) batch.positions.push_back(p);
    batch.query_start.push_back((s + 1) * count);
    batch.context_len.push_back(context);
    batch.block_start.push_back((s + 1) * blocks);
  }
  return batch;
}

// Random K and V: the CPU takes no shortcuts for zeros and equal values, and softmax has its usual spread.
void write_random(CpuBackend& backend, const Model& model, int num_blocks) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const auto row = static_cast<std::size_t>(model.shape.num_kv_heads * model.shape.head_dim);
  StepBatch batch;
  batch.clear();
  for (int slot = 16; slot < 16 * (num_blocks + 1); ++slot) {
    batch.tokens.push_back(0);
    batch.positions.push_back(0);
    batch.slots.push_back(slot);
  }
  const std::vector<float> still(static_cast<std::size_t>(model.shape.head_dim / 2), 0.0F);
  const Rope rope{model.shape.head_dim, false, still.data()};
  std::vector<float> q(batch.tokens.size() * static_cast<std::size_t>(model.shape.num_heads * model.shape.head_dim));
  std::vector<float> k(batch.tokens.size() * row);
  std::vector<float> v(k.size());
  for (float& x : k) x = normal(random);
  for (float& x : v) x = normal(random);
  backend.begin_step(batch, {&rope, 1});
  for (int layer = 0; layer < model.layers; ++layer) {
    backend.rope_write_kv(layer, 0, {}, {}, 1.0F, q.data(), k.data(), v.data());
  }
}

// Keys that the step's tokens see, of one layer and one head.
double keys_seen(const StepBatch& batch, int window) {
  double keys = 0;
  for (const std::int32_t p : batch.positions) keys += p + 1 - first_visible(p, window);
  return keys;
}

void attend(benchmark::State& state, const Model& model, int window) {
  const auto type = static_cast<KvType>(state.range(0));
  const auto sequences = static_cast<int>(state.range(1));
  const auto context = static_cast<int>(state.range(2));
  const auto count = static_cast<int>(state.range(3));
  const int num_blocks = sequences * ((context + 15) / 16);
  const char* level = std::getenv("FOLIO_BENCH_ISA");
  CpuBackend backend(level != nullptr ? level : "auto", 2, model.shape,
                     {model.layers, model.shape.num_kv_heads, model.shape.head_dim, 16, num_blocks, type});
  write_random(backend, model, num_blocks);
  const StepBatch batch = last_tokens(sequences, context, count);
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0F, 0.18F);  // scaled by log2(e) / sqrt(64)
  std::vector<float> q(batch.tokens.size() * static_cast<std::size_t>(model.shape.num_heads * model.shape.head_dim));
  for (float& x : q) x = normal(random);
  std::vector<float> out(q.size());
  for (auto _ : state) {
    backend.begin_step(batch, {});
    for (int layer = 0; layer < model.layers; ++layer) backend.attend(layer, window, q.data(), out.data());
  }
  benchmark::DoNotOptimize(out.data());
  const KvCacheLayout& l = backend.cache().layout();
  const double group = static_cast<double>(l.key_group_bytes() + l.value_group_bytes()) * l.num_kv_heads;
  const double read = group * sequences * (std::min(context, window > 0 ? window + count : context) + 15) / 16;
  const double work = 4.0 * keys_seen(batch, window) * model.shape.head_dim * model.shape.num_heads;
  using benchmark::Counter;
  state.counters["GB/s"] = Counter(read * model.layers * 1e-9, Counter::kIsIterationInvariantRate);
  state.counters["Gop/s"] = Counter(work * model.layers * 1e-9, Counter::kIsIterationInvariantRate);
  state.counters["ms/layer"] = Counter(1e-3 * model.layers, Counter::kIsIterationInvariantRate | Counter::kInvert);
  state.SetLabel(std::string(name_of(type)) + " " + backend.name());
}

constexpr int kF16 = static_cast<int>(KvType::kF16);
constexpr int kBF16 = static_cast<int>(KvType::kBF16);
constexpr int kInt8 = static_cast<int>(KvType::kInt8);

// 256 MiB by both threads, in pieces of 64 KiB.
void streaming_read(benchmark::State& state) {
  ThreadPool pool(2);
  KvCache memory({1, 1, 64, 16, 1 << 16, KvType::kF16}, pool);
  const auto* words = reinterpret_cast<const std::uint64_t*>(memory.data());
  const auto pieces = static_cast<std::int64_t>(memory.layout().total_bytes() / 65536);
  std::vector<std::uint64_t> sums(2 * 8, 0);  // a cache line for each
  for (auto _ : state) {
    pool.parallel_for(pieces, 16, [&](std::int64_t begin, std::int64_t end, int worker) {
      std::uint64_t sum[4] = {};
      for (const std::uint64_t* w = words + begin * 8192; w < words + end * 8192; w += 8) {
        __builtin_prefetch(w + 512);
        for (int i = 0; i < 4; ++i) sum[i] |= w[2 * i];
      }
      sums[static_cast<std::size_t>(8 * worker)] += sum[0] | sum[1] | sum[2] | sum[3];
    });
  }
  benchmark::DoNotOptimize(sums.data());
  state.counters["GB/s"] =
      benchmark::Counter(static_cast<double>(pieces) * 65536e-9, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(streaming_read)->Unit(benchmark::kMillisecond)->UseRealTime();

void smollm2(benchmark::State& state) {
  attend(state, kSmolLM2, 0);
}
BENCHMARK(smollm2)
    ->ArgNames({"type", "sequences", "context", "tokens"})
    ->ArgsProduct({{kF16, kBF16, kInt8}, {1}, {7680, 2048}, {1}})
    ->ArgsProduct({{kF16, kBF16, kInt8}, {8}, {2048}, {1}})
    ->ArgsProduct({{kF16, kBF16, kInt8}, {32}, {256}, {1}})
    ->ArgsProduct({{kF16, kBF16, kInt8}, {1}, {512, 4096}, {512}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// With a window the time must not grow with the context.
void gemma3_window_512(benchmark::State& state) {
  attend(state, kGemma3Local, 512);
}
BENCHMARK(gemma3_window_512)
    ->ArgNames({"type", "sequences", "context", "tokens"})
    ->ArgsProduct({{kF16, kBF16, kInt8}, {1}, {1024, 7168}, {1}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace folio::cpu

BENCHMARK_MAIN();
