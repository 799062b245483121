// Who waits, in the start order, and how much each tenant has taken. Fair among tenants by virtual token counters
// (Sheng et al., "Fairness in Serving Large Language Models", arXiv:2401.00588): what a tenant takes is charged over
// its weight, and the place goes to the lowest counter. A sequence is charged when it is admitted with what it may take
// at first (reserve), and gets back at its end what it did not: counted only when made, tokens would come too late, and
// tenants would take turns for the length of an output.
//
// A tenant that comes back is lifted to the least counter of those that are there, so that nobody saves up; who is
// behind that is forgotten, and everybody when nobody is there.
//
// Aging: for every kAgingPeriod that a sequence waits, its gain over its priority doubles (1, 3, 7 ... levels), as far
// as the highest priority that is there: so after ceil(log2(d + 1)) periods it is level with priorities d above its
// own, its tenant's counter counts against theirs, and inside the tenant it comes before those who waited fewer
// periods, whatever their deadlines. Among equal priorities the counters decide as long as they may: only who waited
// for kMaxAgings periods comes before everybody else, in the order of arrival, so that no stream of new tenants keeps
// anyone out for ever. Aging moves a place in the queue and evicts nobody. One thread.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "scheduler/policy.h"
#include "scheduler/sequence.h"

namespace folio {

struct Tenant {
  std::string name;
  double weight = 1;
  double counter = 0;             // weighted tokens over the weight
  std::int64_t num_requests = 0;  // live ones
  std::set<Sequence*, policy::StartOrder> waiting;
};

class FairQueue {
 public:
  static constexpr Duration kAgingPeriod = std::chrono::seconds(10);
  static constexpr int kMaxAgings = 32;

  explicit FairQueue(std::map<std::string, double> weights) : weights_(std::move(weights)) {}

  Tenant& join(const std::string& name);  // a request of this tenant is there; stands until its leave
  void leave(Tenant& tenant);

  void push(Sequence& sequence, TimePoint now);
  void erase(Sequence& sequence);
  // Sets aside, or takes back all that were: first() does not see them in between. erase() finds them all the same.
  void set_aside(Sequence& sequence);
  void take_back();
  Sequence* first() const;                                // null: nobody waits
  void age(TimePoint now, std::int64_t highest_running);  // the highest priority of those that run
  std::size_t size() const { return size_; }
  std::size_t num_aside() const { return aside_.size(); }
  std::size_t num_tenants() const { return tenants_.size(); }

  template <class Fn>
  void for_each(Fn&& fn) const {
    for (const auto& [name, tenant] : tenants_) {
      for (Sequence* sequence : tenant->waiting) fn(*sequence);
    }
  }

 private:
  void insert(Sequence& sequence);
  void remove(Sequence& sequence);
  double least_counter() const;  // of tenants with requests
  void forget_idle();

  const std::map<std::string, double> weights_;
  std::unordered_map<std::string, std::unique_ptr<Tenant>> tenants_;
  std::vector<Tenant*> busy_;                         // with somebody waiting
  std::set<std::pair<TimePoint, Sequence*>> agings_;  // when the next one of a sequence is due
  std::vector<Sequence*> aside_;
  std::map<std::int32_t, std::size_t> priorities_;  // of all that wait: how many have it
  std::size_t size_ = 0;                            // with those set aside
  std::size_t num_active_ = 0;
};

// Tokens are charged as they are computed (prompt: 1, output: 2): from the sequence's reserve first.
void reserve(Sequence& sequence, double tokens);
void spend(Sequence& sequence, double tokens);
void refund(Sequence& sequence);  // what is left of the reserve

}  // namespace folio
