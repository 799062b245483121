// What a good answer is to its user: limits that a request has to keep, all of them.
#pragma once
#include <string>
#include <vector>

#include "client/load_test/record.h"

namespace folio::client {

struct Goal {
  enum class Figure {
    kTtft,  // time to first token
    kItl,   // 99 of 100 of its gaps between tokens
    kTpot,  // the mean of its gaps
    kE2e,   // end to end
  };
  Figure figure = Figure::kTtft;
  double limit_ms = 0;
};

// "ttft:500,itl:50,tpot:40,e2e:5000", in milliseconds, each at most once. Throws std::invalid_argument.
std::vector<Goal> parse_goals(const std::string& text);
std::string to_text(const std::vector<Goal>& goals);

// An ok request that keeps all limits; a single token has no gaps, which no limit on gaps is broken by.
bool is_good(const RequestRecord& record, const std::vector<Goal>& goals);

}  // namespace folio::client
