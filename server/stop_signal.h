// SIGTERM and SIGINT without handlers: blocked everywhere, read by one thread. The first asks to stop, the second ends
// the process at once.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace folio {

class StopSignal {
 public:
  // Blocks both signals in the calling thread and in those that it starts later: construct it first in main.
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  void request();  // any thread: as the first signal
  bool requested() const;
  // Until stop was requested or `other` holds; `other` is asked again after each wake().
  void wait(const std::function<bool()>& other = [] { return false; });
  void wake();

 private:
  void watch();

  int signal_fd_ = -1;
  int quit_fd_ = -1;  // eventfd: the destructor was called
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool requested_ = false;
  std::thread thread_;
};

}  // namespace folio
