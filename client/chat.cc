#include "client/chat.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>

namespace folio::client {
namespace {

class Conversation {
 public:
  Conversation(const ChatOptions& options, Interrupts& interrupts)
      : options_(options), stub_(v1::Generation::NewStub(make_channel(options.address))) {
    options.flags.apply(request_);
    if (!options.system.empty()) add("system", options.system);
    interrupts.on_interrupt([this](int) { interrupt(); });
  }

  // One turn. False when it failed: the question is then not part of the history.
  bool ask(const std::string& question) {
    add("user", question);
    grpc::ClientContext context;
    set_current(&context);
    const auto reader = stub_->ChatStream(&context, request_);
    v1::GenerateResponse whole;
    v1::GenerateChunk chunk;
    while (reader->Read(&chunk)) {
      join(chunk, whole);
      if (options_.json) continue;
      for (const v1::Output& output : chunk.outputs()) {
        if (output.index() == 0) print_text(output.text());
      }
    }
    const grpc::Status status = reader->Finish();
    const bool stopped = set_current(nullptr);
    std::printf("%s\n", options_.json ? to_json(whole).c_str() : "");
    std::fflush(stdout);
    if (options_.stats && whole.has_usage()) print_stats(whole);
    if (!status.ok() && !stopped) {
      print_error(status);
      request_.mutable_messages()->RemoveLast();
      return false;
    }
    // What was said before the interruption stays said.
    add("assistant", whole.outputs_size() > 0 ? whole.outputs(0).text() : "");
    return true;
  }

 private:
  void add(const char* role, const std::string& content) {
    v1::ChatMessage& message = *request_.add_messages();
    message.set_role(role);
    message.set_content(content);
  }

  // Whether the previous one was interrupted.
  bool set_current(grpc::ClientContext* context) {
    const std::lock_guard lock(mutex_);
    current_ = context;
    return std::exchange(stopped_, false);
  }

  void interrupt() {  // signal thread
    const std::lock_guard lock(mutex_);
    if (current_ != nullptr) {
      stopped_ = true;
      current_->TryCancel();
    } else {
      std::fprintf(stderr, "\n(/exit or Ctrl-D leaves)\n> ");
    }
  }

  const ChatOptions& options_;
  const std::unique_ptr<v1::Generation::Stub> stub_;
  v1::ChatRequest request_;
  std::mutex mutex_;
  grpc::ClientContext* current_ = nullptr;  // of the answer that is running
  bool stopped_ = false;
};

int converse(Conversation& conversation) {
  int exit_code = kExitOk;
  const bool terminal = isatty(STDIN_FILENO) != 0;
  std::string line;
  while (true) {
    if (terminal) std::fprintf(stderr, "> ");
    if (!std::getline(std::cin, line) || line == "/exit") break;
    if (line.empty()) continue;
    exit_code = conversation.ask(line) ? kExitOk : kExitFailed;
  }
  return exit_code;
}

}  // namespace

int run_chat(const ChatOptions& options, Interrupts& interrupts) {
  Conversation conversation(options, interrupts);
  const int exit_code = options.message.empty()             ? converse(conversation)
                        : conversation.ask(options.message) ? kExitOk
                                                            : kExitFailed;
  interrupts.on_interrupt(nullptr);
  return exit_code;
}

}  // namespace folio::client
