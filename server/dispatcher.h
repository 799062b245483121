// The one thread that carries what the engine made to the fronts. The engine thread only leaves a note here; rendering
// and the start of a write happen on this thread, one receiver at a time, so a receiver's state needs no lock.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

namespace folio {

class Receiver {
 public:
  virtual ~Receiver() = default;
  // Dispatcher thread: there may be something to do. Must not block.
  virtual void deliver() = 0;

 private:
  friend class Dispatcher;
  std::atomic<bool> noted_{false};  // in the queue: it holds each receiver at most once
};

class Dispatcher {
 public:
  Dispatcher();
  ~Dispatcher();  // delivers what is noted, then joins
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  // Any thread, returns at once. The receiver's deliver() begins after this call began; several notes may become one.
  void note(std::shared_ptr<Receiver> receiver);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Receiver>> queue_;  // at most one entry per live receiver
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace folio
