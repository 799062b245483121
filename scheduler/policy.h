// Who comes first, and who may be taken from. Two orders:
//   - the start order says who is admitted and gets chunks: level (priority, and what waiting adds to it), then the
//     tenant with the lowest counter, then who waited more aging periods, then the earliest deadline, then arrival,
//     then index;
//   - the victim order does not change while a sequence runs: priority, then first admission (earlier is safer).
// Functions of their arguments; the scheduler's thread.
#pragma once
#include "scheduler/sequence.h"

namespace folio::policy {

bool starts_before(const Sequence& a, const Sequence& b);
bool safer_than(const Sequence& a, const Sequence& b);

// Came in by its age, past higher priorities, and has not given a token yet: no higher priority takes from it until
// then, not even the first, or it would have waited in vain.
bool is_overdue(const Sequence& running);
// Whether a running sequence may take the blocks of one behind it in the victim order. A resumed sequence that has not
// given a token since gives way only to a higher priority or to the first in the order.
bool may_take(const Sequence& taker, bool taker_is_first, const Sequence& victim);
// Whether a waiting sequence may take the place of a running one: only of a lower priority.
bool may_replace(const Sequence& waiting, const Sequence& running);

// Of one tenant's sequences.
struct StartOrder {
  bool operator()(const Sequence* a, const Sequence* b) const { return starts_before(*a, *b); }
};

}  // namespace folio::policy
