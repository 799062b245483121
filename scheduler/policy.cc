#include "scheduler/policy.h"

#include <tuple>

#include "scheduler/fair_queue.h"

namespace folio::policy {
namespace {

std::int32_t priority(const Sequence& sequence) {
  return sequence.owner->request.priority;
}

}  // namespace

bool starts_before(const Sequence& a, const Sequence& b) {
  const auto key = [](const Sequence& s) {
    return std::tuple(-s.level, s.owner->tenant->counter, -s.num_agings, s.owner->deadline, s.owner->arrival, s.index);
  };
  return key(a) < key(b);
}

bool safer_than(const Sequence& a, const Sequence& b) {
  return std::tuple(-std::int64_t{priority(a)}, a.admission) < std::tuple(-std::int64_t{priority(b)}, b.admission);
}

bool is_overdue(const Sequence& running) {
  return running.owes_token && running.level > priority(running);
}

bool may_take(const Sequence& taker, bool taker_is_first, const Sequence& victim) {
  if (priority(victim) < priority(taker)) return !is_overdue(victim);
  return taker_is_first || !victim.owes_token;
}

bool may_replace(const Sequence& waiting, const Sequence& running) {
  return priority(running) < priority(waiting) && !is_overdue(running);
}

}  // namespace folio::policy
