// Writes plots of hostile and of ordinary values into a folder, for plot_test.py to read as XML.
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <random>
#include <string>

#include "client/plot.h"

namespace {

using namespace folio::client;
using Style = PlotSeries::Style;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Plot ordinary() {
  Plot plot{
      "Latency against time", {"time, s"}, {"time to first token, ms", true}, {}, {{30, "rate 20/s"}, {48, "Ctrl-C"}}};
  std::mt19937 random(1);
  std::lognormal_distribution<double> value(4, 0.8);
  PlotSeries points{"requests", {}, Style::kPoints}, line{"p50 & p99 <moving>", {}, Style::kLineAndPoints};
  for (int i = 0; i < 300; ++i) points.points.emplace_back(i * 0.2, value(random));
  for (int i = 0; i < 60; ++i) line.points.emplace_back(i, i % 20 == 19 ? kNan : 60 + 20 * std::sin(i * 0.2));
  plot.series = {points, line};
  return plot;
}

Plot many_series() {
  Plot plot{"Twenty series, which share eight colours", {"length, tokens", true}, {"tokens/s"}, {}, {}};
  for (int s = 0; s < 20; ++s) {
    PlotSeries series{"series number " + std::to_string(s), {}, Style::kLineAndPoints};
    for (double x = 16; x <= 4096; x *= 2) series.points.emplace_back(x, (s + 1) * 1e5 / (x + 200));
    plot.series.push_back(series);
  }
  return plot;
}

// `spikes` of 1000 among a million points of noise: each must be seen.
Plot very_many(Style style) {
  Plot plot{"A million points", {"x"}, {"y"}, {{"noise with three spikes", {}, style}}, {}};
  std::mt19937 random(2);
  std::uniform_real_distribution<double> value(0, 10);
  for (int i = 0; i < 1'000'000; ++i)
    plot.series[0].points.emplace_back(i, i % 300'001 == 300'000 ? 1000 : value(random));
  return plot;
}

Plot broken_line() {
  Plot plot{"A break at every second of many values", {"x"}, {"y"}, {{"broken", {}, Style::kLine}}, {}};
  for (int i = 0; i < 100'000; ++i) plot.series[0].points.emplace_back(i, i % 2 == 0 ? i % 7 : kInfinity);
  return plot;
}

Plot values(const std::string& title, std::vector<std::pair<double, double>> points, bool logarithmic) {
  return {title, {"x", logarithmic}, {"y", logarithmic}, {{"values", std::move(points), Style::kLineAndPoints}}, {}};
}

std::vector<Plot> hostile() {
  const double least = std::numeric_limits<double>::denorm_min(), most = std::numeric_limits<double>::max();
  std::vector<std::pair<double, double>> wild = {{-most, most},   {most, -most}, {kNan, 1},   {1, kInfinity},
                                                 {0, 0},          {-1e200, 1},   {1e200, -3}, {least, -1},
                                                 {1e-200, 1e200}, {-0.0, -0.0}};
  std::vector<Plot> plots;
  for (const bool logarithmic : {false, true}) {
    plots.push_back(values("wild", wild, logarithmic));
    plots.push_back(values("one point", {{3, 5}}, logarithmic));
    plots.push_back(values("one value", {{1, 1e15}, {2, 1e15}, {3, 1e15}}, logarithmic));
    plots.push_back(values("close together", {{1e15, 1e15}, {1e15 + 1, 1e15 + 2}}, logarithmic));
    plots.push_back(values("all left out", {{kNan, 1}, {1, -kInfinity}}, logarithmic));
    plots.push_back(values("negative", {{-5, -7}, {-4, -6.5}, {-3, -1e-9}}, logarithmic));
  }
  plots.emplace_back();
  Plot marks = ordinary();
  for (int i = 0; i < 1000; ++i) marks.marks.emplace_back(i % 3 == 0 ? kNan : i / 10.0, "mark " + std::to_string(i));
  plots.push_back(marks);
  return plots;
}

Plot words() {
  const std::string nasty = std::string("</text><script>alert('1')</script> & \"quoted\" ]]> \x01\x1b[31m\0 nul ", 62) +
                            "\xFF\xC3( \xED\xA0\x80 \xF4\x90\x80\x80 \xEF\xBF\xBE \xE2\x82 größer 長さ 🙂\ttab";
  std::string endless;
  for (int i = 0; i < 400; ++i) endless += "wide長";
  return {nasty,
          {nasty},
          {endless},
          {{nasty, {{0, 0}, {1, 1}}}, {endless, {{1, 0}, {0, 1}}}},
          {{0.9, endless}, {0.1, nasty}}};
}

void write(const std::string& folder, const std::string& name, const std::string& title,
           const std::vector<Plot>& plots) {
  std::ofstream(folder + "/" + name + ".svg", std::ios::binary) << to_svg(title, plots);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "plot_samples FOLDER\n");
    return 2;
  }
  const std::string folder = argv[1];
  write(folder, "ordinary", "A load test\nfolio-client bench --rate 20 --duration 60 --plot FILE.svg",
        {ordinary(), many_series()});
  write(folder, "line_of_many", "Many", {very_many(Style::kLine)});
  write(folder, "points_of_many", "Many", {very_many(Style::kPoints)});
  write(folder, "broken", "Broken", {broken_line()});
  write(folder, "hostile", "Hostile", hostile());
  write(folder, "words", words().title, {words()});
  write(folder, "empty", "", {});
  return 0;
}
