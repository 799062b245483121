// What a command prints: rows of named values, as aligned columns or as one JSON object a line.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace folio::bench {

using Row = nlohmann::ordered_json;  // an object of strings, numbers and nulls

double rounded(double value, int digits);

class Table {
 public:
  explicit Table(bool json) : json_(json) {}
  // A header is printed before the first row, and again when the names change.
  void print(const Row& row);

 private:
  const bool json_;
  std::vector<std::string> names_;
  std::vector<std::size_t> widths_;  // of their columns, by the first row as well
};

}  // namespace folio::bench
