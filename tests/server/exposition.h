// Reads Prometheus' text format 0.0.4, as strictly as it is written down: every family has its HELP, its TYPE and then
// its samples, once; names and escapes are legal; histograms ascend to +Inf and agree with their count; counters end in
// _total and are not negative.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace folio::test {

using Labels = std::map<std::string, std::string>;

struct Family {
  std::string type;
  std::string help;
  std::vector<std::pair<std::string, Labels>> order;  // samples as they came: name, labels
  std::map<std::pair<std::string, Labels>, double> samples;
};

class Exposition {
 public:
  // Throws std::runtime_error that says what is wrong with which line.
  explicit Exposition(std::string_view text);

  const std::map<std::string, Family>& families() const { return families_; }
  // The one sample with this name that has these labels (and perhaps others). Throws std::out_of_range if there is none
  // or several.
  double value(const std::string& name, const Labels& labels = {}) const;
  // Over all samples of this name that have these labels.
  double sum(const std::string& name, const Labels& labels = {}) const;

 private:
  std::map<std::string, Family> families_;
};

}  // namespace folio::test
