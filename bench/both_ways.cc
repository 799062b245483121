#include "bench/both_ways.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace folio::bench {
namespace {

// One sequence, in blocks that nobody else uses.
class Sequence {
 public:
  Sequence(Model& model, std::span<const TokenId> prompt) : model_(model), tokens_(prompt.begin(), prompt.end()) {
    num_prompt_tokens_ = std::ssize(tokens_);
    sampling_.seed = 1;
    sampling_.num_logprobs = 0;
  }

  // Computes the tokens from `first` on, whose predecessors are in the cache, and appends the next one.
  void pass(std::int64_t first, Generated& out) {
    fill_batch(first);
    SampleRequest& sample = batch_.samples.emplace_back();
    sample.params = &sampling_;
    sample.position = std::ssize(tokens_);
    sample.tokens = tokens_;
    sample.num_prompt_tokens = num_prompt_tokens_;
    SampledToken token;
    model_.start(batch_);
    out.pass_ms.push_back(static_cast<double>(model_.collect({&token, 1}, {}).pass_ns()) / 1e6);
    if (token.id == kNoToken) throw std::runtime_error("the model's logits are not numbers");
    tokens_.push_back(token.id);
    out.ids.push_back(token.id);
    out.logprobs.push_back(token.logprob);
  }

  std::int64_t size() const { return std::ssize(tokens_); }
  void turn_blocks() { turned_ = !turned_; }

 private:
  BlockId block_at(std::int32_t index) const { return turned_ ? model_.num_blocks() - index : index + 1; }

  void fill_batch(std::int64_t first) {
    const std::int32_t block_size = model_.block_size();
    const auto end = static_cast<std::int32_t>(tokens_.size());
    const std::int32_t num_blocks = (end + block_size - 1) / block_size;
    if (num_blocks > model_.num_blocks()) throw std::logic_error("too few blocks for the sequence");
    batch_.clear();
    for (auto p = static_cast<std::int32_t>(first); p < end; ++p) {
      batch_.tokens.push_back(tokens_[static_cast<std::size_t>(p)]);
      batch_.positions.push_back(p);
      batch_.slots.push_back(block_at(p / block_size) * block_size + p % block_size);
    }
    batch_.query_start.push_back(batch_.num_tokens());
    batch_.context_len.push_back(end);
    for (std::int32_t i = 0; i < num_blocks; ++i) batch_.block_ids.push_back(block_at(i));
    batch_.block_start.push_back(num_blocks);
    batch_.logit_rows.push_back(batch_.num_tokens() - 1);
  }

  Model& model_;
  std::vector<TokenId> tokens_;
  std::int64_t num_prompt_tokens_;
  SamplingParams sampling_;
  StepBatch batch_;
  bool turned_ = false;
};

}  // namespace

Generated generate_with_cache(Model& model, std::span<const TokenId> prompt, int num_tokens) {
  Generated out;
  Sequence sequence(model, prompt);
  for (int i = 0; i < num_tokens; ++i) sequence.pass(i == 0 ? 0 : sequence.size() - 1, out);
  return out;
}

Generated generate_without_cache(Model& model, std::span<const TokenId> prompt, int num_tokens) {
  Generated out;
  Sequence sequence(model, prompt);
  for (int i = 0; i < num_tokens; ++i) {
    sequence.pass(0, out);
    sequence.turn_blocks();
  }
  return out;
}

std::string difference(const Generated& a, const Generated& b) {
  for (std::size_t i = 0; i < std::max(a.ids.size(), b.ids.size()); ++i) {
    const std::string which = "token " + std::to_string(i) + ": ";
    if (i >= a.ids.size() || i >= b.ids.size()) return which + "only one way gave it";
    if (a.ids[i] != b.ids[i]) return which + "id " + std::to_string(a.ids[i]) + " and " + std::to_string(b.ids[i]);
    if (std::bit_cast<std::uint32_t>(a.logprobs[i]) != std::bit_cast<std::uint32_t>(b.logprobs[i])) {
      return which + "log probability " + std::to_string(a.logprobs[i]) + " and " + std::to_string(b.logprobs[i]);
    }
  }
  return "";
}

}  // namespace folio::bench
