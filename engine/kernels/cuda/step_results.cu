#include "engine/kernels/cuda/step_results.h"

#include <algorithm>

#include "base/check.h"
#include "engine/kernels/cuda/sampling.h"

namespace folio::cuda {
namespace {

void reserve(PinnedMemory& memory, std::size_t bytes) {
  if (memory.bytes() < bytes) memory = PinnedMemory(bytes);
}

}  // namespace

StepResults::StepResults(std::int32_t max_samples) : ids_(static_cast<std::size_t>(max_samples) * sizeof(TokenId)) {}

void StepResults::begin() {
  num_samples_ = 0;
  looked_.clear();
  sampled_.clear();
  scores_.clear();
}

std::span<float> StepResults::row(std::int32_t i) const {
  const auto columns = static_cast<std::size_t>(vocab_size_);
  return {rows_.get<float>() + static_cast<std::size_t>(i) * columns, columns};
}

void StepResults::score(const DeviceLogits& logits, std::span<const ScoreRequest> scores, const Stream& stream) {
  vocab_size_ = logits.vocab_size;
  const std::size_t bytes = scores.size() * static_cast<std::size_t>(vocab_size_) * sizeof(float);
  reserve(rows_, bytes);
  stream.download(rows_.get(), logits.data, bytes);
  stream.wait();
  for (std::size_t i = 0; i < scores.size(); ++i) {
    scores_.push_back(score_row(scores[i], row(static_cast<std::int32_t>(i)), scratch_));
  }
}

void StepResults::sample(const DeviceLogits& logits, std::span<const SampleRequest> samples, std::int32_t* ids,
                         const Stream& stream) {
  num_samples_ = static_cast<std::int32_t>(samples.size());
  if (samples.empty()) return;
  FOLIO_CHECK(samples.size_bytes() / sizeof(SampleRequest) * sizeof(TokenId) <= ids_.bytes(),
              "no more than max_samples");
  download_rows(logits, samples, stream);
  const std::size_t bytes = samples.size() * sizeof(TokenId);
  stream.download(ids_.get(), ids, bytes);
  if (std::all_of(looked_.begin(), looked_.end(), [](const Looked& looked) { return looked.on_device; })) return;
  stream.wait();
  if (sample_here(samples)) stream.upload(ids, ids_.get(), bytes);
}

// Each row once, however many samples look at it: forks stand side by side.
void StepResults::download_rows(const DeviceLogits& logits, std::span<const SampleRequest> samples,
                                const Stream& stream) {
  vocab_size_ = logits.vocab_size;
  std::vector<std::int32_t> rows;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const SampleRequest& sample = samples[i];
    const bool on_device = samples_on_device(sample, vocab_size_);
    if (on_device && sample.params->num_logprobs < 0) continue;
    if (rows.empty() || rows.back() != sample.logit_row) rows.push_back(sample.logit_row);
    looked_.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(rows.size()) - 1,
                       sample.params->num_logprobs, on_device});
  }
  const std::size_t bytes = static_cast<std::size_t>(vocab_size_) * sizeof(float);
  reserve(rows_, rows.size() * bytes);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    stream.download(row(static_cast<std::int32_t>(i)).data(),
                    logits.data + static_cast<std::ptrdiff_t>(rows[i]) * vocab_size_, bytes);
  }
}

// Those that are the host's. True if there were any.
bool StepResults::sample_here(std::span<const SampleRequest> samples) {
  bool any = false;
  for (const Looked& looked : looked_) {
    SampledToken& token = sampled_.emplace_back();
    if (looked.on_device) continue;
    token = sample_row(samples[static_cast<std::size_t>(looked.sample)], row(looked.row), scratch_);
    ids_.get<TokenId>()[looked.sample] = token.id;
    any = true;
  }
  return any;
}

void StepResults::collect(std::span<SampledToken> samples, std::span<SampledToken> scores) {
  FOLIO_CHECK(samples.size() == static_cast<std::size_t>(num_samples_) && scores.size() == scores_.size(),
              "a step is collected whole");
  done_.wait();
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = {ids_.get<TokenId>()[i], 0.0F, {}};
  for (std::size_t i = 0; i < looked_.size(); ++i) {
    const Looked& looked = looked_[i];
    SampledToken& token = samples[static_cast<std::size_t>(looked.sample)];
    if (!looked.on_device) {
      token = std::move(sampled_[i]);
    } else if (token.id != kNoToken) {
      token = score_row({0, token.id, looked.num_logprobs}, row(looked.row), scratch_);
    }
  }
  std::move(scores_.begin(), scores_.end(), scores.begin());
}

}  // namespace folio::cuda
