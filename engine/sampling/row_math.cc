#include "engine/sampling/row_math.h"

#include <algorithm>
#include <array>
#include <limits>

namespace folio {
namespace {

constexpr std::size_t kLanes = 16;
constexpr std::size_t kScan = 128;  // values that one look decides about
constexpr float kNothing = -std::numeric_limits<float>::infinity();

float max_of(const float* values, std::size_t count) {
  std::array<float, kLanes> lanes;
  lanes.fill(kNothing);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
    }
  }
  for (; i < count; ++i) lanes[0] = values[i] > lanes[0] ? values[i] : lanes[0];
  return *std::max_element(lanes.begin(), lanes.end());
}

// Calls visit(id, value) for the values for which wanted(value) holds. `wanted` is monotone: what it refuses, it
// refuses for all that is less; so a group is passed by its largest value. It may become stricter on the way.
template <class Wanted, class Visit>
void scan(std::span<const float> row, Wanted wanted, Visit visit) {
  for (std::size_t start = 0; start < row.size(); start += kScan) {
    const std::size_t count = std::min(kScan, row.size() - start);
    if (!wanted(max_of(row.data() + start, count))) continue;
    for (std::size_t i = start; i < start + count; ++i) {
      if (wanted(row[i])) visit(static_cast<TokenId>(i), row[i]);
    }
  }
}

// Orders as the values do; both zeros have one key.
std::uint32_t key_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value + 0.0F);
  return (bits >> 31) != 0 ? ~bits : bits | 0x8000'0000U;
}

double sum_chunk(const float* values, std::size_t count) {
  std::array<float, kLanes> lanes{};
  for (std::size_t i = 0; i < count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += values[i + lane];
  }
  std::array<double, kLanes> sums;
  std::copy(lanes.begin(), lanes.end(), sums.begin());
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  }
  return sums[0];
}

}  // namespace

double natural_log(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  // x = 2^exponent m with m in [sqrt(1/2), sqrt(2)), whose upper half of bits begins at kSqrtHalf.
  constexpr std::uint64_t kSqrtHalf = 0x3FE6'A09E'0000'0000;
  const std::int64_t exponent = static_cast<std::int64_t>(bits - kSqrtHalf) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<std::uint64_t>(exponent) << 52));
  // log m = 2 atanh(s) with s = (m - 1) / (m + 1), |s| <= 0.172: the series of odd powers to s^21.
  const double s = (m - 1) / (m + 1);
  const double square = s * s;
  double series = 0;
  for (int power = 21; power >= 1; power -= 2) series = series * square + 1.0 / power;
  return static_cast<double>(exponent) * 0x1.62e42fefa39efp-1 + 2 * s * series;
}

float row_max(std::span<const float> row) {
  return max_of(row.data(), row.size());
}

TokenId row_argmax(std::span<const float> row) {
  // The first group that holds the maximum holds its first place too.
  float best = kNothing;
  std::size_t best_start = 0;
  for (std::size_t start = 0; start < row.size(); start += kScan) {
    const float here = max_of(row.data() + start, std::min(kScan, row.size() - start));
    if (here > best) {
      best = here;
      best_start = start;
    }
  }
  if (best == kNothing) return -1;
  const auto found = std::find(row.begin() + static_cast<std::ptrdiff_t>(best_start), row.end(), best);
  return static_cast<TokenId>(found - row.begin());
}

void RowWeights::fill(std::span<const float> row, float max, float temperature) {
  size_ = row.size();
  weights_.resize((row.size() + kChunk - 1) / kChunk * kChunk);
  float* out = weights_.data();
  const float* in = row.data();
  for (std::size_t i = 0; i < row.size(); ++i) out[i] = exp_nonpositive((in[i] - max) / temperature);
  std::fill(weights_.begin() + static_cast<std::ptrdiff_t>(row.size()), weights_.end(), 0.0F);
}

double RowWeights::find_boundary(double target, float bar, std::vector<Candidate>& boundary) const {
  // Weights are in (0, 1]. A bin holds those with one exponent and the same four leading bits behind it, so bins are
  // ranges of the ranking and one of them holds the end.
  const auto bin_of = [](float weight) { return std::bit_cast<std::uint32_t>(weight) >> 19; };
  constexpr std::size_t kBins = (std::bit_cast<std::uint32_t>(1.0F) >> 19) + 1;
  std::array<double, kBins> bins{};
  const std::span<const float> weights = std::span(weights_).first(size_);
  const auto useful = [bar](float weight) { return weight >= bar; };
  scan(weights, useful, [&](TokenId, float weight) { bins[bin_of(weight)] += weight; });
  double before = 0;
  std::size_t bin = kBins - 1;
  const std::size_t last = bin_of(bar);
  for (; bin > last && before + bins[bin] < target; --bin) before += bins[bin];
  boundary.clear();
  const float least = std::max(bar, std::bit_cast<float>(static_cast<std::uint32_t>(bin) << 19));
  scan(
      weights, [least](float weight) { return weight >= least; },
      [&](TokenId id, float weight) {
        if (bin_of(weight) == bin) boundary.push_back({id, weight});
      });
  return before;
}

