// The live view of a server's load as text: pure functions of what WatchLoad says.
#pragma once
#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "folio/v1/control.pb.h"

namespace folio::client {

// "running 3 waiting 0 ..." : one line, always the same names in the same order.
std::string load_line(const v1::Load& load);

struct ViewStyle {
  std::size_t columns = 80;
  bool colours = true;
};

// What one screen shows: the newest load, and how the rates went before.
class LoadView {
 public:
  LoadView(v1::ServerInfo info, std::string address) : info_(std::move(info)), address_(std::move(address)) {}

  void add(const v1::Load& load);
  // Lines of at most `columns` columns; always as many.
  std::vector<std::string> lines(const ViewStyle& style) const;

 private:
  static constexpr std::size_t kMaxHistory = 200;

  const v1::ServerInfo info_;
  const std::string address_;
  v1::Load load_;
  std::deque<double> output_rates_, running_;
};

// A bar of `width` characters out of parts: each has its share of them to the nearest character, at least one if it is
// not 0, and together they fill it. For parts that are all 0: spaces.
struct BarPart {
  double value = 0;
  std::string character;
  const char* colour = "";  // an SGR number
};
std::string bar(const std::vector<BarPart>& parts, std::size_t width, bool colours);

// One character of eight heights a value, the newest `width` values, scaled to the largest of them.
std::string sparkline(const std::deque<double>& values, std::size_t width);

}  // namespace folio::client
