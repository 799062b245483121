// Sweeps against a server with known truth, and the flags of both commands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "client/completion.h"
#include "client/load_test/bench.h"
#include "tests/client/load_test/bench_runs.h"
#include "tests/client/load_test/mock_server.h"
#include "tests/support/temp_folder.h"

namespace folio::client {
namespace {

using namespace std::chrono_literals;
using namespace folio::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Sweep, RisesToTheKneeWithOtherPromptsEachTime) {
  std::mutex mutex;
  std::set<std::string> prompts;
  std::atomic<int> num_calls{0};
  std::mutex one_at_a_time;  // so that more callers than one or two give nothing
  const MockServer server([&](int, const v1::GenerateRequest& request, auto&, Writer& writer) {
    num_calls.fetch_add(1);
    {
      const std::lock_guard lock(mutex);
      prompts.insert(request.tokens().SerializeAsString());
    }
    const std::lock_guard lock(one_at_a_time);
    std::this_thread::sleep_for(5ms);
    return answer_at_once(writer, 10);
  });
  const TempFolder folder;
  SweepOptions options;
  options.bench = small_bench(30, 0);
  options.bench.concurrency.reset();
  options.bench.workload.prompt_tokens = Lengths(8);
  options.bench.connection.address = server.address();
  options.bench.json_file = folder.path("sweep.json");
  options.bench.csv_file = folder.path("sweep.csv");
  options.bench.plot_file = folder.path("sweep.svg");
  options.bench.records_file = folder.path("records.jsonl");
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_sweep(options, interrupts()), kExitOk);
  const std::string text = ::testing::internal::GetCapturedStdout();
  const nlohmann::json json = nlohmann::json::parse(read_file(options.bench.json_file));
  const std::size_t num_points = json["points"].size();
  EXPECT_GE(num_points, 3U);
  EXPECT_LE(num_points, 8U);
  EXPECT_EQ(json["points"][1]["concurrency"], 2);
  EXPECT_LE(json["knee"], 4);
  EXPECT_EQ(json["knee_reached"], true);
  EXPECT_THAT(read_file(options.bench.plot_file), HasSubstr("knee: concurrency "));
  EXPECT_EQ(json["options"]["num_requests"], 30);
  EXPECT_FALSE(json["options"].contains("concurrency"));
  EXPECT_THAT(text, HasSubstr("knee: concurrency "));
  EXPECT_EQ(prompts.size(), static_cast<std::size_t>(num_calls.load()));
  EXPECT_EQ(read_records(options.bench.records_file).size(), 30 * num_points);
  EXPECT_EQ(read_records(options.bench.records_file).back()["concurrency"], json["points"].back()["concurrency"]);
  EXPECT_THAT(read_file(options.bench.plot_file), HasSubstr("latency against throughput"));
  const std::string csv = read_file(options.bench.csv_file);
  EXPECT_EQ(static_cast<std::size_t>(std::count(csv.begin(), csv.end(), '\n')), num_points + 1);
}

TEST(Sweep, CtrlCKeepsThePointsThatAreThere) {
  const MockServer server([](int number, auto&, grpc::ServerContext& context, Writer& writer) {
    if (number == 25) kill(getpid(), SIGTERM);
    while (number >= 25 && !context.IsCancelled()) std::this_thread::sleep_for(1ms);
    return answer_at_once(writer, 1);
  });
  const TempFolder folder;
  SweepOptions options;
  options.bench = small_bench(20, 0);
  options.bench.concurrency.reset();
  options.points = {1, 2, 4};
  options.bench.connection.address = server.address();
  options.bench.json_file = folder.path("sweep.json");
  options.bench.plot_file = folder.path("sweep.svg");
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_sweep(options, interrupts()), 128 + SIGTERM);
  EXPECT_THAT(
      ::testing::internal::GetCapturedStdout(),
      AllOf(HasSubstr("PARTIAL"), HasSubstr("the knee was not reached: concurrency 1 is the last complete point")));
  const nlohmann::json json = nlohmann::json::parse(read_file(options.bench.json_file));
  EXPECT_EQ(json["partial"], true);
  EXPECT_EQ(json["knee_reached"], false);
  EXPECT_FALSE(json.contains("knee"));
  EXPECT_THAT(read_file(options.bench.plot_file), Not(HasSubstr("knee")));
  ASSERT_EQ(json["points"].size(), 2U);
  EXPECT_EQ(json["points"][0]["num_ok"], 20);
  EXPECT_EQ(json["points"][1]["partial"], true);
}

