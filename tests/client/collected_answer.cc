#include "tests/client/collected_answer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>

namespace folio::test {

using namespace std::chrono_literals;

void CollectedAnswer::on_arrival(const client::Arrival& arrival) {
  const std::lock_guard lock(mutex_);
  EXPECT_FALSE(ended_);
  EXPECT_GE(arrival.at, arrivals_.empty() ? client::SteadyTime() : arrivals_.back().at);
  arrivals_.push_back(arrival);
  changed_.notify_all();
}

void CollectedAnswer::on_end(const client::StreamEnd& end) {
  const std::lock_guard lock(mutex_);
  EXPECT_FALSE(ended_);
  EXPECT_GE(end.at, arrivals_.empty() ? client::SteadyTime() : arrivals_.back().at);
  EXPECT_LE(end.at, std::chrono::steady_clock::now());
  end_ = end;
  ended_ = true;
  changed_.notify_all();
}

const client::StreamEnd& CollectedAnswer::wait() {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, 10s, [this] { return ended_; })) throw std::runtime_error("the stream does not end");
  return end_;
}

void CollectedAnswer::wait_for_arrivals(std::size_t count) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, 10s, [&] { return arrivals_.size() >= count; })) {
    throw std::runtime_error("not so many arrivals");
  }
}

std::int64_t CollectedAnswer::text_bytes() const {
  std::int64_t sum = 0;
  for (const client::Arrival& arrival : arrivals_) sum += arrival.text_bytes;
  return sum;
}

std::int64_t CollectedAnswer::tokens() const {
  std::int64_t sum = 0;
  for (const client::Arrival& arrival : arrivals_) sum += arrival.tokens;
  return sum;
}

std::unique_ptr<CollectedAnswer> collect(client::Transport& transport, const client::RequestSpec& spec) {
  auto answer = std::make_unique<CollectedAnswer>();
  const auto call = transport.start(spec, *answer);
  answer->wait();
  return answer;
}

}  // namespace folio::test
