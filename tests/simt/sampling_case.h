// Rows of logits to sample, and the device's rule in plain words.
#pragma once
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "engine/kernels/cuda/sampling.h"

namespace folio::cuda {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The whole ranking sorted, its head cut, the rest walked by id.
std::int32_t sample_plainly(const SampleRow& params, std::span<const float> logits);

// Rows of one vocabulary with what is asked of them.
struct SamplingCase {
  std::vector<std::vector<float>> logits;
  std::vector<SamplingParams> params;  // of each row
};

std::vector<std::int32_t> sample_on_device(const SamplingCase& work, const std::vector<SampleRow>& rows);
SampleRequest request_of(const SamplingCase& work, std::size_t row, std::int64_t position);

SamplingParams random_params(std::mt19937& random);
std::vector<float> random_logits(std::mt19937& random, std::size_t vocab);

}  // namespace folio::cuda
