#include "engine/sampling/sampler.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "base/check.h"

namespace folio {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

bool by_id(const Candidate& a, const Candidate& b) {
  return a.id < b.id;
}

double weight_of(std::span<const Candidate> candidates) {
  double sum = 0;
  for (const Candidate& candidate : candidates) sum += candidate.value;
  return sum;
}

// What is asked of the raw logits, before anything changes them.
class RawRow {
 public:
  // Fills the `num_best` best into `top`.
  void read(std::span<const float> logits, std::int32_t num_best, SamplerScratch& scratch,
            std::vector<TokenLogprob>& top);
  bool has_numbers() const { return max_ > kMinusInfinity; }
  float logprob(float raw) const;

 private:
  float max_ = 0.0F;
  double log_total_ = 0.0;  // log of the sum of e^(logit - max_)
};

void RawRow::read(std::span<const float> logits, std::int32_t num_best, SamplerScratch& scratch,
                  std::vector<TokenLogprob>& top) {
  max_ = row_max(logits);
  scratch.weights.fill(logits, max_, 1.0F);
  log_total_ = natural_log(std::max(scratch.weights.total(), 1.0));  // the largest weighs 1
  if (num_best == 0) return;
  std::vector<Candidate>& best = scratch.candidates;
  select_best(logits, std::min(static_cast<std::size_t>(num_best), logits.size()), best);
  std::sort(best.begin(), best.end(), ranks_before);
  top.reserve(best.size());
  for (const Candidate& candidate : best) top.push_back({candidate.id, logprob(candidate.value)});
}

float RawRow::logprob(float raw) const {
  const double value = static_cast<double>(raw) - static_cast<double>(max_) - log_total_;
  return value >= kLogprobFloor ? static_cast<float>(value) : kLogprobFloor;
}

// One row on its way through the steps, in their order. `logits` are the modified ones from modify() to restore().
class RowSampler {
 public:
  RowSampler(const SampleRequest& request, std::span<float> logits, SamplerScratch& scratch)
      : request_(request),
        params_(*request.params),
        temperature_(std::min(params_.temperature, kLargest)),
        logits_(logits),
        scratch_(scratch) {}
  SampledToken sample();

 private:
  void modify();
  void apply_penalties();
  void count_tokens();
  float penalised(float logit, std::int32_t count) const;
  void apply_mask();
  void change(TokenId id, float value);
  void restore();
  bool in_vocabulary(TokenId id) const { return id >= 0 && static_cast<std::size_t>(id) < logits_.size(); }
  bool is_greedy() const { return params_.top_k == 1 || !(params_.temperature >= std::numeric_limits<float>::min()); }

  bool has_top_k() const { return params_.top_k > 0 && static_cast<std::size_t>(params_.top_k) < logits_.size(); }
  bool has_min_p() const { return params_.min_p > 0.0F; }
  float min_p() const { return std::clamp(params_.min_p, 0.0F, 1.0F); }  // the best weighs 1 and always stays
  TokenId choose();
  bool collect_candidates();
  void weigh_candidates();
  void keep_head(double target);
  TokenId choose_from_candidates();
  TokenId choose_from_row();
  TokenId choose_from_many();
  void cut_row(double total);
  double uniform() const { return uniform_random(params_.seed, request_.sequence_index, request_.position); }

