#include "tests/scheduler/world.h"

#include <algorithm>
#include <set>

namespace folio {
namespace {

FinishReason verdict(std::int32_t stop_modulus, TokenId token) {
  return stop_modulus > 0 && token % stop_modulus == 0 ? FinishReason::kStopToken : FinishReason::kNone;
}

// Whoever may read what this request writes has the same.
std::string domain_of(const SchedulerLimits& limits, const Request& request) {
  const bool shares = limits.prefix_cache && !request.cache.bypass;
  return shares ? "salt " + request.cache.salt : "request " + std::to_string(request.id);
}

std::string shape(const StepPlan& plan) {
  std::string text;
  for (const Slice& slice : plan.slices) {
    const Request& request = slice.sequence->owner->request;
    if (!text.empty()) text += ' ';
    text += std::to_string(request.id);
    if (request.n > 1) text += '.' + std::to_string(slice.sequence->index);
    text += ':' + std::to_string(slice.count);
  }
  return text;
}

}  // namespace

std::vector<TokenId> prompt_of(std::uint64_t seed, std::int64_t num_tokens) {
  std::vector<TokenId> prompt(static_cast<std::size_t>(num_tokens));
  std::uint64_t hash = fake_hash(kFakeRoot + seed, 1);
  for (TokenId& token : prompt) {
    token = fake_next_token(hash, kFakeVocab);
    hash = fake_hash(hash, token);
  }
  return prompt;
}

std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::function<Duration(const StepLoad&)> linear_cost(double step, double row, double pair, double key, double logits) {
  return [=](const StepLoad& load) {
    const double ms = step + row * static_cast<double>(load.rows) + pair * static_cast<double>(load.pairs) +
                      key * static_cast<double>(load.keys) + logits * static_cast<double>(load.logit_rows);
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(ms));
  };
}

Alone run_alone(const SchedulerLimits& limits, const Request& request, std::int32_t stop_modulus) {
  Alone alone;
  if (request.max_tokens == 0) return {{}, FinishReason::kLength};
  const auto num_prompt = static_cast<std::int64_t>(request.prompt.size());
  // The last token needs no slot, so a sequence that has the pool for itself gets one token further than its slots.
  const std::int64_t most =
      std::min<std::int64_t>(limits.max_context, std::int64_t{limits.num_blocks} * limits.block_size + 1) - num_prompt;
  std::uint64_t hash = fake_hash(request.prompt);
  while (alone.finish == FinishReason::kNone) {
    const TokenId token = fake_next_token(hash, kFakeVocab);
    hash = fake_hash(hash, token);
    alone.outputs.push_back(token);
    alone.finish = verdict(stop_modulus, token);
    const auto num_outputs = static_cast<std::int64_t>(alone.outputs.size());
    if (alone.finish == FinishReason::kNone && num_outputs >= std::min(most, request.max_tokens)) {
      alone.finish = FinishReason::kLength;
    }
  }
  return alone;
}

World::World(SchedulerLimits limits, std::uint64_t shuffle_seed, std::map<std::string, double> weights)
    : blocks(limits.num_blocks, limits.block_size, shuffle_seed),
      scheduler(blocks, limits, clock, std::move(weights)),
      cache_(limits.num_blocks, limits.block_size) {}

RequestId World::submit(std::int64_t num_prompt_tokens, std::int64_t max_tokens, std::int32_t priority,
                        std::int32_t n) {
  Request request;
  request.prompt = prompt_of(last_id_ + 1000, num_prompt_tokens);
  request.max_tokens = max_tokens;
  request.priority = priority;
  request.n = n;
  return submit(std::move(request));
}

RequestId World::submit(Request request, std::int32_t stop_modulus) {
  request.id = ++last_id_;
  request.arrival = clock.now();
  const bool shares = scheduler.limits().prefix_cache && !request.cache.bypass;
  const std::int64_t num_cached = shares ? blocks.num_cached_tokens(request.cache.salt, request.prompt) : 0;
  Asked asked{request, num_cached,  stop_modulus, std::vector<Told>(static_cast<std::size_t>(std::max(request.n, 0))),
              0,       std::nullopt};
  if ((refusal = scheduler.submit(std::move(request)))) return 0;
  asked_.emplace(last_id_, std::move(asked));
  return last_id_;
}

