#include "client/generate.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "client/failure.h"
#include "client/text.h"

namespace folio::client {
namespace {

// Text of the first answer as it comes; the others follow when all is there, so that lines do not mix.
void print_rest(const v1::GenerateResponse& whole) {
  std::printf("\n");
  for (int i = 1; i < whole.outputs_size(); ++i) {
    std::printf("\n[answer %d]\n", i);
    print_text(whole.outputs(i).text());
    std::printf("\n");
  }
}

constexpr std::size_t kMaxPromptBytes = 64U << 20;  // more than a server takes in a request

// All of it, or a little more than the limit. False: it cannot be read.
bool read_all(std::istream& in, std::string& out) {
  char buffer[1 << 16];
  while (out.size() <= kMaxPromptBytes && (in.read(buffer, sizeof buffer) || in.gcount() > 0)) {
    out.append(buffer, static_cast<std::size_t>(in.gcount()));
  }
  return !in.bad();
}

int refuse(const std::string& why) {
  std::fprintf(stderr, "folio-client: generate: %s\n", why.c_str());
  return kExitUsage;
}

// The prompt, wherever it comes from. An exit code where there is none.
int read_prompt(const GenerateOptions& options, std::string& out) {
  std::string where = "the prompt";
  if (!options.file.empty()) {
    where = "--file " + options.file;
    std::error_code ignored;
    if (std::filesystem::is_directory(options.file, ignored)) return refuse(where + ": is a directory");
    std::ifstream file(options.file, std::ios::binary);
    if (!file || !read_all(file, out)) return refuse(where + ": cannot be read");
  } else if (options.prompt && *options.prompt != "-") {
    out = *options.prompt;
  } else if (!options.prompt && isatty(STDIN_FILENO) != 0) {
    return refuse("no prompt: give it as an argument, with --file, or through the standard input");
  } else {
    where = "the standard input";
    if (!read_all(std::cin, out)) return refuse(where + ": cannot be read");
  }
  if (out.size() > kMaxPromptBytes) return refuse(where + ": is larger than 64 MiB");
  if (const auto bad = first_bad_byte(out)) return refuse(where + ": not UTF-8 at byte " + std::to_string(*bad));
  return kExitOk;
}

}  // namespace

int run_generate(const GenerateOptions& options, Interrupts& interrupts) {
  v1::GenerateRequest request;
  options.flags.apply(request);
  request.set_parse_special(options.parse_special);
  if (const int exit_code = read_prompt(options, *request.mutable_text()); exit_code != kExitOk) return exit_code;

  const auto stub = v1::Generation::NewStub(make_channel(options.connection));
  grpc::ClientContext context;
  options.connection.authorize(context);
  std::atomic<int> interrupted{0};  // by this signal
  interrupts.on_interrupt([&](int signal, int) {
    interrupted.store(signal);
    context.TryCancel();
  });
  const auto reader = stub->GenerateStream(&context, request);
  v1::GenerateResponse whole;
  v1::GenerateChunk chunk;
  while (reader->Read(&chunk)) {
    join(chunk, whole);
    if (options.json) continue;
    for (const v1::Output& output : chunk.outputs()) {
      if (output.index() == 0) print_text(output.text());
    }
  }
  const grpc::Status status = reader->Finish();
  interrupts.on_interrupt(nullptr);

  if (options.json && status.ok()) std::printf("%s\n", to_json(whole).c_str());
  if (!options.json && whole.outputs_size() > 0) print_rest(whole);
  std::fflush(stdout);  // before what goes to the error output
  print_cut(whole);
  if (options.stats && whole.has_usage()) print_stats(whole);
  if (interrupted.load() != 0) return 128 + interrupted.load();
  return status.ok() ? kExitOk : report(status, options.connection, Listener::kGeneration);
}

}  // namespace folio::client
