// Matmul alone against what the machine can do: GB/s of weights and Gop/s, and their shares of the measured peaks.
//   build/bin/kernel_bench --benchmark_filter='matmul/smollm2.*/Q4_1'
// Names are matmul/MODEL.WHAT/FORMAT/rows:N, and peak/...; with quantisation of the rows, without norm. As many copies
// of the matrix take turns as outgrow a core's caches, since a step reads the whole model before it comes back.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "bench/machine_peaks.h"
#include "engine/kernels/cpu/cpu_backend.h"
#include "engine/kernels/cpu/packed_matrix.h"

namespace folio::bench {
namespace {

constexpr std::size_t kWeightBytes = std::size_t{96} << 20;  // of all copies
constexpr std::int64_t kMaxOutFloats = std::int64_t{1} << 25;

struct Shape {
  const char* name;
  std::int32_t depth;
  std::vector<std::int32_t> columns;  // of each projection that shares the input
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {{"smollm2.qkv", 576, {576, 192, 192}},  {"smollm2.attention_out", 576, {576}},
                                         {"smollm2.gate_up", 576, {1536, 1536}}, {"smollm2.down", 1536, {576}},
                                         {"smollm2.logits", 576, {49152}},       {"gemma3.qkv", 640, {1024, 256, 256}},
                                         {"gemma3.attention_out", 1024, {640}},  {"gemma3.gate_up", 640, {2048, 2048}},
                                         {"gemma3.down", 2048, {640}},           {"gemma3.logits", 640, {262144}}};
  return all;
}

struct Format {
  TensorType type;
  std::vector<std::size_t> halves;  // where in a block the f16 scales and minima lie; empty: all of it is floats
};

const std::vector<Format>& formats() {
  static const std::vector<Format> all = {
      {TensorType::kQ4_0, {0}}, {TensorType::kQ4_1, {0, 2}}, {TensorType::kQ5_0, {0}},    {TensorType::kQ5_1, {0, 2}},
      {TensorType::kQ8_0, {0}}, {TensorType::kQ4_K, {0, 2}}, {TensorType::kQ5_K, {0, 2}}, {TensorType::kQ6_K, {208}},
      {TensorType::kF16, {}},   {TensorType::kBF16, {}}};
  return all;
}

int all_threads() {
  return available_cores();
}

const MachinePeaks& peaks() {
  static const MachinePeaks measured = [] {
    ThreadPool pool(all_threads());
    return measure_peaks(pool);
  }();
  return measured;
}

// Any integers, with scales that are ordinary numbers.
std::vector<std::byte> random_weights(const Format& format, std::size_t elements) {
  const TensorTypeInfo& info = tensor_type_info(format.type);
  const std::size_t blocks = elements / info.block_elements;
  std::vector<std::byte> data(blocks * info.block_bytes);
  std::mt19937 random(1);
  for (std::byte& byte : data) byte = format.halves.empty() ? std::byte{0x3C} : static_cast<std::byte>(random());
  const std::uint16_t half = float_to_half(0.01F);
  for (std::size_t block = 0; block < blocks; ++block) {
    for (const std::size_t at : format.halves) std::memcpy(&data[block * info.block_bytes + at], &half, sizeof half);
  }
  return data;
}

// The copies of a layer's matrices, and the step around them.
class Layers {
 public:
  Layers(const Shape& shape, const Format& format)
      : backend_("auto", all_threads(), {1, 1, 64}, {1, 1, 64, 16, 1, KvType::kF16}) {
    std::int32_t columns = 0;
    for (const std::int32_t c : shape.columns) columns += c;
    const auto elements = static_cast<std::size_t>(shape.depth) * static_cast<std::size_t>(columns);
    const std::vector<std::byte> data = random_weights(format, elements);
    bytes_ = data.size();
    operations_ = 2.0 * static_cast<double>(elements);
    const std::size_t copies = std::max<std::size_t>(1, kWeightBytes / bytes_);
    for (std::size_t copy = 0; copy < copies; ++copy) {
      for (const std::int32_t c : shape.columns) {
        const GgufTensor tensor{
            shape.name,
            format.type,
            {static_cast<std::uint64_t>(shape.depth), static_cast<std::uint64_t>(c)},
            std::span(data).first(data.size() / static_cast<std::size_t>(columns) * static_cast<std::size_t>(c))};
        matrices_.push_back(backend_.load_matrix(tensor));
      }
    }
    per_copy_ = shape.columns.size();
  }