// All of the second point's requests fail or are empty: its row says why, and the exit code that it was too many.
TEST(Sweep, FailuresAreToldAndEndInTheExitCode) {
  const MockServer server([](int number, auto&, auto&, Writer& writer) -> grpc::Status {
    if (number < 10) return answer_at_once(writer, 5);
    if (number % 2 == 0) return writer.Write(end(0)), grpc::Status::OK;
    return {grpc::StatusCode::INVALID_ARGUMENT, "prompt of 9000 tokens"};
  });
  SweepOptions options;
  options.bench = small_bench(10, 0);
  options.bench.concurrency.reset();
  options.points = {1, 2};
  options.bench.connection.address = server.address();
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_sweep(options, interrupts()), kExitManyFailed);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              AllOf(HasSubstr("100.0 %\n  INVALID_ARGUMENT: 5, first: prompt of 9000 tokens\n  empty: 5\n"),
                    HasSubstr("  0.0 %\n"), HasSubstr("knee: concurrency 1\n")));
  options.bench.max_failed_percent = 100;
  options.points = {1};
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_sweep(options, interrupts()), kExitFailed);  // nothing was ok
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("no knee: no request ended well"));
}

// Where bench's own options would be read and dropped.
TEST(Flags, OptionsOfASweepGoBehindIt) {
  const auto parse = [](const std::string& line) -> std::string {
    CLI::App app;
    BenchOptions bench_options;
    SweepOptions sweep_options;
    CLI::App& command = *app.add_subcommand("bench");
    bench_options.add_to(command);
    sweep_options.add_to(*command.add_subcommand("sweep"));
    try {
      app.parse("bench " + line);
    } catch (const CLI::ParseError& wrong) {
      return wrong.what();
    }
    return "";
  };
  EXPECT_EQ(parse("sweep --address localhost:1 --points 1,2"), "");
  EXPECT_THAT(parse("--address localhost:1 sweep --points 1,2"), HasSubstr("--address: options go behind sweep"));
  EXPECT_THAT(parse("--stop-at-eos sweep"), HasSubstr("options go behind sweep"));
}

TEST(Flags, WordsToChooseFromAreListed) {
  CLI::App app;
  BenchOptions bench_options;
  SweepOptions sweep_options;
  bench_options.add_to(app);
  CLI::App& sweep = *app.add_subcommand("sweep");
  sweep_options.add_to(sweep);
  EXPECT_EQ(app.get_option("--api")->get_type_name(), "{grpc,openai}");
  EXPECT_EQ(app.get_option("--arrivals")->get_type_name(), "{poisson,gamma,constant}");
  EXPECT_EQ(app.get_option("--prompts")->get_type_name(), "{ids,words,text}");
  EXPECT_EQ(sweep.get_option("--over")->get_type_name(), "{concurrency,rate}");
  EXPECT_THAT(bash_completion(app), HasSubstr("--over) COMPREPLY=($(compgen -W 'concurrency rate' -- "));
}

