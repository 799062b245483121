// A histogram with fixed bounds, as Prometheus reads it. One thread counts and never waits; any thread reads.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace folio {

class Histogram {
 public:
  // `bounds` ascend and stand as long as the histogram. Bucket i counts what is at most bounds[i] and above the bound
  // before; a last one the rest.
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds), counts_(bounds.size() + 1) {}

  void observe(double value) {
    const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
    add(counts_[static_cast<std::size_t>(bucket)], std::uint64_t{1});
    add(sum_, value);
  }

  std::span<const double> bounds() const { return bounds_; }
  struct Counts {
    std::vector<std::uint64_t> buckets;  // one more than there are bounds
    double sum = 0;                      // may be one observation ahead of the buckets or behind
  };
  Counts read() const {
    Counts out;
    out.buckets.reserve(counts_.size());
    for (const auto& count : counts_) out.buckets.push_back(count.load(std::memory_order_relaxed));
    out.sum = sum_.load(std::memory_order_relaxed);
    return out;
  }

 private:
  // There is one writer: a load and a store, no locked instruction.
  template <class T>
  static void add(std::atomic<T>& to, T value) {
    to.store(to.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
  }

  const std::span<const double> bounds_;
  std::vector<std::atomic<std::uint64_t>> counts_;
  std::atomic<double> sum_ = 0;
};

}  // namespace folio
