// One server and the runs of a load against it, with what they have in common: the wire, the model, the words of
// prompts, the trace, the file of records, and Ctrl-C.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "client/load_test/bench.h"
#include "client/load_test/output_file.h"
#include "client/load_test/runner.h"
#include "client/load_test/summary.h"
#include "client/load_test/transport.h"

namespace folio::client {

class LoadTest {
 public:
  // Opens the file of records, reads the trace and asks the server for its model. Throws std::runtime_error. From its
  // end on the first signal ends the run under way, the second ends the program.
  LoadTest(const BenchOptions& options, Interrupts& interrupts);
  ~LoadTest();
  LoadTest(const LoadTest&) = delete;
  LoadTest& operator=(const LoadTest&) = delete;

  struct Run {
    Summary summary;
    std::vector<RequestRecord> records;  // in the order of their ends
  };
  // `options` may differ from the constructor's in the seed and in when requests are sent. `title` stands in front of
  // the progress line, `label` in each record. After a signal a run ends as soon as it has begun.
  Run run(const BenchOptions& options, const std::string& title = "", const nlohmann::json* label = nullptr);

  const ServedModel& model() const { return model_; }
  // What a summary's JSON says of the load: the flags that shaped it.
  nlohmann::json describe(const BenchOptions& options) const;
  int signal() const;  // the one that came; 0: none
  // The file of records could not be written any more, which was told on the error output; runs go on without.
  bool lost_records() const { return lost_records_; }

 private:
  bool has_times() const { return !trace_.empty() && trace_[0].at_s.has_value(); }
  void choose_prompts(std::optional<PromptKind> wanted);
  SendPlan plan(const BenchOptions& options) const;
  void write_record(const RequestRecord& record, const nlohmann::json* label);

  Interrupts& interrupts_;
  std::optional<OutputFile> records_file_;
  bool lost_records_ = false;
  std::vector<TraceEntry> trace_;
  std::unique_ptr<Transport> transport_;
  ServedModel model_;
  PromptKind prompts_ = PromptKind::kIds;
  PromptWords words_;

  mutable std::mutex mutex_;
  Runner* runner_ = nullptr;  // under way
  int signal_ = 0;
};

}  // namespace folio::client
