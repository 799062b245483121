// Plots as self-contained SVG files: lines and points over linear or logarithmic axes, with a legend. No script, no
// font and no file beside it is needed to show one; light and dark backgrounds are both legible. Whatever the values
// are, the file is well-formed, nothing is drawn outside its frame, and its size is bounded: a series of very many
// points is thinned to the first, last, lowest and highest of each stretch, so that no peak is lost.
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
  // Those that cannot be placed (not finite, beyond 1e±200, or left out by their axis) break the line.
  std::vector<std::pair<double, double>> points;
  Style style = Style::kLine;
};

struct Plot {
  std::string title;
  PlotAxis x, y;
  std::vector<PlotSeries> series;
  std::vector<std::pair<double, std::string>> marks;  // vertical lines at x, with their words; the first 20
};

// The plots of one page under each other, below its title; further lines of the title are small. Text is UTF-8, is
// escaped, and is cut where it would leave the page.
std::string to_svg(const std::string& title, const std::vector<Plot>& plots);

}  // namespace folio::client
