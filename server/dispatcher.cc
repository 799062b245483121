#include "server/dispatcher.h"

#include <utility>

#include "base/thread_name.h"

namespace folio {

Dispatcher::Dispatcher() : thread_([this] { work(); }) {}

Dispatcher::~Dispatcher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Dispatcher::note(std::shared_ptr<Receiver> receiver) {
  if (receiver->noted_.exchange(true)) return;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(receiver));
  }
  wake_.notify_one();
}

void Dispatcher::work() {
  name_thread("folio-dispatch");
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::shared_ptr<Receiver> receiver = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    // Cleared before deliver(): news that comes during it is noted again.
    receiver->noted_.store(false);
    receiver->deliver();
    receiver.reset();  // the last reference may be this one: its destructor runs without the lock
    lock.lock();
  }
}

}  // namespace folio
