#include "bench/requests.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "engine/model/decoder_config.h"

namespace folio::bench {

void add_model_flags(CLI::App& command, ModelFlags& flags, bool required) {
  command.add_option("--model", flags.path, "GGUF file")->required(required)->check(CLI::ExistingFile);
  command.add_option("--threads", flags.options.num_threads, "0: the cores this process may use")
      ->check(CLI::Range(0, 1024));
  command.add_option("--isa", flags.options.isa, "level of instructions")
      ->check(CLI::IsMember({"auto", "avx512bf16", "avx512", "avx2", "scalar"}))
      ->capture_default_str();
  command.add_option("--kv-dtype", flags.options.kv_dtype, "of K and V")
      ->check(CLI::IsMember({"f16", "bf16", "int8", "f32"}))
      ->capture_default_str();
  command.add_option("--block-size", flags.options.block_size)
      ->check(CLI::IsMember({16, 32, 64, 128, 256}))
      ->capture_default_str();
}

BenchModel::BenchModel(const ModelFlags& flags, std::int64_t num_blocks) {
  const GgufFile file(flags.path);
  tokenizer = make_tokenizer(file);
  ModelOptions options = flags.options;
  options.kv_blocks = num_blocks;
  loaded = load_model(file, options);
}

void require_context(const ModelFlags& model, const std::string& flags, std::int64_t num_tokens) {
  const std::int32_t context = read_config(GgufFile(model.path)).context_length;
  if (num_tokens <= context) return;
  throw std::runtime_error(flags + ": " + std::to_string(num_tokens) + " tokens are over the model's context of " +
                           std::to_string(context));
}

void allow_waiting(EngineOptions& options, std::int64_t num_requests, std::int64_t prompt_tokens) {
  options.max_queue = std::max(options.max_queue, static_cast<std::int32_t>(num_requests));
  options.max_queue_tokens = std::max(options.max_queue_tokens, num_requests * prompt_tokens);
}

std::vector<TokenId> random_tokens(std::mt19937& random, std::int64_t count, std::int32_t vocab_size) {
  std::uniform_int_distribution<TokenId> ids(std::min(1000, vocab_size / 2), std::min(20000, vocab_size) - 1);
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  for (TokenId& id : tokens) id = ids(random);
  return tokens;
}

GenerationRequest greedy_request(std::vector<TokenId> prompt, std::int64_t max_tokens) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0.0F;
  request.stopping.max_tokens = max_tokens;
  request.stopping.ignore_eos = true;
  return request;
}

Streams::~Streams() {
  cancel();
  std::unique_lock lock(mutex_);
  news_.wait(lock, [this] { return have_ended(); });
}

void Streams::submit(GenerationRequest request) {
  Entry& entry = entries_.emplace_back();
  entry.stream = std::make_shared<TokenStream>([this, &entry] { take(entry); });
  entry.record.submitted = clock_.now();
  const auto id = engine_.submit(std::move(request), entry.stream);
  if (!id) {
    entries_.pop_back();
    throw std::runtime_error("a request was refused: " + id.error().message);
  }
  entry.record.id = *id;
}

// Until the stream is empty, so that it calls again at the next token.
void Streams::take(Entry& entry) {
  const TimePoint now = clock_.now();
  const std::lock_guard lock(mutex_);
  Record& record = entry.record;
  bool wake = false;
  for (auto taken = entry.stream->take(); !taken.empty(); taken = entry.stream->take()) {
    if (taken.prompt) record.cached_tokens = taken.prompt->cached_tokens;
    for (const OutputDelta& output : taken.outputs)
      record.tokens.insert(record.tokens.end(), output.tokens.size(), now);
    if (taken.end) record.end = std::move(taken.end);
    wake |= record.end.has_value() || record.tokens.size() == wanted_;
  }
  if (wake) news_.notify_one();
}

bool Streams::have_ended() const {
  return std::ranges::all_of(entries_, [](const Entry& entry) { return entry.record.end.has_value(); });
}

bool Streams::have_tokens(std::size_t num_tokens) const {
  return std::ranges::all_of(entries_, [&](const Entry& entry) {
    if (entry.record.tokens.size() >= num_tokens) return true;
    if (!entry.record.end) return false;
    throw std::runtime_error("a request ended after " + std::to_string(entry.record.tokens.size()) + " of " +
                             std::to_string(num_tokens) + " tokens" +
                             (entry.record.end->error ? ": " + entry.record.end->error->message : ""));
  });
}

void Streams::wait_for_tokens(std::size_t num_tokens) {
  std::unique_lock lock(mutex_);
  wanted_ = num_tokens;
  news_.wait(lock, [&] { return have_tokens(num_tokens); });
}

void Streams::wait_for_open_below(std::size_t num_open) {
  std::unique_lock lock(mutex_);
  news_.wait(lock, [&] {
    const auto open = std::ranges::count_if(entries_, [](const Entry& entry) { return !entry.record.end; });
    return static_cast<std::size_t>(open) < num_open;
  });
}

void Streams::wait_for_ends() {
  std::unique_lock lock(mutex_);
  news_.wait(lock, [this] { return have_ended(); });
  for (const Entry& entry : entries_) {
    const auto& error = entry.record.end->error;
    if (error && error->code != ErrorCode::kCancelled) throw std::runtime_error("a request failed: " + error->message);
  }
}

void Streams::cancel() {
  for (const Entry& entry : entries_) engine_.cancel(entry.record.id);
}

}  // namespace folio::bench
