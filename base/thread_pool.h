// The workers of a step: the calling thread is worker 0, num_threads - 1 more wait beside it.
//
// parallel_for cuts [0, n) into pieces and gives each worker a share of them that lie side by side: memory that is read
// piece by piece stays one stream for each core. Who is done early helps the others, so which worker does which piece
// is not fixed, and a piece's result must not depend on it (numerics contract). Between calls workers spin shortly,
// then park: an idle server uses no CPU. One thread at a time may call it; calls do not nest.
//
// A call waits only for the workers that took part: one that the system has not woken, or has taken off its core before
// it began, finds the job closed and delays nobody.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace folio {

class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);  // >= 1; throws std::runtime_error when the system gives fewer
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }
  // The share of `worker` in a call of so many pieces is [first_piece(worker), first_piece(worker + 1)).
  std::int64_t first_piece(std::int64_t worker, std::int64_t pieces) const {
    const std::int64_t longer = pieces % num_threads_;
    return worker * (pieces / num_threads_) + (worker < longer ? worker : longer);
  }
  std::int64_t share_of(std::int64_t piece, std::int64_t pieces) const {
    const std::int64_t each = pieces / num_threads_;
    const std::int64_t longer = pieces % num_threads_;
    if (piece < longer * (each + 1)) return piece / (each + 1);
    return longer + (piece - longer * (each + 1)) / each;
  }

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

  void end();  // of the workers
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
  struct alignas(64) Share {
    std::atomic<std::int64_t> next{0};  // piece
    std::int64_t end = 0;
  };
  std::unique_ptr<Share[]> shares_;                  // one a worker
  alignas(64) std::atomic<std::uint32_t> epoch_{0};  // raised once for each job: what parked workers wait on
  alignas(64) std::atomic<std::uint32_t> inside_{kClosed};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

// Cores this process may use: the smaller of its affinity mask and the cgroup CPU quota (rounded up), at least 1.
int available_cores();

}  // namespace folio
