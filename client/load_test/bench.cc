#include "client/load_test/bench.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/load_test/load_test.h"
#include "client/load_test/report.h"
#include "client/text.h"

namespace folio::client {
namespace {

// The files of a summary, opened before the run.
struct Files {
  std::optional<OutputFile> json, csv, plot;

  explicit Files(const BenchOptions& options) {
    if (!options.json_file.empty()) json.emplace(options.json_file);
    if (!options.csv_file.empty()) csv.emplace(options.csv_file);
    if (!options.plot_file.empty()) plot.emplace(options.plot_file);
  }
  void clear() {
    for (auto* file : {&json, &csv, &plot}) {
      if (*file) (*file)->clear();
    }
  }
};

std::string dump(const nlohmann::json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

int run(const BenchOptions& options, Interrupts& interrupts) {
  Files files(options);
  LoadTest test(options, interrupts);
  files.clear();
  const LoadTest::Run done = test.run(options);
  const Summary& summary = done.summary;
  const nlohmann::json described = test.describe(options);
  if (files.json) {
    nlohmann::json out = to_json(summary);
    out["options"] = described;
    files.json->write(dump(out));
  }
  if (files.csv) {
    files.csv->write(
        to_csv({{"concurrency", {described.value("concurrency", 0) > 0 ? described["concurrency"].dump() : ""}},
                {"rate", {options.rate ? number_text(*options.rate) : ""}}},
               {summary}));
  }
  if (files.plot)
    files.plot->write(to_svg("folio-client bench: " + test.model().name, make_plots(summary, done.records)));
  std::printf("%s", to_text(summary).c_str());  // last: its reader may be gone
  if (test.signal() != 0) return 128 + test.signal();
  if (summary.num_ok == 0 || test.lost_records()) return kExitFailed;
  return 100 * summary.failed_share() > options.max_failed_percent ? kExitManyFailed : kExitOk;
}

}  // namespace

int run_bench(const BenchOptions& options, Interrupts& interrupts) {
  try {
    return run(options, interrupts);
  } catch (const CommandError& failure) {
    std::fprintf(stderr, "folio-client: %s\n", failure.what());
    return failure.exit_code();
  }
}

}  // namespace folio::client
