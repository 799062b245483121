#include "bench/kv_cache.h"

#include <algorithm>
#include <ctime>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "bench/both_ways.h"
#include "bench/kv_figures.h"
#include "bench/kv_models.h"
#include "bench/pass_cost.h"
#include "bench/requests.h"
#include "bench/table.h"
#include "engine/gguf/printable.h"

namespace folio::bench {
namespace {

constexpr double kMiB = 1024 * 1024;
constexpr int kWarmUpPrompt = 16, kWarmUpTokens = 4;

struct Options {
  ModelFlags model;
  std::vector<std::int64_t> lengths = {16, 64, 256, 1024, 2048};
  int steps = 8;
  std::string plot_file;
  bool json = false;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// All passes from one token to `length`.
double ops_until(const PassCosts& costs, std::int64_t length, bool with_cache) {
  double ops = 0;
  for (std::int64_t n = 1; n <= length; ++n) ops += (with_cache ? costs.pass(n - 1, 1) : costs.pass(0, n)).ops();
  return ops;
}

class KvBench {
 public:
  KvBench(const Options& options, Table& table) : options_(options), table_(table) {}

  void measure_machine();
  void run_model(const std::string& name, const std::string& path);
  void write_plot() const;

 private:
  void run_length(Model& model, const PassCosts& costs, std::int64_t length, KvFigures& figures);
  void print(const PassCosts& costs, const Generated& made, const KvFigure& figure, bool with_cache);
  std::string title() const;

