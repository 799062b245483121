// When requests are due in an open loop: seconds from the start of the load.
#pragma once
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace folio::client {

enum class ArrivalKind {
  kPoisson,   // gaps are exponential: callers that know nothing of each other
  kGamma,     // gaps are gamma distributed with the shape `burstiness`: below 1 burstier than Poisson, above 1 smoother
  kConstant,  // gaps are equal
};

struct ArrivalOptions {
  ArrivalKind kind = ArrivalKind::kPoisson;
  double rate = 1;        // requests a second, above 0; the mean gap is 1 / rate whatever the kind
  double burstiness = 1;  // kGamma: above 0; the gaps' variance is mean^2 / burstiness
  double ramp_s = 0;      // the rate rises from 0 to `rate` in a straight line over this time
  std::uint64_t seed = 0;
};

class Arrivals {
 public:
  explicit Arrivals(const ArrivalOptions& options);
  // Times of a trace: not decreasing.
  explicit Arrivals(std::vector<double> times);

  // The next request's time, which never decreases. Infinite after the last of a trace. A ramp bends the process's own
  // time so that the expected number of arrivals until t is the integral of the rate (time-rescaling: the gaps keep
  // their distribution in units of the rate of the moment).
  double next();

 private:
  double gap();  // of the process with rate 1

  ArrivalOptions options_;
  std::vector<double> times_;
  std::size_t num_given_ = 0;
  std::mt19937_64 random_;
  double passed_ = 0;  // arrivals expected until the last one
};

}  // namespace folio::client
