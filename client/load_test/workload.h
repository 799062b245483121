// What each request of a load asks for: number -> request, a function of the seed alone.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "client/load_test/lengths.h"
#include "client/load_test/trace.h"
#include "client/load_test/transport.h"

namespace folio::client {

enum class PromptKind {
  kIds,    // random ids of the vocabulary, control tokens too
  kWords,  // random words that are one token each for this model, sent as their ids
  kText,   // the same words sent as text, for servers that take no ids or to have them tokenise
};

struct WorkloadOptions {
  PromptKind prompts = PromptKind::kIds;
  Lengths prompt_tokens{128};      // of a prompt's own part
  std::int64_t shared_prefix = 0;  // tokens in front of it, from one of `prefixes` beginnings
  int prefixes = 1;
  Lengths output_tokens{128};
  bool ignore_eos = true;
  std::vector<std::string> stop;
  int n = 1;
  float temperature = 1;
  std::optional<float> top_p;
  std::optional<std::int32_t> top_k;
  std::string tenant;
  std::optional<std::chrono::milliseconds> deadline;
  double cancel_fraction = 0;  // of the requests, in [0, 1]
  std::uint64_t seed = 0;
};

struct PlannedRequest {
  RequestSpec spec;
  // The client cancels once it has this many tokens (0: as soon as it is sent).
  std::optional<std::int64_t> cancel_after;
};

// Words that are one token each for a model, however they are put in a row.
struct PromptWords {
  std::vector<std::string> words;  // each with the space in front of it
  std::vector<std::int32_t> ids;   // empty: the server does not tokenise, and a word counts as a token
  std::string note;                // what is to be told about that
};

// Asks the server for the ids of common English words and keeps those of one token; then has a row of them tokenised.
// Throws std::runtime_error when too few are left, or when the row is not as long as it should be.
PromptWords find_words(Transport& transport);

// Const, so any thread.
class Workload {
 public:
  // `words` are needed for the kinds kWords and kText (and kWords wants ids), `vocab_size` above 0 for kIds; else
  // throws std::runtime_error. A trace says prompts and lengths in the place of the options, over again when it ends.
  Workload(const WorkloadOptions& options, std::vector<TraceEntry> trace, std::int32_t vocab_size, PromptWords words);

  PlannedRequest request(std::int64_t number) const;

 private:
  class Prompt;
  void fill_from_options(Prompt& prompt, std::mt19937_64& random) const;
  void fill_from_trace(const TraceEntry& entry, Prompt& prompt, std::mt19937_64& random) const;

  const WorkloadOptions options_;
  const std::vector<TraceEntry> trace_;
  const std::int32_t vocab_size_;
  const PromptWords words_;
};

}  // namespace folio::client
