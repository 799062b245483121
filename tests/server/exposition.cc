#include "tests/server/exposition.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

namespace folio::test {
namespace {

class Line {
 public:
  explicit Line(std::string_view text) : text_(text), rest_(text) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(what + " in \"" + std::string(text_) + "\"");
  }
  bool take(std::string_view what) {
    if (!rest_.starts_with(what)) return false;
    rest_.remove_prefix(what.size());
    return true;
  }
  void expect(std::string_view what) {
    if (!take(what)) fail("no \"" + std::string(what) + "\"");
  }
  std::string name(bool colons) {
    const auto legal = [&](char c, bool first) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (colons && c == ':') ||
             (!first && c >= '0' && c <= '9');
    };
    std::size_t size = 0;
    while (size < rest_.size() && legal(rest_[size], size == 0)) ++size;
    if (size == 0) fail("no name");
    std::string out(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return out;
  }
  std::string quoted() {
    expect("\"");
    std::string out;
    while (!take("\"")) {
      if (rest_.empty()) fail("a label value without an end");
      if (take("\\\\")) {
        out += '\\';
      } else if (take("\\\"")) {
        out += '"';
      } else if (take("\\n")) {
        out += '\n';
      } else if (rest_.front() == '\\') {
        fail("an unknown escape");
      } else {
        out += rest_.front();
        rest_.remove_prefix(1);
      }
    }
    return out;
  }
  double number() {
    if (take("+Inf")) return std::numeric_limits<double>::infinity();
    double value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) fail("no number");
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }
  std::string all() { return std::string(std::exchange(rest_, {})); }
  void expect_end() const {
    if (!rest_.empty()) fail("something after the end");
  }

 private:
  std::string_view text_;
  std::string_view rest_;
};

Labels read_labels(Line& line) {
  Labels labels;
  if (!line.take("{")) return labels;
  do {
    const std::string name = line.name(false);
    line.expect("=");
    if (!labels.emplace(name, line.quoted()).second) line.fail("a label twice");
  } while (line.take(","));
  line.expect("}");
  return labels;
}

bool has_labels(const Labels& all, const Labels& some) {
  return std::ranges::all_of(some, [&](const auto& label) {
    const auto found = all.find(label.first);
    return found != all.end() && found->second == label.second;
  });
}

std::string family_of(const std::string& sample, const std::string& name, const std::string& type) {
  if (type != "histogram") return sample;
  for (const char* suffix : {"_bucket", "_sum", "_count"}) {
    if (sample == name + suffix) return name;
  }
  return sample;
}

// One series of a histogram: its buckets ascend to +Inf, which is the count.
void check_series(const std::string& name, const Family& family, const Labels& labels) {
  double last_bound = -std::numeric_limits<double>::infinity();
  double last_count = 0;
  for (const auto& [sample, all] : family.order) {
    if (sample != name + "_bucket") continue;
    Labels rest = all;
    const auto bound = rest.extract("le");
    if (!bound) throw std::runtime_error(name + ": a bucket without a bound");
    if (rest != labels) continue;
    Line text(bound.mapped());
    const double le = text.number();
    text.expect_end();
    const double count = family.samples.at({sample, all});
    if (le <= last_bound || count < last_count) throw std::runtime_error(name + ": buckets do not ascend");
    last_bound = le;
    last_count = count;
  }
  if (!std::isinf(last_bound)) throw std::runtime_error(name + ": no bucket for the rest");
  const auto count = family.samples.find({name + "_count", labels});
  if (count == family.samples.end() || count->second != last_count ||
      !family.samples.contains({name + "_sum", labels})) {
    throw std::runtime_error(name + ": count, sum and buckets disagree");
  }
}

void check(const std::string& name, const Family& family) {
  if (family.samples.empty()) throw std::runtime_error(name + ": no sample");
  const bool is_total = name.ends_with("_total");
  if (is_total != (family.type == "counter")) throw std::runtime_error(name + ": counters end in _total");
  std::set<Labels> series;
  for (const auto& [sample, value] : family.samples) {
    if (!std::isfinite(value) || (family.type == "counter" && value < 0))
      throw std::runtime_error(name + ": its value");
    Labels labels = sample.second;
    labels.erase("le");
    series.insert(std::move(labels));
  }
  if (family.type != "histogram") return;
  for (const Labels& labels : series) check_series(name, family, labels);
}

}  // namespace

Exposition::Exposition(std::string_view text) {
  std::string name;  // of the family that is being read
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) throw std::runtime_error("the last line has no end");
    Line line(text.substr(0, end));
    text.remove_prefix(end + 1);
    if (line.take("# HELP ")) {
      name = line.name(true);
      line.expect(" ");
      if (families_.contains(name)) line.fail("a family twice");
      families_[name].help = line.all();
    } else if (line.take("# TYPE ")) {
      if (line.name(true) != name || !families_[name].type.empty()) line.fail("a type that is not the family's");
      line.expect(" ");
      families_[name].type = line.all();
      static const std::set<std::string> kTypes = {"counter", "gauge", "histogram"};
      if (!kTypes.contains(families_[name].type)) line.fail("an unknown type");
    } else {
      const std::string sample = line.name(true);
      Family& family = families_[name];
      if (family.type.empty() || family_of(sample, name, family.type) != name) line.fail("a sample outside its family");
      const Labels labels = read_labels(line);
      line.expect(" ");
      if (!family.samples.emplace(std::pair(sample, labels), line.number()).second) line.fail("a sample twice");
      line.expect_end();
      family.order.emplace_back(sample, labels);
    }
  }
  for (const auto& [family_name, family] : families_) check(family_name, family);
}

double Exposition::value(const std::string& name, const Labels& labels) const {
  const double* found = nullptr;
  for (const auto& [family_name, family] : families_) {
    for (const auto& [sample, value] : family.samples) {
      if (sample.first != name || !has_labels(sample.second, labels)) continue;
      if (found != nullptr) throw std::out_of_range(name + ": several");
      found = &value;
    }
  }
  if (found == nullptr) throw std::out_of_range(name + ": none");
  return *found;
}

double Exposition::sum(const std::string& name, const Labels& labels) const {
  double sum = 0;
  for (const auto& [family_name, family] : families_) {
    for (const auto& [sample, value] : family.samples) {
      if (sample.first == name && has_labels(sample.second, labels)) sum += value;
    }
  }
  return sum;
}

}  // namespace folio::test
