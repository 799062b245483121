// folio-client: generate, chat, bench, plan, load, completion.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <stdexcept>

#include "client/chat.h"
#include "client/common.h"
#include "client/completion.h"
#include "client/failure.h"
#include "client/flag_checks.h"
#include "client/generate.h"
#include "client/load.h"
#include "client/load_test/bench.h"
#include "client/plan/plan.h"

namespace {

using namespace folio::client;

void add_generate(CLI::App& app, GenerateOptions& options) {
  auto* prompt = app.add_option("prompt", options.prompt, "the prompt's text (default, and '-': the standard input)");
  app.add_option("--file", options.file, "read the prompt from this file")->type_name("FILE")->excludes(prompt);
  options.connection.add_to(app);
  app.add_flag("--parse-special", options.parse_special, "spellings of control tokens are those tokens");
  app.add_flag("--stats", options.stats, "timings and counts after the answer");
  app.add_flag("--json", options.json, "the whole answer as one JSON object");
  options.flags.add_to(app);
}

void add_chat(CLI::App& app, ChatOptions& options) {
  app.add_option("message", options.message, "one turn with this message (default: a conversation)");
  options.connection.add_to(app);
  app.add_option("--system", options.system, "system message");
  app.add_flag("--stats", options.stats, "timings and counts after each answer");
  app.add_flag("--json", options.json, "each answer as one JSON object");
  options.flags.add_to(app);
}

void add_load(CLI::App& app, LoadOptions& options) {
  options.connection.add_to(app);
  app.add_option("--interval-ms", options.interval_ms, "time between two looks")
      ->check(CLI::Range(10, 3'600'000))
      ->capture_default_str();
  app.add_option("--count", options.count, "end after so many (default: at Ctrl-C)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  app.add_flag("--json", options.json, "each as one JSON object a line");
}

void add_completion(CLI::App& app, std::string& shell) {
  app.add_option("shell", shell, "for this shell")->required()->check(CLI::IsMember({"bash"}));
}

// A full disk must not pass for an answer.
int with_written_output(int exit_code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  std::fprintf(stderr, "folio-client: the standard output could not be written whole\n");
  return exit_code == kExitOk ? kExitFailed : exit_code;
}

int run(int argc, char** argv) {
  CLI::App app(
      "folio-client: asks a folio-server, chats with it, watches it, and measures it or any OpenAI-style server",
      "folio-client");
  app.footer(
      "Exit codes: 0 done, 1 failed, 2 wrong command line, 3 too many failed requests (bench), 4 no server there,\n"
      "5 refused by the server, 130 Ctrl-C. docs/client.md has more.");
  app.set_version_flag("--version", std::string("folio-client ") + FOLIO_VERSION);
  app.require_subcommand(1);
  GenerateOptions generate;
  ChatOptions chat;
  BenchOptions bench;
  SweepOptions sweep;
  PlanOptions plan;
  LoadOptions load;
  std::string shell;
  CLI::App& generate_command = *app.add_subcommand("generate", "one prompt, one streamed answer");
  CLI::App& chat_command = *app.add_subcommand("chat", "a conversation; Ctrl-C stops an answer, /exit leaves");
  CLI::App& bench_command = *app.add_subcommand("bench", "load test; see also bench sweep --help");
  CLI::App& sweep_command = *bench_command.add_subcommand("sweep", "load tests with more and more load, to the knee");
  add_generate(generate_command, generate);
  add_chat(chat_command, chat);
  bench.add_to(bench_command);
  sweep.add_to(sweep_command);
  CLI::App& plan_command = *app.add_subcommand("plan", "memory of K and V: how much, and how many users fit");
  plan.add_to(plan_command);
  CLI::App& load_command = *app.add_subcommand("load", "a live view of what the server does");
  add_load(load_command, load);
  CLI::App& completion_command = *app.add_subcommand("completion", "a script with which a shell completes commands");
  add_completion(completion_command, shell);
  if (const std::string wrong = wrong_command(app, argc, argv); !wrong.empty()) {
    std::fprintf(stderr, "folio-client: %s\n", wrong.c_str());
    return kExitUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& end) {
    return app.exit(end) == 0 ? 0 : kExitUsage;
  }

  if (completion_command.parsed()) {
    std::printf("%s", bash_completion(app).c_str());
    return kExitOk;
  }
  // A load test whose report nobody reads any more still has its files to write.
  if (bench_command.parsed()) std::signal(SIGPIPE, SIG_IGN);
  silence_grpc();
  Interrupts interrupts;
  try {
    if (generate_command.parsed()) return run_generate(generate, interrupts);
    if (chat_command.parsed()) return run_chat(chat, interrupts);
    if (load_command.parsed()) return run_load(load, interrupts);
    if (sweep_command.parsed()) return run_sweep(sweep, interrupts);
    if (plan_command.parsed()) return run_plan(plan);
    return run_bench(bench, interrupts);
  } catch (const CommandError& failure) {
    std::fprintf(stderr, "folio-client: %s\n", failure.what());
    return failure.exit_code();
  } catch (const std::runtime_error& failure) {
    std::fprintf(stderr, "folio-client: %s\n", failure.what());
    return kExitFailed;
  }
}

}  // namespace

int main(int argc, char** argv) {
  return with_written_output(run(argc, argv));
}
