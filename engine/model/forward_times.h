// Where a forward pass spends its time, by kind of work. Always on: one clock read after each of the backend's
// operations, no allocation and no string. Engine thread only.
#pragma once
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>

namespace folio {

enum class ForwardPhase : std::uint8_t {
  kPlan,  // block copies, angles, the attention's work plan
  kEmbed,
  kQkv,  // with the norm before it and the quantisation of its rows, as the other matmuls
  kRopeWriteKv,
  kAttention,
  kAttentionOut,
  kGateUp,  // and the activation
  kDown,
  kLogits,
  kCount
};
inline constexpr std::size_t kNumForwardPhases = static_cast<std::size_t>(ForwardPhase::kCount);
inline constexpr std::array<const char*, kNumForwardPhases> kForwardPhaseNames = {
    "plan", "embed", "qkv", "rope_write_kv", "attention", "attention_out", "gate_up", "down", "logits"};

// Of one step.
struct ForwardTimes {
  std::array<std::int64_t, kNumForwardPhases> ns{};
  std::int64_t sample_ns = 0;  // scores and samples, with the logits of what is scored: no part of the forward pass

  std::int64_t pass_ns() const { return std::accumulate(ns.begin(), ns.end(), std::int64_t{0}); }
};

class ForwardTimer {
 public:
  void start() {
    times_ = {};
    last_ = Clock::now();
  }
  // What passed since the last call belongs to this phase.
  void lap(ForwardPhase phase) { times_.ns[static_cast<std::size_t>(phase)] += passed(); }
  void lap_sample() { times_.sample_ns += passed(); }
  const ForwardTimes& times() const { return times_; }

 private:
  using Clock = std::chrono::steady_clock;
  std::int64_t passed() {
    const Clock::time_point now = Clock::now();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now - std::exchange(last_, now)).count();
  }
  ForwardTimes times_;
  Clock::time_point last_;
};

}  // namespace folio
