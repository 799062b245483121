// The load test against a server with known truth.
#include "client/load_test/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/client/load_test/bench_runs.h"
#include "tests/client/load_test/mock_server.h"
#include "tests/support/temp_folder.h"

namespace folio::client {
namespace {

using namespace std::chrono_literals;
using namespace folio::testing;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// C02: 30 % end without a token, 10 % break, 5 % send usage alone.
TEST(Bench, WhatHasNoTokenHasNoLatency) {
  const MockServer server([](int number, auto&, auto&, Writer& writer) -> grpc::Status {
    if (number % 20 < 6) return writer.Write(end(0)), grpc::Status::OK;
    if (number % 20 < 8) return {grpc::StatusCode::UNAVAILABLE, "gone"};
    if (number % 20 == 8) {
      v1::GenerateChunk usage = end(0);
      usage.mutable_outputs(0)->set_index(0);
      writer.Write(v1::GenerateChunk());
      writer.Write(usage);
      return grpc::Status::OK;
    }
    std::this_thread::sleep_for(30ms);
    return answer_at_once(writer, 4);
  });
  const Outcomes out = bench(server, small_bench(100, 10));
  EXPECT_EQ(out.json["num_ok"], 55);
  EXPECT_EQ(out.json["num_empty"], 35);
  EXPECT_EQ(out.json["num_failed"], 10);
  EXPECT_EQ(out.json["ttft_ms"]["count"], 55);
  EXPECT_GE(out.json["ttft_ms"]["min"], 30);
  EXPECT_EQ(out.json["output_tokens"], 220);
  EXPECT_EQ(out.exit_code, kExitManyFailed);
  EXPECT_EQ(out.records.size(), 100U);
}

// C03: tokens are counted, not chunks, and a chunk's time is shared by its tokens.
TEST(Bench, TokensAreCountedHoweverTheyAreCut) {
  for (const int num_chunks : {1, 4, 10, 100}) {
    const MockServer server([num_chunks](int, const v1::GenerateRequest& request, auto&, Writer& writer) {
      EXPECT_EQ(request.tokens().ids_size(), 3);
      EXPECT_TRUE(request.stopping().ignore_eos());
      for (int i = 0; i < num_chunks; ++i) {
        if (i > 0) std::this_thread::sleep_for(4ms);
        writer.Write(tokens(100 / num_chunks));
        writer.Write(v1::GenerateChunk());  // nothing in it
      }
      writer.Write(end(100));
      return grpc::Status::OK;
    });
    const Outcomes out = bench(server, small_bench(2, 1));
    EXPECT_EQ(out.exit_code, kExitOk);
    EXPECT_EQ(out.json["output_tokens"], 200);
    EXPECT_EQ(out.json["itl_ms"]["count"], 198);
    EXPECT_EQ(out.json["num_counts_differ"], 0);
    const double mean_itl = out.json["itl_ms"]["mean"];
    const double mean_e2e = out.json["e2e_ms"]["mean"];
    EXPECT_LE(mean_itl * 99, mean_e2e);
    EXPECT_GE(mean_itl * 99, num_chunks - 1);  // of the 4 ms each: a busy machine may read the first ones late
    EXPECT_GE(out.json["peak_output_tokens_per_second"], out.json["output_tokens_per_second"]);
  }
}

// The first message with content is the first token: not the prompt's, nor an empty one. Text may be held back.
TEST(Bench, TheFirstTokenIsTheFirstContent) {
  const MockServer server([](int, auto&, auto&, Writer& writer) {
    v1::GenerateChunk prompt;
    prompt.mutable_prompt_info()->set_num_tokens(3);
    writer.Write(prompt);
    v1::GenerateChunk empty;
    empty.add_outputs();
    writer.Write(empty);
    std::this_thread::sleep_for(60ms);
    writer.Write(tokens(1));
    std::this_thread::sleep_for(80ms);
    v1::GenerateChunk late = tokens(2);
    late.mutable_outputs(0)->set_text("held back until now");
    writer.Write(late);
    writer.Write(end(3));
    return grpc::Status::OK;
  });
  const Outcomes out = bench(server, small_bench(1, 1));
  EXPECT_GE(out.json["ttft_ms"]["min"], 60);
  EXPECT_GE(out.json["tpot_ms"]["mean"], 30);  // of the 80 ms two tokens have half each
  EXPECT_LT(out.json["ttft_ms"]["max"], out.json["e2e_ms"]["min"].get<double>() - 60);
}

TEST(Bench, AnswersOfOnePromptHaveGapsOfTheirOwn) {
  const MockServer server([](int, const v1::GenerateRequest& request, auto&, Writer& writer) {
    EXPECT_EQ(request.n(), 2);
    for (int step = 0; step < 3; ++step) {
      v1::GenerateChunk both = tokens(1, 0);
      *both.add_outputs() = tokens(1, 1).outputs(0);
      writer.Write(both);
      std::this_thread::sleep_for(10ms);
    }
    v1::GenerateChunk last = end(6);
    last.add_outputs()->set_index(1);
    last.mutable_outputs(1)->set_finish_reason(v1::FINISH_REASON_STOP_TOKEN);
    writer.Write(last);
    return grpc::Status::OK;
  });
  BenchOptions options = small_bench(3, 1);
  options.workload.n = 2;
  const Outcomes out = bench(server, options);
  EXPECT_EQ(out.json["num_ok"], 3);
  EXPECT_EQ(out.json["itl_ms"]["count"], 12);
  EXPECT_GE(out.json["itl_ms"]["p50"], 5);  // not 0 for every second one
}

// C05: each kind of failure by its name, none of them in the figures.
TEST(Bench, FailuresAreCountedByKind) {
  const MockServer server([](int number, auto&, auto&, Writer& writer) -> grpc::Status {
    switch (number % 6) {
      case 0:
        writer.Write(tokens(5));
        return {grpc::StatusCode::UNAVAILABLE, "in the middle"};
      case 1:
        return {grpc::StatusCode::RESOURCE_EXHAUSTED, "full"};
      case 2:
        writer.Write(tokens(5));
        return grpc::Status::OK;  // no finish reason
      case 3:
        writer.Write(tokens(5));
        writer.Write(end(5, v1::FINISH_REASON_ERROR));
        return grpc::Status::OK;
      case 4:
        writer.Write(tokens(5));
        writer.Write(end(5));
        return {grpc::StatusCode::INTERNAL, "after the end"};
      default:
        return answer_at_once(writer, 5);
    }
  });
  const Outcomes out = bench(server, small_bench(60, 6));
  EXPECT_EQ(out.exit_code, kExitManyFailed);
  EXPECT_EQ(out.json["num_ok"], 10);
  EXPECT_EQ(out.json["num_failed"], 50);
  EXPECT_EQ(out.json["num_refused"], 10);
  for (const char* kind : {"UNAVAILABLE", "RESOURCE_EXHAUSTED", "no end", "finish ERROR", "INTERNAL"}) {
    EXPECT_EQ(out.json["errors"][kind]["count"], 10) << kind;
  }
  EXPECT_EQ(out.json["errors"].size(), 5U);
  EXPECT_EQ(out.json["errors"]["UNAVAILABLE"]["first_message"], "in the middle");
  EXPECT_EQ(out.json["ttft_ms"]["count"], 10);
  EXPECT_EQ(out.json["output_tokens"], 50);
  EXPECT_EQ(server.num_calls(), 60);  // no hidden retries
  BenchOptions lenient = small_bench(60, 6);
  lenient.max_failed_percent = 90;
  EXPECT_EQ(bench(server, lenient).exit_code, kExitOk);
}

TEST(Bench, NothingGoodIsAFailure) {
  const MockServer server([](int, auto&, auto&, Writer&) { return grpc::Status(grpc::StatusCode::INTERNAL, "no"); });
  const Outcomes out = bench(server, small_bench(5, 2));
  EXPECT_EQ(out.exit_code, kExitFailed);
  EXPECT_EQ(out.json["ttft_ms"].dump(), R"({"count":0})");
}

TEST(Bench, ADeadlineEndsSlowStreamsAndCounts) {
  const MockServer server([](int number, auto&, grpc::ServerContext& context, Writer& writer) {
    writer.Write(tokens(1));
    if (number == 1) {
      while (!context.IsCancelled()) std::this_thread::sleep_for(1ms);
    }
    writer.Write(end(1));
    return grpc::Status::OK;
  });
  BenchOptions options = small_bench(3, 1);
  options.workload.deadline = 300ms;
  const Outcomes out = bench(server, options);
  EXPECT_EQ(out.json["num_ok"], 2);
  EXPECT_EQ(out.json["errors"]["DEADLINE_EXCEEDED"]["count"], 1);
}

TEST(Bench, ConcurrencyIsKeptAndASeedSendsTheSameLoad) {
  std::atomic<int> live{0};
  std::atomic<int> most{0};
  std::mutex mutex;
  std::multiset<std::string> seen;
  const MockServer server([&](int, const v1::GenerateRequest& request, auto&, Writer& writer) {
    const int now = live.fetch_add(1) + 1;
    int before = most.load();
    while (now > before && !most.compare_exchange_weak(before, now)) {
    }
    {
      const std::lock_guard lock(mutex);
      seen.insert(request.SerializeAsString());
    }
    std::this_thread::sleep_for(5ms);
    live.fetch_sub(1);
    return answer_at_once(writer, 1);
  });
  BenchOptions options = small_bench(20, 4);
  options.workload.prompt_tokens = Lengths::parse("uniform:1,30");
  options.workload.output_tokens = Lengths::parse("lognormal:20,0.5");
  options.workload.seed = 9;
  bench(server, options);
  EXPECT_LE(most.load(), 4);
  EXPECT_GE(most.load(), 2);
  const std::multiset<std::string> first = std::exchange(seen, {});
  options.concurrency = 2;  // who sends what changes, what is sent does not
  options.connections = 3;
  options.threads = 2;
  bench(server, options);
  EXPECT_EQ(seen, first);
  seen.clear();
  options.workload.seed = 10;
  bench(server, options);
  EXPECT_NE(seen, first);
}

// C04, over the real wire: 48 ms of service, 40 requests a second, 4 at a time, and nothing moves for 1.2 s.
TEST(Bench, AFreezeShowsInLatencyFromTheDueTime) {
  const auto start = std::chrono::steady_clock::now();
  const MockServer server([start](int, auto&, auto&, Writer& writer) {
    std::this_thread::sleep_for(48ms);
    const auto since = std::chrono::steady_clock::now() - start;
    if (since > 800ms && since < 2s) std::this_thread::sleep_until(start + 2s);
    return answer_at_once(writer, 2);
  });
  BenchOptions options = small_bench(1000, 8);
  options.num_requests.reset();
  options.concurrency.reset();
  options.rate = 40;
  options.arrivals = ArrivalKind::kConstant;
  options.max_concurrency = 4;
  options.duration_s = 4;
  const Outcomes out = bench(server, options);
  const nlohmann::json& json = out.json;
  EXPECT_EQ(json["num_ok"].get<int>() + json["num_missed"].get<int>(), 160);
  EXPECT_GT(json["e2e_ms"]["p99"], 1000);
  EXPECT_GT(json["e2e_ms"]["p90"], 500);
  EXPECT_LT(json["e2e_from_sent_ms"]["p90"], 500);
  EXPECT_GT(json["send_delay_ms"]["p95"], 400);
  EXPECT_NEAR(json["open_loop"]["due_per_second"].get<double>(), 40, 1);
  EXPECT_THAT(out.text, AllOf(HasSubstr("first token, from sent"), HasSubstr("open loop: "),
                              HasSubstr("requests were sent more than 100 ms after they were due")));
}

// C06
TEST(Bench, CtrlCGivesAPartialSummary) {
  std::atomic<int> num_aborted{0};
  const MockServer server([&](int number, auto&, grpc::ServerContext& context, Writer& writer) {
    writer.Write(tokens(1));
    if (number == 3) kill(getpid(), SIGINT);
    while (number >= 3 && !context.IsCancelled()) std::this_thread::sleep_for(1ms);
    if (number >= 3) num_aborted.fetch_add(1);
    writer.Write(end(1));
    return grpc::Status::OK;
  });
  const auto start = std::chrono::steady_clock::now();
  const Outcomes out = bench(server, small_bench(100, 1));
  EXPECT_EQ(out.exit_code, kExitInterrupted);
  EXPECT_EQ(out.json["partial"], true);
  EXPECT_EQ(out.json["num_ok"], 3);
  EXPECT_EQ(out.json["num_aborted"], 1);
  EXPECT_EQ(out.records.size(), 4U);
  EXPECT_EQ(out.records.back()["outcome"], "aborted");
  EXPECT_THAT(out.text, HasSubstr("PARTIAL"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

TEST(Bench, FilesThatCannotBeWrittenAreToldBeforeTheRun) {
  const MockServer server([](int, auto&, auto&, Writer& writer) { return answer_at_once(writer, 1); });
  for (const auto file :
       {&BenchOptions::json_file, &BenchOptions::csv_file, &BenchOptions::plot_file, &BenchOptions::records_file}) {
    for (const char* path : {"/no/such/folder/file", "/dev/full"}) {
      BenchOptions options = small_bench(1, 1);
      options.connection.address = server.address();
      options.*file = path;
      try {
        run_bench(options, interrupts());
        ADD_FAILURE() << path;
      } catch (const std::runtime_error& failure) {
        EXPECT_THAT(failure.what(), HasSubstr(std::string(path) + ": cannot be written"));
      }
    }
  }
  EXPECT_EQ(server.num_calls(), 0);
}

TEST(Bench, ATraceIsReplayed) {
  std::mutex mutex;
  std::vector<std::pair<std::string, std::int64_t>> seen;
  const MockServer server([&](int, const v1::GenerateRequest& request, auto&, Writer& writer) {
    const std::lock_guard lock(mutex);
    seen.emplace_back(request.text(), request.stopping().max_tokens());
    return answer_at_once(writer, 1);
  });
  const TempFolder folder;
  BenchOptions options;
  options.trace_file = folder.write("trace.jsonl", R"({"at": 5, "prompt": "a b", "output_tokens": 3}
{"at": 5.3, "prompt_tokens": 7, "output_tokens": 4}
)");
  const Outcomes out = bench(server, options);
  EXPECT_EQ(out.json["num_ok"], 2);
  EXPECT_GE(out.json["duration_s"], 0.3);
  EXPECT_EQ(seen, (std::vector<std::pair<std::string, std::int64_t>>{{"a b", 3}, {"", 4}}));
  EXPECT_NEAR(out.records[1]["due_s"].get<double>(), 0.3, 1e-6);
}

TEST(Bench, EveryFileOfAResultIsThere) {
  const MockServer server([](int, auto&, auto&, Writer& writer) { return answer_at_once(writer, 5); });
  BenchOptions options = small_bench(20, 4);
  options.goals = parse_goals("ttft:60000");
  const Outcomes out = bench(server, options);
  EXPECT_EQ(out.json["goodput"]["num_good"], 20);
  EXPECT_EQ(out.json["options"]["concurrency"], 4);
  EXPECT_EQ(out.json["options"]["prompt_tokens"], 3);
  EXPECT_THAT(out.csv, AllOf(HasSubstr("concurrency,rate,partial"), HasSubstr("\n4,,false,")));
  EXPECT_THAT(out.plot, AllOf(HasSubstr("<svg"), HasSubstr("time to first token"), HasSubstr("percentiles")));
  EXPECT_EQ(out.records.size(), 20U);
  EXPECT_EQ(out.records[0]["output_tokens"], 5);
}

// Whoever has the file can run the load again.
TEST(Bench, TheResultSaysWithWhichFlags) {
  const MockServer server([](int, const v1::GenerateRequest& request, auto&, Writer& writer) {
    EXPECT_THAT(request.stopping().stop(), ElementsAre("end", ", "));
    return answer_at_once(writer, 5);
  });
  BenchOptions options = small_bench(4, 2);
  options.workload.top_p = 0.5F;
  options.workload.top_k = 40;
  options.workload.tenant = "t";
  options.workload.stop = {"end", ", "};
  options.max_failed_percent = 25;
  options.threads = options.connections = 2;
  nlohmann::json said = bench(server, options).json["options"];
  EXPECT_EQ(said["top_p"], 0.5);
  EXPECT_EQ(said["top_k"], 40);
  EXPECT_EQ(said["tenant"], "t");
  EXPECT_EQ(said["stop"], nlohmann::json({"end", ", "}));
  EXPECT_EQ(said["max_failed"], 25);
  EXPECT_EQ(said["client_threads"], 2);

  const TempFolder folder;
  options.num_requests.reset();
  options.concurrency.reset();
  options.trace_file = folder.write("trace.jsonl", R"({"prompt": "a b", "output_tokens": 3})");
  said = bench(server, options).json["options"];
  EXPECT_EQ(said["concurrency"], 8);
  EXPECT_EQ(said["num_requests"], 1);
}

TEST(Bench, AnswersShorterThanAskedAreTold) {
  const MockServer server([](int, auto&, auto&, Writer& writer) { return answer_at_once(writer, 60); });
  Outcomes run = bench(server, small_bench(4, 2));
  EXPECT_EQ(run.exit_code, kExitOk);
  EXPECT_EQ(run.json["num_short"], 4);
  EXPECT_EQ(run.json["num_missing_tokens"], 4 * 40);
  EXPECT_THAT(run.text, HasSubstr("warning: 4 of 4 answers were shorter than asked, 160 tokens fewer"));
  BenchOptions options = small_bench(4, 2);
  options.workload.ignore_eos = false;
  EXPECT_EQ(bench(server, options).json["num_short"], 0);
}

}  // namespace
}  // namespace folio::client
