#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "client/flag_checks.h"
#include "client/load_test/bench.h"
#include "client/text.h"

namespace folio::client {
namespace {

constexpr const char* kDefaultHttpAddress = "127.0.0.1:8080";
constexpr double kMostSeconds = 1e7;

namespace fs = std::filesystem;

// What is no plain file (/dev/null, a terminal) may be named twice.
bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code ignored;
  if (fs::exists(a, ignored)) return fs::is_regular_file(a, ignored) && fs::equivalent(a, b, ignored);
  return fs::weakly_canonical(a, ignored) == fs::weakly_canonical(b, ignored);
}

// Names that mean files, and no two of them the same: one would destroy the other.
void check_files(const BenchOptions& options) {
  const std::pair<const char*, const std::string*> files[] = {{"--trace", &options.trace_file},
                                                              {"--records", &options.records_file},
                                                              {"--json", &options.json_file},
                                                              {"--csv", &options.csv_file},
                                                              {"--plot", &options.plot_file}};
  for (const auto& [name, path] : files) {
    if (*path == "-") throw CLI::ValidationError(name, "'-' is no file; /dev/stdin and /dev/stdout have names");
    for (const auto& [other, other_path] : files) {
      if (name == other) break;
      if (path->empty() || other_path->empty() || !is_same_file(*path, *other_path)) continue;
      throw CLI::ValidationError(name, *path + " is the file of " + other + " too");
    }
  }
}

// What `parse` throws becomes a complaint about the flag.
template <class Value, class Parse>
CLI::Option* add_parsed(CLI::App& app, const std::string& name, Value& value, const Parse& parse,
                        const std::string& help) {
  return app.add_option_function<std::string>(
      name,
      [&value, parse, name](const std::string& text) {
        try {
          value = parse(text);
        } catch (const std::invalid_argument& wrong) {
          throw CLI::ValidationError(name, wrong.what());
        }
      },
      help);
}

// A value for each word. The help and the completion name the words.
template <class Field, class Value>
void add_choice(CLI::App& app, const std::string& name, Field& field,
                std::vector<std::pair<std::string, Value>> choices, const std::string& help) {
  const auto listed = [choices](const std::string& separator) {
    std::string words;
    for (const auto& [word, value] : choices) words += (words.empty() ? "" : separator) + word;
    return words;
  };
  const auto parse = [choices, words = listed(", ")](const std::string& text) {
    for (const auto& [word, value] : choices) {
      if (word == text) return value;
    }
    throw std::invalid_argument("'" + text + "' is not one of " + words);
  };
  add_parsed(app, name, field, parse, help)->type_name("{" + listed(",") + "}");
}

CLI::Validator seconds() {
  return number_in(0, kMostSeconds);
}

void add_workload(CLI::App& app, BenchOptions& options) {
  WorkloadOptions& workload = options.workload;
  add_parsed(app, "--prompt-tokens", workload.prompt_tokens, Lengths::parse,
             "length of prompts: N, uniform:MIN,MAX or lognormal:MEDIAN,SIGMA[,MIN,MAX] (default 128)");
  add_parsed(app, "--output-tokens", workload.output_tokens, Lengths::parse,
             "length of answers, likewise (default 128)");
  add_choice<std::optional<PromptKind>, PromptKind>(
      app, "--prompts", options.prompts,
      {{"ids", PromptKind::kIds}, {"words", PromptKind::kWords}, {"text", PromptKind::kText}},
      "ids: random token ids (default); words: random words of one token each, as ids; text: those words as a text");
  auto* prefix =
      app.add_option("--shared-prefix", workload.shared_prefix, "tokens in front of each prompt that others have too")
          ->check(CLI::Range(0, 10'000'000))
          ->capture_default_str();
  app.add_option("--prefixes", workload.prefixes, "how many shared prefixes there are, drawn alike")
      ->check(CLI::Range(1, 1'000'000))
      ->needs(prefix)
      ->capture_default_str();
  auto* ignore = app.add_flag_callback(
      "--ignore-eos", [&workload] { workload.ignore_eos = true; }, "end tokens are ordinary tokens (default)");
  app.add_flag_callback(
         "--stop-at-eos", [&workload] { workload.ignore_eos = false; }, "end tokens end an answer")
      ->excludes(ignore);
  app.add_option("--stop", workload.stop, "an answer ends before this text; may be given several times")
      ->allow_extra_args(false)
      ->check(utf8());
  app.add_option("--n", workload.n, "answers to each prompt")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--temperature", workload.temperature, "of the sampling")->capture_default_str();
  app.add_option("--top-p", workload.top_p, "of the sampling");
  app.add_option("--top-k", workload.top_k, "of the sampling (0: all)")
      ->check(CLI::Range(0, std::numeric_limits<int>::max()));
  app.add_option("--tenant", workload.tenant, "whose share of the server this takes")->check(utf8());
  app.add_option("--cancel-fraction", workload.cancel_fraction,
                 "share of the requests that are cancelled, each after a random part of its tokens")
      ->check(number_in(0, 1))
      ->capture_default_str();
  app.add_option_function<std::int64_t>(
         "--deadline-ms", [&workload](std::int64_t ms) { workload.deadline = std::chrono::milliseconds(ms); },
         "time limit of each request, from when it is sent")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000}));
  app.add_option("--seed", workload.seed, "the same seed sends the same load")
      ->check(not_negative())
      ->capture_default_str();
}

