// One step's work as flat arrays: what the model and the backend see. Pure data, no sequence or request in it.
//
// Worked example: block_size 4, sequence A decodes its token at position 5 (blocks 7, 2), sequence B prefills positions
// 0..2 of its prompt (block 9) and wants no logits yet:
//   tokens      [a5, b0, b1, b2]     T = 4
//   positions   [ 5,  0,  1,  2]
//   slots       [ 9, 36, 37, 38]     block 2 * 4 + 5 % 4; block 9 * 4 + 0 ...
//   query_start [0, 1, 4]            S = 2
//   context_len [6, 3]               keys that the last query of the sequence sees (before a layer's window)
//   block_start [0, 2, 3]
//   block_ids   [7, 2, 9]            B = 3
//   logit_rows  [0]                  R = 1: row 0 of the T tokens
//   scores      [{1, b1}, {2, b2}]   P = 2, if B's prompt is scored: b1 by the logits of row 1, which holds b0 ...
// At depth 2 a5 may be sample 3 of the step before, which is not collected: then tokens[0] is in_flight_token(3) = -4,
// and the sample's `tokens` end before it.
#pragma once
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "engine/sampling/sampler.h"

namespace folio {

struct BlockCopy {
  BlockId from = 0;
  BlockId to = 0;
};

inline constexpr int kMaxStepsInFlight = 2;  // started and not collected

// A token that is sample `row` of the step started before this one. Whoever computes resolves it; a sample that came to
// nothing (kNoToken) is any token then, since its sequence ends.
constexpr TokenId in_flight_token(std::int32_t row) {
  return -1 - row;
}
constexpr std::int32_t in_flight_row(TokenId token) {  // -1 and below: a token that is known
  return -1 - token;
}

struct StepBatch {
  std::vector<TokenId> tokens;            // [T] below 0: in_flight_token(row)
  std::vector<std::int32_t> positions;    // [T]
  std::vector<std::int32_t> slots;        // [T] block id * block_size + offset
  std::vector<std::int32_t> query_start;  // [S + 1] into T
  std::vector<std::int32_t> context_len;  // [S]
  std::vector<std::int32_t> block_start;  // [S + 1] into B
  std::vector<BlockId> block_ids;         // [B]
  std::vector<std::int32_t> logit_rows;   // [R] rows of T, ascending
  std::vector<SampleRequest> samples;     // [Q] logit_row indexes R
  std::vector<ScoreRequest> scores;       // [P] rows ascending; their logits are computed in groups, never at once
  std::vector<BlockCopy> copies;          // done before anything is written

  std::int32_t num_tokens() const { return static_cast<std::int32_t>(tokens.size()); }
  std::int32_t num_sequences() const { return static_cast<std::int32_t>(context_len.size()); }
  void clear();  // keeps the memory
};

}  // namespace folio