void RowWeights::cut_after(std::span<const float> row, const Candidate& last) {
  const std::size_t ties = static_cast<std::size_t>(last.id) + 1;  // up to here an equal value ranks before `last`
  float* out = weights_.data();
  const float* in = row.data();
  for (std::size_t i = 0; i < ties; ++i) out[i] = in[i] >= last.value ? out[i] : 0.0F;
  for (std::size_t i = ties; i < row.size(); ++i) out[i] = in[i] > last.value ? out[i] : 0.0F;
}

void RowWeights::cut_below(float least) {
  for (float& weight : weights_) weight = weight >= least ? weight : 0.0F;
}

double RowWeights::total() {
  chunk_sums_.clear();
  double sum = 0;
  for (std::size_t i = 0; i < weights_.size(); i += kChunk) {
    chunk_sums_.push_back(sum_chunk(weights_.data() + i, kChunk));
    sum += chunk_sums_.back();
  }
  return sum;
}

TokenId RowWeights::find(double target) const {
  // The chunk in which the sum passes the target: the last one that weighs something, where rounding lets none pass it.
  std::size_t chunk = 0;
  double before_chunk = 0;
  double sum = 0;
  for (std::size_t i = 0; i < chunk_sums_.size() && sum <= target; ++i) {
    if (chunk_sums_[i] == 0) continue;
    chunk = i;
    before_chunk = sum;
    sum += chunk_sums_[i];
  }
  std::size_t found = 0;
  sum = before_chunk;
  for (std::size_t i = chunk * kChunk; i < (chunk + 1) * kChunk && sum <= target; ++i) {
    if (weights_[i] == 0) continue;
    found = i;
    sum += weights_[i];
  }
  return static_cast<TokenId>(found);
}

double RowWeights::total_in_order() const {
  double sum = 0;
  for (const float weight : weights_) sum += weight;
  return sum;
}

TokenId RowWeights::find_in_order(double target) const {
  std::size_t found = 0;
  double sum = 0;
  for (std::size_t i = 0; i < size_ && sum <= target; ++i) {
    if (weights_[i] == 0) continue;
    found = i;
    sum += weights_[i];
  }
  return static_cast<TokenId>(found);
}

std::optional<Candidate> find_ranked(std::span<const float> row, std::size_t count, std::vector<Candidate>& work) {
  // Bins by a value's sign, exponent and three leading bits; one of them holds the place.
  constexpr int kShift = 20;
  std::array<std::uint32_t, std::size_t{1} << (32 - kShift)> bins{};
  for (const float value : row) {
    if (value > kNothing) ++bins[key_of(value) >> kShift];
  }
  std::size_t bin = bins.size();
  while (true) {
    if (bin == 0) return std::nullopt;
    if (bins[--bin] >= count) break;
    count -= bins[bin];
  }
  work.clear();
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (row[i] > kNothing && key_of(row[i]) >> kShift == bin) work.push_back({static_cast<TokenId>(i), row[i]});
  }
  const auto place = work.begin() + static_cast<std::ptrdiff_t>(count - 1);
  std::nth_element(work.begin(), place, work.end(), ranks_before);
  return *place;
}

void select_best(std::span<const float> row, std::size_t count, std::vector<Candidate>& best) {
  constexpr std::size_t kSlack = 512;
  const auto nth = static_cast<std::ptrdiff_t>(count - 1);
  float bar = kNothing;  // ids rise, so a later value equal to the bar ranks after `count` others
  const auto keep_best = [&] {
    std::nth_element(best.begin(), best.begin() + nth, best.end(), ranks_before);
    best.resize(count);
    bar = best[count - 1].value;
  };
  best.clear();
  scan(
      row, [&bar](float value) { return value > bar; },
      [&](TokenId id, float value) {
        best.push_back({id, value});
        if (best.size() >= 2 * count + kSlack) keep_best();
      });
  if (best.size() > count) keep_best();
}

void select_from(std::span<const float> row, float least, std::vector<Candidate>& found) {
  found.clear();
  scan(
      row, [least](float value) { return value >= least; },
      [&found](TokenId id, float value) {
        found.push_back({id, value});
      });
}

}  // namespace folio
