#include "tests/engine/model/teacher_force.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <stdexcept>

namespace folio {

void teacher_force(Decoder& model, std::span<const TokenId> tokens, int chunk, int first_row,
                   const std::function<void(int, std::span<const float>)>& visit) {
  const int block_size = model.block_size();
  std::vector<BlockId> table(static_cast<std::size_t>(model.num_blocks()));
  std::iota(table.begin(), table.end(), 1);
  std::shuffle(table.begin(), table.end(), std::mt19937(static_cast<std::uint32_t>(tokens.size())));
  const auto needed = (tokens.size() + static_cast<std::size_t>(block_size) - 1) / static_cast<std::size_t>(block_size);
  if (needed > table.size()) throw std::runtime_error("the test's KV cache is too small for the sequence");
  table.resize(needed);
  const int length = static_cast<int>(tokens.size());
  StepBatch batch;
  for (int begin = 0; begin < length;) {
    int count = std::min(chunk, length - begin);
    if (begin + count > first_row) count = std::min(count, 64);
    batch.clear();
    for (int p = begin; p < begin + count; ++p) {
      batch.tokens.push_back(tokens[static_cast<std::size_t>(p)]);
      batch.positions.push_back(p);
      batch.slots.push_back(table[static_cast<std::size_t>(p / block_size)] * block_size + p % block_size);
      if (p >= first_row) batch.logit_rows.push_back(p - begin);
    }
    batch.query_start.push_back(count);
    batch.context_len.push_back(begin + count);
    batch.block_ids = table;
    batch.block_start.push_back(static_cast<std::int32_t>(table.size()));
    model.start(batch);
    model.collect({}, {});
    std::vector<float> logits(static_cast<std::size_t>(model.vocab_size()));
    for (std::int32_t r = 0; r < model.num_logit_rows(); ++r) {
      model.read_logits(r, logits);
      visit(begin + batch.logit_rows[static_cast<std::size_t>(r)], logits);
    }
    begin += count;
  }
}

double log_probability(std::span<const float> logits, TokenId id) {
  const double largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double total = 0;
  for (const float l : logits) total += std::exp(static_cast<double>(l) - largest);
  return static_cast<double>(logits[static_cast<std::size_t>(id)]) - largest - std::log(total);
}

TokenId argmax(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace folio