World::InFlight World::build(const StepPlan& plan) const {
  InFlight step{&plan, {}, plan.copies, {}, {}, {}, {}, {}, false};
  for (const Slice& slice : plan.slices) {
    const Sequence& sequence = *slice.sequence;
    Work work{sequence.owner,
              domain_of(scheduler.limits(), sequence.owner->request),
              slice.first,
              {},
              {},
              slice.in_flight_row,
              slice.first_scored,
              slice.num_scored};
    step.load.add_slice(slice.first, slice.count, slice.num_logits + slice.num_scored);
    work.table.assign(sequence.blocks.ids().begin(), sequence.blocks.ids().end());
    if (slice.in_flight_row >= 0) {
      work.tokens.push_back(-1);
    } else {
      const auto begin = sequence.tokens.begin() + static_cast<std::ptrdiff_t>(slice.first);
      work.tokens.assign(begin, begin + slice.count);
    }
    step.work.push_back(std::move(work));
  }
  for (const PlannedSample& sample : plan.samples) {
    step.samples.push_back({sample.sequence->owner->request.id, sample.slice});
  }
  return step;
}

void World::check_plan(const StepPlan& plan) const {
  const SchedulerLimits& limits = scheduler.limits();
  std::set<const Sequence*> seen;
  std::int32_t num_tokens = 0;
  std::int32_t num_samples = 0;
  for (const Slice& slice : plan.slices) {
    ASSERT_TRUE(seen.insert(slice.sequence).second) << "two slices of a sequence";
    ASSERT_EQ(slice.sequence->state, SequenceState::kRunning);
    ASSERT_EQ(slice.first + slice.count, slice.sequence->num_scheduled);
    ASSERT_GE(slice.count, 1);
    ASSERT_TRUE(limits.max_prefill_chunk == 0 || slice.count <= limits.max_prefill_chunk);
    ASSERT_TRUE(slice.in_flight_row < 0 || slice.count == 1);
    ASSERT_TRUE(slice.num_scored == 0 || slice.sequence->owner->request.wants_scores());
    ASSERT_TRUE(slice.num_scored == 0 || slice.first_scored >= slice.first);
    ASSERT_LE(slice.first_scored + slice.num_scored, slice.first + slice.count);
    num_tokens += slice.count;
    num_samples += slice.num_logits;
  }
  ASSERT_EQ(plan.num_tokens, num_tokens);
  std::set<std::int32_t> sampled_slices;
  for (std::size_t i = 0; i < plan.samples.size(); ++i) {
    const PlannedSample& sample = plan.samples[i];
    const Slice& slice = plan.slices.at(static_cast<std::size_t>(sample.slice));
    ASSERT_EQ(slice.num_logits, 1);
    ASSERT_EQ(slice.sequence->owner, sample.sequence->owner);
    ASSERT_TRUE(i == 0 || plan.samples[i - 1].slice <= sample.slice);
    sampled_slices.insert(sample.slice);
  }
  ASSERT_EQ(static_cast<std::int32_t>(sampled_slices.size()), num_samples);
  ASSERT_LE(num_tokens, limits.max_batch_tokens);
  ASSERT_LE(static_cast<std::int32_t>(plan.slices.size()), limits.max_num_seqs);
}

// The first in the victim order is in every step at depth 1, or waits for one that came in by its age.
void World::check_progress(const StepPlan& plan) const {
  const auto running = scheduler.running();
  ASSERT_FALSE(running.empty());
  for (const Slice& slice : plan.slices) {
    if (slice.sequence == running.front() || policy::is_overdue(*slice.sequence)) return;
  }
  FAIL() << "the first does not advance: request " << running.front()->owner->request.id;
}

void World::meet(const StepPlan& plan) {
  last_load = {};
  for (const Slice& slice : plan.slices) {
    met.slice_tokens += slice.count;
    last_load.add_slice(slice.first, slice.count, slice.num_logits + slice.num_scored);
    met.scored += slice.num_scored;
    if (slice.sequence->owner->request.wants_scores() && slice.first < slice.sequence->num_prompt_tokens() - 1) {
      met.computed_and_not_scored += slice.count - slice.num_scored;
    }
    auto& epoch = epochs_[{slice.sequence->owner->request.id, slice.sequence->index}];
    if (std::exchange(epoch, slice.epoch) == slice.epoch) continue;
    ++met.resumed;
    ++(slice.first > 0 ? met.resumed_with_reuse : met.resumed_from_zero);
  }
  met.copies += static_cast<std::int64_t>(plan.copies.size());
  for (const PlannedSample& sample : plan.samples) {
    if (sample.sequence != plan.slices[static_cast<std::size_t>(sample.slice)].sequence) ++met.forks;
  }
}

