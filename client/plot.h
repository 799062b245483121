// Plots as self-contained SVG files: lines, points and steps over linear or logarithmic axes, with a legend. No script,
// no font and no file beside it is needed to show one; light and dark backgrounds are both legible.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace folio::client {

struct PlotAxis {
  std::string label;         // with its unit: "time to first token, ms"
  bool logarithmic = false;  // values of 0 and below are then left out
};

struct PlotSeries {
  enum class Style { kLine, kPoints, kLineAndPoints };
  std::string name;
  std::vector<std::pair<double, double>> points;  // those that are not finite are left out, and break the line
  Style style = Style::kLine;
};

struct Plot {
  std::string title;
  PlotAxis x, y;
  std::vector<PlotSeries> series;
  std::vector<std::pair<double, std::string>> marks;  // vertical lines at x, with their words
};

// The plots of one page under each other, below its title. Text is escaped.
std::string to_svg(const std::string& title, const std::vector<Plot>& plots);

}  // namespace folio::client