// What a command line is refused for, by the flag's name.
TEST(Flags, FaultsAreNamed) {
  const auto refusal = [](const std::string& line, bool sweep = false) -> std::string {
    CLI::App app;
    BenchOptions bench_options;
    SweepOptions sweep_options;
    CLI::App& command = *app.add_subcommand("bench");
    if (sweep) {
      sweep_options.add_to(command);
    } else {
      bench_options.add_to(command);
    }
    try {
      app.parse("bench " + line);
    } catch (const CLI::ParseError& wrong) {
      return wrong.what();
    }
    return "";
  };
  EXPECT_EQ(refusal("--concurrency 8 --num-requests 64 --prompt-tokens 128 --output-tokens 64 --seed 3 --temperature 0 "
                    "--tenant t --json f"),
            "");
  EXPECT_EQ(refusal("--rate 5 --burstiness 0.5 --max-concurrency 9 --ramp 3 --warmup 2 --cooldown 2 --duration 30"),
            "");
  EXPECT_EQ(refusal("--over rate --points 1,2.5 --goodput ttft:500", true), "");
  const std::pair<const char*, const char*> faults[] = {
      {"--rate 5 --concurrency 3", "--rate excludes --concurrency"},
      {"--rate 0", "--rate"},
      {"--burstiness 2", "--burstiness: goes with --rate"},
      {"--max-concurrency 2", "--max-concurrency: goes with --rate"},
      {"--rate 1 --arrivals constant --burstiness 2", "--burstiness: goes with --arrivals gamma"},
      {"--rate 1 --arrivals uniform", "--arrivals: 'uniform' is not one of poisson, gamma, constant"},
      {"--duration 3 --warmup 2 --cooldown 1", "--warmup: warm-up and cool-down leave nothing"},
      {"--prompt-tokens uniform:9", "--prompt-tokens: uniform wants"},
      {"--goodput fast:1", "--goodput: 'fast' is not one of"},
      {"--prompts letters", "--prompts: 'letters' is not one of ids, words, text"},
      {"--cancel-fraction 1.5", "--cancel-fraction"},
      {"--api http", "--api: 'http' is not one of grpc, openai"},
      {"--api openai --client-threads 2", "--client-threads: goes with --api grpc"},
      {"--trace f --prompt-tokens 5", "--trace excludes --prompt-tokens"},
      {"--prompt-tokens lognormal:5,100", "--prompt-tokens: SIGMA '100' is not a number in [0, 10]"},
      {"--seed -1", "--seed: Value -1 is below 0"},
      {"--top-k -5", "--top-k"},
      {"--prefixes 3", "--prefixes requires --shared-prefix"},
      {"--tenant \xff", "--tenant: not UTF-8 at byte 0"},
      {"--stop a\xff", "--stop: not UTF-8 at byte 1"},
      {"--ignore-eos --stop-at-eos", "excludes"},
  };
  for (const auto& [line, complaint] : faults) EXPECT_THAT(refusal(line), HasSubstr(complaint)) << line;
  EXPECT_THAT(refusal("--points 1.5", true), HasSubstr("--points: a concurrency is a whole number"));
  EXPECT_THAT(refusal("--over load", true), HasSubstr("--over: 'load' is not one of concurrency, rate"));
  EXPECT_THAT(refusal("--points 1 --from 2", true), HasSubstr("--points excludes --from"));
  // The knee is looked for on the way up.
  EXPECT_THAT(refusal("--points 4,2", true), HasSubstr("--points: 2 is not above 4"));
  EXPECT_THAT(refusal("--points 1,2,2", true), HasSubstr("--points: 2 is not above 2"));
  EXPECT_THAT(refusal("--from 8 --most 4", true), HasSubstr("--from: 8 is above --most, 4"));
  EXPECT_THAT(refusal("--arrivals gamma --points 1", true), HasSubstr("--arrivals: goes with --over rate"));
  EXPECT_EQ(refusal("--over rate --arrivals gamma --points 1", true), "");
}

TEST(Flags, MoreRequestsThanATraceHasTimesForAreRefused) {
  const MockServer server([](int, auto&, auto&, Writer& writer) { return answer_at_once(writer, 5); });
  const TempFolder folder;
  BenchOptions options;
  options.connection.address = server.address();
  options.trace_file = folder.write("trace", R"({"at": 0, "prompt": "a", "output_tokens": 5})");
  options.num_requests = 3;
  EXPECT_EQ(run_bench(options, interrupts()), kExitUsage);
  options.concurrency = 1;  // which sends it over again
  EXPECT_EQ(run_bench(options, interrupts()), kExitOk);
}

}  // namespace
}  // namespace folio::client