// A block that a step in flight names is written in a later plan by the same sequence, by one that shares it, or by
// nobody; and no copy is made into it.
void World::check_no_early_reuse(const InFlight& step) const {
  std::map<BlockId, std::set<const RequestState*>> named;
  for (const InFlight& earlier : in_flight_) {
    for (const Work& work : earlier.work) {
      for (BlockId id : work.table) named[id].insert(work.owner);
    }
  }
  for (const Work& work : step.work) {
    const auto size = static_cast<std::int64_t>(scheduler.limits().block_size);
    const auto end = work.first + static_cast<std::int64_t>(work.tokens.size());
    for (auto i = work.first / size; i * size < end; ++i) {
      const auto found = named.find(work.table.at(static_cast<std::size_t>(i)));
      if (found == named.end()) continue;
      ASSERT_EQ(found->second.count(work.owner), found->second.size())
          << "block " << found->first << " was reused too early";
    }
  }
  for (const PlannedCopy& copy : step.copies) ASSERT_FALSE(named.contains(copy.to)) << "block " << copy.to;
}

// No block that is read was written for another salt, or for a request that shares nothing.
void World::check_domain(const Work& work) {
  const auto size = static_cast<std::int64_t>(scheduler.limits().block_size);
  const auto end = work.first + static_cast<std::int64_t>(work.tokens.size());
  for (std::int64_t i = 0; i * size < end; ++i) {
    std::string& domain = domains_[work.table.at(static_cast<std::size_t>(i))];
    if (i * size < work.first) {
      ASSERT_EQ(domain, work.domain) << "block " << work.table[static_cast<std::size_t>(i)];
    }
    domain = work.domain;
  }
}

void World::run(InFlight& step) {
  for (const PlannedCopy& copy : step.copies) {
    cache_.copy(copy.from, copy.to);
    domains_[copy.to] = domains_[copy.from];
  }
  std::vector<std::uint64_t> last_hashes;
  for (Work& work : step.work) {
    if (work.in_flight_row >= 0) work.tokens[0] = last_sampled_[static_cast<std::size_t>(work.in_flight_row)];
    check_domain(work);
    const std::vector<std::uint64_t> hashes = cache_.compute(work.table, work.first, work.tokens);
    last_hashes.push_back(hashes.back());
    for (std::int64_t position = work.first_scored; position < work.first_scored + work.num_scored; ++position) {
      step.scores.push_back({position, hashes.at(static_cast<std::size_t>(position - work.first))});
    }
  }
  for (const Sample& sample : step.samples) {
    step.sampled.push_back(fake_next_token(last_hashes[static_cast<std::size_t>(sample.slice)], kFakeVocab));
    step.verdicts.push_back(verdict(asked_.at(sample.request).stop_modulus, step.sampled.back()));
  }
  last_sampled_ = step.sampled;
  step.ran = true;
}

void World::run_all() {
  for (InFlight& step : in_flight_) {
    if (!step.ran) run(step);
  }
}

void World::commit_oldest() {
  run_all();
  const InFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  ++num_steps;
  if (step_cost) clock.advance(step_cost(step.load));
  if (std::exchange(fail_next_, false)) {
    hear(scheduler.fail(*step.plan), {});
  } else {
    hear(scheduler.commit(*step.plan, step.sampled, step.verdicts), step.sampled, step.scores);
  }
}

// Each position once and in order, with the K/V of the prompt up to it.
void World::hear_scores(const Events& events, const std::vector<Score>& scores) {
  for (const PromptScored& scored : events.scored) {
    Asked& asked = asked_.at(scored.request);
    ASSERT_FALSE(asked.summary);
    for (const Told& told : asked.told) ASSERT_TRUE(told.started && told.outputs.empty());
    for (std::int32_t i = scored.first; i < scored.first + scored.count; ++i) {
      const Score& score = scores.at(static_cast<std::size_t>(i));
      ASSERT_EQ(score.position, asked.num_scored);
      const auto length = static_cast<std::size_t>(++asked.num_scored);
      ASSERT_LT(length, asked.request.prompt.size()) << "nothing comes after the last";
      ASSERT_EQ(score.hash, fake_hash(std::span(asked.request.prompt).first(length)));
    }
  }
}

