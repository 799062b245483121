// What the engine made, as messages: ids and log probabilities at once, text when its code points are whole. One per
// request, one thread at a time.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "engine/text/detokenizer.h"
#include "engine/text/tokenizer.h"
#include "engine/token_stream.h"
#include "folio/v1/generation.pb.h"

namespace folio {

class ChunkRenderer {
 public:
  struct Answer {
    RequestId id = 0;
    std::uint64_t seed = 0;
    std::int32_t n = 1;
    bool logprobs = false;
    std::vector<std::string> stop = {};  // the request's stop strings, to say which one matched
    // The prompt's bytes. With echo all of them, given in front of each index's text; without, its end is enough (three
    // bytes): a code point may begin there.
    std::string prompt = {};
    bool echo = false;
  };
  // A slow reader's chunk grows with what was made meanwhile, but not above this (three times as much where its bytes
  // become U+FFFD): it has to be taken within --write-timeout, and a slow line takes few KiB a second.
  static constexpr std::size_t kMaxChunkBytes = 64U << 10;

  ChunkRenderer(const Tokenizer& tokenizer, Answer answer);  // `tokenizer` outlives the renderer

  void add(TokenStream::Taken taken);
  // Fills `chunk` with what is there, in order: prompt_info (again for as long as there are log probabilities of the
  // prompt), outputs, usage and timings. False when nothing is.
  bool next(v1::GenerateChunk& chunk);
  // Something that was added is not given out yet.
  bool has_more() const { return prompt_due_ || has_prompt_logprobs() || !deltas_.empty() || (end_ && !end_given_); }
  // Everything was added and given out.
  bool ended() const { return end_ && deltas_.empty() && end_given_; }
  const std::optional<Error>& error() const { return end_->error; }  // REQUIRES ended()

 private:
  // What came of one index and was not given out yet, and the text so far.
  struct Index {
    Utf8Stream text;
    std::size_t next_prompt_byte = 0;  // of the echo
  };
  bool has_prompt_logprobs() const { return next_prompt_logprob_ < prompt_logprobs_.size(); }
  void render_prompt(v1::GenerateChunk& chunk, std::size_t& budget);
  // Renders a part of the first delta, up to `budget` bytes; true when the delta is used up.
  bool render_front(v1::GenerateChunk& chunk, std::size_t& budget);
  std::size_t render_token(const SampledToken& token, v1::Output& output) const;
  std::size_t set_logprobs(const SampledToken& token, v1::TokenLogprob& out) const;
  void render_end(v1::GenerateChunk& chunk);
  void render_finish(const OutputDelta& delta, v1::Output& output);

  const Tokenizer& tokenizer_;
  const Answer answer_;
  std::vector<Index> indices_;
  std::optional<Usage> prompt_;
  bool prompt_due_ = false;                    // not given out yet
  std::vector<SampledToken> prompt_logprobs_;  // those before next_prompt_logprob_ were given out
  std::size_t next_prompt_logprob_ = 0;
  bool first_prompt_token_given_ = false;
  std::deque<OutputDelta> deltas_;
  std::size_t next_token_ = 0;  // of the first delta: what was given out of it already
  std::size_t next_byte_ = 0;
  std::optional<StreamEnd> end_;
  bool given_ = false;  // any chunk
  bool end_given_ = false;
};

v1::FinishReason to_proto(FinishReason reason);

// Appends a chunk to the whole answer: outputs by index, the rest as it comes.
void join_chunk(const v1::GenerateChunk& chunk, v1::GenerateResponse& response);

}  // namespace folio
