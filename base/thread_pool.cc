#include "base/thread_pool.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <system_error>

#include "base/check.h"
#include "base/thread_name.h"

namespace folio {
namespace {

// A pause takes some 10 to 50 ns. Longer than the serial work between two kernels of a step: to park and to wake costs
// more than most pieces of a decode.
constexpr int kSpinPauses = 2048;

// True as soon as `ready` is; false after the bounded spin.
template <class Ready>
bool spin_until(Ready ready) {
  for (int i = 0; i < kSpinPauses; ++i) {
    if (ready()) return true;
    __builtin_ia32_pause();
  }
  return false;
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads) {
  FOLIO_CHECK(num_threads >= 1, "a pool has at least the calling thread");
  shares_ = std::make_unique<Share[]>(static_cast<std::size_t>(num_threads));
  workers_.reserve(static_cast<std::size_t>(num_threads - 1));
  try {
    for (int worker = 1; worker < num_threads; ++worker) workers_.emplace_back([this, worker] { worker_main(worker); });
  } catch (const std::system_error& error) {
    end();
    throw std::runtime_error("only " + std::to_string(workers_.size() + 1) + " of " + std::to_string(num_threads) +
                             " threads could be started: " + error.what());
  }
}

ThreadPool::~ThreadPool() {
  end();
}

void ThreadPool::end() {
  stop_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& thread : workers_) thread.join();
}

void ThreadPool::run(std::int64_t n, std::int64_t grain, void* context, Call call) {
  FOLIO_CHECK(grain >= 1, "a piece has at least one item");
  if (n <= 0) return;
  call_ = call;
  context_ = context;
  size_ = n;
  grain_ = grain;
  const std::int64_t pieces = (n - 1) / grain + 1;
  if (workers_.empty() || pieces == 1) {
    for (std::int64_t begin = 0; begin < n; begin += grain) call(context, begin, begin + std::min(grain, n - begin), 0);
    return;
  }
  for (std::int64_t w = 0; w < num_threads_; ++w) {
    Share& share = shares_[static_cast<std::size_t>(w)];
    share.next.store(first_piece(w, pieces), std::memory_order_relaxed);
    share.end = first_piece(w + 1, pieces);
  }
  inside_.store(0, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  work(0);
  wait_until_left();
}

void ThreadPool::wait_until_left() {
  std::uint32_t seen = inside_.fetch_or(kClosed, std::memory_order_acq_rel) | kClosed;
  if (seen == kClosed) return;
  const auto all_left = [this, &seen] {
    seen = inside_.load(std::memory_order_acquire);
    return seen == kClosed;
  };
  if (spin_until(all_left)) return;
  while (!all_left()) inside_.wait(seen, std::memory_order_acquire);
}

void ThreadPool::worker_main(int worker) {
  name_thread("folio-worker");
  // Starting from 0, not from the current epoch, so that a job given before this thread ran is not missed.
  std::uint32_t seen = 0;
  for (;;) {
    const auto raised = [this, seen] { return epoch_.load(std::memory_order_acquire) != seen; };
    if (!spin_until(raised)) epoch_.wait(seen, std::memory_order_acquire);
    seen = epoch_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    if (enter()) {
      work(worker);
      leave();
    }
  }
}

// A worker that is late may enter the job after the one that woke it: it then finds that job's fields, and the next
// epoch brings it here once more, to pieces that are taken or a job that is closed.
bool ThreadPool::enter() {
  std::uint32_t state = inside_.load(std::memory_order_relaxed);
  do {
    if ((state & kClosed) != 0) return false;
  } while (!inside_.compare_exchange_weak(state, state + 1, std::memory_order_acquire, std::memory_order_relaxed));
  return true;
}

void ThreadPool::leave() {
  if (inside_.fetch_sub(1, std::memory_order_release) == (kClosed | 1U)) inside_.notify_one();
}

// The own share first, then what is left of the others'.
void ThreadPool::work(int worker) {
  for (int i = 0; i < num_threads_; ++i) {
    Share& share = shares_[static_cast<std::size_t>((worker + i) % num_threads_)];
    while (share.next.load(std::memory_order_relaxed) < share.end) {
      const std::int64_t piece = share.next.fetch_add(1, std::memory_order_relaxed);
      if (piece >= share.end) break;
      const std::int64_t begin = piece * grain_;
      call_(context_, begin, begin + std::min(grain_, size_ - begin), worker);
    }
  }
}

}  // namespace folio
