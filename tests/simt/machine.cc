#include "tests/simt/machine.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <utility>

#include "tests/simt/memory.h"
#include "tests/simt/symbols.h"

// Set for the thread that runs.
uint3 threadIdx{};
uint3 blockIdx{};
dim3 blockDim{};
dim3 gridDim{};

namespace folio::simt {

Machine the_machine;

namespace {
bool same_text(const char* a, const char* b) {
  return a == b || std::strcmp(a, b) == 0;
}
}  // namespace

bool Place::same_as(const Place& other) const {
  return where.line() == other.where.line() && where.column() == other.where.column() &&
         same_text(where.file_name(), other.where.file_name()) && same_text(operation, other.operation);
}

std::string Place::text() const {
  return std::string(operation) + " at " + from_source_folder(where.file_name()) + ":" + std::to_string(where.line());
}

// ---- a launch ----

void Machine::set_order(Order order, std::uint64_t seed) {
  order_ = order;
  random_.seed(seed);
}

std::vector<std::uint32_t> Machine::cta_order(std::uint32_t count) {
  std::vector<std::uint32_t> order(count);
  for (std::uint32_t i = 0; i < count; ++i) order[i] = order_ == Order::kReverse ? count - 1 - i : i;
  if (order_ == Order::kRandom) std::shuffle(order.begin(), order.end(), random_);
  return order;
}

void Machine::launch(const char* name, dim3 grid, int threads, std::size_t shared_bytes,
                     const std::function<void()>& body) {
  const auto refuse = [&](const std::string& why) { throw SimtError(std::string(name) + ": " + why); };
  if (running_ != nullptr) {
    const RunnerCode runner;
    refuse("started inside a kernel");
  }
  if (threads <= 0 || threads % kLanes != 0 || threads > static_cast<int>(FiberStacks::kMaxFibers)) {
    refuse(std::to_string(threads) + " threads in a CTA: not a multiple of 32 up to 1024");
  }
  if (grid.y > 65535 || grid.z > 65535) refuse("more than 65535 CTAs in y or z");
  if (shared_bytes > memory::kMaxSharedBytes) {
    refuse(std::to_string(shared_bytes) + " bytes of shared memory: more than a CTA has on sm_80");
  }
  threads_.resize(static_cast<std::size_t>(threads));
  body_ = &body;
  shared_bytes_ = shared_bytes;
  main_ = main_fiber();
  gridDim = grid;
  blockDim = dim3(static_cast<unsigned>(threads));
  memory::begin_launch(last_cta_ + 1);
  for (const std::uint32_t cta : cta_order(grid.x * grid.y * grid.z)) {
    blockIdx = {cta % grid.x, cta / grid.x % grid.y, cta / grid.x / grid.y};
    run_cta();
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
    if (stopped_ != nullptr) failure_ = std::exchange(stopped_, nullptr)();
    if (!failure_.empty()) {
      const std::string cta_text = "CTA (" + std::to_string(blockIdx.x) + ", " + std::to_string(blockIdx.y) + ", " +
                                   std::to_string(blockIdx.z) + "): ";
      refuse(cta_text + std::exchange(failure_, {}));
    }
  }
}

void Machine::draw_orders() {
  for (int i = 0; i < kLanes; ++i) lane_order_[static_cast<std::size_t>(i)] = order_ == Order::kReverse ? 31 - i : i;
  const int num_warps = static_cast<int>(threads_.size()) / kLanes;
  warp_order_.resize(static_cast<std::size_t>(num_warps));
  for (int i = 0; i < num_warps; ++i) {
    warp_order_[static_cast<std::size_t>(i)] = order_ == Order::kReverse ? num_warps - 1 - i : i;
  }
  if (order_ == Order::kRandom) {
    std::shuffle(lane_order_.begin(), lane_order_.end(), random_);
    std::shuffle(warp_order_.begin(), warp_order_.end(), random_);
  }
  for (int i = 0; i < kLanes; ++i) position_of_lane_[static_cast<std::size_t>(lane_at(i))] = static_cast<unsigned>(i);
}

void Machine::run_cta() {
  draw_orders();
  warps_.assign(threads_.size() / kLanes, Warp{});
  for (Warp& warp : warps_) warp.ready = 0xffffffffU;
  current_ = 0;
  at_barrier_ = num_ended_ = 0;
  now_ = {++last_cta_, 0, 0, 0};
  start_threads();
  Thread* first = next_thread();
  resume(*first);
  switch_fiber(main_, first->fiber, false);
  running_ = nullptr;
  for (std::size_t warp = 0; warp < warps_.size(); ++warp) memory::end_of_stretch(static_cast<int>(warp));
  memory::end_cta();
  if (num_ended_ == static_cast<int>(threads_.size())) return;
  for (Thread& thread : threads_) abandon(thread.fiber);
  if (failure_.empty() && stopped_ == nullptr && !thrown_) failure_ = deadlock();
}

void Machine::start_threads() {
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    Thread& thread = threads_[i];
    stacks_.assign(thread.fiber, i);
    prepare(thread.fiber, thread_main);
    thread.index = {static_cast<unsigned>(i), 0, 0};
    thread.state = Thread::State::kReady;
    thread.pieces_taken = 0;
    thread.copies.clear();
    thread.group_sizes.clear();
  }
}

