// Models on the device against the CPU backend: the tiny ones of every architecture, and the cut default model.
#include <algorithm>
#include <numeric>

#include "engine/model/load_model.h"
#include "tests/engine/model/teacher_force.h"
#include "tests/gpu/compare.h"
#include "tests/gpu/device_model.h"
#include "tests/gpu/parts.h"

namespace folio::gpu {
namespace {

// The device's products are of bf16 or int8 rows and the CPU's of int8 rows: on the tiny models tests/simt sees mean
// differences of 0.8 to 1.5 % of the logits' own spread. A wrong kernel is off by all of it.
constexpr double kAllowedShare = 0.05;
constexpr double kAllowedArgmax = 0.85;

ModelOptions small_options(bool deterministic = false) {
  ModelOptions options;
  options.deterministic = deterministic;
  options.kv_blocks = 128;
  options.max_num_seqs = 16;
  options.max_batch_tokens = 64;
  return options;
}

// Of all positions, one after another.
std::vector<float> logits_of(Decoder& model, std::span<const TokenId> tokens, int chunk) {
  std::vector<float> all;
  teacher_force(model, tokens, chunk, 0,
                [&](int, std::span<const float> row) { all.insert(all.end(), row.begin(), row.end()); });
  return all;
}

double spread(std::span<const float> values) {
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  double squares = 0;
  for (const float value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

double argmax_agreement(std::span<const float> a, std::span<const float> b, std::size_t vocab) {
  std::size_t equal = 0;
  for (std::size_t at = 0; at < a.size(); at += vocab) {
    equal += argmax(a.subspan(at, vocab)) == argmax(b.subspan(at, vocab)) ? 1 : 0;
  }
  return static_cast<double>(equal) / static_cast<double>(a.size() / vocab);
}

void compare(Report& report, const std::string& name, const std::vector<float>& got, const std::vector<float>& on_cpu,
             std::size_t vocab) {
  const double share = difference(got, on_cpu).mean / spread(on_cpu);
  const double agreement = got.size() == on_cpu.size() ? argmax_agreement(got, on_cpu, vocab) : 0;
  report.figure(name + ": mean |dlogit| / spread", share, "");
  report.figure(name + ": same best token", agreement, "of rows");
  report.check(name + ": mean |dlogit|", share <= kAllowedShare,
               number(share) + " of the logits' spread, allowed " + number(kAllowedShare));
  report.check(name + ": same best token", agreement >= kAllowedArgmax,
               number(agreement) + " of rows, wanted " + number(kAllowedArgmax));
}

void check_against_cpu(Report& report, const std::string& name, const std::string& path, int count,
                       const std::vector<std::string>& kv_dtypes) {
  const GgufFile file(path);
  for (const std::string& kv_dtype : kv_dtypes) {
    ModelOptions options = small_options();
    options.kv_dtype = kv_dtype;
    const LoadedModel cpu = load_model(file, options);
    const std::vector<TokenId> tokens = random_tokens(*cpu.model, count, 1);
    const std::vector<float> expected = logits_of(*cpu.model, tokens, 64);
    const auto model = load_on_device(file, options);
    for (const int chunk : {1, 7, 64}) {
      compare(report, name + " kv " + kv_dtype + " chunk " + std::to_string(chunk), logits_of(*model, tokens, chunk),
              expected, static_cast<std::size_t>(model->vocab_size()));
    }
  }
}

// All sequences' logits, step by step, of tokens that are given: sequence s takes tokens[s + step].
struct Decoded {
  std::vector<float> logits;  // of sequence 0
  std::vector<float> all;
  std::vector<TokenId> ids;
};
Decoded decode(Decoder& model, std::span<const TokenId> tokens, int sequences, int steps) {
  Decoded out;
  DecodeSteps run(model, sequences, 0, steps);
  std::vector<float> row(static_cast<std::size_t>(model.vocab_size()));
  for (int step = 0; step < steps; ++step) {
    run.start({tokens.begin() + step, tokens.begin() + step + sequences});
    for (const SampledToken& sample : run.collect()) out.ids.push_back(sample.id);
    for (std::int32_t s = 0; s < sequences; ++s) {
      model.read_logits(s, row);
      out.all.insert(out.all.end(), row.begin(), row.end());
      if (s == 0) out.logits.insert(out.logits.end(), row.begin(), row.end());
    }
  }
  return out;
}

void check_graphs(Report& report, const GgufFile& file) {
  const auto with = load_on_device(file, small_options(), true);
  const auto without = load_on_device(file, small_options(), false);
  const std::vector<TokenId> tokens = random_tokens(*with, 64, 3);
  for (const int sequences : {1, 5, 13}) {  // 13 are padded to 16
    const Decoded a = decode(*with, tokens, sequences, 20);
    const Decoded b = decode(*without, tokens, sequences, 20);
    const std::string name = "graphs, " + std::to_string(sequences) + " sequences";
    report.check(name + ": the same samples", a.ids == b.ids);
    check_equal(report, name + ": the same logits", a.all, b.all);
    std::size_t best = 0;
    const auto vocab = static_cast<std::size_t>(with->vocab_size());
    for (std::size_t i = 0; i < a.ids.size(); ++i) {
      best += a.ids[i] == argmax(std::span(a.all).subspan(i * vocab, vocab)) ? 1 : 0;
    }
    report.check(name + ": samples are the best tokens", best == a.ids.size());
  }
}

void check_deterministic(Report& report, const GgufFile& file) {
  const auto model = load_on_device(file, small_options(true));
  const std::vector<TokenId> tokens = random_tokens(*model, 300, 2);
  const std::vector<float> whole = logits_of(*model, tokens, 64);
  for (const int chunk : {1, 7}) {
    check_equal(report, "deterministic, chunks of " + std::to_string(chunk), logits_of(*model, tokens, chunk), whole);
  }
  const auto vocab = static_cast<std::size_t>(model->vocab_size());
  for (const int sequences : {1, 5, 16}) {
    check_equal(report, "deterministic, decoded with " + std::to_string(sequences - 1) + " others",
                decode(*model, tokens, sequences, 40).logits, std::span(whole).first(40 * vocab));
  }
}

}  // namespace

void check_tiny_models(Report& report) {
  for (const char* name : {"llama-mha", "llama-gqa-rope3", "qwen3", "gemma3"}) {
    check_against_cpu(report, name, std::string("tests/reference/tiny_models/") + name + ".gguf", 60, {"f16"});
  }
}

void check_cut_model(Report& report) {
  check_against_cpu(report, "smollm2-cut", kCutPath, 200, {"f16", "int8"});
  const GgufFile file(kCutPath);
  check_graphs(report, file);
  check_deterministic(report, file);
}

}  // namespace folio::gpu
