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

std::size_t set_token(const Tokenizer& tokenizer, TokenId id, v1::TokenLogprob& out) {
  const std::string_view piece = tokenizer.piece(id);
  out.set_token(id);
  out.set_piece(piece.data(), piece.size());
  return kLogprobBytes + piece.size();
}

void spend(std::size_t bytes, std::size_t& budget) {
  budget -= std::min(budget, bytes);
}

// Gives out bytes[next, ...) as text, up to `budget` bytes of it: one that is not UTF-8 becomes three.
void render_text(std::string_view bytes, std::size_t& next, Utf8Stream& text, std::string& out, std::size_t& budget) {
  while (next < bytes.size() && budget > 0) {
    const std::size_t before = out.size();
    const std::size_t count = std::min(budget / 3 + 1, bytes.size() - next);
    text.push(bytes.substr(next, count), out);
    next += count;
    spend(std::max(count, out.size() - before), budget);
  }
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
    : tokenizer_(tokenizer), answer_(std::move(answer)), indices_(static_cast<std::size_t>(answer_.n)) {
  if (answer_.echo) return;
  for (Index& index : indices_) index.text.begin_after(answer_.prompt);
}

void ChunkRenderer::add(TokenStream::Taken taken) {
  if (taken.prompt) {
    prompt_ = taken.prompt;
    prompt_due_ = true;
  }
  if (!has_prompt_logprobs()) {
    prompt_logprobs_.clear();
    next_prompt_logprob_ = 0;
  }
  std::move(taken.prompt_logprobs.begin(), taken.prompt_logprobs.end(), std::back_inserter(prompt_logprobs_));
  std::move(taken.outputs.begin(), taken.outputs.end(), std::back_inserter(deltas_));
  if (taken.end) end_ = std::move(taken.end);
}

bool ChunkRenderer::next(v1::GenerateChunk& chunk) {
  chunk.Clear();
  if (end_given_) return false;
  std::size_t budget = kMaxChunkBytes;
  if (prompt_due_ || has_prompt_logprobs()) render_prompt(chunk, budget);
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

void ChunkRenderer::render_prompt(v1::GenerateChunk& chunk, std::size_t& budget) {
  v1::PromptInfo& info = *chunk.mutable_prompt_info();
  info.set_id(answer_.id);
  info.set_num_tokens(prompt_->prompt_tokens);
  info.set_cached_tokens(prompt_->cached_tokens);
  prompt_due_ = false;
  given_ = true;
  while (has_prompt_logprobs() && budget > 0) {
    const SampledToken& token = prompt_logprobs_[next_prompt_logprob_++];
    v1::TokenLogprob& entry = *info.add_logprobs();
    const bool is_first = !std::exchange(first_prompt_token_given_, true);  // nothing before it says how likely it was
    spend(is_first ? set_token(tokenizer_, token.id, entry) : set_logprobs(token, entry), budget);
  }
}

bool ChunkRenderer::render_front(v1::GenerateChunk& chunk, std::size_t& budget) {
  const OutputDelta& delta = deltas_.front();
  v1::Output& output = output_of(chunk, delta.index);
  Index& index = indices_[static_cast<std::size_t>(delta.index)];
  std::string& text = *output.mutable_text();

  if (answer_.echo) render_text(answer_.prompt, index.next_prompt_byte, index.text, text, budget);
  render_text(delta.bytes, next_byte_, index.text, text, budget);
  while (next_token_ < delta.tokens.size() && budget > 0) {
    spend(render_token(delta.tokens[next_token_], output), budget);
    ++next_token_;
  }
  const bool echoed = !answer_.echo || index.next_prompt_byte == answer_.prompt.size();
  if (!echoed || next_byte_ < delta.bytes.size() || next_token_ < delta.tokens.size()) return false;
  if (delta.finish != FinishReason::kNone) {
    index.text.finish(text);
    render_finish(delta, output);
  }
  return true;
}

std::size_t ChunkRenderer::render_token(const SampledToken& token, v1::Output& output) const {
  output.add_tokens(token.id);
  if (!answer_.logprobs) return kTokenBytes;
  return kTokenBytes + set_logprobs(token, *output.add_logprobs());
}

std::size_t ChunkRenderer::set_logprobs(const SampledToken& token, v1::TokenLogprob& out) const {
  std::size_t bytes = set_token(tokenizer_, token.id, out);
  out.set_logprob(token.logprob);
  for (const TokenLogprob& top : token.top) {
    v1::TokenLogprob& entry = *out.add_top();
    bytes += set_token(tokenizer_, top.id, entry);
    entry.set_logprob(top.logprob);
  }
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
  // The same numbers each time, and more log probabilities.
  if (chunk.has_prompt_info()) response.mutable_prompt_info()->MergeFrom(chunk.prompt_info());
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