void World::hear(const Events& events, const std::vector<TokenId>& sampled, const std::vector<Score>& scores) {
  for (const RequestStarted& started : events.started) {
    for (Told& told : asked_.at(started.request).told) {
      ASSERT_FALSE(std::exchange(told.started, true));
      ASSERT_TRUE(told.outputs.empty());
    }
  }
  hear_scores(events, scores);
  for (const SequenceEvent& event : events.sequences) {
    Asked& asked = asked_.at(event.request);
    ASSERT_FALSE(asked.summary);
    Told& told = asked.told.at(static_cast<std::size_t>(event.index));
    ASSERT_EQ(told.finish, FinishReason::kNone) << "an event after the end";
    if (event.sample >= 0) {
      ASSERT_TRUE(told.started);
      told.outputs.push_back(sampled.at(static_cast<std::size_t>(event.sample)));
      told.times.push_back(clock.now());
    }
    told.finish = event.finish;
  }
  for (const RequestSummary& summary : events.ended) {
    Asked& asked = asked_.at(summary.request);
    ASSERT_FALSE(asked.summary);
    asked.summary = summary;
    std::int64_t num_outputs = 0;
    for (const Told& told : asked.told) {
      ASSERT_NE(told.finish, FinishReason::kNone);
      num_outputs += static_cast<std::int64_t>(told.outputs.size());
    }
    ASSERT_EQ(summary.output_tokens, num_outputs);
  }
}

std::string World::step() {
  const StepPlan& plan = scheduler.schedule();
  const std::string text = shape(plan);
  check_plan(plan);
  meet(plan);
  if (plan.slices.empty()) {
    hear(scheduler.commit(plan, {}, {}), {});
  } else {
    check_progress(plan);
    in_flight_.push_back(build(plan));
    commit_oldest();
  }
  EXPECT_EQ(scheduler.broken_invariant(), std::nullopt);
  if (!step_cost) clock.advance(std::chrono::milliseconds(1));
  return text;
}

bool World::step_at(int depth, bool run_early) {
  const StepPlan& plan = scheduler.schedule();
  check_plan(plan);
  meet(plan);
  EXPECT_EQ(scheduler.broken_invariant(), std::nullopt);
  bool did = true;
  if (plan.slices.empty()) {
    const Events& events = scheduler.commit(plan, {}, {});
    did = !events.empty();
    hear(events, {});
    if (!did && !in_flight_.empty()) {  // nothing can be planned before the step in flight is over
      commit_oldest();
      did = true;
    }
  } else {
    if (in_flight_.empty()) check_progress(plan);
    InFlight step = build(plan);
    check_no_early_reuse(step);
    in_flight_.push_back(std::move(step));
    if (run_early) run_all();
  }
  while (static_cast<int>(in_flight_.size()) >= depth) commit_oldest();
  EXPECT_EQ(scheduler.broken_invariant(), std::nullopt);
  if (!step_cost || plan.slices.empty()) clock.advance(std::chrono::milliseconds(1));
  return did;
}

void World::run_until(RequestId id, FinishReason reason) {
  while (told(id).finish == FinishReason::kNone) {
    ASSERT_TRUE(step_at(1)) << "it does not end, and nothing happens";
    ASSERT_FALSE(testing::Test::HasFatalFailure());
  }
  ASSERT_EQ(told(id).finish, reason);
}

void World::run_to_end(int depth) {
  while (!scheduler.empty()) {
    ASSERT_TRUE(step_at(depth)) << "requests are left, and nothing happens";
    ASSERT_FALSE(testing::Test::HasFatalFailure());
  }
  while (!in_flight_.empty()) commit_oldest();
  ASSERT_EQ(scheduler.broken_invariant(), std::nullopt);
  ASSERT_EQ(blocks.num_available() + scheduler.pins().num_blocks(), blocks.num_blocks());
}

void World::expect_as_alone() {
  for (const auto& [id, asked] : asked_) {
    const Alone alone = run_alone(scheduler.limits(), asked.request, asked.stop_modulus);
    for (const Told& told : asked.told) {
      if (told.finish == FinishReason::kLength || told.finish == FinishReason::kStopToken) {
        EXPECT_EQ(told.finish, alone.finish) << "request " << id;
        const bool scores = asked.request.wants_scores();
        EXPECT_EQ(asked.num_scored, scores ? std::ssize(asked.request.prompt) - 1 : 0) << "request " << id;
        EXPECT_EQ(told.outputs, alone.outputs) << "request " << id;
      } else {
        ASSERT_LE(told.outputs.size(), alone.outputs.size()) << "request " << id;
        EXPECT_TRUE(std::equal(told.outputs.begin(), told.outputs.end(), alone.outputs.begin())) << "request " << id;
      }
    }
  }
}

}  // namespace folio
