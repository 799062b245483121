// Arithmetic over one row of logits. Written so that the compiler uses vectors: lanes are explicit, so a result is the
// same whatever their width, and no libm is called (numerics contract). Infinities and NaN may stand in a row: NaN is
// below every number and weighs nothing.
#pragma once
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"

namespace folio {

// e^x for x <= 0, at most 2 units in the last place off; 0 for NaN and where it would be below 1.7e-38, that is, for x
// below -86.96 (soon after, floats get denormal).
inline float exp_nonpositive(float x) {
  const float in = x > -87.0F ? x : -87.0F;
  // x = n ln 2 + r: adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits. ln 2 is split so that n times
  // its first part is exact.
  constexpr float kRound = 0x1.8p23F;
  const float shifted = in * 0x1.715476p0F + kRound;
  const float n = shifted - kRound;
  const float r = (in - n * 0x1.62ep-1F) - n * 0x1.0bfbe8p-15F;
  // The series of e^r to r^7; |r| <= 0.35, so what is left out is below 6e-9.
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const std::uint32_t power = (std::bit_cast<std::uint32_t>(shifted) << 23) + (127U << 23);  // 2^n
  const float value = p * std::bit_cast<float>(power);
  return value > 1.7e-38F ? value : 0.0F;
}

struct Candidate {
  TokenId id = -1;
  float value = 0.0F;  // its logit, or its weight
};

// The order of top_k, top_p and logprobs: larger values first, ties to the lower id.
inline bool ranks_before(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

// The natural logarithm of a normal x > 0, within 2e-15 relative or 2e-16 absolute.
double natural_log(double x);

// The largest value; -infinity when there is none above it.
float row_max(std::span<const float> row);
// The lowest index of the largest value; -1 when none is above -infinity.
TokenId row_argmax(std::span<const float> row);

// Softmax weights of a row, and their sums in one fixed order.
class RowWeights {
 public:
  // weight[i] = e^((row[i] - max) / temperature).
  void fill(std::span<const float> row, float max, float temperature);
  float operator[](TokenId id) const { return weights_[static_cast<std::size_t>(id)]; }
  // Of the ids that weigh at least `bar`, those among which the head of the ranking that weighs `target` ends, with
  // their weights. Gives the weight of all that rank before them.
  double find_boundary(double target, float bar, std::vector<Candidate>& boundary) const;
  // Keeps the ids whose value in `row` ranks not after `last`.
  void cut_after(std::span<const float> row, const Candidate& last);
  // Keeps what weighs at least `least`.
  void cut_below(float least);
  // Adds up. In chunks of kChunk: 16 lanes, a tree over the lanes, then chunk after chunk.
  double total();
  // The first id at which the running sum passes `target`, in [0, total). Call total() first.
  TokenId find(double target) const;
  // The same in another order: one by one, by id. What weighs nothing changes no bit of it, so these are the sums of a
  // list of the others.
  double total_in_order() const;
  TokenId find_in_order(double target) const;

 private:
  static constexpr std::size_t kChunk = 256;
  std::vector<float> weights_;  // padded with zeros to whole chunks
  std::vector<double> chunk_sums_;
  std::size_t size_ = 0;
};

// The `count` (>= 1) best of a row as {id, value}, in no order; fewer when fewer are above -infinity.
void select_best(std::span<const float> row, std::size_t count, std::vector<Candidate>& best);
// The last in rank of those, for a large `count`: time linear in the row. None when there are fewer. `work` is
// overwritten.
std::optional<Candidate> find_ranked(std::span<const float> row, std::size_t count, std::vector<Candidate>& work);
// All with value >= `least`, by id.
void select_from(std::span<const float> row, float least, std::vector<Candidate>& found);

}  // namespace folio
