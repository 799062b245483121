// The line that a run shows on a terminal while it goes on.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "client/load_test/record.h"

namespace folio::client {

// "12.0 s  37/64 requests  3.1/s  in flight 8  0 failed  TTFT p50 41 ms"
struct ProgressState {
  double elapsed_s = 0;
  std::int64_t num_sent = 0, num_ended = 0, num_failed = 0;  // failed: empty too
  std::optional<std::int64_t> num_requests;
  double ends_per_second = 0;         // over the last seconds
  std::optional<double> ttft_p50_ms;  // of the last requests that ended well
};
std::string progress_line(const ProgressState& state);

// Counts what the run tells it and writes the line to the error output twice a second, in a thread of its own, if that
// is a terminal. The line is cleared at the end.
class Progress {
 public:
  explicit Progress(std::optional<std::int64_t> num_requests, std::string title = "");
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Any thread.
  void sent();
  void ended(const RequestRecord& record);
  ProgressState state() const;

 private:
  void show();

  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const std::string title_;
  mutable std::mutex mutex_;
  std::condition_variable quit_changed_;
  bool quit_ = false;
  ProgressState counts_;
  std::deque<double> ends_s_;    // of the last seconds
  std::deque<double> ttfts_ms_;  // of the last requests
  std::thread thread_;
};

}  // namespace folio::client
