// What a request costs the engine thread and the memory while it only waits: its stop rules are built once, by whoever
// brings it, however many sequences it asks for.
#include "engine/delivery.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/engine/reader.h"

namespace folio {
namespace {

constexpr std::int32_t kMany = 64;

StoppingParams long_stops() {
  StoppingParams stopping;
  for (int i = 0; i < kMany; ++i) stopping.stop.push_back(std::string(1023, 'a') + static_cast<char>('0' + i));
  return stopping;
}

// Stop rules ask for the end ids when they are built.
class WatchedTokenizer final : public Tokenizer {
 public:
  void encode(std::string_view text, bool parse_special, std::vector<TokenId>& out) const override {
    inner_.encode(text, parse_special, out);
  }
  std::string_view piece(TokenId id) const override { return inner_.piece(id); }
  TokenKind kind(TokenId id) const override { return inner_.kind(id); }
  TokenId vocab_size() const override { return inner_.vocab_size(); }
  TokenId bos() const override { return inner_.bos(); }
  TokenId eos() const override { return inner_.eos(); }
  bool add_bos() const override { return inner_.add_bos(); }
  std::span<const TokenId> end_ids() const override {
    ++(std::this_thread::get_id() == submitter_ ? num_here : num_elsewhere);
    return inner_.end_ids();
  }
  std::span<const std::string_view> control_spellings() const override { return inner_.control_spellings(); }

  mutable std::atomic<int> num_here = 0;
  mutable std::atomic<int> num_elsewhere = 0;

 private:
  FakeTokenizer inner_{kVocab};
  std::thread::id submitter_ = std::this_thread::get_id();
};

TEST(Delivery, TheSequencesOfARequestShareItsStopRules) {
  const FakeTokenizer tokenizer(kVocab);
  const auto rules = std::make_shared<const StopRules>(tokenizer, long_stops(), true);
  Delivery delivery;
  Request request;
  request.id = 1;
  request.prompt = {1, 2, 3};
  request.max_tokens = 5;
  request.n = kMany;
  const Reader reader(kMany);
  delivery.add(request, rules, reader.stream());
  EXPECT_EQ(rules.use_count(), 1 + kMany);
  Events events;
  events.ended.push_back({.request = 1});
  delivery.deliver(events, {}, {});
  EXPECT_EQ(rules.use_count(), 1) << "they go with the request";
}

TEST(Delivery, StopRulesAreBuiltOnceOnTheCallersThread) {
  FakeModel model(64, 4, 256, kVocab);
  Gate gate;
  model.set_hook([&](const StepBatch&) { gate.wait(); });
  const WatchedTokenizer tokenizer;
  const SteadyClock clock;
  Engine engine(model, tokenizer, clock, {.max_num_seqs = kMany});
  Reader before;
  ASSERT_TRUE(engine.submit(request_of(1, 5, 3), before.stream()).ok());  // ignores end ids: none is asked for
  GenerationRequest request = request_of(2, 9, 3, kMany);
  request.stopping = long_stops();
  request.stopping.max_tokens = 3;
  Reader queued(kMany);
  ASSERT_TRUE(engine.submit(std::move(request), queued.stream()).ok());
  const int num_built = tokenizer.num_here;
  EXPECT_GT(num_built, 0) << "before submit came back";
  gate.open();
  queued.wait_end();
  EXPECT_FALSE(queued.end().error);
  EXPECT_EQ(tokenizer.num_here, num_built);
  EXPECT_EQ(tokenizer.num_elsewhere, 0) << "nothing of it on the engine thread";
}

}  // namespace
}  // namespace folio
