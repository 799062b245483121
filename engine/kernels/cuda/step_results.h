// A step's tokens on their way to the host. The device chooses ids; what reports logits (log probabilities) is worked
// out on the host from a copy of the row when the step is collected. A row that is changed before it is sampled (bias,
// penalties, masks) is the host's to sample: such a step waits for the device, since the next may need the id.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/kernels/cuda/device_memory.h"
#include "engine/kernels/step_batch.h"
#include "engine/sampling/sampler.h"

namespace folio::cuda {

// Rows on the device.
struct DeviceLogits {
  const float* data = nullptr;  // [..][vocab_size]
  std::int32_t vocab_size = 0;
};

class StepResults {
 public:
  explicit StepResults(std::int32_t max_samples);

  void begin();
  // Row i scores scores[i]. Waits for the device.
  void score(const DeviceLogits& logits, std::span<const ScoreRequest> scores, const Stream& stream);
  // `ids`, on the device: what it has chosen for those that samples_on_device(); the others' are written there.
  void sample(const DeviceLogits& logits, std::span<const SampleRequest> samples, std::int32_t* ids,
              const Stream& stream);
  void end(const Stream& stream) const { done_.record(stream); }
  // Waits. As many as were sampled and scored.
  void collect(std::span<SampledToken> samples, std::span<SampledToken> scores);

 private:
  // A sample whose row is on the host.
  struct Looked {
    std::int32_t sample = 0;
    std::int32_t row = 0;  // of rows_
    std::int32_t num_logprobs = -1;
    bool on_device = false;  // its id was chosen there
  };

  std::span<float> row(std::int32_t i) const;
  void download_rows(const DeviceLogits& logits, std::span<const SampleRequest> samples, const Stream& stream);
  bool sample_here(std::span<const SampleRequest> samples);

  Event done_;
  PinnedMemory ids_;   // [max_samples]
  PinnedMemory rows_;  // [..][vocab_size] floats
  std::int32_t vocab_size_ = 0;
  std::int32_t num_samples_ = 0;
  std::vector<Looked> looked_;
  std::vector<SampledToken> sampled_;  // by the host, one a Looked
  std::vector<SampledToken> scores_;
  SamplerScratch scratch_;
};

}  // namespace folio::cuda
