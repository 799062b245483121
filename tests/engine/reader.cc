#include "tests/engine/reader.h"

#include <stdexcept>

namespace folio {

Reader::Reader(std::int32_t n) : outputs_(static_cast<std::size_t>(n)) {
  stream_ = std::make_shared<TokenStream>([signal = signal_] {
    const std::lock_guard lock(signal->mutex);
    ++signal->num_wakes;
    signal->changed.notify_all();
  });
}

int Reader::num_wakes() const {
  const std::lock_guard lock(signal_->mutex);
  return signal_->num_wakes;
}

bool Reader::read() {
  TokenStream::Taken taken = stream_->take();
  if (taken.empty()) return false;
  if (end_) throw std::logic_error("something after the end");
  if (taken.prompt) {
    if (prompt_) throw std::logic_error("the prompt was told twice");
    prompt_ = taken.prompt;
  }
  for (SampledToken& token : taken.prompt_logprobs) {
    if (!prompt_) throw std::logic_error("a token of the prompt before the prompt");
    for (const Output& output : outputs_) {
      if (!output.ids.empty()) throw std::logic_error("a token of the prompt after an output");
    }
    prompt_logprobs_.push_back(std::move(token));
  }
  for (const OutputDelta& delta : taken.outputs) {
    Output& output = outputs_.at(static_cast<std::size_t>(delta.index));
    if (!prompt_) throw std::logic_error("an output before the prompt");
    if (output.finish != FinishReason::kNone) throw std::logic_error("an output after its end");
    for (const SampledToken& token : delta.tokens) {
      output.ids.push_back(token.id);
      output.logprobs.push_back(token.logprob);
      output.top.insert(output.top.end(), token.top.begin(), token.top.end());
    }
    output.bytes += delta.bytes;
    output.finish = delta.finish;
    output.stop_token = delta.stop_token;
    output.stop_index = delta.stop_index;
  }
  end_ = std::move(taken.end);
  return true;
}

void Reader::wait_wake() {
  std::unique_lock lock(signal_->mutex);
  if (!signal_->changed.wait_for(lock, std::chrono::seconds(60), [&] { return signal_->num_wakes > num_seen_; })) {
    throw std::runtime_error("no news of the stream for a minute");
  }
  num_seen_ = signal_->num_wakes;
}

void Reader::wait_end() {
  while (!end_) {
    if (!read()) wait_wake();
  }
}

void Reader::wait_tokens(std::size_t count, std::int32_t index) {
  while (!end_ && output(index).ids.size() < count) {
    if (!read()) wait_wake();
  }
}

GenerationRequest request_of(int number, std::int64_t num_prompt_tokens, std::int64_t max_tokens, std::int32_t n) {
  GenerationRequest request;
  request.prompt = fake_outputs({number % kVocab, number / kVocab % kVocab}, num_prompt_tokens, kVocab);
  request.sampling.num_logprobs = 0;
  request.stopping.max_tokens = max_tokens;
  request.stopping.ignore_eos = true;
  request.n = n;
  return request;
}

Rig::Rig(EngineOptions options, std::int32_t num_blocks, std::int32_t block_size, std::int32_t max_context)
    : model(num_blocks, block_size, max_context, kVocab) {
  options.check_invariants = true;
  if (depth == 2) async = std::make_unique<AsyncModel>(model);
  engine = std::make_unique<Engine>(async ? static_cast<Model&>(*async) : model, tokenizer, clock, options);
}

bool Rig::idle() {
  if (!engine->wait_idle(std::chrono::steady_clock::now() + std::chrono::seconds(10))) return false;
  const LoadSnapshot load = engine->load();
  return load.num_running == 0 && load.num_waiting == 0 && load.blocks_held == 0 && load.blocks_unaccounted == 0 &&
         load.blocks_free + load.blocks_cached == load.blocks_total;
}

}  // namespace folio