void Machine::thread_main() {
  Machine& m = machine();
  try {
    kernel_code_runs = true;
    (*m.body_)();
  } catch (const SimtError& error) {
    kernel_code_runs = false;
    m.failure_ = error.what();
  } catch (...) {
    kernel_code_runs = false;
    m.thrown_ = std::current_exception();
  }
  kernel_code_runs = false;
  Thread& self = *m.running_;
  if (m.thrown_ || !m.failure_.empty()) switch_fiber(self.fiber, m.main_, true);
  self.state = Thread::State::kEnded;
  ++m.num_ended_;
  m.go_on(true);
}

// ---- who runs ----

int Machine::next_warp() {
  const int count = static_cast<int>(warps_.size());
  const int from = yield_warp_ ? static_cast<int>(random_() % static_cast<std::uint64_t>(count)) : current_;
  yield_warp_ = false;
  for (int i = 0; i < count; ++i) {
    const int place = from + i < count ? from + i : from + i - count;
    if (warps_[static_cast<std::size_t>(warp_order_[static_cast<std::size_t>(place)])].ready != 0) return place;
  }
  return -1;
}

Thread* Machine::next_thread() {
  const int place = next_warp();
  if (place < 0) return nullptr;
  current_ = place;
  const int warp = warp_order_[static_cast<std::size_t>(place)];
  std::uint32_t& ready = warps_[static_cast<std::size_t>(warp)].ready;
  const int position = std::countr_zero(ready);
  ready &= ready - 1;
  return &threads_[static_cast<std::size_t>(warp * kLanes + lane_at(position))];
}

void Machine::resume(Thread& thread) {
  running_ = &thread;
  thread.state = Thread::State::kReady;
  threadIdx = thread.index;
  now_.thread = thread.index.x;
  now_.warp_barriers = warps_[thread.index.x / kLanes].barriers;
}

void Machine::go_on(bool ended) {
  Thread& self = *running_;
  Thread* next = next_thread();
  if (next == &self) {
    resume(self);
    return;
  }
  if (next != nullptr) resume(*next);
  switch_fiber(self.fiber, next != nullptr ? next->fiber : main_, ended);
}

void Machine::suspend(Thread::State state, const Place& place) {
  running_->state = state;
  running_->place = place;
  go_on(false);
}

// ---- barriers ----

void Machine::release_warp(int warp) {
  Warp& mine = warps_[static_cast<std::size_t>(warp)];
  mine.arrived = 0;
  mine.ready = 0xffffffffU;
  mine.turn ^= 1;
  yield_warp_ = order_ == Order::kRandom && random_() % 4 == 0;
  memory::end_of_stretch(warp);
}

