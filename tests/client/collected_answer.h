// What a stream's listener heard.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "client/load_test/transport.h"

namespace folio::test {

class CollectedAnswer final : public client::StreamListener {
 public:
  void on_arrival(const client::Arrival& arrival) override;
  void on_end(const client::StreamEnd& end) override;

  const client::StreamEnd& wait();            // for the end; throws std::runtime_error after ten seconds
  void wait_for_arrivals(std::size_t count);  // likewise
  // After wait().
  const std::vector<client::Arrival>& arrivals() const { return arrivals_; }
  std::int64_t text_bytes() const;
  std::int64_t tokens() const;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<client::Arrival> arrivals_;
  client::StreamEnd end_;
  bool ended_ = false;
};

// Starts one and waits for its end.
std::unique_ptr<CollectedAnswer> collect(client::Transport& transport, const client::RequestSpec& spec);

}  // namespace folio::test
