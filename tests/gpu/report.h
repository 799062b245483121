// What a part of gpu_check found: checks that hold or not, and figures. The JSON file is written anew after each, so
// that it is whole whatever becomes of the process.
#pragma once
#include <string>
#include <vector>

namespace folio::gpu {

class Report {
 public:
  Report(std::string part, std::string path);  // no file if the path is empty

  // A check that does not hold is printed at once, with what was seen.
  void check(const std::string& name, bool holds, const std::string& seen = "");
  void figure(const std::string& name, double value, const std::string& unit);
  void left_out(const std::string& name, const std::string& reason);
  void finish();

  bool all_hold() const { return failures_.empty(); }
  std::string json() const;

 private:
  struct Line {
    std::string name, value, text;
  };
  void write() const;

  const std::string part_;
  const std::string path_;
  int num_checks_ = 0;
  bool finished_ = false;
  std::vector<Line> failures_, figures_, left_out_;
};

// As a JSON string, with its quotes.
std::string quoted(const std::string& text);
// Six significant digits; what is no number is null.
std::string number(double value);

}  // namespace folio::gpu
