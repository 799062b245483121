// Where a value lies on an axis, and which values are written beside it.
#pragma once
#include <string>
#include <vector>

namespace folio::client {

struct AxisTick {
  double value = 0;
  std::string label;
};

// Values that a plot can place: finite, of a size that differences and products stay finite with, above 0 if
// logarithmic.
bool can_place(double value, bool logarithmic);

class AxisScale {
 public:
  // Over the values from `low` to `high`, which can be placed; about `wanted` (2 to 20) ticks at 1, 2 or 5 times a
  // power of ten. A linear axis begins at 0 unless its values are negative or lie close together; values that are all
  // the same get some room around them.
  AxisScale(double low, double high, bool logarithmic, int wanted);

  double low() const { return low_; }
  double high() const { return high_; }
  // In ascending order, each in [low, high]; at least two.
  const std::vector<AxisTick>& ticks() const { return ticks_; }
  // 0 at low, 1 at high, and never outside.
  double place(double value) const;

 private:
  void make_linear(int wanted);
  void make_logarithmic(int wanted);
  void add_ticks(double step);

  double low_, high_;
  bool logarithmic_;
  std::vector<AxisTick> ticks_;
};

// "0", "250", "1.5k", "20M", "3e-05": with the digits that tell neighbours `step` apart, in the unit that suits
// `largest`, the axis' largest value in size.
std::string tick_label(double value, double step, double largest);

}  // namespace folio::client
