// A model that computes on a thread of its own, as a device does: start() returns at once, and the results come when
// they are asked for, or later. It keeps the rules of engine/model/model.h from the device's side: no more steps in
// flight than depth 2, and nothing of a batch read after start().
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/model/model.h"

namespace folio {

class AsyncModel final : public Model {
 public:
  explicit AsyncModel(Model& model);  // which is used by this one alone, and outlives it
  ~AsyncModel() override;

  int depth() const override { return kMaxStepsInFlight; }
  void start(const StepBatch& batch) override;
  ForwardTimes collect(std::span<SampledToken> samples, std::span<SampledToken> scores) override;
  std::int32_t vocab_size() const override { return model_.vocab_size(); }
  std::int32_t max_context() const override { return model_.max_context(); }
  std::int32_t num_blocks() const override { return model_.num_blocks(); }
  std::int32_t block_size() const override { return model_.block_size(); }

  // Called when step 1, 2, 3 ... of those that were started is collected, after it was computed: may throw. Set before
  // the engine's first request.
  void set_collect_hook(std::function<void(int step)> hook) { collect_hook_ = std::move(hook); }
  int most_in_flight() const { return most_in_flight_; }  // to be read while the engine is idle

 private:
  // A step, with what its batch points at, all of its own.
  struct Step {
    explicit Step(const StepBatch& from);
    StepBatch batch;
    std::vector<SamplingParams> params;
    std::vector<std::vector<TokenId>> tokens, masked;
    std::vector<SampledToken> samples, scores;
    std::exception_ptr failure;
    bool done = false;
  };
  void run();

  Model& model_;
  std::function<void(int)> collect_hook_;
  int num_collected_ = 0;
  int most_in_flight_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Step>> steps_;  // in flight, oldest first
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace folio
