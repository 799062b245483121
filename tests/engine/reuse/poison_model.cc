#include "tests/engine/reuse/poison_model.h"

#include <cmath>
#include <cstring>
#include <stdexcept>

#include "engine/model/decoder.h"

namespace folio {

PoisonModel::PoisonModel(Model& model) : model_(model), cache_(dynamic_cast<Decoder&>(model).cache()) {
  cache_.fill(
      30000.0F);  // large and finite; the null block, which nobody writes, keeps it as the pattern for the others
}

Logits PoisonModel::forward(const StepBatch& batch) {
  if (hook_) hook_(batch);
  num_copies_ += static_cast<std::int64_t>(batch.copies.size());
  // A block that is copied to begins inside, so the first slot is written only in a block that was taken new.
  for (const std::int32_t slot : batch.slots) {
    if (slot % block_size() == 0) poison(slot / block_size());
  }
  return model_.forward(batch);
}

void PoisonModel::poison(BlockId block) {
  ++num_taken_;
  const KvCacheLayout& layout = cache_.layout();
  for (int layer = 0; layer < layout.num_layers; ++layer) {
    std::memcpy(cache_.data() + layout.head_offset(layer, block, 0), cache_.data() + layout.head_offset(layer, 0, 0),
                layout.block_bytes_per_layer());
  }
}

void PoisonModel::sample(const Logits& logits, std::span<const SampleRequest> samples, std::span<SampledToken> out) {
  for (std::int32_t row = 0; row < logits.rows; ++row) {
    for (const float logit : logits.row(row)) {
      if (!std::isfinite(logit)) throw std::logic_error("a logit that is no number");
    }
  }
  model_.sample(logits, samples, out);
}

}  // namespace folio
