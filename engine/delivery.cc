#include "engine/delivery.h"

#include <utility>

namespace folio {
namespace {

template <class Fn>
void for_each_sample(const StepPlan& plan, Fn&& fn) {
  for (std::size_t i = 0; i < plan.samples.size(); ++i) {
    const Sequence& sequence = *plan.samples[i].sequence;
    fn(i, sequence.owner->request.id, sequence.index);
  }
}

double ms_between(TimePoint from, TimePoint to) {
  return from == TimePoint{} || to == TimePoint{} ? 0.0 : to_ms(to - from);
}

StreamEnd stream_end(const RequestSummary& summary, std::optional<Error> error) {
  StreamEnd end;
  end.usage = {summary.prompt_tokens, summary.cached_tokens, summary.output_tokens, summary.pinned_tokens};
  end.timings.queue_ms =
      ms_between(summary.arrival, summary.first_scheduled == TimePoint{} ? summary.end : summary.first_scheduled);
  end.timings.prefill_ms = ms_between(summary.first_scheduled, summary.first_token);
  end.timings.ttft_ms = ms_between(summary.arrival, summary.first_token);
  end.timings.decode_ms = ms_between(summary.first_token, summary.end);
  end.timings.num_chunks = summary.num_chunks;
  end.timings.num_preemptions = summary.num_preemptions;
  end.timings.recomputed_tokens = summary.recomputed_tokens;
  end.timings.peak_blocks = summary.peak_blocks;
  end.error = std::move(error);
  return end;
}

}  // namespace

void Delivery::add(const Request& request, const std::shared_ptr<const StopRules>& rules,
                   std::shared_ptr<TokenStream> stream) {
  auto live = std::make_unique<Live>();
  live->stream = std::move(stream);
  live->num_prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
  if (request.wants_scores()) live->first_prompt_token = request.prompt.front();
  live->checkers.assign(static_cast<std::size_t>(request.n), StopChecker(rules, request.max_tokens));
  live_.emplace(request.id, std::move(live));
}

void Delivery::set_error(RequestId id, const Error& error) {
  const auto found = live_.find(id);
  if (found != live_.end() && !found->second->error) found->second->error = error;
}

void Delivery::refuse(RequestId id, Error error) {
  auto node = live_.extract(id);
  node.mapped()->stream->end({{node.mapped()->num_prompt_tokens, 0, 0, 0}, {}, std::optional<Error>(std::move(error))});
  node.mapped()->stream->notify();
}

std::vector<RequestId> Delivery::live_ids() const {
  std::vector<RequestId> ids;
  for (const auto& [id, live] : live_) ids.push_back(id);
  return ids;
}

Outcome Delivery::outcome(const RequestSummary& summary) const {
  switch (summary.finish) {
    case FinishReason::kNone:
    case FinishReason::kStopToken:
    case FinishReason::kStopString:
      return Outcome::kStop;
    case FinishReason::kLength:
      return Outcome::kLength;
    case FinishReason::kCancelled:
      return Outcome::kCancelled;
    case FinishReason::kDeadline:
      return Outcome::kDeadline;
    case FinishReason::kError:
      break;
  }
  const std::optional<Error>& error = live_.at(summary.request)->error;
  return error && error->code == ErrorCode::kUnavailable ? Outcome::kShutDown : Outcome::kFailed;
}

void Delivery::mask(const StepPlan& plan, std::span<SampleRequest> samples) const {
  for_each_sample(plan, [&](std::size_t i, RequestId id, std::int32_t index) {
    const std::int64_t output = samples[i].position - samples[i].num_prompt_tokens;
    samples[i].masked = live_.at(id)->checkers[static_cast<std::size_t>(index)].masked(output);
  });
}

void Delivery::check_stops(const StepPlan& plan, std::span<const SampledToken> tokens) {
  stops_.assign(tokens.size(), {});
  verdicts_.assign(tokens.size(), FinishReason::kNone);
  released_.resize(tokens.size());
  for_each_sample(plan, [&](std::size_t i, RequestId id, std::int32_t index) {
    released_[i].clear();
    if (tokens[i].id == kNoToken || plan.samples[i].sequence->state == SequenceState::kEnded) return;
    stops_[i] = at(id).checkers[static_cast<std::size_t>(index)].push(tokens[i].id, released_[i]);
    verdicts_[i] = stops_[i].finish;
  });
}

void Delivery::deliver(const Events& events, std::span<SampledToken> tokens, std::span<SampledToken> scores) {
  for (const RequestStarted& started : events.started) start(at(started.request), started.cached_tokens);
  for (const PromptScored& scored : events.scored) {
    Live& live = at(scored.request);
    for (SampledToken& score :
         scores.subspan(static_cast<std::size_t>(scored.first), static_cast<std::size_t>(scored.count))) {
      live.stream->push_prompt(std::move(score));
    }
    touch(live);
  }
  for (const SequenceEvent& event : events.sequences) {
    Live& live = at(event.request);
    if (event.sample >= 0) {
      const auto i = static_cast<std::size_t>(event.sample);
      live.stream->push(event.index, std::move(tokens[i]), released_[i]);
      ++live.num_tokens;
      touch(live);
    }
    if (event.finish != FinishReason::kNone) finish(live, event);
  }
  for (const RequestSummary& summary : events.ended) end(summary);
  for (Live* live : touched_) {
    live->touched = false;
    live->stream->notify();
  }
  touched_.clear();
  for (const auto& stream : ended_) stream->notify();
  ended_.clear();
}

void Delivery::start(Live& live, std::int64_t cached_tokens) {
  live.started = true;
  live.stream->started(live.num_prompt_tokens, cached_tokens);
  if (live.first_prompt_token) live.stream->push_prompt({*live.first_prompt_token, 0, {}});
  for (const auto& [index, reason] : std::exchange(live.early_ends, {})) {
    live.stream->finish(index, reason, -1, -1, {});
  }
  touch(live);
}

void Delivery::finish(Live& live, const SequenceEvent& event) {
  if (event.finish == FinishReason::kDeadline && live.num_tokens == 0) {
    // Nothing was made in time: that is an error and no answer.
    if (!live.error) live.error = Error{ErrorCode::kDeadlineExceeded, "the time limit passed before the first token"};
    return;
  }
  if (!live.started) {
    live.early_ends.emplace_back(event.index, event.finish);
    return;
  }
  StopVerdict stop;
  if (event.sample >= 0) stop = stops_[static_cast<std::size_t>(event.sample)];
  std::string rest;
  if (stop.finish == FinishReason::kNone) live.checkers[static_cast<std::size_t>(event.index)].finish(rest);
  live.stream->finish(event.index, event.finish, stop.stop_token, stop.stop_index, rest);
  touch(live);
}

void Delivery::end(const RequestSummary& summary) {
  const auto found = live_.find(summary.request);
  Live& live = *found->second;
  if (!live.early_ends.empty()) start(live, summary.cached_tokens);
  live.stream->end(stream_end(summary, std::move(live.error)));
  if (live.touched) std::erase(touched_, &live);
  ended_.push_back(std::move(live.stream));
  live_.erase(found);
}

void Delivery::touch(Live& live) {
  if (!std::exchange(live.touched, true)) touched_.push_back(&live);
}

}  // namespace folio
