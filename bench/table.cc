#include "bench/table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace folio::bench {
namespace {

constexpr std::size_t kMinWidth = 8;

// Right-aligned; wider than its column when it has to be.
void print_cell(const std::string& text, std::size_t width) {
  std::printf("%*s  ", static_cast<int>(width), text.c_str());
}

std::string text(const Row& value) {
  if (value.is_null()) return "-";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

double rounded(double value, int digits) {
  const double scale = std::pow(10.0, digits);
  return std::round(value * scale) / scale;
}

void Table::print(const Row& row) {
  if (json_) {
    std::printf("%s\n", row.dump().c_str());
  } else {
    std::vector<std::string> names;
    for (const auto& item : row.items()) names.push_back(item.key());
    if (names != names_) {
      names_ = names;
      widths_.clear();
      for (const auto& item : row.items()) {
        widths_.push_back(std::max({kMinWidth, item.key().size(), text(item.value()).size()}));
      }
      for (std::size_t i = 0; i < names_.size(); ++i) print_cell(names_[i], widths_[i]);
      std::printf("\n");
    }
    std::size_t column = 0;
    for (const auto& item : row.items()) print_cell(text(item.value()), widths_[column++]);
    std::printf("\n");
  }
  std::fflush(stdout);
}

}  // namespace folio::bench
