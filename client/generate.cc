#include "client/generate.h"

#include <atomic>
#include <cstdio>
#include <iostream>
#include <iterator>

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

}  // namespace

int run_generate(const GenerateOptions& options, Interrupts& interrupts) {
  v1::GenerateRequest request;
  options.flags.apply(request);
  request.set_parse_special(options.parse_special);
  if (options.prompt == "-") {
    request.set_text(std::string(std::istreambuf_iterator<char>(std::cin), {}));
  } else {
    request.set_text(options.prompt);
  }

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
  if (options.stats && whole.has_usage()) print_stats(whole);
  if (interrupted.load() != 0) return 128 + interrupted.load();
  if (status.ok()) return kExitOk;
  print_error(status);
  return kExitFailed;
}

}  // namespace folio::client
