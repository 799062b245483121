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
  return std::tuple(-a.level, a.owner->tenant->counter, a.owner->deadline, a.owner->arrival, a.index) <
         std::tuple(-b.level, b.owner->tenant->counter, b.owner->deadline, b.owner->arrival, b.index);
}

bool safer_than(const Sequence& a, const Sequence& b) {
  return std::tuple(-std::int64_t{priority(a)}, a.admission) < std::tuple(-std::int64_t{priority(b)}, b.admission);
}

bool may_take(const Sequence& taker, bool taker_is_first, const Sequence& victim) {
  return taker_is_first || !victim.owes_token || priority(victim) < priority(taker);
}

bool may_replace(const Sequence& waiting, const Sequence& running) {
  return priority(running) < priority(waiting) && !(running.owes_token && running.level > priority(running));
}

}  // namespace folio::policy
