#include "tests/support/fake_model/fake_model.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace folio {
namespace {

constexpr float kMasked = -1e30F;

float logprob_of(std::uint64_t hash) {
  return -static_cast<float>(hash >> 40) / 16777216.0F;
}

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(std::string("batch: ") + what);
}

}  // namespace

FakeModel::FakeModel(std::int32_t num_blocks, std::int32_t block_size, std::int32_t max_context, TokenId vocab_size,
                     int depth)
    : num_blocks_(num_blocks),
      block_size_(block_size),
      max_context_(max_context),
      vocab_size_(vocab_size),
      depth_(depth),
      cache_(num_blocks, block_size) {}

std::vector<TokenId> FakeModel::known_tokens(const StepBatch& batch) const {
  std::vector<TokenId> tokens = batch.tokens;
  for (TokenId& token : tokens) {
    require(token < vocab_size_, "a token of the vocabulary");
    if (token < 0) token = std::max(last_sampled_.at(static_cast<std::size_t>(in_flight_row(token))), 0);
  }
  return tokens;
}

std::vector<std::uint64_t> FakeModel::compute_sequence(const StepBatch& batch, std::span<const TokenId> tokens,
                                                       std::size_t s) {
  const auto begin = static_cast<std::size_t>(batch.query_start[s]);
  const auto count = static_cast<std::size_t>(batch.query_start[s + 1]) - begin;
  const auto blocks_begin = static_cast<std::size_t>(batch.block_start[s]);
  const auto num_blocks = static_cast<std::size_t>(batch.block_start[s + 1]) - blocks_begin;
  const std::span table = std::span(batch.block_ids).subspan(blocks_begin, num_blocks);
  require(count >= 1, "a sequence without tokens");
  const std::int32_t first = batch.context_len[s] - static_cast<std::int32_t>(count);
  require(static_cast<std::int32_t>(num_blocks) == (batch.context_len[s] + block_size_ - 1) / block_size_,
          "as many blocks as the context needs");
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t position = first + static_cast<std::int32_t>(i);
    require(batch.positions[begin + i] == position, "positions end at the context's end");
    const BlockId block = table[static_cast<std::size_t>(position / block_size_)];
    require(batch.slots[begin + i] == block * block_size_ + position % block_size_, "slots follow the table");
  }
  return cache_.compute(table, first, tokens.subspan(begin, count));
}

void FakeModel::start(const StepBatch& batch) {
  require(std::ssize(in_flight_) < depth_, "no more steps in flight than the depth");
  if (hook_) hook_(batch);
  const auto num_tokens = static_cast<std::size_t>(batch.num_tokens());
  const auto num_sequences = static_cast<std::size_t>(batch.num_sequences());
  require(batch.positions.size() == num_tokens && batch.slots.size() == num_tokens, "one position and slot a token");
  require(batch.query_start.size() == num_sequences + 1 && batch.block_start.size() == num_sequences + 1, "starts");
  require(batch.query_start.back() == batch.num_tokens(), "query_start ends at the tokens' end");
  require(std::is_sorted(batch.logit_rows.begin(), batch.logit_rows.end()), "logit rows ascend");
  for (const BlockCopy& copy : batch.copies) cache_.copy(copy.from, copy.to);
  const std::vector<TokenId> tokens = known_tokens(batch);
  hashes_.clear();
  for (std::size_t s = 0; s < num_sequences; ++s) {
    const std::vector<std::uint64_t> hashes = compute_sequence(batch, tokens, s);
    hashes_.insert(hashes_.end(), hashes.begin(), hashes.end());
  }
  Results results;
  for (const SampleRequest& request : batch.samples) {
    const auto row = static_cast<std::size_t>(batch.logit_rows.at(static_cast<std::size_t>(request.logit_row)));
    const auto missing = request.position - static_cast<std::int64_t>(request.tokens.size());
    require(missing == (batch.tokens[row] < 0 ? 1 : 0), "a sample's position");
    require(missing == 0 || !request.params->reads_history(), "a history that is read is known");
    results.samples.push_back(sample(request, hashes_.at(row)));
  }
  for (std::size_t i = 0; i < batch.scores.size(); ++i) {
    require(i == 0 || batch.scores[i - 1].row < batch.scores[i].row, "scored rows ascend");
    results.scores.push_back(score(batch.scores[i]));
  }
  if (change_) change_(batch, results.samples, results.scores);
  last_sampled_.clear();
  for (const SampledToken& token : results.samples) last_sampled_.push_back(token.id);
  in_flight_.push_back(std::move(results));
}

ForwardTimes FakeModel::collect(std::span<SampledToken> samples, std::span<SampledToken> scores) {
  require(!in_flight_.empty(), "a step to collect");
  Results& results = in_flight_.front();
  require(samples.size() == results.samples.size() && scores.size() == results.scores.size(), "a place for each");
  std::ranges::move(results.samples, samples.begin());
  std::ranges::move(results.scores, scores.begin());
  in_flight_.pop_front();
  return {};
}

SampledToken FakeModel::sample(const SampleRequest& request, std::uint64_t hash) const {
  std::vector<float> logits;
  for (TokenId id = 0; id < vocab_size_; ++id) logits.push_back(logprob_of(fake_hash(hash, id)));
  logits[static_cast<std::size_t>(fake_next_token(hash, vocab_size_))] = 1.0F - logprob_of(hash);
  for (TokenId id : request.masked) logits[static_cast<std::size_t>(id)] = kMasked;
  const auto best = std::max_element(logits.begin(), logits.end());
  return {static_cast<TokenId>(best - logits.begin()), 1.0F - *best, {}};
}

SampledToken FakeModel::score(const ScoreRequest& request) const {
  const std::uint64_t hash = fake_hash(hashes_.at(static_cast<std::size_t>(request.row)), request.token);
  SampledToken scored{request.token, logprob_of(hash), {}};
  scored.top.assign(static_cast<std::size_t>(request.num_logprobs), {scored.id, scored.logprob});
  return scored;
}

std::vector<TokenId> fake_outputs(std::vector<TokenId> prompt, std::int64_t num_tokens, TokenId vocab_size) {
  std::vector<TokenId> outputs;
  std::uint64_t hash = fake_hash(prompt);
  for (std::int64_t i = 0; i < num_tokens; ++i) {
    outputs.push_back(fake_next_token(hash, vocab_size));
    hash = fake_hash(hash, outputs.back());
  }
  return outputs;
}

float fake_logprob(std::span<const TokenId> tokens_before) {
  return 1.0F - (1.0F - logprob_of(fake_hash(tokens_before)));
}

float fake_score(std::span<const TokenId> tokens) {
  return logprob_of(fake_hash(tokens));
}

}  // namespace folio