  const SampleRequest& request_;
  const SamplingParams& params_;
  const float temperature_;
  const std::span<float> logits_;
  SamplerScratch& scratch_;
  float max_ = 0.0F;  // of the modified logits
  RawRow raw_;        // if log probabilities are asked for
};

SampledToken RowSampler::sample() {
  SampledToken result;
  const bool wants_logprobs = params_.num_logprobs >= 0;
  if (wants_logprobs) raw_.read(logits_, params_.num_logprobs, scratch_, result.top);
  modify();
  result.id = is_greedy() ? row_argmax(logits_) : choose();
  restore();
  if (wants_logprobs && result.id != kNoToken) {
    result.logprob = raw_.logprob(logits_[static_cast<std::size_t>(result.id)]);
  }
  return result;
}

void RowSampler::modify() {
  scratch_.raw.clear();
  for (const auto& [id, bias] : params_.logit_bias) {
    if (in_vocabulary(id)) change(id, logits_[static_cast<std::size_t>(id)] + bias);
  }
  apply_penalties();
  apply_mask();
}

// A finite logit stays finite: a sum or product past the largest float is the largest float.
void RowSampler::change(TokenId id, float value) {
  float& logit = logits_[static_cast<std::size_t>(id)];
  scratch_.raw.push_back({id, logit});
  if (logit != kMinusInfinity) logit = std::clamp(value, -kLargest, kLargest);
}

// Others may sample the row too. Backwards: an id may be changed twice.
void RowSampler::restore() {
  for (std::size_t i = scratch_.raw.size(); i-- > 0;) {
    logits_[static_cast<std::size_t>(scratch_.raw[i].id)] = scratch_.raw[i].value;
  }
}

void RowSampler::apply_penalties() {
  if (params_.repetition_penalty == 1.0F && params_.presence_penalty == 0.0F && params_.frequency_penalty == 0.0F) {
    return;
  }
  count_tokens();
  for (const TokenId id : scratch_.seen) {
    std::int32_t& count = scratch_.counts[static_cast<std::size_t>(id)];
    change(id, penalised(logits_[static_cast<std::size_t>(id)], count - 1));
    count = 0;
  }
}

// counts[id] becomes 1 for an id that is there, and 1 more for each time that it is in the output.
void RowSampler::count_tokens() {
  scratch_.counts.resize(logits_.size());
  scratch_.seen.clear();
  const std::size_t num_prompt =
      std::min(request_.tokens.size(), static_cast<std::size_t>(std::max<std::int64_t>(request_.num_prompt_tokens, 0)));
  for (std::size_t i = params_.repetition_penalty == 1.0F ? num_prompt : 0; i < request_.tokens.size(); ++i) {
    const TokenId id = request_.tokens[i];
    if (!in_vocabulary(id)) continue;
    std::int32_t& count = scratch_.counts[static_cast<std::size_t>(id)];
    if (count == 0) {
      scratch_.seen.push_back(id);
      count = 1;
    }
    if (i >= num_prompt) ++count;
  }
}

float RowSampler::penalised(float logit, std::int32_t count) const {
  float value = logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
  value = std::clamp(value, -kLargest, kLargest);
  if (count == 0) return value;
  return value - static_cast<float>(count) * params_.frequency_penalty - params_.presence_penalty;
}

void RowSampler::apply_mask() {
  if (request_.masked.empty()) return;
  const std::size_t before = scratch_.raw.size();
  for (const TokenId id : request_.masked) {
    if (!in_vocabulary(id)) continue;
    scratch_.raw.push_back({id, logits_[static_cast<std::size_t>(id)]});
    logits_[static_cast<std::size_t>(id)] = kMinusInfinity;
  }
  if (row_max(logits_) > kMinusInfinity) return;
  for (std::size_t i = scratch_.raw.size(); i-- > before;) {  // backwards: an id may be masked twice
    logits_[static_cast<std::size_t>(scratch_.raw[i].id)] = scratch_.raw[i].value;
  }
  scratch_.raw.resize(before);
}

TokenId RowSampler::choose() {
  max_ = row_max(logits_);
  // An infinite maximum leaves no differences to weigh.
  if (!(max_ >= -kLargest && max_ <= kLargest)) return row_argmax(logits_);
  if (!has_top_k() && !has_min_p()) return choose_from_row();
  return collect_candidates() ? choose_from_candidates() : choose_from_many();
}

// True when top_k or min_p leaves few: these are the candidates, by id, with their weights. Both keep a head of the
// ranking, so their order does not matter.
bool RowSampler::collect_candidates() {
  std::vector<Candidate>& kept = scratch_.candidates;
  // Above it, sorting costs more than going over the whole row.
  const std::size_t few = std::max<std::size_t>(64, logits_.size() / 32);
  if (has_top_k()) {
    if (static_cast<std::size_t>(params_.top_k) > few) return false;
    select_best(logits_, static_cast<std::size_t>(params_.top_k), kept);
    std::sort(kept.begin(), kept.end(), by_id);
  } else {
    // weight >= min_p means logit >= max + temperature * log(min_p); a little lower here, the weights decide below.
    const double depth = temperature_ * natural_log(std::max(min_p(), std::numeric_limits<float>::min()));
    const double least = max_ + depth * 1.001 - 1e-4 * (temperature_ + std::abs(static_cast<double>(max_)));
    select_from(logits_, static_cast<float>(std::max(least, -static_cast<double>(kLargest))), kept);
    if (kept.size() > few) return false;
  }
  weigh_candidates();
  std::erase_if(kept, [this](const Candidate& candidate) { return candidate.value < min_p(); });
  return true;
}

void RowSampler::weigh_candidates() {
  for (Candidate& candidate : scratch_.candidates) {
    candidate.value = exp_nonpositive((candidate.value - max_) / temperature_);
  }
}

// Keeps the shortest head of the candidates' ranking (by logit) that weighs `target`, at least one; the last in rank is
// the last in place. Halves the range in which the head ends, so the whole is never sorted.
void RowSampler::keep_head(double target) {
  std::vector<Candidate>& kept = scratch_.candidates;
  constexpr std::ptrdiff_t kSortable = 64;
  const auto ranks = [this](const Candidate& a, const Candidate& b) {
    const float x = logits_[static_cast<std::size_t>(a.id)];
    const float y = logits_[static_cast<std::size_t>(b.id)];
    return x > y || (x == y && a.id < b.id);
  };
  auto first = kept.begin();  // what lies before is in the head and weighs `sum`
  auto last = kept.end();     // what lies after is not
  double sum = 0;
  while (last - first > kSortable) {
    const auto middle = first + (last - first) / 2;
    std::nth_element(first, middle, last, ranks);
    const double half = weight_of({first, middle});
    if (sum + half >= target) {
      last = middle;
    } else {
      sum += half;
      first = middle;
    }
  }
  std::sort(first, last, ranks);
  while (first != last && (sum < target || first == kept.begin())) sum += (first++)->value;
  kept.erase(first, kept.end());
}

TokenId RowSampler::choose_from_candidates() {
  std::vector<Candidate>& kept = scratch_.candidates;
  double total = weight_of(kept);
  if (params_.top_p < 1.0F) {
    keep_head(params_.top_p * total);
    std::sort(kept.begin(), kept.end(), by_id);
    total = weight_of(kept);
  }
  const double target = uniform() * total;
  double sum = 0;
  TokenId found = kept.front().id;
  for (const Candidate& candidate : kept) {
    if (sum > target) break;
    if (candidate.value == 0) continue;
    found = candidate.id;
    sum += candidate.value;
  }
  return found;
}

TokenId RowSampler::choose_from_row() {
  scratch_.weights.fill(logits_, max_, temperature_);
  double total = scratch_.weights.total();
  if (params_.top_p < 1.0F) {
    cut_row(total);
    total = scratch_.weights.total();
  }
  return scratch_.weights.find(uniform() * total);
}

// What choose_from_candidates() gives, when it is much of the row that top_k and min_p leave.
TokenId RowSampler::choose_from_many() {
  scratch_.weights.fill(logits_, max_, temperature_);
  if (has_top_k()) {
    const auto last = find_ranked(logits_, static_cast<std::size_t>(params_.top_k), scratch_.candidates);
    if (last) scratch_.weights.cut_after(logits_, *last);
  }
  if (has_min_p()) scratch_.weights.cut_below(min_p());
  double total = scratch_.weights.total_in_order();
  if (params_.top_p < 1.0F) {
    cut_row(total);
    total = scratch_.weights.total_in_order();
  }
  return scratch_.weights.find_in_order(uniform() * total);
}

// Leaves a weight only to the shortest head of the ranking that weighs top_p of the total.
void RowSampler::cut_row(double total) {
  // All that weigh less than `bar` weigh less than what top_p leaves out, so the head ends above them. (A little lower:
  // the total is a sum of floats.)
  const double bar = 0.99 * (1.0 - params_.top_p) * total / static_cast<double>(logits_.size());
  const double target = params_.top_p * total;
  std::vector<Candidate>& boundary = scratch_.candidates;
  const double before = scratch_.weights.find_boundary(
      target, std::max(static_cast<float>(bar), std::numeric_limits<float>::min()), boundary);
  if (boundary.empty()) return;  // rounding kept the sum from the target: all are in the head
  keep_head(target - before);
  const TokenId last = boundary.back().id;
  scratch_.weights.cut_after(logits_, {last, logits_[static_cast<std::size_t>(last)]});
}

}  // namespace

SampledToken sample_row(const SampleRequest& request, std::span<float> logits, SamplerScratch& scratch) {
  FOLIO_CHECK(request.params != nullptr, "a row is sampled with parameters");
  FOLIO_CHECK(!logits.empty(), "a row has logits");
  return RowSampler(request, logits, scratch).sample();
}

SampledToken score_row(const ScoreRequest& request, std::span<const float> logits, SamplerScratch& scratch) {
  FOLIO_CHECK(request.token >= 0 && static_cast<std::size_t>(request.token) < logits.size(), "a token to score");
  SampledToken result;
  RawRow raw;
  raw.read(logits, request.num_logprobs, scratch, result.top);
  if (!raw.has_numbers()) return result;
  result.id = request.token;
  result.logprob = raw.logprob(logits[static_cast<std::size_t>(request.token)]);
  return result;
}

}  // namespace folio
