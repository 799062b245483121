#include "engine/kernels/step_batch.h"

namespace folio {

void StepBatch::clear() {
  tokens.clear();
  positions.clear();
  slots.clear();
  query_start.assign(1, 0);
  context_len.clear();
  block_start.assign(1, 0);
  block_ids.clear();
  logit_rows.clear();
  samples.clear();
  scores.clear();
  copies.clear();
}

}  // namespace folio
