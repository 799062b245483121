#include "client/load_test/arrivals.h"

#include <cmath>
#include <limits>
#include <utility>

#include "client/load_test/random.h"

namespace folio::client {

Arrivals::Arrivals(const ArrivalOptions& options)
    : options_(options), random_(random_for(options.seed, Purpose::kArrivals)) {}

Arrivals::Arrivals(std::vector<double> times) : times_(std::move(times)) {}

double Arrivals::next() {
  const std::size_t number = num_given_++;
  if (!times_.empty()) return number < times_.size() ? times_[number] : std::numeric_limits<double>::infinity();
  // Equal gaps have nothing to wait for at first; a random process begins with one of its gaps.
  if (options_.kind != ArrivalKind::kConstant || number > 0) passed_ += gap();
  // The inverse of the expected number: rate t^2 / (2 ramp) up to the ramp's end, and rate (t - ramp / 2) from there.
  const double of_ramp = options_.rate * options_.ramp_s / 2;
  if (passed_ < of_ramp) return std::sqrt(2 * options_.ramp_s * passed_ / options_.rate);
  return options_.ramp_s + (passed_ - of_ramp) / options_.rate;
}

double Arrivals::gap() {
  switch (options_.kind) {
    case ArrivalKind::kPoisson:
      return std::exponential_distribution<double>(1)(random_);
    case ArrivalKind::kGamma:
      return std::gamma_distribution<double>(options_.burstiness, 1 / options_.burstiness)(random_);
    case ArrivalKind::kConstant:
      break;
  }
  return 1;
}

}  // namespace folio::client