const Machine::Inputs& Machine::meet_warp(const Place& place, std::uint64_t input, void (*combine)(const Inputs&)) {
  const auto warp_index = static_cast<int>(threadIdx.x) / kLanes;
  const std::uint32_t lane = threadIdx.x % kLanes;
  Warp& warp = warps_[static_cast<std::size_t>(warp_index)];
  if (warp.arrived == 0) {
    warp.place = place;
  } else if (!place.same_as(warp.place)) {
    throw SimtError("divergent warp operation: " + thread_name(threadIdx.x) + " is in " + place.text() +
                    ", another lane of its warp in " + warp.place.text());
  }
  Inputs& inputs = warp.inputs[static_cast<std::size_t>(warp.turn)];
  inputs[lane] = input;
  if (++warp.arrived == kLanes) {
    if (combine != nullptr) combine(inputs);
    release_warp(warp_index);
  }
  suspend(Thread::State::kInWarpOperation, place);
  return inputs;
}

void Machine::sync_warp(const Place& place) {
  Warp& warp = warps_[threadIdx.x / kLanes];
  if (warp.arrived == kLanes - 1) ++warp.barriers;
  meet_warp(place, 0);
}

void Machine::sync_cta(const Place& place) {
  if (at_barrier_ == 0) {
    barrier_ = place;
  } else if (!place.same_as(barrier_)) {
    throw SimtError("divergent barrier: " + thread_name(threadIdx.x) + " is at " + place.text() +
                    ", another thread of its CTA at " + barrier_.text());
  }
  if (++at_barrier_ == static_cast<int>(threads_.size())) {
    at_barrier_ = 0;
    ++now_.cta_barriers;
    for (Warp& warp : warps_) warp.ready = 0xffffffffU;
    current_ = 0;
    for (std::size_t warp = 0; warp < warps_.size(); ++warp) memory::end_of_stretch(static_cast<int>(warp));
  }
  suspend(Thread::State::kAtCtaBarrier, place);
}

// ---- faults ----

void Machine::stop(std::string (*text)()) {
  kernel_code_runs = false;
  stopped_ = text;
  switch_fiber(running_->fiber, main_, true);
  __builtin_trap();
}

std::string Machine::thread_name(std::uint32_t thread) const {
  return "thread " + std::to_string(thread) + " (warp " + std::to_string(thread / kLanes) + ", lane " +
         std::to_string(thread % kLanes) + ")";
}

// "no thread can go on: 31 in shuffle at x.cu:12, from thread 0 (warp 0, lane 0); 1 ended, from thread 31 (...)"
std::string Machine::deadlock() const {
  std::map<std::string, std::pair<int, std::uint32_t>> groups;  // what -> how many, the first of them
  for (const Thread& thread : threads_) {
    const std::string what = thread.state == Thread::State::kEnded ? "ended" : "in " + thread.place.text();
    auto& [count, first] = groups[what];
    if (count++ == 0) first = thread.index.x;
  }
  std::string text = "no thread can go on:";
  for (const auto& [what, group] : groups) {
    text += (text.back() == ':' ? " " : "; ") + std::to_string(group.first) + " " + what + ", the first is " +
            thread_name(group.second);
  }
  return text;
}

// ---- runner.h ----

void run(const char* name, dim3 grid, int threads, std::size_t shared_bytes, const std::function<void()>& body) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  machine().launch(name, grid, threads, shared_bytes, body);
}

void set_order(Order order, std::uint64_t seed) {
  machine().set_order(order, seed);
}

void in_every_order(const std::function<void(Order)>& test) {
  for (const Order order : {Order::kReverse, Order::kRandom, Order::kForward}) {
    set_order(order);
    test(order);
  }
}

}  // namespace folio::simt
