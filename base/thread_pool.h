// The workers of a step: the calling thread is worker 0, num_threads - 1 more wait beside it.
//
// parallel_for hands out contiguous pieces of [0, n) through one atomic counter; which worker does which piece is not
// fixed, so a piece's result must not depend on it (numerics contract). Between calls workers spin shortly, then park:
// an idle server uses no CPU. One thread at a time may call it; calls do not nest.
//
// A call waits only for the workers that took part: one that the system has not woken, or has taken off its core before
// it began, finds the job closed and delays nobody.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace folio {

class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);  // >= 1
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // fn(begin, end, worker) over pieces of at most `grain` (>= 1) items; returns when all are done, and what the pieces
  // wrote is then visible to the caller. With one thread, or n <= grain, all runs on the calling thread. fn must not
  // throw: an exception would have to leave a worker, so it ends the process (std::terminate).
  template <class Fn>
  void parallel_for(std::int64_t n, std::int64_t grain, Fn&& fn) {
    using Plain = std::remove_reference_t<Fn>;
    run(n, grain, const_cast<void*>(static_cast<const void*>(&fn)),
        [](void* context, std::int64_t begin, std::int64_t end, int worker) noexcept {
          (*static_cast<Plain*>(context))(begin, end, worker);
        });
  }

 private:
  using Call = void (*)(void* context, std::int64_t begin, std::int64_t end, int worker) noexcept;
  // `inside_` holds how many workers are in the job, and this bit while there is none to enter.
  static constexpr std::uint32_t kClosed = 1U << 31;

  void run(std::int64_t n, std::int64_t grain, void* context, Call call);
  void worker_main(int worker);
  bool enter();
  void leave();
  void work(int worker);
  void wait_until_left();

  const int num_threads_;
  // The job: written by the caller while `inside_` is kClosed (nobody in), read by workers after they entered.
  Call call_ = nullptr;
  void* context_ = nullptr;
  std::int64_t size_ = 0;
  std::int64_t grain_ = 1;
  std::int64_t num_pieces_ = 0;
  alignas(64) std::atomic<std::int64_t> next_piece_{0};
  alignas(64) std::atomic<std::uint32_t> epoch_{0};  // raised once for each job: what parked workers wait on
  alignas(64) std::atomic<std::uint32_t> inside_{kClosed};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

// Cores this process may use: the smaller of its affinity mask and the cgroup CPU quota (rounded up), at least 1.
int available_cores();

}  // namespace folio
