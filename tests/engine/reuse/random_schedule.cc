#include "tests/engine/reuse/random_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace folio {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  std::int32_t pick(std::int32_t low, std::int32_t high) {
    return low + static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(std::int32_t n) { return pick(1, n) == 1; }
  template <class T>
  T any_of(std::initializer_list<T> values) {
    return values.begin()[pick(0, static_cast<std::int32_t>(values.size()) - 1)];
  }

 private:
  std::mt19937_64 random_;
};

enum class Deed : std::uint8_t { kSubmit, kCancel, kCancelIndex, kFlush, kUnpin };

// Due `at` steps after the one before it.
struct Event {
  Deed deed = Deed::kSubmit;
  std::int32_t after = 0;
  std::size_t which = 0;  // of the submitted
  std::int32_t index = 0;
};

struct Submitted {
  const Asked* asked = nullptr;
  GenerationRequest request;
  Duration time_limit{};            // 0: none
  Duration transport_time_limit{};  // likewise
  bool may_be_cut = false;
  bool cancelled = false;  // all of it, at some time
  RequestId id = 0;
  std::unique_ptr<Reader> reader;
};

struct Schedule {
  Stage::Setup setup;
  std::vector<Submitted> submitted;
  std::vector<Event> events;
  bool idle_flush = false;
  bool idle_unpin = false;
  Duration idle_time{};
};

std::int32_t most_blocks(const std::vector<Asked>& asked, std::int32_t block_size) {
  std::int32_t most = 0;
  for (const Asked& a : asked) {
    const auto tokens =
        static_cast<std::int32_t>(a.request.prompt.size()) + static_cast<std::int32_t>(a.request.stopping.max_tokens);
    most = std::max(most, (tokens + block_size - 1) / block_size);
  }
  return most;
}

Stage::Setup random_setup(Dice& dice, const std::vector<Asked>& asked) {
  Stage::Setup setup;
  setup.block_size = dice.any_of({16, 16, 32});
  const std::int32_t least = most_blocks(asked, setup.block_size);
  setup.num_blocks = least + dice.any_of({0, 1, 3, least / 2, least, 6 * least});
  EngineOptions& options = setup.options;
  options.max_prefill_chunk = dice.any_of({1, 7, 16, 64, 0});
  options.max_num_seqs = dice.pick(4, 10);
  options.max_batch_tokens = options.max_num_seqs + dice.any_of({0, 1, 16, 40, 300});
  options.prefix_cache = !dice.one_in(8);
  options.pin_quota_percent = dice.any_of({0, 25, 60, 100});
  options.block_shuffle_seed = static_cast<std::uint64_t>(dice.pick(0, 1000));
  options.target_itl_ms = dice.any_of({0.0, 0.0, 3.0});
  options.tenant_weights = {{"a", 1.0}, {"b", 3.0}};
  return setup;
}

Submitted random_submission(Dice& dice, const std::vector<Asked>& asked) {
  Submitted out;
  out.asked = &asked[static_cast<std::size_t>(dice.pick(0, static_cast<std::int32_t>(asked.size()) - 1))];
  out.request = out.asked->request;
  out.request.priority = dice.any_of({0, 0, 0, 1, -1});
  out.request.tenant = dice.any_of({"", "a", "b"});
  out.request.cache.salt = dice.any_of({"", "", "", "x", "y"});
  out.request.cache.bypass = dice.one_in(10);
  if (dice.one_in(3)) out.request.cache.pin_ms = dice.any_of<std::int64_t>({1, 40, 400, CacheParams::kPinForever});
  if (dice.one_in(8)) out.time_limit = milliseconds(dice.pick(1, 120));
  if (dice.one_in(12)) out.transport_time_limit = milliseconds(dice.pick(1, 120));
  out.may_be_cut = out.time_limit != Duration::zero() || out.transport_time_limit != Duration::zero();
  out.reader = std::make_unique<Reader>(out.request.n);
  return out;
}

Schedule random_schedule(Dice& dice, const std::vector<Asked>& asked) {
  Schedule schedule;
  schedule.setup = random_setup(dice, asked);
  const std::int32_t pace = dice.any_of({0, 2, 12});
  const bool calm = dice.one_in(3);
  const bool all_pin = dice.one_in(4);  // and fill the pool, so that pins have to give way
  if (all_pin) {
    schedule.setup.num_blocks = most_blocks(asked, schedule.setup.block_size);
    schedule.setup.options.pin_quota_percent = 100;
    schedule.setup.options.prefix_cache = true;
  }
  const std::int32_t count = dice.pick(3, 16);
  while (static_cast<std::int32_t>(schedule.submitted.size()) < count) {
    const std::size_t which = schedule.submitted.size();
    schedule.submitted.push_back(random_submission(dice, asked));
    Submitted& newest = schedule.submitted.back();
    if (calm) newest.time_limit = newest.transport_time_limit = Duration::zero();
    if (calm) newest.may_be_cut = false;
    if (all_pin) newest.request.cache.pin_ms = CacheParams::kPinForever;
    schedule.events.push_back({Deed::kSubmit, dice.pick(0, pace), which, 0});
    if (calm || !dice.one_in(3)) continue;
    Event event{dice.any_of({Deed::kCancel, Deed::kCancelIndex, Deed::kCancelIndex, Deed::kFlush, Deed::kUnpin}),
                dice.pick(0, 8), static_cast<std::size_t>(dice.pick(0, static_cast<std::int32_t>(which))),
                dice.pick(0, 3)};
    Submitted& meant = schedule.submitted[event.which];
    if (event.deed == Deed::kCancel) meant.cancelled = true;
    if (event.deed == Deed::kCancel || event.deed == Deed::kCancelIndex) meant.may_be_cut = true;
    schedule.events.push_back(event);
  }
  schedule.idle_flush = dice.one_in(6);
  schedule.idle_unpin = dice.one_in(6);
  schedule.idle_time = milliseconds(dice.any_of({0, 5, 500}));
  return schedule;
}

