#include "client/load_test/goals.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <sstream>
#include <stdexcept>

namespace folio::client {
namespace {

struct Name {
  const char* text;
  Goal::Figure figure;
};
constexpr Name kNames[] = {{"ttft", Goal::Figure::kTtft},
                           {"itl", Goal::Figure::kItl},
                           {"tpot", Goal::Figure::kTpot},
                           {"e2e", Goal::Figure::kE2e}};

std::optional<double> value(const RequestRecord& record, Goal::Figure figure) {
  switch (figure) {
    case Goal::Figure::kTtft:
      return record.ttft_ms();
    case Goal::Figure::kItl:
      return record.itl_p99_ms();
    case Goal::Figure::kTpot:
      return record.tpot_ms();
    case Goal::Figure::kE2e:
      break;
  }
  return record.e2e_ms();
}

Goal parse_goal(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  const auto* known = std::find_if(std::begin(kNames), std::end(kNames), [&](const Name& n) { return n.text == name; });
  if (known == std::end(kNames)) throw std::invalid_argument("'" + name + "' is not one of ttft, itl, tpot and e2e");
  Goal goal{known->figure, 0};
  const char* end = text.data() + text.size();
  const char* begin = colon == std::string::npos ? end : text.data() + colon + 1;
  const auto [stop, error] = std::from_chars(begin, end, goal.limit_ms);
  if (error != std::errc{} || stop != end || !(goal.limit_ms > 0 && goal.limit_ms < 1e12)) {
    throw std::invalid_argument("'" + text + "' is not " + name + ":MILLISECONDS");
  }
  return goal;
}

}  // namespace

std::vector<Goal> parse_goals(const std::string& text) {
  std::vector<Goal> goals;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const Goal goal = parse_goal(part);
    if (std::any_of(goals.begin(), goals.end(), [&](const Goal& other) { return other.figure == goal.figure; })) {
      throw std::invalid_argument("'" + part + "': given twice");
    }
    goals.push_back(goal);
  }
  if (goals.empty()) throw std::invalid_argument("no limit in it");
  return goals;
}

std::string to_text(const std::vector<Goal>& goals) {
  std::string out;
  for (const Goal& goal : goals) {
    const auto* name =
        std::find_if(std::begin(kNames), std::end(kNames), [&](const Name& n) { return n.figure == goal.figure; });
    char part[48];
    std::snprintf(part, sizeof part, "%s%s:%g", out.empty() ? "" : ",", name->text, goal.limit_ms);
    out += part;
  }
  return out;
}

bool is_good(const RequestRecord& record, const std::vector<Goal>& goals) {
  if (record.outcome != Outcome::kOk) return false;
  return std::all_of(goals.begin(), goals.end(), [&](const Goal& goal) {
    const std::optional<double> measured = value(record, goal.figure);
    return !measured || *measured <= goal.limit_ms;
  });
}

}  // namespace folio::client