  const Options& options_;
  Table& table_;
  MachinePeaks peaks_;
  std::optional<Roofline> roofline_;  // of the model under way; none where the CPU's peaks are not known
  double ridge_ = 0;
  int num_threads_ = 0;
  std::string isa_;
  std::vector<KvFigures> all_;
};

void KvBench::measure_machine() {
  const int wanted = options_.model.options.num_threads;
  ThreadPool pool(wanted > 0 ? wanted : available_cores());
  peaks_ = measure_peaks(pool);
  const auto in_billions = [](double value) { return value > 0 ? Row(rounded(value / 1e9, 1)) : Row(nullptr); };
  table_.print({{"threads", pool.num_threads()},
                {"read_gb_s", in_billions(peaks_.read_bytes)},
                {"int8_gop_s", in_billions(peaks_.int8)},
                {"f32_gop_s", in_billions(peaks_.f32)},
                {"bf16_gop_s", in_billions(peaks_.bf16)}});
}

void KvBench::run_model(const std::string& name, const std::string& path) {
  ModelOptions options = options_.model.options;
  const std::int64_t longest = *std::max_element(options_.lengths.begin(), options_.lengths.end());
  const std::int64_t tokens = std::max<std::int64_t>(longest + options_.steps, kWarmUpPrompt + kWarmUpTokens);
  options.kv_blocks = (tokens + 1 + options.block_size - 1) / options.block_size;
  const GgufFile file(path);
  const LoadedModel loaded = load_model(file, options);
  const PassCosts costs(file, loaded.info);
  if (peaks_.f32 > 0) {
    roofline_.emplace(peaks_, loaded.info.dtype.starts_with('Q'));
    ridge_ = roofline_->ridge();
  }
  KvFigures figures;
  figures.model = name.empty() ? printable(loaded.info.name) : name;
  num_threads_ = loaded.info.num_threads;
  isa_ = loaded.info.isa;
  const AttentionShape& heads = costs.config().attention;
  Row row = {{"model", figures.model},
             {"layers", costs.config().num_layers},
             {"heads", heads.num_heads},
             {"kv_heads", heads.num_kv_heads},
             {"head_dim", heads.head_dim},
             {"kv_dtype", loaded.info.kv_dtype},
             {"kv_bytes_per_token", loaded.info.kv_bytes_per_token}};
  row["weights_mib"] = rounded(costs.weight_bytes() / kMiB, 1);
  row["compute_bound_from"] = nullptr;
  if (roofline_) {
    figures.compute_bound_from = first_compute_bound(costs.config().context_length, [&](std::int64_t count) {
      return roofline_->is_compute_bound(costs.pass(0, count));
    });
    if (figures.compute_bound_from > 0) row["compute_bound_from"] = figures.compute_bound_from;
  }
  table_.print(row);
  // Touches what is used first.
  generate_with_cache(*loaded.model, std::vector<TokenId>(kWarmUpPrompt, 1), kWarmUpTokens);
  for (const std::int64_t length : options_.lengths) run_length(*loaded.model, costs, length, figures);
  all_.push_back(std::move(figures));
}

void KvBench::run_length(Model& model, const PassCosts& costs, std::int64_t length, KvFigures& figures) {
  std::mt19937 random(static_cast<std::uint32_t>(length));
  const std::vector<TokenId> prompt = random_tokens(random, length, model.vocab_size());
  const Generated with = generate_with_cache(model, prompt, options_.steps + 1);
  const Generated without = generate_without_cache(model, prompt, options_.steps + 1);
  if (const std::string what = difference(with, without); !what.empty()) {
    throw std::runtime_error(figures.model + " at " + std::to_string(length) +
                             " tokens: with and without the cache differ: " + what);
  }
  const auto figure = [&](const Generated& made, bool with_cache) {
    const std::int64_t blocks = (length + model.block_size() - 1) / model.block_size();
    return KvFigure{length, median({made.pass_ms.begin() + 1, made.pass_ms.end()}),
                    with_cache ? costs.pass(length, 1) : costs.pass(0, length + 1),
                    with_cache ? costs.kv_bytes_per_token() * static_cast<double>(blocks * model.block_size()) : 0};
  };
  figures.with.push_back(figure(with, true));
  figures.without.push_back(figure(without, false));
  print(costs, with, figures.with.back(), true);
  print(costs, without, figures.without.back(), false);
}

void KvBench::print(const PassCosts& costs, const Generated& made, const KvFigure& figure, bool with_cache) {
  Row row = {{"length", figure.length},
             {"cache", with_cache ? "on" : "off"},
             {"first_ms", rounded(made.pass_ms[0], 3)},
             {"token_ms", rounded(figure.ms, 3)},
             {"tok_s", rounded(1000 / figure.ms, 1)},
             {"token_gop", rounded(figure.cost.ops() / 1e9, 4)},
             {"until_gop", rounded(ops_until(costs, figure.length, with_cache) / 1e9, 3)},
             {"kept_mib", rounded(figure.kept_bytes / kMiB, 3)},
             {"moved_mib", rounded(figure.cost.bytes() / kMiB, 2)},
             {"op_per_byte", rounded(figure.cost.intensity(), 2)},
             {"bound", nullptr},
             {"limit_ms", nullptr}};
  if (roofline_) {
    row["bound"] = roofline_->is_compute_bound(figure.cost) ? "compute" : "memory";
    row["limit_ms"] = rounded(1000 * std::max(roofline_->compute_s(figure.cost), roofline_->memory_s(figure.cost)), 3);
  }
  table_.print(row);
}

std::string KvBench::title() const {
  std::string cpu = "an unknown CPU";
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name") || line.find(": ") == std::string::npos) continue;
    cpu = line.substr(line.find(": ") + 2);
    break;
  }
  char day[16];
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::strftime(day, sizeof day, "%Y-%m-%d", gmtime_r(&now, &parts));
  return "The same generation with and without the KV cache\nfolio-bench kv-cache, " + cpu + ", " +
         std::to_string(num_threads_) + (num_threads_ == 1 ? " thread, " : " threads, ") + isa_ + ", " +
         options_.model.options.kv_dtype + " K and V, " + day;
}

void KvBench::write_plot() const {
  std::ofstream file(options_.plot_file, std::ios::binary);
  file << kv_plots(title(), all_, ridge_);
  file.close();
  if (!file) throw std::runtime_error("--plot: cannot write " + options_.plot_file);
}

void run_kv_cache(const Options& options) {
  const std::int64_t longest = *std::max_element(options.lengths.begin(), options.lengths.end());
  if (!options.model.path.empty()) {
    require_context(options.model, "--lengths and --steps", longest + options.steps + 1);
  }
  if (!options.plot_file.empty()) {  // better now than after the measurement
    if (!std::ofstream(options.plot_file)) throw std::runtime_error("--plot: cannot write " + options.plot_file);
  }
  Table table(options.json);
  KvBench bench(options, table);
  if (options.model.path.empty()) {
    const testing::TempFolder folder;
    const std::vector<KvModel> models = write_kv_models(folder);
    ModelFlags first = options.model;
    first.path = models[0].path;
    require_context(first, "--lengths and --steps", longest + options.steps + 1);
    bench.measure_machine();
    for (const KvModel& model : models) bench.run_model(model.name, model.path);
  } else {
    bench.measure_machine();
    bench.run_model("", options.model.path);
  }
  if (!options.plot_file.empty()) bench.write_plot();
}

}  // namespace

void add_kv_cache_command(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("kv-cache", "one generation with and without the KV cache");
  add_model_flags(*command, options->model, false);
  command->get_option("--model")->description("GGUF file; without it three small models: MHA, GQA, MQA");
  command->add_option("--lengths", options->lengths, "tokens in the sequence, several by commas")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--steps", options->steps, "tokens timed at each length; the median counts")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  command->add_option("--plot", options->plot_file, "also write the plots to this SVG file");
  command->add_flag("--json", options->json, "one JSON object a line");
  command->callback([options] { run_kv_cache(*options); });
}

}  // namespace folio::bench