void add_outputs(CLI::App& app, BenchOptions& options) {
  add_parsed(app, "--goodput", options.goals, parse_goals,
             "what a good answer keeps, in ms: ttft:500,itl:50,tpot:40,e2e:5000, or some of them");
  app.add_option("--max-failed", options.max_failed_percent,
                 "percent of failed, empty or missed requests without exit code 3")
      ->check(number_in(0, 100))
      ->capture_default_str();
  app.add_option("--json", options.json_file, "also write the summary to this file")->type_name("FILE");
  app.add_option("--csv", options.csv_file, "also write the figures as a table of one row to this file")
      ->type_name("FILE");
  app.add_option("--plot", options.plot_file, "also draw latencies and throughput into this SVG file")
      ->type_name("FILE");
  app.add_option("--records", options.records_file, "write a JSON line for each request as it ends to this file")
      ->type_name("FILE");
}

// What bench and bench sweep have in common.
void add_common(CLI::App& app, BenchOptions& options) {
  add_choice<std::optional<ArrivalKind>, ArrivalKind>(
      app, "--arrivals", options.arrivals,
      {{"poisson", ArrivalKind::kPoisson}, {"gamma", ArrivalKind::kGamma}, {"constant", ArrivalKind::kConstant}},
      "open loop: poisson, gamma or constant gaps (default poisson)");
  app.add_option("--burstiness", options.burstiness,
                 "shape of gamma gaps: below 1 burstier than poisson, above smoother")
      ->check(number_in(1e-3, 1e6));
  app.add_option("--max-concurrency", options.max_concurrency, "open loop: at most so many requests at a time")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--duration", options.duration_s, "seconds in which requests are sent")
      ->check(number_in(1e-3, kMostSeconds));
  app.add_option("--num-requests", options.num_requests, "requests at most")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000}));
  app.add_option("--warmup", options.warmup_s, "seconds at the start that are left out")->check(seconds());
  app.add_option("--cooldown", options.cooldown_s, "seconds before the last request's end that are left out")
      ->check(seconds());
  app.option_defaults()->group("What they ask");
  add_workload(app, options);
  app.option_defaults()->group("Results");
  add_outputs(app, options);
  app.option_defaults()->group("Connection");
  add_choice<Api, Api>(app, "--api", options.api, {{"grpc", Api::kGrpc}, {"openai", Api::kOpenAi}},
                       "grpc (default), or openai: any server with OpenAI's completions over HTTP, by default at " +
                           std::string(kDefaultHttpAddress));
  options.connection.add_to(app);
  app.add_option("--connections", options.connections, "connections, used in turn; with openai opened ahead")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--client-threads", options.threads, "threads that read the connections")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
}