class Player {
 public:
  Player(const ModelFile& file, Schedule& schedule) : schedule_(schedule), stage_(file, with_clock(schedule.setup)) {
    // A step's time goes with its tokens, so that the scheduler has something to learn.
    stage_.set_hook([this](const StepBatch& batch) { clock_.advance(microseconds(300 + 100 * batch.num_tokens())); });
    stage_.engine().add_observer(std::make_shared<StepObserver>([this](const StepRecord&) { hand_over(); }));
  }

  // Each round starts with a request of its own: it brings the steps at which the others come.
  void play() {
    while (next_ < schedule_.events.size()) {
      fresh_ = true;
      Reader starter;
      stage_.submit(greedy({1}, 2), starter);
      ++num_prompt_tokens_;
      EXPECT_TRUE(stage_.is_settled());
      clock_.advance(schedule_.idle_time);
      if (schedule_.idle_flush) stage_.engine().flush_prefix_cache();
      if (schedule_.idle_unpin) stage_.engine().unpin(0);
    }
  }
  Stage& stage() { return stage_; }
  std::int64_t num_prompt_tokens() const { return num_prompt_tokens_; }  // of all that were submitted

 private:
  Stage::Setup with_clock(Stage::Setup setup) const {
    setup.clock = &clock_;
    return setup;
  }

  void hand_over() {
    ++steps_since_;
    while (next_ < schedule_.events.size() && (fresh_ || steps_since_ >= schedule_.events[next_].after)) {
      fresh_ = false;
      steps_since_ = 0;
      act(schedule_.events[next_++]);
    }
  }

  void act(const Event& event) {
    Submitted& meant = schedule_.submitted[event.which];
    Engine& engine = stage_.engine();
    switch (event.deed) {
      case Deed::kSubmit:
        if (meant.time_limit > Duration::zero()) meant.request.deadline = clock_.now() + meant.time_limit;
        if (meant.transport_time_limit > Duration::zero()) {
          meant.request.transport_deadline = clock_.now() + meant.transport_time_limit;
        }
        num_prompt_tokens_ += std::ssize(meant.request.prompt);
        meant.id = stage_.submit(meant.request, *meant.reader);
        return;
      case Deed::kCancel:
        return engine.cancel(meant.id);
      case Deed::kCancelIndex:
        return engine.cancel(meant.id, event.index);
      case Deed::kFlush:
        return engine.flush_prefix_cache();
      case Deed::kUnpin:
        return engine.unpin(event.index == 0 ? 0 : meant.id);
    }
  }

  Schedule& schedule_;
  StageClock clock_;
  Stage stage_;
  // Engine thread, or this one while the engine is idle.
  std::size_t next_ = 0;
  std::int32_t steps_since_ = 0;
  std::int64_t num_prompt_tokens_ = 0;
  bool fresh_ = true;
};

