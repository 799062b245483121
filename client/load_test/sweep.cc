#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "client/load_test/bench.h"
#include "client/load_test/knee.h"
#include "client/load_test/load_test.h"
#include "client/load_test/report.h"
#include "client/text.h"

namespace folio::client {
namespace {

constexpr double kPointSeconds = 10;  // of a point, unless flags say

class Sweep {
 public:
  Sweep(const SweepOptions& options, Interrupts& interrupts) : options_(options) {
    if (!options.bench.json_file.empty()) json_.emplace(options.bench.json_file);
    if (!options.bench.csv_file.empty()) csv_.emplace(options.bench.csv_file);
    if (!options.bench.plot_file.empty()) plot_.emplace(options.bench.plot_file);
    test_.emplace(options.bench, interrupts);
    for (auto* file : {&json_, &csv_, &plot_}) {
      if (*file) (*file)->clear();
    }
  }

  int run() {
    print_header();
    for (std::size_t i = 0; const auto load = next_load(i); ++i) {
      run_point(*load, i);
      if (test_->signal() != 0) break;
    }
    const std::optional<Knee> knee = find_knee(points_, options_.over_rate);
    std::printf("%s\n", knee_words(knee).c_str());
    std::fflush(stdout);
    write_files(knee);
    if (test_->signal() != 0) return 128 + test_->signal();
    return exit_code();
  }

 private:
  const char* unit() const { return options_.over_rate ? "rate" : "concurrency"; }

  int exit_code() const {
    const auto any = [this](const auto& holds) {
      return std::any_of(points_.begin(), points_.end(), [&](const SweepPoint& point) { return holds(point.summary); });
    };
    if (test_->lost_records() || !any([](const Summary& s) { return s.num_ok > 0; })) return kExitFailed;
    const double allowed = options_.bench.max_failed_percent;
    return any([allowed](const Summary& s) { return 100 * s.failed_share() > allowed; }) ? kExitManyFailed : kExitOk;
  }

  std::optional<double> next_load(std::size_t number) const {
    if (!options_.points.empty()) {
      return number < options_.points.size() ? std::optional(options_.points[number]) : std::nullopt;
    }
    const double load = points_.empty() ? options_.from : 2 * points_.back().load;
    if (load > options_.most || is_past_knee(points_, options_.over_rate, options_.bench.max_failed_percent)) {
      return std::nullopt;
    }
    return load;
  }

  BenchOptions options_of(double load, std::size_t i) const {
    BenchOptions bench = options_.bench;
    if (options_.over_rate) {
      bench.rate = load;
    } else {
      bench.concurrency = static_cast<int>(load);
    }
    if (!bench.duration_s && !bench.num_requests) bench.duration_s = kPointSeconds;
    // Other prompts at each point, or the server's prefix cache would make the later ones faster.
    bench.workload.seed += i;
    return bench;
  }

  void run_point(double load, std::size_t i) {
    const BenchOptions bench = options_of(load, i);
    const nlohmann::json label{{unit(), load}};
    points_.push_back({load, test_->run(bench, std::string(unit()) + " " + number_text(load) + ": ", &label).summary});
    print_row(points_.back());
  }

  void print_header() const {
    std::printf("%-11s %8s %10s %9s %9s %9s %9s %9s %9s %8s%s\n", unit(), "ok", "requests/s", "tokens/s", "TTFT p50",
                "TTFT p99", "ITL p50", "ITL p99", "E2E p50", "failed", options_.bench.goals.empty() ? "" : "     good");
  }

  void print_row(const SweepPoint& point) const {
    const Summary& s = point.summary;
    const Figures ttft = s.ttft_ms.figures(), itl = s.itl_ms.figures(), e2e = s.e2e_ms.figures();
    const auto cell = [](const Figures& figures, double value) { return figures.count > 0 ? number_of(value) : "-"; };
    std::printf("%-11s %8lld %10.2f %9.1f %9s %9s %9s %9s %9s %6.1f %%", number_text(point.load).c_str(),
                static_cast<long long>(s.num_ok), s.requests_per_second, s.output_tokens_per_second,
                cell(ttft, ttft.p50).c_str(), cell(ttft, ttft.p99).c_str(), cell(itl, itl.p50).c_str(),
                cell(itl, itl.p99).c_str(), cell(e2e, e2e.p50).c_str(), 100 * s.failed_share());
    if (!s.goals.empty()) std::printf("  %5.1f %%", 100 * s.good_share());
    std::printf("%s\n", s.partial ? "  PARTIAL" : "");
    std::printf("%s", failures_text(s).c_str());
    for (const std::string& warning : s.warnings()) std::printf("  warning: %s\n", warning.c_str());
    std::fflush(stdout);
  }
  static std::string number_of(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", value);
    return text;
  }