// Flags that go together, and defaults that depend on others.
// `rate_flag`: what makes an open loop.
void settle(const CLI::App& app, BenchOptions& options, bool has_rate, const std::string& rate_flag) {
  check_files(options);
  if (options.api == Api::kOpenAi) {
    if (app.count("--address") == 0) options.connection.address = kDefaultHttpAddress;
    if (options.threads > 1) throw CLI::ValidationError("--client-threads", "goes with --api grpc");
  }
  if (!has_rate && options.arrivals) throw CLI::ValidationError("--arrivals", "goes with " + rate_flag);
  if (!has_rate && options.burstiness) throw CLI::ValidationError("--burstiness", "goes with " + rate_flag);
  if (options.max_concurrency && !has_rate && (options.trace_file.empty() || options.concurrency)) {
    throw CLI::ValidationError("--max-concurrency",
                               "goes with " + rate_flag + (rate_flag == "--rate" ? " or a trace with times" : ""));
  }
  if (options.burstiness && options.arrivals.value_or(ArrivalKind::kGamma) != ArrivalKind::kGamma) {
    throw CLI::ValidationError("--burstiness", "goes with --arrivals gamma");
  }
  if (options.duration_s && options.warmup_s + options.cooldown_s >= *options.duration_s) {
    throw CLI::ValidationError("--warmup", "warm-up and cool-down leave nothing of --duration");
  }
}

// Those of bench are not those of bench sweep: there they would be read and dropped.
void refuse_options_before(const CLI::App& subcommand, const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) continue;
    throw CLI::ValidationError(option->get_name(), "options go behind " + subcommand.get_name());
  }
}

}  // namespace

void BenchOptions::add_to(CLI::App& app) {
  app.option_defaults()->group("When requests are sent");
  auto* rate_option = app.add_option("--rate", rate, "open loop: requests a second, due whatever the server does")
                          ->check(number_in(1e-4, 1e6));
  app.add_option("--concurrency", concurrency,
                 "closed loop: callers that send the next when the last has ended (default 8)")
      ->check(CLI::Range(1, 1'000'000))
      ->excludes(rate_option);
  auto* trace = app.add_option("--trace", trace_file, "JSON lines with prompts or lengths, and with times or without")
                    ->type_name("FILE");
  app.add_option("--ramp", ramp_s, "seconds in which the rate, or the number of callers, rises to its value")
      ->check(seconds());
  add_common(app, *this);
  for (const char* lengths : {"--prompt-tokens", "--output-tokens", "--shared-prefix"}) {
    trace->excludes(app.get_option(lengths));
  }
  app.callback([this, &app] {
    for (const CLI::App* subcommand : app.get_subcommands()) return refuse_options_before(*subcommand, app);
    settle(app, *this, rate.has_value(), "--rate");
  });
}

void SweepOptions::add_to(CLI::App& app) {
  app.option_defaults()->group("When requests are sent");
  add_choice<bool, bool>(app, "--over", over_rate, {{"concurrency", false}, {"rate", true}},
                         "what rises: concurrency (closed loops, default) or rate (open loops)");
  auto* list = app.add_option("--points", points, "values, with commas between them, all of which are run")
                   ->delimiter(',')
                   ->check(number_in(1e-4, 1e6));
  app.add_option("--from", from, "without --points: the first value; it is doubled until the knee is passed")
      ->check(number_in(1e-4, 1e6))
      ->excludes(list)
      ->capture_default_str();
  app.add_option("--most", most, "without --points: the last value at most")
      ->check(number_in(1e-4, 1e6))
      ->excludes(list)
      ->capture_default_str();
  add_common(app, bench);
  app.callback([this, &app] {
    settle(app, bench, over_rate, "--over rate");
    check_points();
  });
}

// The knee is looked for on the way up, so values rise; a concurrency is a whole number.
void SweepOptions::check_points() const {
  const auto check_whole = [this](const char* flag, double value) {
    if (!over_rate && value != std::floor(value)) {
      throw CLI::ValidationError(flag, "a concurrency is a whole number");
    }
  };
  for (std::size_t i = 0; i < points.size(); ++i) {
    check_whole("--points", points[i]);
    if (i == 0 || points[i] > points[i - 1]) continue;
    throw CLI::ValidationError("--points", number_text(points[i]) + " is not above " + number_text(points[i - 1]) +
                                               ": values rise from one to the next");
  }
  check_whole("--from", from);
  if (from > most) {
    throw CLI::ValidationError("--from", number_text(from) + " is above --most, " + number_text(most));
  }
}

}  // namespace folio::client
