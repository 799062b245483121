#include "tests/engine/reuse/poison_model.h"

#include <cmath>
#include <cstring>
#include <stdexcept>

#include "engine/kernels/cpu/cpu_backend.h"

namespace folio {

PoisonModel::PoisonModel(Decoder& model, int depth)
    : model_(model),
      depth_(depth),
      cache_(dynamic_cast<cpu::CpuBackend&>(model.backend()).cache()),
      logits_(static_cast<std::size_t>(model.vocab_size())) {
  // Large and finite; the null block, which nobody writes, keeps it as the pattern for the others.
  cache_.fill(30000.0F);
}

void PoisonModel::start(const StepBatch& batch) {
  if (hook_) hook_(batch);
  num_copies_ += static_cast<std::int64_t>(batch.copies.size());
  // A block that is copied to begins inside, so the first slot is written only in a block that was taken new.
  for (const std::int32_t slot : batch.slots) {
    if (slot % block_size() == 0) poison(slot / block_size());
  }
  model_.start(batch);
  num_behind_ += num_in_flight_++;
  for (std::int32_t row = 0; row < model_.num_logit_rows(); ++row) {
    model_.read_logits(row, logits_);
    for (const float logit : logits_) {
      if (!std::isfinite(logit)) throw std::logic_error("a logit that is no number");
    }
  }
}

void PoisonModel::poison(BlockId block) {
  ++num_taken_;
  const KvCacheLayout& layout = cache_.layout();
  for (int layer = 0; layer < layout.num_layers; ++layer) {
    std::memcpy(cache_.data() + layout.head_offset(layer, block, 0), cache_.data() + layout.head_offset(layer, 0, 0),
                layout.block_bytes_per_layer());
  }
}

}  // namespace folio
