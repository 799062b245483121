// folio-client: generate, chat, bench.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <stdexcept>

#include "client/chat.h"
#include "client/common.h"
#include "client/generate.h"
#include "client/load_test/bench.h"

namespace {

using namespace folio::client;

void add_generate(CLI::App& app, GenerateOptions& options) {
  app.add_option("prompt", options.prompt, "the prompt's text; '-' reads it from the standard input")->required();
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

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("folio-client: talks to a folio-server over gRPC", "folio-client");
  app.set_version_flag("--version", std::string("folio-client ") + FOLIO_VERSION);
  app.require_subcommand(1);
  GenerateOptions generate;
  ChatOptions chat;
  BenchOptions bench;
  SweepOptions sweep;
  CLI::App& generate_command = *app.add_subcommand("generate", "one prompt, one streamed answer");
  CLI::App& chat_command = *app.add_subcommand("chat", "a conversation; Ctrl-C stops an answer, /exit leaves");
  CLI::App& bench_command = *app.add_subcommand("bench", "load test; see also bench sweep --help");
  CLI::App& sweep_command = *bench_command.add_subcommand("sweep", "load tests with more and more load, to the knee");
  add_generate(generate_command, generate);
  add_chat(chat_command, chat);
  bench.add_to(bench_command);
  sweep.add_to(sweep_command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& end) {
    return app.exit(end) == 0 ? 0 : kExitUsage;
  }

  Interrupts interrupts;
  try {
    if (generate_command.parsed()) return run_generate(generate, interrupts);
    if (chat_command.parsed()) return run_chat(chat, interrupts);
    if (sweep_command.parsed()) return run_sweep(sweep, interrupts);
    return run_bench(bench, interrupts);
  } catch (const std::runtime_error& failure) {
    std::fprintf(stderr, "folio-client: %s\n", failure.what());
    return kExitFailed;
  }
}