  void set_rows(int rows) {
    batch_.clear();
    batch_.tokens.assign(static_cast<std::size_t>(rows), 0);
    batch_.positions.assign(static_cast<std::size_t>(rows), 0);
    const auto depth = static_cast<std::size_t>(matrices_.front()->depth());
    x_ = backend_.activations(0, static_cast<std::size_t>(rows) * depth);
    std::mt19937 random(2);
    std::uniform_real_distribution<float> values(-1, 1);
    for (std::size_t i = 0; i < static_cast<std::size_t>(rows) * depth; ++i) x_[i] = values(random);
    projections_.clear();
    for (std::size_t i = 0; i < matrices_.size(); ++i) {
      const auto floats = static_cast<std::size_t>(rows) * static_cast<std::size_t>(matrices_[i]->columns());
      float* out = backend_.activations(static_cast<int>(1 + i % per_copy_), floats);
      projections_.push_back({matrices_[i].get(), nullptr, out});
    }
    backend_.begin_step(batch_, {});
  }

  void run_next() {
    backend_.norm_project(x_, {}, std::span(projections_).subspan(next_, per_copy_));
    next_ = (next_ + per_copy_) % projections_.size();
  }

  double bytes() const { return static_cast<double>(bytes_); }  // in the file; of one copy
  double operations() const { return operations_; }             // of a row
  const char* level() const { return backend_.name(); }

 private:
  cpu::CpuBackend backend_;
  std::vector<std::unique_ptr<WeightMatrix>> matrices_;
  std::size_t per_copy_ = 0;
  std::size_t bytes_ = 0;
  double operations_ = 0;
  StepBatch batch_;
  float* x_ = nullptr;
  std::vector<Projection> projections_;
  std::size_t next_ = 0;
};

// Packing takes longer than measuring: a benchmark's row counts, and its tries, share the copies.
Layers& layers(const Shape& shape, const Format& format) {
  static std::unique_ptr<Layers> last;
  static std::pair<const Shape*, const Format*> which;
  if (!last || which != std::pair(&shape, &format)) {
    last.reset();
    last = std::make_unique<Layers>(shape, format);
    which = {&shape, &format};
  }
  return *last;
}

void matmul(benchmark::State& state, const Shape* shape, const Format* format, int rows) {
  Layers& work = layers(*shape, *format);
  work.set_rows(rows);
  work.run_next();
  const TimePoint start = SteadyClock().now();
  for (auto _ : state) work.run_next();
  const double seconds = to_ms(SteadyClock().now() - start) / 1000 / static_cast<double>(state.iterations());
  const double bytes_a_second = work.bytes() / seconds;
  const double operations_a_second = work.operations() * rows / seconds;
  const double peak = format->halves.empty() ? peaks().f32 : peaks().int8;
  state.counters["GB/s"] = bytes_a_second / 1e9;
  state.counters["of_read"] = bytes_a_second / peaks().read_bytes;
  state.counters["Gop/s"] = operations_a_second / 1e9;
  if (peak > 0) state.counters["of_peak"] = operations_a_second / peak;
  state.SetLabel(work.level());
}

// Best of all passes: what disturbs one is not the machine's limit.
void peak_read(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  ReadPeak memory(pool);
  const SteadyClock clock;
  double best_ms = 1e9;
  for (auto _ : state) {
    const TimePoint start = clock.now();
    memory.read();
    best_ms = std::min(best_ms, to_ms(clock.now() - start));
  }
  state.counters["GB/s"] = static_cast<double>(ReadPeak::kBytes) / best_ms / 1e6;
}

void peak_operations(benchmark::State& state, double (*measure)(ThreadPool&)) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  double best = 0;
  for (auto _ : state) best = std::max(best, measure(pool));
  if (best == 0) state.SkipWithError("this CPU lacks the instruction");
  state.counters["Gop/s"] = best / 1e9;
}

void register_all() {
  const auto threads = [](benchmark::internal::Benchmark* b) {
    b->ArgName("threads")->Arg(1)->UseRealTime()->Unit(benchmark::kMillisecond);
    if (all_threads() > 1) b->Arg(all_threads());
  };
  threads(benchmark::RegisterBenchmark("peak/read", peak_read));
  threads(benchmark::RegisterBenchmark("peak/int8", peak_operations, peak_int8));
  threads(benchmark::RegisterBenchmark("peak/f32", peak_operations, peak_f32));
  threads(benchmark::RegisterBenchmark("peak/bf16", peak_operations, peak_bf16));
  for (const Shape& shape : shapes()) {
    for (const Format& format : formats()) {
      const TensorTypeInfo& info = tensor_type_info(format.type);
      if (shape.depth % static_cast<std::int32_t>(info.block_elements) != 0) continue;
      for (const int rows : {1, 8, 32, 512}) {
        // No step has so many logit rows.
        if (std::int64_t{rows} * shape.columns.front() > kMaxOutFloats) continue;
        const std::string name =
            std::string("matmul/") + shape.name + "/" + info.name + "/rows:" + std::to_string(rows);
        benchmark::RegisterBenchmark(name.c_str(), matmul, &shape, &format, rows)
            ->UseRealTime()
            ->Unit(benchmark::kMicrosecond);
      }
    }
  }
}

}  // namespace
}  // namespace folio::bench

int main(int argc, char** argv) {
  folio::bench::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