void check(const Submitted& submitted, bool prefix_cache, Seen& seen) {
  Reader& reader = *submitted.reader;
  reader.wait_end();
  const Usage& usage = reader.end().usage;
  const std::vector<SampledToken>& scores = submitted.asked->alone.prompt_logprobs;
  EXPECT_TRUE(is_beginning(reader.prompt_logprobs(), scores));
  seen.scored += static_cast<std::int64_t>(reader.prompt_logprobs().size());
  std::int64_t num_tokens = 0;
  for (std::int32_t index = 0; index < submitted.request.n; ++index) {
    const Reader::Output& got = reader.output(index);
    const Reader::Output& alone = submitted.asked->alone.outputs[static_cast<std::size_t>(index)];
    num_tokens += static_cast<std::int64_t>(got.ids.size());
    const bool cut = got.finish == FinishReason::kNone || got.finish == FinishReason::kCancelled ||
                     got.finish == FinishReason::kDeadline;
    if (cut) {
      EXPECT_TRUE(submitted.may_be_cut) << "it ended without a reason";
      EXPECT_TRUE(is_beginning(got, alone)) << "index " << index;
      ++seen.beginnings;
    } else {
      EXPECT_TRUE(same_output(got, alone)) << "index " << index;
      EXPECT_EQ(reader.prompt_logprobs().size(), scores.size());
      ++seen.whole;
    }
  }
  EXPECT_EQ(usage.output_tokens, num_tokens);
  EXPECT_EQ(usage.prompt_tokens, static_cast<std::int64_t>(submitted.request.prompt.size()));
  EXPECT_LT(usage.cached_tokens, usage.prompt_tokens) << "the last token is always computed";
  EXPECT_TRUE(usage.cached_tokens == 0 || (prefix_cache && !submitted.request.cache.bypass && scores.empty()));
  EXPECT_TRUE(!reader.prompt() || reader.prompt()->cached_tokens == usage.cached_tokens);
  EXPECT_TRUE(usage.pinned_tokens == 0 || submitted.request.cache.pin_ms > 0);
  if (reader.end().error) {
    EXPECT_EQ(reader.error(), submitted.cancelled && reader.error() == ErrorCode::kCancelled
                                  ? ErrorCode::kCancelled
                                  : ErrorCode::kDeadlineExceeded)
        << reader.end().error->message;
    seen.late += reader.error() == ErrorCode::kDeadlineExceeded ? 1 : 0;
  }
  seen.recomputed += reader.end().timings.recomputed_tokens;
  seen.pinned += usage.pinned_tokens > 0 ? 1 : 0;
}

std::vector<TokenId> head_of(const std::vector<TokenId>& tokens, std::size_t count) {
  return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(std::min(count, tokens.size()))};
}

}  // namespace

std::vector<Asked> make_asked(Solo& solo) {
  Dice dice(7);
  const std::vector<TokenId> base = random_tokens(1, 100);
  std::vector<Asked> asked;
  for (int i = 0; i < 28; ++i) {
    // Common beginnings of several lengths, inside blocks and at their ends; then, for the last, an answer of before.
    std::vector<TokenId> prompt = head_of(base, static_cast<std::size_t>(dice.any_of({0, 5, 16, 25, 32, 64, 70, 96})));
    if (i >= 20) {
      const Asked& before = asked[static_cast<std::size_t>(dice.pick(0, 19))];
      prompt =
          joined(before.request.prompt, head_of(before.alone.front().ids, static_cast<std::size_t>(dice.pick(1, 30))));
    }
    const auto tail = static_cast<std::size_t>(i % 5 == 0 ? 0 : dice.pick(1, 20));
    prompt = joined(std::move(prompt), random_tokens(static_cast<std::uint64_t>(100 + i % 9), tail));
    if (prompt.empty()) prompt = {static_cast<TokenId>(i + 1)};
    const std::int32_t most = dice.any_of({0, 1, 2, 9, 16, 30, 40});
    Asked& one = asked.emplace_back();
    one.request = dice.one_in(2) ? greedy(prompt, most) : sampled(prompt, most, static_cast<std::uint64_t>(i % 4));
    one.request.n = dice.any_of({1, 1, 1, 1, 2, 3, 4});
    if (dice.one_in(5)) one.request.sampling.num_prompt_logprobs = dice.any_of({0, 3});
    if (dice.one_in(3)) one.request.stopping.stop_token_ids = random_tokens(static_cast<std::uint64_t>(i), 20);
    if (dice.one_in(4)) one.request.stopping.min_tokens = std::min(most, 8);
    one.alone = solo.run(one.request);
    // A stop string out of the middle of what it says.
    const std::string& text = one.alone.front().bytes;
    if (!dice.one_in(3) || text.size() < 8) continue;
    one.request.stopping.stop = {text.substr(text.size() / 2, 3)};
    one.alone = solo.run(one.request);
  }
  return asked;
}

void play_schedule(const ModelFile& file, const std::string& isa, const std::string& kv,
                   const std::vector<Asked>& asked, std::uint64_t seed, Seen& seen) {
  SCOPED_TRACE("seed " + std::to_string(seed) + " isa " + isa + " kv " + kv);
  Dice dice(seed);
  Schedule schedule = random_schedule(dice, asked);
  schedule.setup.depth = 1 + static_cast<int>(seed % 2);
  schedule.setup.isa = isa;
  schedule.setup.kv = kv;
  Player player(file, schedule);
  player.play();
  const bool prefix_cache = schedule.setup.options.prefix_cache;
  for (const Submitted& submitted : schedule.submitted) check(submitted, prefix_cache, seen);
  const LoadSnapshot load = player.stage().load();
  const bool forks = std::ranges::any_of(schedule.submitted, [](const Submitted& s) { return s.request.n > 1; });
  EXPECT_TRUE(forks || load.prompt_tokens + load.cached_tokens <= player.num_prompt_tokens()) << "counted twice";
  EXPECT_TRUE(player.stage().gives_all_back());
  ++seen.schedules;
  seen.steps += load.num_steps;
  seen.preemptions += load.num_preemptions;
  seen.cached += load.cached_tokens;
  seen.copies += player.stage().model().num_copies();
  seen.pins_released += load.num_pins_released;
  seen.behind += player.stage().model().num_behind();
}

}  // namespace folio
