#include "engine/batch_builder.h"

#include "base/check.h"

namespace folio {
namespace {

void add_tokens(const Slice& slice, std::int32_t block_size, StepBatch& batch) {
  const Sequence& sequence = *slice.sequence;
  const std::span<const BlockId> blocks = sequence.blocks.ids();
  const bool in_flight = slice.in_flight_row >= 0;
  FOLIO_CHECK(
      slice.first + slice.count <= sequence.num_tokens() + (in_flight ? 1 : 0) && (!in_flight || slice.count == 1),
      "a batch is built from tokens that are known, or one sample in flight");
  for (std::int64_t position = slice.first; position < slice.first + slice.count; ++position) {
    const BlockId block = blocks[static_cast<std::size_t>(position / block_size)];
    batch.tokens.push_back(in_flight ? in_flight_token(slice.in_flight_row)
                                     : sequence.tokens[static_cast<std::size_t>(position)]);
    batch.positions.push_back(static_cast<std::int32_t>(position));
    batch.slots.push_back(block * block_size + static_cast<std::int32_t>(position % block_size));
  }
  batch.query_start.push_back(batch.num_tokens());
}

// Only the blocks that hold the context: a table may be longer than what was computed so far.
void add_context(const Slice& slice, std::int32_t block_size, StepBatch& batch) {
  const auto context_len = static_cast<std::int32_t>(slice.first + slice.count);
  const std::span<const BlockId> blocks = slice.sequence->blocks.ids();
  const auto num_blocks = static_cast<std::size_t>((context_len + block_size - 1) / block_size);
  FOLIO_CHECK(num_blocks <= blocks.size(), "the block table covers what is computed");
  batch.context_len.push_back(context_len);
  batch.block_ids.insert(batch.block_ids.end(), blocks.begin(),
                         blocks.begin() + static_cast<std::ptrdiff_t>(num_blocks));
  batch.block_start.push_back(static_cast<std::int32_t>(batch.block_ids.size()));
}

void add_sample(const PlannedSample& planned, const Slice& slice, std::int32_t logit_row, StepBatch& batch) {
  const Sequence& sequence = *planned.sequence;
  SampleRequest sample;
  sample.logit_row = logit_row;
  sample.params = &sequence.owner->request.sampling;
  sample.sequence_index = sequence.index;
  sample.position = slice.first + slice.count;
  sample.tokens = sequence.tokens;
  sample.num_prompt_tokens = sequence.num_prompt_tokens();
  batch.samples.push_back(sample);
}

// The token behind each scored position: the slice's rows are the last ones of the batch.
void add_scores(const Slice& slice, StepBatch& batch) {
  const Sequence& sequence = *slice.sequence;
  const std::int32_t begin = batch.num_tokens() - slice.count;
  for (std::int64_t position = slice.first_scored; position < slice.first_scored + slice.num_scored; ++position) {
    batch.scores.push_back({begin + static_cast<std::int32_t>(position - slice.first),
                            sequence.tokens[static_cast<std::size_t>(position + 1)],
                            sequence.owner->request.sampling.num_prompt_logprobs});
  }
}

}  // namespace

void build_batch(const StepPlan& plan, std::int32_t block_size, StepBatch& batch) {
  batch.clear();
  for (const PlannedCopy& copy : plan.copies) batch.copies.push_back({copy.from, copy.to});
  auto sample = plan.samples.begin();
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(plan.slices.size()); ++i) {
    const Slice& slice = plan.slices[static_cast<std::size_t>(i)];
    add_tokens(slice, block_size, batch);
    add_context(slice, block_size, batch);
    add_scores(slice, batch);
    if (slice.num_logits == 0) continue;
    const auto logit_row = static_cast<std::int32_t>(batch.logit_rows.size());
    batch.logit_rows.push_back(batch.num_tokens() - 1);
    for (; sample != plan.samples.end() && sample->slice == i; ++sample) add_sample(*sample, slice, logit_row, batch);
  }
}

}  // namespace folio
