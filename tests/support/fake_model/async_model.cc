#include "tests/support/fake_model/async_model.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace folio {

AsyncModel::Step::Step(const StepBatch& from) : batch(from), samples(from.samples.size()), scores(from.scores.size()) {
  for (const SampleRequest& request : from.samples) {
    params.push_back(*request.params);
    tokens.emplace_back(request.tokens.begin(), request.tokens.end());
    masked.emplace_back(request.masked.begin(), request.masked.end());
  }
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    batch.samples[i].params = &params[i];
    batch.samples[i].tokens = tokens[i];
    batch.samples[i].masked = masked[i];
  }
}

AsyncModel::AsyncModel(Model& model) : model_(model), thread_([this] { run(); }) {}

AsyncModel::~AsyncModel() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void AsyncModel::start(const StepBatch& batch) {
  auto step = std::make_unique<Step>(batch);
  const std::lock_guard lock(mutex_);
  if (steps_.size() == kMaxStepsInFlight) throw std::logic_error("a third step in flight");
  steps_.push_back(std::move(step));
  most_in_flight_ = std::max(most_in_flight_, static_cast<int>(steps_.size()));
  changed_.notify_all();
}

ForwardTimes AsyncModel::collect(std::span<SampledToken> samples, std::span<SampledToken> scores) {
  std::unique_lock lock(mutex_);
  if (steps_.empty()) throw std::logic_error("no step in flight");
  changed_.wait(lock, [this] { return steps_.front()->done; });
  const std::unique_ptr<Step> step = std::move(steps_.front());
  steps_.pop_front();
  lock.unlock();
  ++num_collected_;
  if (step->failure) std::rethrow_exception(step->failure);
  if (collect_hook_) collect_hook_(num_collected_);
  if (samples.size() != step->samples.size() || scores.size() != step->scores.size()) {
    throw std::logic_error("a place for each result");
  }
  std::ranges::move(step->samples, samples.begin());
  std::ranges::move(step->scores, scores.begin());
  return {};
}

// Some steps are slow: the engine gets to its next plan before, others are done when it comes.
void AsyncModel::run() {
  std::unique_lock lock(mutex_);
  for (int i = 0;; ++i) {
    const auto next = [this] { return std::ranges::find_if(steps_, [](const auto& step) { return !step->done; }); };
    changed_.wait(lock, [&] { return stopping_ || next() != steps_.end(); });
    if (next() == steps_.end()) return;
    Step& step = **next();
    lock.unlock();
    if (i % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
    try {
      model_.start(step.batch);
      model_.collect(step.samples, step.scores);
    } catch (...) {
      step.failure = std::current_exception();
    }
    lock.lock();
    step.done = true;
    changed_.notify_all();
  }
}

}  // namespace folio
