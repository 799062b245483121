// A summary as people, programs and spreadsheets read it.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "client/load_test/summary.h"
#include "client/plot.h"

namespace folio::client {

// What a terminal shows: counts, errors with their first words, rates, a table of latencies with the number of samples
// beside each, and warnings.
std::string to_text(const Summary& summary);

// What the failed share of a summary is made of: a line for each kind of failure with the first one's words, and for
// empty requests and those never sent.
std::string failures_text(const Summary& summary);

nlohmann::json to_json(const Summary& summary);

// One header and a row for each summary, the same columns whatever is in it; a figure without samples is empty.
// `labels` stand in the first columns: {name, value of each row}.
using Labels = std::vector<std::pair<std::string, std::vector<std::string>>>;
std::string to_csv(const Labels& labels, const std::vector<Summary>& summaries);

// Latency against time, percentile curves, throughput and requests under way against time.
std::vector<Plot> make_plots(const Summary& summary, const std::vector<RequestRecord>& records);

}  // namespace folio::client
