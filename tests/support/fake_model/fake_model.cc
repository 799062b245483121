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

FakeModel::FakeModel(std::int32_t num_blocks, std::int32_t block_size, std::int32_t max_context, TokenId vocab_size)
    : num_blocks_(num_blocks),
      block_size_(block_size),
      max_context_(max_context),
      vocab_size_(vocab_size),
      cache_(num_blocks, block_size) {}

std::vector<std::uint64_t> FakeModel::compute_sequence(const StepBatch& batch, std::size_t s) {
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
  return cache_.compute(table, first, std::span(batch.tokens).subspan(begin, count));
}

Logits FakeModel::forward(const StepBatch& batch) {
  if (hook_) hook_(batch);
  const auto num_tokens = static_cast<std::size_t>(batch.num_tokens());
  const auto num_sequences = static_cast<std::size_t>(batch.num_sequences());
  require(batch.positions.size() == num_tokens && batch.slots.size() == num_tokens, "one position and slot a token");
  require(batch.query_start.size() == num_sequences + 1 && batch.block_start.size() == num_sequences + 1, "starts");
  require(batch.query_start.back() == batch.num_tokens(), "query_start ends at the tokens' end");
  require(std::is_sorted(batch.logit_rows.begin(), batch.logit_rows.end()), "logit rows ascend");
  for (const BlockCopy& copy : batch.copies) cache_.copy(copy.from, copy.to);
  hashes_.clear();
  for (std::size_t s = 0; s < num_sequences; ++s) {
    const std::vector<std::uint64_t> hashes = compute_sequence(batch, s);
    hashes_.insert(hashes_.end(), hashes.begin(), hashes.end());
  }
  logits_.clear();
  for (std::int32_t row : batch.logit_rows) {
    const std::uint64_t hash = hashes_.at(static_cast<std::size_t>(row));
    for (TokenId id = 0; id < vocab_size_; ++id) logits_.push_back(logprob_of(fake_hash(hash, id)));
    logits_[logits_.size() - static_cast<std::size_t>(vocab_size_ - fake_next_token(hash, vocab_size_))] =
        1.0F - logprob_of(hash);
  }
  return {logits_.data(), static_cast<std::int32_t>(batch.logit_rows.size()), vocab_size_};
}

void FakeModel::sample(const Logits& logits, std::span<const SampleRequest> samples, std::span<SampledToken> out) {
  require(samples.size() == out.size(), "one token for each sample");
  for (std::size_t i = 0; i < samples.size(); ++i) {
    require(samples[i].logit_row >= 0 && samples[i].logit_row < logits.rows, "a sample's row");
    require(samples[i].position == static_cast<std::int64_t>(samples[i].tokens.size()), "a sample's position");
    const std::span<float> row = logits.row(samples[i].logit_row);
    for (TokenId id : samples[i].masked) row[static_cast<std::size_t>(id)] = kMasked;
    const auto best = std::max_element(row.begin(), row.end());
    out[i].id = static_cast<TokenId>(best - row.begin());
    out[i].logprob = 1.0F - *best;
  }
}

void FakeModel::score(std::span<const ScoreRequest> scores, std::span<SampledToken> out) {
  require(scores.size() == out.size(), "one token for each score");
  for (std::size_t i = 0; i < scores.size(); ++i) {
    require(i == 0 || scores[i - 1].row < scores[i].row, "scored rows ascend");
    const std::uint64_t hash = fake_hash(hashes_.at(static_cast<std::size_t>(scores[i].row)), scores[i].token);
    out[i] = {scores[i].token, logprob_of(hash), {}};
    out[i].top.assign(static_cast<std::size_t>(scores[i].num_logprobs), {scores[i].token, out[i].logprob});
  }
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
