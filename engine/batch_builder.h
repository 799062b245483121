// From a plan to the flat arrays that a model sees. Pure: reads the plan and its sequences, touches nothing else.
#pragma once
#include <cstdint>

#include "engine/kernels/step_batch.h"
#include "scheduler/step_plan.h"

namespace folio {

// Slice i becomes sequence i of the batch, the plan's sample i becomes batch.samples[i] (without masked ids), and what
// its slices score becomes batch.scores, one after the other. The batch
// keeps its memory from step to step; its spans and pointers lead into the sequences, so it is to be used before the
// next commit. A token that is not known yet becomes in_flight_token(the slice's in_flight_row).
void build_batch(const StepPlan& plan, std::int32_t block_size, StepBatch& batch);

}  // namespace folio
