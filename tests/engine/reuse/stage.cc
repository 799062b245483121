#include "tests/engine/reuse/stage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <stdexcept>
#include <thread>

namespace folio {
namespace {

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

bool same_top(const TokenLogprob& a, const TokenLogprob& b) {
  return a.id == b.id && std::memcmp(&a.logprob, &b.logprob, sizeof(float)) == 0;
}

std::string described(const Reader::Output& output) {
  std::string text = std::to_string(output.ids.size()) + " tokens, finish " +
                     std::to_string(static_cast<int>(output.finish)) + ", ids";
  for (TokenId id : output.ids) text += " " + std::to_string(id);
  return text;
}

testing::AssertionResult differ(const char* what, const Reader::Output& got, const Reader::Output& alone) {
  return testing::AssertionFailure() << what << "\n  got   " << described(got) << "\n  alone " << described(alone);
}

}  // namespace

std::vector<TokenId> ModelFile::encode(std::string_view text) const {
  std::vector<TokenId> ids;
  if (tokenizer->add_bos()) ids.push_back(tokenizer->bos());
  tokenizer->encode(text, true, ids);
  return ids;
}

std::string ModelFile::text_of(std::span<const TokenId> ids) const {
  std::string text;
  for (TokenId id : ids) text += tokenizer->piece(id);
  return text;
}

// ---- Stage

Stage::Stage(const ModelFile& file, Setup setup)
    : loaded_(load_model(file.file, {.isa = setup.isa,
                                     .num_threads = setup.threads,
                                     .kv_dtype = setup.kv,
                                     .block_size = setup.block_size,
                                     .kv_blocks = setup.num_blocks})),
      model_(std::make_unique<PoisonModel>(*loaded_.model, setup.depth)) {
  setup.options.check_invariants = true;
  model_->set_hook([this](const StepBatch& batch) {
    hold().unlock();
    if (hook_) hook_(batch);
  });
  engine_ = std::make_unique<Engine>(*model_, *file.tokenizer, setup.clock != nullptr ? *setup.clock : steady_,
                                     setup.options);
}

RequestId Stage::submit(GenerationRequest request, const Reader& reader) {
  const auto id = engine_->submit(std::move(request), reader.stream());
  if (!id.ok()) throw std::runtime_error("refused: " + id.error().message);
  return *id;
}

std::vector<Answer> Stage::run_together(std::vector<GenerationRequest> requests) {
  std::deque<Reader> readers;
  {
    const auto no_step = hold();
    for (GenerationRequest& request : requests) {
      const std::int32_t n = request.n;
      submit(std::move(request), readers.emplace_back(n));
    }
  }
  std::vector<Answer> answers;
  for (Reader& reader : readers) {
    reader.wait_end();
    Answer& answer = answers.emplace_back();
    for (std::int32_t index = 0; index < reader.num_outputs(); ++index) answer.outputs.push_back(reader.output(index));
    answer.prompt_logprobs = reader.prompt_logprobs();
    answer.end = reader.end();
  }
  return answers;
}

testing::AssertionResult Stage::wait_for(const char* what,
                                         const std::function<bool(const LoadSnapshot&)>& holds) const {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  LoadSnapshot load = engine_->load();
  while (!holds(load) && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    load = engine_->load();
  }
  if (holds(load)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << what << ": total " << load.blocks_total << ", free " << load.blocks_free
                                     << ", held " << load.blocks_held << ", cached " << load.blocks_cached
                                     << ", pinned " << load.blocks_pinned << ", unaccounted " << load.blocks_unaccounted
                                     << ", running " << load.num_running << ", waiting " << load.num_waiting
                                     << ", pins " << load.num_pins;
}

testing::AssertionResult Stage::is_settled() {
  if (!engine_->wait_idle(std::chrono::steady_clock::now() + std::chrono::minutes(2))) {
    return testing::AssertionFailure() << "not idle after two minutes";
  }
  const LoadSnapshot load = engine_->load();
  const bool settled = load.num_running == 0 && load.num_waiting == 0 && load.blocks_held == load.blocks_pinned &&
                       load.blocks_unaccounted == 0 &&
                       load.blocks_free + load.blocks_cached + load.blocks_held == load.blocks_total;
  if (settled) return testing::AssertionSuccess();
  return wait_for("at idle", [](const LoadSnapshot&) { return false; });
}

testing::AssertionResult Stage::gives_all_back() {
  if (auto settled = is_settled(); !settled) return settled;
  engine_->unpin(0);
  engine_->flush_prefix_cache();
  return wait_for("after a flush", [](const LoadSnapshot& load) {
    return load.blocks_free == load.blocks_total && load.blocks_held == 0 && load.blocks_cached == 0 &&
           load.blocks_pinned == 0 && load.num_pins == 0 && load.blocks_unaccounted == 0;
  });
}

// ---- Solo

Solo::Solo(const ModelFile& file, std::string isa, std::string kv, std::int32_t num_blocks)
    : stage_(file, {.isa = std::move(isa),
                    .kv = std::move(kv),
                    .num_blocks = num_blocks,
                    .options = {.max_batch_tokens = 4096, .prefix_cache = false}}) {}

// ---- comparisons

testing::AssertionResult same_output(const Reader::Output& got, const Reader::Output& alone) {
  if (got.ids != alone.ids) return differ("other tokens", got, alone);
  if (!same_bits(got.logprobs, alone.logprobs)) return differ("other bits of log probability", got, alone);
  if (!std::ranges::equal(got.top, alone.top, same_top)) return differ("other alternatives", got, alone);
  if (got.bytes != alone.bytes) return differ("another text", got, alone);
  if (got.finish != alone.finish || got.stop_token != alone.stop_token || got.stop_index != alone.stop_index) {
    return differ("another end", got, alone);
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult is_beginning(const Reader::Output& got, const Reader::Output& alone) {
  if (got.ids.size() > alone.ids.size()) return differ("more than alone", got, alone);
  Reader::Output head = alone;
  head.ids.resize(got.ids.size());
  head.logprobs.resize(got.ids.size());
  if (!alone.ids.empty()) head.top.resize(got.ids.size() * (alone.top.size() / alone.ids.size()));
  head.bytes = got.bytes;
  head.finish = got.finish;
  head.stop_token = got.stop_token;
  head.stop_index = got.stop_index;
  return same_output(got, head);
}

testing::AssertionResult is_beginning(std::span<const SampledToken> got, std::span<const SampledToken> alone) {
  if (got.size() > alone.size()) return testing::AssertionFailure() << "more of the prompt than alone";
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool same = got[i].id == alone[i].id && same_bits({&got[i].logprob, 1}, {&alone[i].logprob, 1}) &&
                      std::ranges::equal(got[i].top, alone[i].top, same_top);
    if (!same) return testing::AssertionFailure() << "another log probability of the prompt's token " << i;
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult same_answer(const Answer& got, const Answer& alone) {
  if (got.outputs.size() != alone.outputs.size()) return testing::AssertionFailure() << "not as many outputs";
  if (got.end.error || alone.end.error) {
    return testing::AssertionFailure() << "an error: " << (got.end.error ? got.end : alone.end).error->message;
  }
  if (auto same = is_beginning(got.prompt_logprobs, alone.prompt_logprobs); !same) return same;
  if (got.prompt_logprobs.size() != alone.prompt_logprobs.size()) return testing::AssertionFailure() << "less of it";
  std::int64_t num_tokens = 0;
  for (std::size_t i = 0; i < got.outputs.size(); ++i) {
    num_tokens += static_cast<std::int64_t>(got.outputs[i].ids.size());
    if (auto same = same_output(got.outputs[i], alone.outputs[i]); !same) return same << "\n  index " << i;
  }
  if (got.end.usage.output_tokens != num_tokens) return testing::AssertionFailure() << "output tokens counted wrongly";
  if (got.end.usage.prompt_tokens != alone.end.usage.prompt_tokens) {
    return testing::AssertionFailure() << "prompt tokens counted wrongly";
  }
  return testing::AssertionSuccess();
}

// ---- requests

GenerationRequest greedy(std::vector<TokenId> prompt, std::int64_t max_tokens) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.num_logprobs = 0;
  request.stopping.max_tokens = max_tokens;
  request.stopping.ignore_eos = true;
  return request;
}

GenerationRequest sampled(std::vector<TokenId> prompt, std::int64_t max_tokens, std::uint64_t seed) {
  GenerationRequest request = greedy(std::move(prompt), max_tokens);
  request.sampling.temperature = 0.8F;
  request.sampling.seed = seed;
  request.sampling.top_k = 50;
  request.sampling.top_p = 0.95F;
  request.sampling.repetition_penalty = 1.2F;
  request.sampling.presence_penalty = 0.1F;
  request.sampling.frequency_penalty = 0.1F;
  request.sampling.num_logprobs = 2;
  return request;
}

std::vector<TokenId> random_tokens(std::uint64_t seed, std::size_t count, TokenId vocab_size) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % static_cast<std::uint64_t>(vocab_size));
  return tokens;
}

std::vector<TokenId> joined(std::vector<TokenId> head, std::span<const TokenId> tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

}  // namespace folio
