// SIGTERM and SIGINT without handlers: blocked everywhere, read by one thread. The first asks to stop, the second ends
// the process at once. SIGHUP is heard too when somebody wants it; else it does what it does to any program.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace folio {

class StopSignal {
 public:
  // Blocks the signals in the calling thread and in those that it starts later: construct it first in main.
  explicit StopSignal(bool takes_hangup = false);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // What a SIGHUP does from now on, on the signals' thread; nothing: it is passed over. REQUIRES takes_hangup. What was
  // set before does not run any more once this returned.
  void on_hangup(std::function<void()> action);
  void request();  // any thread: as the first signal
  bool requested() const;
  // Until stop was requested or `other` holds; `other` is asked again after each wake().
  void wait(const std::function<bool()>& other = [] { return false; });
  void wake();

 private:
  void watch();
  void hang_up();

  int signal_fd_ = -1;
  int quit_fd_ = -1;  // eventfd: the destructor was called
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool requested_ = false;
  std::mutex hangup_mutex_;
  std::function<void()> hangup_;
  std::thread thread_;
};

}  // namespace folio
