// What engine.cc (any thread) and engine_loop.cc (the engine's) share.
#pragma once
#include <array>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "block_manager/block_manager.h"
#include "engine/delivery.h"
#include "engine/engine.h"
#include "engine/load_meter.h"
#include "scheduler/scheduler.h"

namespace folio {

class Engine::Impl {
 public:
  Impl(Model& model, const Tokenizer& tokenizer, const Clock& clock, const EngineOptions& options);
  ~Impl();

  Result<RequestId> submit(GenerationRequest request, std::shared_ptr<TokenStream> stream);
  void cancel(RequestId id, std::int32_t index);
  void flush_prefix_cache();
  void unpin(RequestId id);
  void dump_blocks(BlockDumpReceiver done);
  LoadSnapshot load() const;
  void stop_accepting();
  bool wait_idle(TimePoint deadline);
  void end_all(Error reason);
  void add_observer(std::shared_ptr<EngineObserver> observer) { observers_.push_back(std::move(observer)); }
  SlotUse slot_use() { return scheduler_.slot_use(); }
  std::int32_t max_context() const { return limits_.max_context; }

  static constexpr std::int32_t kAllIndices = -1;

 private:
  static constexpr std::int32_t kDefaultRetryMs = 1000;  // while nothing is known of the speed

  struct Submission {
    Request request;
    std::shared_ptr<const StopRules> stop_rules;
    std::shared_ptr<TokenStream> stream;
  };
  struct Cancel {
    RequestId id;
    std::int32_t index;
  };
  // News for the engine thread.
  struct Inbox {
    std::vector<std::optional<RequestId>> cache_commands;  // unpin this one (0: all), or flush; before the submissions
    std::vector<Submission> submissions;
    std::vector<Cancel> cancels;
    std::vector<BlockDumpReceiver> dumps;
    std::optional<Error> end_all;
    QueueLoad load;  // of the submissions
    bool empty() const {
      return cache_commands.empty() && submissions.empty() && cancels.empty() && dumps.empty() && !end_all;
    }
    void clear();
  };
  // A step that was scheduled and is not committed.
  struct Flight {
    const StepPlan* plan = nullptr;  // the scheduler's; stands until its commit
    StepRecord record;
    std::exception_ptr failure;  // why it could not be started
  };

  // Engine thread.
  void run();
  bool take_inbox();
  void wait_for_news(std::unique_lock<std::mutex>& lock);
  void add(Submission& submission);
  void refuse_late();
  void give_dumps();
  void cancel_now(RequestId id, std::int32_t index);
  void end_all_now(const Error& reason);
  bool may_start() const;
  bool start_next();
  void start(Flight& flight);
  void finish_oldest();
  const Events& commit(Flight& flight);
  void collect(Flight& flight);
  void end_broken(const StepPlan& plan);
  void lose_device(const std::string& what);
  void tell(const Events& events, const StepRecord* step);
  void walk_if_due(const SchedulerCounts& counts, TimePoint now);
  void publish_load(const StepRecord* step);
  void refresh_snapshot(const SchedulerCounts& counts);
  void observe(const Events& events, const StepRecord* step);
  void settle(std::size_t num_ended);
  double lap();

  Model& model_;
  const Tokenizer& tokenizer_;
  const Clock& clock_;
  const SchedulerLimits limits_;
  const bool check_invariants_;
  const int depth_;
  std::vector<std::shared_ptr<EngineObserver>> observers_;

  // Engine thread only.
  BlockManager blocks_;
  Scheduler scheduler_;
  Delivery delivery_;
  std::vector<Flight> flights_;  // oldest first, at most depth_
  StepBatch batch_;              // read by the model before start() returns: one is enough
  // Of the step that was collected last.
  std::vector<SampledToken> sampled_;
  std::vector<SampledToken> scores_;
  std::vector<TokenId> tokens_;
  std::optional<Error> lost_;  // the device is: what all requests end with
  Inbox taken_;
  std::vector<std::pair<RequestId, Error>> refused_;  // of taken_: they could not give a token in time
  std::array<std::int64_t, kNumOutcomes> num_ended_{};
  std::int64_t num_refused_late_ = 0;
  std::int32_t num_unaccounted_ = 0;  // by the last walk
  TimePoint last_walk_{};
  TimePoint lap_start_{};

  mutable std::atomic<bool> walk_wanted_ = false;  // somebody read the snapshot since the last walk
  mutable std::mutex mutex_;                       // for all below; never held while a step runs
  std::condition_variable wake_;
  std::condition_variable idle_;
  Inbox inbox_;
  QueueLoad queue_;            // of the scheduler; with the inbox's load, what a newcomer finds before it
  std::int64_t num_open_ = 0;  // accepted and not ended
  std::size_t num_in_flight_ = 0;
  RequestId last_id_ = 0;
  std::optional<Error> refusal_;  // of every newcomer
  bool stopping_ = false;
  LoadSnapshot snapshot_;
  std::int32_t retry_after_ms_ = kDefaultRetryMs;  // what a full queue says
  LoadMeter meter_;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace folio
