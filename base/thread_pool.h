// The workers of a step: the calling thread is worker 0, num_threads - 1 more wait beside it.
//
// parallel_for hands out contiguous pieces of [0, n) through one atomic counter; which worker does which piece is not
// fixed, so a piece's result must not depend on it (numerics contract). Between calls workers spin shortly, then park:
// an idle server uses no CPU. One thread at a time may call it; calls do not nest.
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
  explicit ThreadPool(int num_threads);  // >= 1
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // fn(begin, end, worker) over pieces of at most `grain` items; returns when all are done.
  template <class Fn>
  void parallel_for(std::int64_t n, std::int64_t grain, Fn&& fn) {
    using Plain = std::remove_reference_t<Fn>;
    run(n, grain, const_cast<void*>(static_cast<const void*>(&fn)),
        [](void* context, std::int64_t begin, std::int64_t end, int worker) {
          (*static_cast<Plain*>(context))(begin, end, worker);
        });
  }

 private:
  using Call = void (*)(void* context, std::int64_t begin, std::int64_t end, int worker);
  void run(std::int64_t n, std::int64_t grain, void* context, Call call);
  void worker_main(int worker);
  void work(int worker);

  const int num_threads_;
  // The job: written by the caller before `epoch_` is raised, read by workers after they saw it.
  Call call_ = nullptr;
  void* context_ = nullptr;
  std::int64_t size_ = 0;
  std::int64_t grain_ = 1;
  alignas(64) std::atomic<std::int64_t> next_{0};
  alignas(64) std::atomic<std::uint32_t> epoch_{0};
  alignas(64) std::atomic<std::int32_t> running_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

// Cores this process may use: the smaller of its affinity mask and the cgroup CPU quota, at least 1.
int available_cores();

}  // namespace folio
