#include "scheduler/fair_queue.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace folio {
namespace {

constexpr std::size_t kMaxIdleTenants = 1024;
constexpr std::int64_t kOldest = std::int64_t{1} << 62;  // level of the first arrival of all, once it aged to the end

TimePoint next_aging(const Sequence& sequence) {
  return sequence.waiting_since + (sequence.num_agings + 1) * FairQueue::kAgingPeriod;
}

}  // namespace

// ---- tenants

Tenant& FairQueue::join(const std::string& name) {
  auto& slot = tenants_[name];
  if (!slot) {
    const auto weight = weights_.find(name);
    slot = std::make_unique<Tenant>(Tenant{name, weight == weights_.end() ? 1.0 : weight->second, 0, 0, {}});
  }
  if (slot->num_requests == 0) {
    if (num_active_ > 0) slot->counter = std::max(slot->counter, least_counter());
    ++num_active_;
  }
  ++slot->num_requests;
  return *slot;
}

void FairQueue::leave(Tenant& tenant) {
  FOLIO_CHECK(tenant.num_requests > 0, "a tenant leaves as often as it joined");
  if (--tenant.num_requests > 0) return;
  if (--num_active_ == 0) {
    tenants_.clear();
    return;
  }
  if (tenants_.size() - num_active_ > kMaxIdleTenants) forget_idle();
}

double FairQueue::least_counter() const {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [name, tenant] : tenants_) {
    if (tenant->num_requests > 0) least = std::min(least, tenant->counter);
  }
  return least;
}

// Half of those that are not there: the ones with the least counters, whom forgetting favours least or not at all.
void FairQueue::forget_idle() {
  std::vector<const Tenant*> idle;
  for (const auto& [name, tenant] : tenants_) {
    if (tenant->num_requests == 0) idle.push_back(tenant.get());
  }
  const auto middle = idle.begin() + static_cast<std::ptrdiff_t>(idle.size() / 2);
  std::nth_element(idle.begin(), middle, idle.end(),
                   [](const Tenant* a, const Tenant* b) { return a->counter < b->counter; });
  for (auto it = idle.begin(); it != middle; ++it) tenants_.erase(std::string((*it)->name));
}

void reserve(Sequence& sequence, double tokens) {
  Tenant& tenant = *sequence.owner->tenant;
  tenant.counter += tokens / tenant.weight;
  sequence.reserved += tokens;
}

void spend(Sequence& sequence, double tokens) {
  const double from_reserve = std::min(sequence.reserved, tokens);
  sequence.reserved -= from_reserve;
  Tenant& tenant = *sequence.owner->tenant;
  tenant.counter += (tokens - from_reserve) / tenant.weight;
}

void refund(Sequence& sequence) {
  Tenant& tenant = *sequence.owner->tenant;
  tenant.counter -= std::exchange(sequence.reserved, 0.0) / tenant.weight;
}

// ---- who waits

void FairQueue::push(Sequence& sequence, TimePoint now) {
  sequence.level = sequence.owner->request.priority;
  sequence.waiting_since = now;
  sequence.num_agings = 0;
  ++size_;
  ++priorities_[sequence.owner->request.priority];
  insert(sequence);
}

void FairQueue::erase(Sequence& sequence) {
  --size_;
  const auto same = priorities_.find(sequence.owner->request.priority);
  if (--same->second == 0) priorities_.erase(same);
  if (std::erase(aside_, &sequence) == 0) remove(sequence);
}

void FairQueue::set_aside(Sequence& sequence) {
  remove(sequence);
  aside_.push_back(&sequence);
}

void FairQueue::take_back() {
  for (Sequence* sequence : aside_) insert(*sequence);
  aside_.clear();
}

void FairQueue::insert(Sequence& sequence) {
  Tenant& tenant = *sequence.owner->tenant;
  if (tenant.waiting.empty()) busy_.push_back(&tenant);
  tenant.waiting.insert(&sequence);
  if (sequence.num_agings < kMaxAgings) agings_.emplace(next_aging(sequence), &sequence);
}

void FairQueue::remove(Sequence& sequence) {
  Tenant& tenant = *sequence.owner->tenant;
  FOLIO_CHECK(tenant.waiting.erase(&sequence) == 1, "who leaves the queue is in it");
  if (tenant.waiting.empty()) std::erase(busy_, &tenant);
  if (sequence.num_agings < kMaxAgings) agings_.erase({next_aging(sequence), &sequence});
}

Sequence* FairQueue::first() const {
  Sequence* first = nullptr;
  for (const Tenant* tenant : busy_) {
    Sequence* candidate = *tenant->waiting.begin();
    if (first == nullptr || policy::starts_before(*candidate, *first)) first = candidate;
  }
  return first;
}

void FairQueue::age(TimePoint now, std::int64_t highest_running) {
  if (agings_.empty() || agings_.begin()->first > now) return;
  const std::int64_t highest = std::max<std::int64_t>(highest_running, priorities_.rbegin()->first);
  while (!agings_.empty() && agings_.begin()->first <= now) {
    Sequence& sequence = *agings_.begin()->second;
    remove(sequence);
    const std::int64_t aged = sequence.owner->request.priority + (std::int64_t{1} << ++sequence.num_agings) - 1;
    sequence.level = sequence.num_agings == kMaxAgings ? kOldest - static_cast<std::int64_t>(sequence.owner->arrival)
                                                       : std::max(sequence.level, std::min(aged, highest));
    insert(sequence);
  }
}

}  // namespace folio
