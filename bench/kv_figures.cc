#include "bench/kv_figures.h"

#include <functional>
#include <utility>

#include "client/plot.h"

namespace folio::bench {
namespace {

using client::Plot;
using client::PlotSeries;

constexpr auto kStyle = PlotSeries::Style::kLineAndPoints;

PlotSeries series(const std::string& name, const std::vector<KvFigure>& figures,
                  const std::function<double(const KvFigure&)>& value) {
  PlotSeries out{name, {}, kStyle};
  for (const KvFigure& figure : figures) out.points.emplace_back(static_cast<double>(figure.length), value(figure));
  return out;
}

// One line a model with the cache, and one without.
Plot both_ways(const std::string& title, const std::string& unit, const std::vector<KvFigures>& models,
               const std::function<double(const KvFigure&)>& value) {
  Plot plot{title, {"tokens in the sequence", true}, {unit, true}, {}, {}};
  for (const KvFigures& figures : models) {
    plot.series.push_back(series(figures.model + ", with the cache", figures.with, value));
  }
  for (const KvFigures& figures : models) {
    plot.series.push_back(series(figures.model + ", without", figures.without, value));
  }
  return plot;
}

}  // namespace

std::string kv_plots(const std::string& title, const std::vector<KvFigures>& models, double ridge) {
  constexpr double kMiB = 1024 * 1024;
  Plot speed = both_ways("Speed of one sequence", "tokens per second", models,
                         [](const KvFigure& figure) { return 1000 / figure.ms; });
  Plot work = both_ways("Work of one more token", "billions of operations", models,
                        [](const KvFigure& figure) { return figure.cost.ops() / 1e9; });
  Plot memory{"Memory that the cache keeps", {"tokens in the sequence", true}, {"MiB of K and V", true}, {}, {}};
  for (const KvFigures& figures : models) {
    memory.series.push_back(
        series(figures.model, figures.with, [](const KvFigure& figure) { return figure.kept_bytes / kMiB; }));
  }
  Plot intensity = both_ways("Computing or memory: above the machine's own line, computing is the limit",
                             "operations for each byte of memory", models,
                             [](const KvFigure& figure) { return figure.cost.intensity(); });
  if (ridge > 0 && !models.empty() && !models[0].with.empty()) {
    intensity.series.push_back(series("this machine", models[0].with, [ridge](const KvFigure&) { return ridge; }));
    intensity.series.back().style = PlotSeries::Style::kLine;
  }
  if (!models.empty() && models[0].compute_bound_from > 0) {
    intensity.marks.emplace_back(
        models[0].compute_bound_from,
        "from a prompt of " + std::to_string(models[0].compute_bound_from) + " on, computing is the limit");
  }
  return client::to_svg(title, {std::move(speed), std::move(work), std::move(memory), std::move(intensity)});
}

}  // namespace folio::bench