  std::string knee_words(const std::optional<Knee>& knee) const {
    if (!knee) {
      const bool any_complete =
          std::any_of(points_.begin(), points_.end(), [](const SweepPoint& point) { return !point.summary.partial; });
      if (!any_complete) return "no knee: no complete point";
      return options_.over_rate ? "no knee: the server kept up with no rate" : "no knee: no request ended well";
    }
    const std::string at = std::string(unit()) + " " + number_text(points_[knee->point].load);
    if (knee->is_reached) return "knee: " + at;
    return "the knee was not reached: " + at + " is the last complete point, and the best";
  }

  void write_files(const std::optional<Knee>& knee) {
    if (json_) {
      const double first = options_.points.empty() ? options_.from : options_.points.front();
      nlohmann::json out{{"over", unit()}, {"options", test_->describe(options_of(first, 0))}};
      out["options"].erase(unit());
      out["points"] = nlohmann::json::array();
      for (const SweepPoint& point : points_) {
        nlohmann::json one = to_json(point.summary);
        one[unit()] = point.load;
        out["points"].push_back(std::move(one));
      }
      const bool is_reached = knee && knee->is_reached;
      out["knee_reached"] = is_reached;
      if (is_reached) out["knee"] = points_[knee->point].load;
      out["partial"] = test_->signal() != 0;
      json_->write(out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    }
    if (csv_) {
      std::vector<std::string> concurrencies, rates;
      std::vector<Summary> summaries;
      for (const SweepPoint& point : points_) {
        concurrencies.push_back(options_.over_rate ? "" : number_text(point.load));
        rates.push_back(options_.over_rate ? number_text(point.load) : "");
        summaries.push_back(point.summary);
      }
      csv_->write(to_csv({{"concurrency", concurrencies}, {"rate", rates}}, summaries));
    }
    if (plot_) plot_->write(to_svg("folio-client bench sweep: " + test_->model().name, plots(knee)));
  }

  std::vector<Plot> plots(const std::optional<Knee>& knee) const {
    Plot latency{"latency against throughput", {"output tokens a second", false}, {"milliseconds", true}, {}, {}};
    Plot throughput{"throughput", {unit(), true}, {"output tokens a second", false}, {}, {}};
    const auto line = PlotSeries::Style::kLineAndPoints;
    latency.series = {{"time to first token, p50", {}, line},
                      {"time to first token, p99", {}, line},
                      {"inter-token latency, p50", {}, line},
                      {"inter-token latency, p99", {}, line},
                      {"end to end, p50", {}, line}};
    throughput.series.push_back({"output tokens of ok requests", {}, line});
    for (const SweepPoint& point : points_) {
      const double x = point.summary.output_tokens_per_second;
      const Figures ttft = point.summary.ttft_ms.figures(), itl = point.summary.itl_ms.figures();
      if (ttft.count == 0) continue;
      latency.series[0].points.emplace_back(x, ttft.p50);
      latency.series[1].points.emplace_back(x, ttft.p99);
      if (itl.count > 0) latency.series[2].points.emplace_back(x, itl.p50);
      if (itl.count > 0) latency.series[3].points.emplace_back(x, itl.p99);
      latency.series[4].points.emplace_back(x, point.summary.e2e_ms.figures().p50);
      throughput.series[0].points.emplace_back(point.load, x);
    }
    if (knee && knee->is_reached) {
      const SweepPoint& point = points_[knee->point];
      latency.marks.emplace_back(point.summary.output_tokens_per_second, knee_words(knee));
      throughput.marks.emplace_back(point.load, knee_words(knee));
    }
    return {latency, throughput};
  }

  const SweepOptions& options_;
  std::optional<OutputFile> json_, csv_, plot_;
  std::optional<LoadTest> test_;
  std::vector<SweepPoint> points_;
};

}  // namespace

int run_sweep(const SweepOptions& options, Interrupts& interrupts) {
  try {
    return Sweep(options, interrupts).run();
  } catch (const CommandError& failure) {
    std::fprintf(stderr, "folio-client: %s\n", failure.what());
    return failure.exit_code();
  }
}

}  // namespace folio::client
