#include "server/chunk_renderer.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace folio {
namespace {

// Wire bytes of an entry beside its piece: tags, lengths, an id, a float; rounded up.
constexpr std::size_t kTokenBytes = 6;
constexpr std::size_t kLogprobBytes = 24;

v1::Output& output_of(v1::GenerateChunk& chunk, std::int32_t index) {
  for (v1::Output& output : *chunk.mutable_outputs()) {
    if (output.index() == index) return output;
  }
  v1::Output& output = *chunk.add_outputs();
  output.set_index(index);
  return output;
}

std::size_t set_logprob(const Tokenizer& tokenizer, TokenId id, float logprob, v1::TokenLogprob& out) {
  const std::string_view piece = tokenizer.piece(id);
  out.set_token(id);
  out.set_logprob(logprob);
  out.set_piece(piece.data(), piece.size());
  return kLogprobBytes + piece.size();
}

}  // namespace

v1::FinishReason to_proto(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return v1::FINISH_REASON_UNSPECIFIED;
    case FinishReason::kStopToken:
      return v1::FINISH_REASON_STOP_TOKEN;
    case FinishReason::kStopString:
      return v1::FINISH_REASON_STOP_STRING;
    case FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case FinishReason::kCancelled:
      return v1::FINISH_REASON_CANCELLED;
    case FinishReason::kDeadline:
      return v1::FINISH_REASON_DEADLINE;
    case FinishReason::kError:
      return v1::FINISH_REASON_ERROR;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

ChunkRenderer::ChunkRenderer(const Tokenizer& tokenizer, Answer answer)
    : tokenizer_(tokenizer), answer_(std::move(answer)), text_(static_cast<std::size_t>(answer_.n)) {}

void ChunkRenderer::add(TokenStream::Taken taken) {
  if (taken.prompt) prompt_ = taken.prompt;
  std::move(taken.outputs.begin(), taken.outputs.end(), std::back_inserter(deltas_));
  if (taken.end) end_ = std::move(taken.end);
}

bool ChunkRenderer::next(v1::GenerateChunk& chunk) {
  chunk.Clear();
  if (end_given_) return false;
  if (prompt_) {
    v1::PromptInfo& info = *chunk.mutable_prompt_info();
    info.set_id(answer_.id);
    info.set_num_tokens(prompt_->prompt_tokens);
    info.set_cached_tokens(prompt_->cached_tokens);
    prompt_.reset();
    given_ = true;
  }
  std::size_t budget = kMaxChunkBytes;
  while (!deltas_.empty() && budget > 0) {
    given_ = true;
    if (render_front(chunk, budget)) {
      deltas_.pop_front();
      next_token_ = next_byte_ = 0;
    }
  }
  if (deltas_.empty() && end_) {
    end_given_ = true;
    // A request that ended in an error before it gave anything has nothing to account for: its status says all.
    if (given_ || !end_->error) render_end(chunk);
  }
  return chunk.has_prompt_info() || chunk.outputs_size() > 0 || chunk.has_usage();
}

bool ChunkRenderer::render_front(v1::GenerateChunk& chunk, std::size_t& budget) {
  const OutputDelta& delta = deltas_.front();
  v1::Output& output = output_of(chunk, delta.index);
  Utf8Stream& text = text_[static_cast<std::size_t>(delta.index)];
  const auto spend = [&budget](std::size_t bytes) { budget -= std::min(budget, bytes); };

  const std::size_t num_bytes = std::min(budget, delta.bytes.size() - next_byte_);
  text.push(std::string_view(delta.bytes).substr(next_byte_, num_bytes), *output.mutable_text());
  next_byte_ += num_bytes;
  spend(num_bytes);
  while (next_token_ < delta.tokens.size() && budget > 0) {
    spend(render_token(delta.tokens[next_token_], output));
    ++next_token_;
  }
  if (next_byte_ < delta.bytes.size() || next_token_ < delta.tokens.size()) return false;
  if (delta.finish != FinishReason::kNone) {
    text.finish(*output.mutable_text());
    render_finish(delta, output);
  }
  return true;
}

std::size_t ChunkRenderer::render_token(const SampledToken& token, v1::Output& output) const {
  output.add_tokens(token.id);
  if (!answer_.logprobs) return kTokenBytes;
  v1::TokenLogprob& entry = *output.add_logprobs();
  std::size_t bytes = kTokenBytes + set_logprob(tokenizer_, token.id, token.logprob, entry);
  for (const TokenLogprob& top : token.top) bytes += set_logprob(tokenizer_, top.id, top.logprob, *entry.add_top());
  return bytes;
}

void ChunkRenderer::render_finish(const OutputDelta& delta, v1::Output& output) {
  output.set_finish_reason(to_proto(delta.finish));
  if (delta.finish == FinishReason::kStopToken) output.set_stop_token(delta.stop_token);
  if (delta.finish == FinishReason::kStopString) {
    output.set_stop_string(answer_.stop[static_cast<std::size_t>(delta.stop_index)]);
  }
}

void ChunkRenderer::render_end(v1::GenerateChunk& chunk) {
  v1::Usage& usage = *chunk.mutable_usage();
  usage.set_prompt_tokens(end_->usage.prompt_tokens);
  usage.set_cached_tokens(end_->usage.cached_tokens);
  usage.set_output_tokens(end_->usage.output_tokens);
  usage.set_pinned_tokens(end_->usage.pinned_tokens);
  v1::Timings& timings = *chunk.mutable_timings();
  timings.set_queue_ms(end_->timings.queue_ms);
  timings.set_prefill_ms(end_->timings.prefill_ms);
  timings.set_ttft_ms(end_->timings.ttft_ms);
  timings.set_decode_ms(end_->timings.decode_ms);
  timings.set_num_chunks(end_->timings.num_chunks);
  timings.set_num_preemptions(end_->timings.num_preemptions);
  timings.set_recomputed_tokens(end_->timings.recomputed_tokens);
  timings.set_peak_blocks(end_->timings.peak_blocks);
  chunk.set_seed(answer_.seed);
}

void join_chunk(const v1::GenerateChunk& chunk, v1::GenerateResponse& response) {
  if (chunk.has_prompt_info()) *response.mutable_prompt_info() = chunk.prompt_info();
  for (const v1::Output& part : chunk.outputs()) {
    while (response.outputs_size() <= part.index()) response.add_outputs()->set_index(response.outputs_size() - 1);
    v1::Output& whole = *response.mutable_outputs(part.index());
    // Strings are appended by hand: MergeFrom would replace the text.
    whole.mutable_text()->append(part.text());
    whole.mutable_tokens()->MergeFrom(part.tokens());
    whole.mutable_logprobs()->MergeFrom(part.logprobs());
    if (part.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) whole.set_finish_reason(part.finish_reason());
    if (part.has_stop_token()) whole.set_stop_token(part.stop_token());
    if (part.has_stop_string()) whole.set_stop_string(part.stop_string());
  }
  if (chunk.has_usage()) *response.mutable_usage() = chunk.usage();
  if (chunk.has_timings()) *response.mutable_timings() = chunk.timings();
  if (chunk.has_seed()) response.set_seed(chunk.seed());
}

}  // namespace folio
