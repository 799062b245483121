// Who samples: the backend without a model.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/kernels/cuda/cuda_backend.h"

namespace folio::cuda {
namespace {

// More than the device samples from: the host does, whatever a row asks for.
TEST(CudaBackendSamplingTest, VocabulariesTooLargeForTheDeviceAreTheHosts) {
  constexpr std::int32_t kVocab = 600000;
  DeviceRequest request;
  request.attention = {4, 2, 64};
  request.num_layers = 1;
  request.hidden_size = request.ff_size = request.max_context = 64;
  request.vocab_size = kVocab;
  request.max_num_seqs = request.max_batch_tokens = 1;
  request.windows = {0};
  request.kv_cache.num_blocks = 4;
  CudaBackend backend(request, DeviceFacts{"twin", 4, 9, 0}, false);
  SamplingParams params;
  params.temperature = 0.0F;
  SampleRequest sample;
  sample.params = &params;
  StepBatch batch;
  batch.tokens = {5};
  batch.positions = {0};
  batch.slots = {16};
  batch.query_start = {0, 1};
  batch.context_len = {1};
  batch.block_start = {0, 1};
  batch.block_ids = {1};
  batch.logit_rows = {0};
  batch.samples = {sample};
  backend.begin_step(batch, {});
  float* row = backend.activations(0, kVocab);
  std::fill(row, row + kVocab, 0.0F);
  row[kVocab - 1] = 1.0F;
  backend.sample({row, 1, kVocab}, batch.samples);
  backend.end_step();
  SampledToken token;
  backend.collect({&token, 1}, {});
  EXPECT_EQ(token.id, kVocab - 1);
}

}  // namespace
}  // namespace folio::cuda
