#include "client/load_test/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <utility>

#include "client/statistics.h"
#include "client/text.h"

namespace folio::client {
namespace {

using namespace std::chrono_literals;

constexpr auto kInterval = 500ms;
constexpr double kRateSeconds = 5;  // the rate is over the last ones
constexpr std::size_t kMostTtfts = 200;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Of a terminal, which may change; one that does not say has them all.
std::size_t columns(int terminal) {
  winsize size{};
  const bool is_known = ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : std::numeric_limits<std::size_t>::max();
}

}  // namespace

std::string progress_line(const ProgressState& state) {
  char line[200];
  const std::string of = state.num_requests ? "/" + std::to_string(*state.num_requests) : "";
  int size =
      std::snprintf(line, sizeof line, "%.1f s  %lld%s requests  %.1f/s  in flight %lld  %lld failed", state.elapsed_s,
                    static_cast<long long>(state.num_ended), of.c_str(), state.ends_per_second,
                    static_cast<long long>(state.num_sent - state.num_ended), static_cast<long long>(state.num_failed));
  if (state.ttft_p50_ms) {
    std::snprintf(line + size, sizeof line - static_cast<std::size_t>(size), "  TTFT p50 %.0f ms", *state.ttft_p50_ms);
  }
  return line;
}

Progress::Progress(std::optional<std::int64_t> num_requests, std::string title) : title_(std::move(title)) {
  counts_.num_requests = num_requests;
  if (isatty(STDERR_FILENO) != 0) thread_ = std::thread([this] { show(); });
}

Progress::~Progress() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  quit_changed_.notify_one();
  thread_.join();
  std::fprintf(stderr, "\r\033[K");
}

void Progress::sent() {
  const std::lock_guard lock(mutex_);
  ++counts_.num_sent;
}

void Progress::ended(const RequestRecord& record) {
  const std::lock_guard lock(mutex_);
  ++counts_.num_ended;
  if (record.outcome == Outcome::kFailed || record.outcome == Outcome::kEmpty) ++counts_.num_failed;
  const double at_s = seconds_since(start_);
  ends_s_.push_back(at_s);
  while (ends_s_.front() < at_s - kRateSeconds) ends_s_.pop_front();
  if (record.outcome != Outcome::kOk) return;
  ttfts_ms_.push_back(record.ttft_ms());
  if (ttfts_ms_.size() > kMostTtfts) ttfts_ms_.pop_front();
}

ProgressState Progress::state() const {
  const std::lock_guard lock(mutex_);
  ProgressState out = counts_;
  out.elapsed_s = seconds_since(start_);
  const auto first = std::lower_bound(ends_s_.begin(), ends_s_.end(), out.elapsed_s - kRateSeconds);
  const double over_s = std::min(out.elapsed_s, kRateSeconds);
  if (over_s > 0) out.ends_per_second = static_cast<double>(ends_s_.end() - first) / over_s;
  Samples ttfts;
  for (const double ttft : ttfts_ms_) ttfts.add(ttft);
  if (ttfts.count() > 0) out.ttft_p50_ms = ttfts.percentile(50);
  return out;
}

void Progress::show() {
  std::unique_lock lock(mutex_);
  while (!quit_changed_.wait_for(lock, kInterval, [this] { return quit_; })) {
    lock.unlock();
    // The last column stays free: behind a full line \033[K would clear its last character.
    const std::string line = cut_to_width(title_ + progress_line(state()), columns(STDERR_FILENO) - 1);
    std::fprintf(stderr, "\r%s\033[K", line.c_str());
    lock.lock();
  }
}

}  // namespace folio::client
